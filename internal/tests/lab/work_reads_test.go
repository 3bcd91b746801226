//go:build linux

// What single connections see: messages, invalidations of caches, reads after READONLY; and that
// what was acknowledged stays.

package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// raise sets a number if it is larger: a call without a known outcome may run later than the next.
const raise = `
if tonumber(redis.call("get", KEYS[1]) or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call("set", KEYS[1], ARGV[1])
return 1`

// raised sets a key to a larger number than before, as the only client that does.
func (a *actor) raised(key string) *event {
	n := fmt.Sprint(a.turn + 1)
	return a.do(call{key: key, op: "raise", args: []string{n},
		ask: command("EVAL", raise, 1, key, n)})
}

// heard are the numbers of messages that one connection got.
type heard []int

// channels has one client that publishes numbers, and others that listen.
type channels struct {
	mu        sync.Mutex
	published map[int]outcome
	heard     []*heard
}

func messages(*work) player { return &channels{published: map[int]outcome{}} }

const channel = "{messages}"

func (c *channels) turn(a *actor) {
	if a.seat == 0 {
		e := a.do(call{key: channel, op: "publish", args: []string{fmt.Sprint(a.turn)},
			ask: command("PUBLISH", channel, a.turn)})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.published[a.turn] = e.What
		return
	}
	if a.conn == nil {
		if !a.connect() {
			return
		}
		if !a.subscribed(channel) {
			a.disconnect()
			return
		}
		h := &heard{}
		a.mem = h
		c.mu.Lock()
		c.heard = append(c.heard, h)
		c.mu.Unlock()
	}
	if c.hear(a, 20*time.Millisecond) > 0 {
		a.note(nil, a.run.now())
	}
}

// subscribed subscribes the connection, and reports whether the node has confirmed that.
func (a *actor) subscribed(channel string) bool {
	if _, err := a.conn.Write(resp.AppendCommand(nil, "SUBSCRIBE", channel)); err != nil {
		return false
	}
	select {
	case <-a.conn.pushes:
		return true
	case <-a.conn.replies: // an error
	case <-a.conn.broken:
	case <-time.After(replyLimit):
	}
	return false
}

// hear returns the next message, 0 if none comes in time.
func (c *channels) hear(a *actor, wait time.Duration) int {
	select {
	case v := <-a.conn.pushes:
		if n, err := strconv.Atoi(v.Elems[2].Text); err == nil && v.Elems[0].Text == "message" {
			c.mu.Lock()
			defer c.mu.Unlock()
			h := a.mem.(*heard)
			*h = append(*h, n)
			return n
		}
	case <-a.conn.broken:
		a.disconnect()
	case <-time.After(wait):
	}
	return 0
}

// last publishes a message that comes to whoever is still subscribed.
func (c *channels) last(w *work) {
	for _, a := range w.actors {
		if a.seat == 0 || a.conn == nil {
			continue
		}
		n := len(c.published)
		if err := w.admin.Publish(context.Background(), channel, n).Err(); err != nil {
			w.problem("publishing the last message: %v", err)
			return
		}
		c.published[n] = acked
		for began := time.Now(); a.conn != nil && c.hear(a, time.Second) != n; {
			if time.Since(began) > equalLimit/3 {
				if _, err := a.conn.call("PING"); err == nil { // else the node knows no such client
					w.problem("client %d is subscribed and hears nothing", a.id)
				}
				break
			}
		}
	}
}

// judge: on one connection numbers rise without a gap, and go on to come.
func (c *channels) judge(w *work) {
	c.last(w)
	for _, h := range c.heard {
		times := map[int]int{}
		var certainly heard
		for _, n := range *h {
			times[n]++
			switch c.published[n] {
			case acked:
				certainly = append(certainly, n)
			case unknown:
			default:
				w.problem("message %d was %q and came all the same", n, c.published[n])
			}
			if times[n] > 1 {
				w.problem("message %d came %d times", n, times[n])
			}
		}
		if !slices.IsSorted(certainly) {
			w.problem("messages came in the order %v", certainly)
		}
		if len(certainly) == 0 {
			continue
		}
		for n := certainly[0]; n < certainly[len(certainly)-1]; n++ {
			if c.published[n] == acked && times[n] == 0 {
				w.problem("message %d is missing after %d and before %d", n, certainly[0],
					certainly[len(certainly)-1])
			}
		}
	}
}

