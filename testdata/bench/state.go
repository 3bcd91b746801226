package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// alone measures servers that have just started, and stops them.
func alone(of serverOf, m func(*servers, *target) (outcome, error)) measurement {
	return func(s *servers, _ time.Duration) (o outcome, err error) {
		t, err := of(s)
		if err != nil {
			return o, err
		}
		s.stop(t.of)
		if t, err = of(s); err != nil {
			return o, err
		}
		defer s.stop(t.of)
		return m(s, t)
	}
}

// settle is how long a server has to finish what a load left.
const settle = 3 * time.Second

const (
	million     = 1_000_000
	fillClients = 10
	fillChunk   = 100 // requests in flight per client
)

// fill sends n requests, as fast as they are served.
func fill(t *target, n int, request func(i int) []string) error {
	l, err := newLoop()
	if err != nil {
		return err
	}
	defer l.close()
	sent, answered := 0, 0
	for range fillClients {
		c, err := l.dial(t.port)
		if err != nil {
			return err
		}
		var b []byte
		left := 0
		next := func() {
			b = b[:0]
			for ; left < fillChunk && sent < n; left++ {
				b = resp.AppendCommand(b, request(sent)...)
				sent++
			}
			if left > 0 {
				c.send(b)
			}
		}
		c.reply = func(reply []byte) {
			c.mustSucceed(reply)
			answered++
			if left--; left == 0 {
				next()
			}
		}
		next()
	}
	return l.run(func() bool { return answered == n })
}

func manyLocks(i int) []string {
	return []string{"SET", "lock:" + strconv.Itoa(million+i), "0123456789abcdef", "NX", "PX",
		"3600000"}
}

// memoryPerKey measures the resident bytes of a lock with a deadline, on the leader.
func memoryPerKey(of serverOf) measurement {
	return growth(of, million, func(t *target) (release func(), err error) {
		return func() {}, fill(t, million, manyLocks)
	})
}

// growth measures the resident bytes that each of n things adds, some time after add.
func growth(of serverOf, n int, add func(*target) (release func(), err error)) measurement {
	return alone(of, func(_ *servers, t *target) (o outcome, err error) {
		before, err := t.resident()
		if err != nil {
			return o, err
		}
		release, err := add(t)
		if err != nil {
			return o, err
		}
		defer release()
		time.Sleep(settle)
		after, err := t.resident()
		return outcome{value: float64(after-before) / float64(n)}, err
	})
}

// massExpiry measures the longest wait of a client's SETs while a million locks end within a
// second, and shortly after.
func massExpiry(of serverOf) measurement {
	return alone(of, func(_ *servers, t *target) (o outcome, err error) {
		const filling = 25 * time.Second
		end := time.Now().Add(filling)
		err = fill(t, million, func(i int) []string {
			ends := end.Add(time.Duration(i) * time.Second / million).UnixMilli()
			return []string{"SET", "lock:" + strconv.Itoa(i), "0123456789abcdef", "NX", "PXAT",
				strconv.FormatInt(ends, 10)}
		})
		switch {
		case err != nil:
			return o, err
		case time.Now().After(end):
			return o, fmt.Errorf("filling took longer than %v", filling)
		}
		time.Sleep(time.Until(end.Add(-200 * time.Millisecond)))
		l, err := newLoop()
		if err != nil {
			return o, err
		}
		defer l.close()
		m := &meter{on: true}
		if err := freshLocks(1, 1).begin(l, t, m); err != nil {
			return o, err
		}
		if err := l.runFor(settle); err != nil {
			return o, err
		}
		return outcome{value: milliseconds(slices.Max(m.waits))}, nil
	})
}

// restart measures the time from starting three killed nodes with a million keys until one of them
// answers: from the log, or from a snapshot.
func restart(snapshot bool) measurement {
	return alone(three, func(s *servers, t *target) (o outcome, err error) {
		if err := fill(t, million, manyLocks); err != nil {
			return o, err
		}
		if snapshot {
			for _, n := range t.of.nodes {
				if v, err := call(n.port, "RAFT", "SNAPSHOT"); err != nil || v.IsError() {
					return o, fmt.Errorf("RAFT SNAPSHOT: %v, %w", v, err)
				}
			}
		}
		t.of.kill()
		begin := time.Now()
		if err := s.start(t.of); err != nil {
			return o, err
		}
		newest := manyLocks(million - 1)[1]
		answered := within(time.Minute, func() bool {
			v, err := call(t.port, "EXISTS", newest)
			return err == nil && v.Text == "1"
		})
		if !answered {
			return o, errors.New("the newest lock is missing")
		}
		return outcome{value: time.Since(begin).Seconds()}, nil
	})
}

const idlers = 5000

// idleConnection measures the resident bytes of a connection that has sent one request.
func idleConnection(of serverOf) measurement {
	return growth(of, idlers, func(t *target) (release func(), err error) {
		l, err := newLoop()
		if err != nil {
			return nil, err
		}
		if err := l.dialMany(idlers, t.port, "PING"); err != nil {
			l.close()
			return nil, err
		}
		return l.close, nil
	})
}

// dialMany makes connections that send a command, and waits for the replies.
func (l *loop) dialMany(n int, port string, words ...string) error {
	answered := 0
	for range n {
		c, err := l.dial(port)
		if err != nil {
			return err
		}
		c.reply = func(reply []byte) {
			c.mustSucceed(reply)
			answered++
		}
		c.send(resp.AppendCommand(nil, words...))
	}
	return l.run(func() bool { return answered == n })
}

// fanOut measures the time from PUBLISH until the last of 5,000 subscribers has the message.
func fanOut(of serverOf) measurement {
	return func(s *servers, _ time.Duration) (o outcome, err error) {
		t, err := of(s)
		if err != nil {
			return o, err
		}
		l, err := newLoop()
		if err != nil {
			return o, err
		}
		defer l.close()
		if err := l.dialMany(idlers, t.port, "SUBSCRIBE", "news"); err != nil {
			return o, err
		}
		received := 0
		for _, c := range l.conns {
			c.reply = func([]byte) { received++ }
		}
		publisher, err := l.dial(t.port)
		if err != nil {
			return o, err
		}
		var waits []float64
		for range 20 {
			received = 0
			begin := time.Now()
			publisher.send(resp.AppendCommand(nil, "PUBLISH", "news", "hello"))
			if err := l.run(func() bool { return received == idlers }); err != nil {
				return o, err
			}
			waits = append(waits, milliseconds(time.Since(begin)))
		}
		return outcome{value: median(waits)}, nil
	}
}

// availableMemory returns the bytes that Linux can give to processes.
func availableMemory() (bytes int) {
	b, _ := os.ReadFile("/proc/meminfo")
	_, rest, _ := strings.Cut(string(b), "MemAvailable:")
	_, _ = fmt.Sscan(rest, &bytes)
	return bytes << 10
}
