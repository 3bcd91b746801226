package main

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// outcome is what one run of a load measured.
type outcome struct {
	value float64         // what is compared: of a load, what it counts per second
	waits []time.Duration // for replies; sorted
	// the longest wait of those that ended within each window
	longest []time.Duration
	cpu     time.Duration // processor time of all server processes per request
	own     time.Duration // and of the one that the clients were connected to
	busy    float64       // share of the machine's processor time that was not idle
}

// wait returns a quantile of the waits.
func (o *outcome) wait(q float64) time.Duration {
	if len(o.waits) == 0 {
		return 0
	}
	return o.waits[min(int(q*float64(len(o.waits))), len(o.waits)-1)]
}

// load is a way to ask a server for work.
type load interface {
	// begin connects clients to t. They tell m what is done.
	begin(l *loop, t *target, m *meter) error
}

// warmUp precedes every measurement: scripts, estimates and connections are known then.
const warmUp = 500 * time.Millisecond

// measure runs a load on an empty database.
func measure(ld load, t *target, d time.Duration) (o outcome, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", t.name, err)
		}
	}()
	if err := t.do([]string{"FLUSHALL"}); err != nil {
		return o, err
	}
	l, err := newLoop()
	if err != nil {
		return o, err
	}
	defer l.close()
	m := &meter{}
	if err := ld.begin(l, t, m); err != nil {
		return o, err
	}
	if err := l.runFor(warmUp); err != nil {
		return o, err
	}
	all, own := t.cpu()
	start, idle := time.Now(), idleTime()
	m.on, m.start = true, start
	if err := l.runFor(d); err != nil {
		return o, err
	}
	took, idled := time.Since(start), idleTime()-idle
	allNow, ownNow := t.cpu()
	slices.Sort(m.waits)
	return outcome{
		value:   float64(m.count) / took.Seconds(),
		waits:   m.waits,
		longest: m.longest,
		cpu:     (allNow - all) / time.Duration(max(m.count, 1)),
		own:     (ownNow - own) / time.Duration(max(m.count, 1)),
		busy:    1 - idled.Seconds()/took.Seconds()/float64(runtime.NumCPU()),
	}, nil
}

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// idleTime returns how long the machine's processors have been idle, all together.
func idleTime() (sum time.Duration) {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	if fields := strings.Fields(line); len(fields) > 5 {
		for _, f := range fields[4:6] { // idle, and idle while something waits for a disk
			n, _ := strconv.Atoi(f)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// meter counts what is done while it is on.
type meter struct {
	on      bool
	start   time.Time
	count   int
	waits   []time.Duration
	longest []time.Duration
}

// window is the resolution in time of the longest waits.
const window = 100 * time.Millisecond

// done notes that something has ended that began at a time.
func (m *meter) done(began time.Time) {
	if !m.on {
		return
	}
	now := time.Now()
	took := now.Sub(began)
	m.count++
	m.waits = append(m.waits, took)
	if m.start.IsZero() {
		return
	}
	at := int(now.Sub(m.start) / window)
	for len(m.longest) <= at {
		m.longest = append(m.longest, 0)
	}
	m.longest[at] = max(m.longest[at], took)
}

// closedLoop is a number of clients, each of which sends a pipeline of requests, and the next one
// when all are answered.
type closedLoop struct {
	clients, pipeline int
	setup             [][]string
	// request is the n-th of a client.
	request func(client, n int) []string
	behind  []string // sent behind each request, which has ended when both are answered; nil: none
}

func (ld closedLoop) begin(l *loop, t *target, m *meter) error {
	if err := t.do(ld.setup...); err != nil {
		return err
	}
	for i := range ld.clients {
		c, err := l.dial(t.port)
		if err != nil {
			return err
		}
		var b []byte
		var sent time.Time
		n, left := 0, 0
		next := func() {
			b = b[:0]
			for left < ld.pipeline {
				b = resp.AppendCommand(b, ld.request(i, n)...)
				if ld.behind != nil {
					b = resp.AppendCommand(b, ld.behind...)
				}
				n++
				left++
			}
			sent = time.Now()
			c.send(b)
		}
		first := ld.behind != nil
		c.reply = func(reply []byte) {
			c.mustSucceed(reply)
			if first {
				first = false
				return
			}
			first = ld.behind != nil
			m.done(sent)
			if left--; left == 0 {
				next()
			}
		}
		next()
	}
	return nil
}

// mustSucceed ends the load if a reply is an error.
func (c *conn) mustSucceed(reply []byte) {
	if reply[0] == resp.Error {
		c.l.fail(fmt.Errorf("%s", reply))
	}
}

// openLoop takes locks at a rate, whether earlier requests are answered or not. A wait begins when
// a request is due.
type openLoop struct {
	clients   int
	rate      float64 // locks per second
	keys      int     // besides
	meanwhile func()  // in a goroutine of its own, once the keys are there; nil: nothing
	failed    *int    // counts the replies that are errors; nil: one ends the load
}

func (ld openLoop) begin(l *loop, t *target, m *meter) error {
	if err := fill(t, ld.keys, manyLocks); err != nil {
		return err
	}
	if ld.meanwhile != nil {
		go ld.meanwhile()
	}
	type client struct {
		*conn
		due []time.Time // of the requests that are not answered
	}
	clients := make([]client, ld.clients)
	for i := range clients {
		c, err := l.dial(t.port)
		if err != nil {
			return err
		}
		clients[i].conn = c
		c.reply = func(reply []byte) {
			if ld.failed == nil {
				c.mustSucceed(reply)
			} else if reply[0] == resp.Error {
				*ld.failed++
			}
			m.done(clients[i].due[0])
			clients[i].due = clients[i].due[1:]
		}
	}
	begin, n := time.Now(), 0
	due := func() time.Time {
		return begin.Add(time.Duration(float64(n) / ld.rate * float64(time.Second)))
	}
	var b []byte
	var send func()
	send = func() {
		for ; !time.Now().Before(due()); n++ {
			c := &clients[n%len(clients)]
			c.due = append(c.due, due())
			b = resp.AppendCommand(b[:0], freshLock(n%len(clients), n)...)
			c.send(b)
		}
		l.at(due(), send)
	}
	send()
	return nil
}

// hotLock is a lock that all clients want. It counts handovers. A client that fails tries again
// when the holder has published that it released the lock, or after poll. The holder itself leaves
// the lock to others once.
type hotLock struct {
	clients int
	poll    time.Duration // 0: by subscription
}

const (
	lockName    = "hot"
	channelName = "hot:released"
)

func (ld hotLock) begin(l *loop, t *target, m *meter) error {
	if err := t.do([]string{"SCRIPT", "LOAD", string(releaseAndTell)}); err != nil {
		return err
	}
	var taken time.Time // by the newest holder
	for i := range ld.clients {
		c, err := l.dial(t.port)
		if err != nil {
			return err
		}
		owner := strconv.Itoa(i)
		try := resp.AppendCommand(nil, "SET", lockName, owner, "NX", "PX", "30000")
		release := resp.AppendCommand(nil, "EVALSHA", releaseAndTell.sha(), "2", lockName,
			channelName, owner)
		var (
			holds   bool
			waiting bool // for a message or the next poll
			told    bool // there was a message since the newest try
			own     bool // the next message is of this client's release
		)
		tryAgain := func() {
			waiting, told = false, false
			c.send(try)
		}
		wait := func() {
			switch {
			case ld.poll > 0:
				l.at(time.Now().Add(ld.poll), tryAgain)
			case told:
				tryAgain()
			default:
				waiting = true
			}
		}
		c.reply = func(reply []byte) {
			c.mustSucceed(reply)
			if !holds && reply[0] == resp.Status {
				m.done(taken)
				holds, own, taken = true, true, time.Now()
				c.send(release)
				return
			}
			holds = false
			wait()
		}
		if ld.poll > 0 {
			tryAgain()
			continue
		}
		s, err := l.dial(t.port)
		if err != nil {
			return err
		}
		subscribed := false
		s.reply = func([]byte) {
			switch {
			case !subscribed:
				subscribed = true
				tryAgain()
			case own:
				own = false
			case waiting:
				tryAgain()
			default:
				told = true
			}
		}
		s.send(resp.AppendCommand(nil, "SUBSCRIBE", channelName))
	}
	return nil
}

// queuedLock is a lock that all clients queue for, as hotLock counts it.
type queuedLock struct{ clients int }

func (ld queuedLock) begin(l *loop, t *target, m *meter) error {
	var taken time.Time // by the newest holder
	for i := range ld.clients {
		c, err := l.dial(t.port)
		if err != nil {
			return err
		}
		owner := strconv.Itoa(i)
		wait := resp.AppendCommand(nil, "LOCK.ACQUIRE", lockName, owner, "PX", "30000", "WAIT", "0")
		release := resp.AppendCommand(nil, "LOCK.RELEASE", lockName, owner)
		c.reply = func(reply []byte) {
			c.mustSucceed(reply)
			if reply[0] != resp.Array {
				c.send(wait)
				return
			}
			m.done(taken)
			taken = time.Now()
			c.send(release)
		}
		c.send(wait)
	}
	return nil
}

// script is the source of a script.
type script string

func (s script) sha() string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}