const numberKeys = 4 // of caches and stale reads

// cached is what one connection keeps of what it read.
type cached struct {
	last map[string]int // the newest that it read
	kept map[string]int // what no invalidation has come for
}

// cachers have one client that writes and others with CLIENT TRACKING, one of them after READONLY.
type cachers struct {
	mu     sync.Mutex
	actors []*actor
	// when the write of a number had certainly run
	written  map[string]map[int]time.Duration
	patience time.Duration // with an invalidation, in the end
}

func caches(*work) player {
	return &cachers{written: map[string]map[int]time.Duration{}, patience: equalLimit / 3}
}

func (c *cachers) turn(a *actor) {
	key := fmt.Sprintf("{caches}:%d", a.rnd.IntN(numberKeys))
	if a.seat == 0 {
		e := a.raised(key)
		if e.What == acked {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.written[key] == nil {
				c.written[key] = map[int]time.Duration{}
			}
			c.written[key][a.turn+1] = e.Return
		}
		return
	}
	if a.conn == nil {
		prepare := [][]string{{"CLIENT", "TRACKING", "ON"}}
		if a.seat == 1 {
			prepare = append(prepare, []string{"READONLY"})
		}
		if !a.connect(prepare...) {
			return
		}
		a.mem = &cached{last: map[string]int{}, kept: map[string]int{}}
		c.mu.Lock()
		if !slices.Contains(c.actors, a) {
			c.actors = append(c.actors, a)
		}
		c.mu.Unlock()
	}
	m := a.mem.(*cached)
	m.invalidate(a.conn)
	if _, kept := m.kept[key]; !kept {
		c.read(a, m, key)
	}
}

// invalidate forgets what invalidations name that have come.
func (m *cached) invalidate(k *conn) {
	for {
		select {
		case v := <-k.pushes:
			if len(v.Elems) < 2 || v.Elems[0].Text != "invalidate" {
				continue
			}
			if len(v.Elems[1].Elems) == 0 {
				clear(m.kept)
			}
			for _, key := range v.Elems[1].Elems {
				delete(m.kept, key.Text)
			}
		default:
			return
		}
	}
}

func (c *cachers) read(a *actor, m *cached, key string) {
	call := a.run.now()
	v, err := a.conn.call("GET", key)
	if a.note(err, a.run.now()) != acked {
		a.disconnect()
		return
	}
	n, _ := strconv.Atoi(v.Text)
	c.check(a, m, key, n, call)
	// One that came before the reply costs the cache only this read, one after it must not be lost.
	m.last[key], m.kept[key] = n, n
	m.invalidate(a.conn)
}

// check compares what was read with what the client knows, and what others had written before it.
func (c *cachers) check(a *actor, m *cached, key string, n int, call time.Duration) {
	if n < m.last[key] {
		a.problem("%s was %d and then, after an invalidation, %d", key, m.last[key], n)
	}
	if a.seat == 1 {
		return // after READONLY
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, at := range c.written[key] {
		if at < call && other > n {
			a.problem("%s was %d at %v, but %d was written at %v", key, n, call, other, at)
		}
	}
}

// judge: what a client still keeps is what the key holds.
func (c *cachers) judge(w *work) {
	for _, a := range c.actors {
		if a.conn == nil {
			continue
		}
		m := a.mem.(*cached)
		var wrong string
		if !await(c.patience, func() bool {
			if _, err := a.conn.call("PING"); err != nil {
				return true // the cache is dropped with the connection
			}
			m.invalidate(a.conn)
			wrong = ""
			for key, n := range m.kept {
				v, err := w.admin.Get(context.Background(), key).Result()
				if now, _ := strconv.Atoi(v); now != n || err != nil && n > 0 {
					wrong = fmt.Sprintf("%s: %d is cached, %q (%v) is there", key, n, v, err)
				}
			}
			return wrong == ""
		}) {
			w.problem("no invalidation came for %s", wrong)
		}
	}
}

// seen is a read: the value, and when it had certainly happened.
type seen struct {
	n  int
	at time.Duration
}

// stale has one client that writes and reads, and others that read after READONLY.
type stale struct {
	mu    sync.Mutex
	reads map[string][]seen // after READONLY
}

func staleReads(*work) player { return &stale{reads: map[string][]seen{}} }

func (s *stale) turn(a *actor) {
	key := fmt.Sprintf("{stale}:%d", a.rnd.IntN(numberKeys))
	switch {
	case a.seat == 0 && a.turn%2 == 0:
		a.raised(key)
		return
	case a.seat == 0:
		a.do(call{key: key, op: "get", reads: true, ask: command("GET", key)})
		return
	case a.conn == nil:
		if !a.connect([]string{"READONLY"}) {
			return
		}
		a.mem = map[string]int{}
	}
	v, err := a.conn.call("GET", key)
	if a.note(err, a.run.now()) != acked {
		a.disconnect()
		return
	}
	n, _ := strconv.Atoi(v.Text)
	last := a.mem.(map[string]int)
	if n < last[key] {
		a.problem("after READONLY %s was %d and then, on the same connection, %d", key, last[key],
			n)
	}
	last[key] = n
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads[key] = append(s.reads[key], seen{n, a.run.now()})
}

// judge: what a follower showed was written, and nobody reads less later.
func (s *stale) judge(w *work) {
	began := map[string]map[int]time.Duration{}
	for _, e := range w.events {
		if e.Op != "raise" {
			continue
		}
		n, _ := strconv.Atoi(e.Args[0])
		if began[e.Key] == nil {
			began[e.Key] = map[int]time.Duration{}
		}
		began[e.Key][n] = e.Call
	}
	largest := map[string][]seen{} // by time, and rising
	for key, reads := range s.reads {
		slices.SortFunc(reads, func(a, b seen) int { return int(a.at - b.at) })
		for _, r := range reads {
			if at, sent := began[key][r.n]; r.n != 0 && (!sent || at > r.at) {
				w.problem("a follower showed %d in %s at %v, which nobody had written", r.n, key,
					r.at)
			}
			if so := largest[key]; len(so) == 0 || so[len(so)-1].n < r.n {
				largest[key] = append(so, r)
			}
		}
	}
	for _, e := range w.events {
		n, _ := strconv.Atoi(e.Reply)
		if e.Op != "get" || e.What != acked {
			continue
		}
		for _, r := range largest[e.Key] {
			if r.at < e.Call && r.n > n {
				w.problem("a follower showed %d in %s at %v, and later it was %v", r.n, e.Key,
					r.at, e)
			}
		}
	}
}

// kept are keys whose writes were acknowledged, which must be there for ever.
type kept struct {
	mu   sync.Mutex
	keys []string
}

func keptWrites(*work) player { return &kept{} }

func (k *kept) turn(a *actor) {
	key := fmt.Sprintf("kept:%d:%d", a.seat, a.turn)
	if a.do(call{key: key, op: "set", ask: command("SET", key, 1)}).What == acked {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.keys = append(k.keys, key)
	}
}

func (k *kept) judge(w *work) {
	for chunk := range slices.Chunk(k.keys, 1000) {
		if n, err := w.admin.Exists(context.Background(), chunk...).Result(); err != nil ||
			int(n) != len(chunk) {
			w.problem("%d of %d acknowledged writes are missing, %v", len(chunk)-int(n),
				len(chunk), err)
		}
	}
}
