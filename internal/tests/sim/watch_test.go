// Clients that watch: one hears messages, one reads after READONLY, one caches what it reads. Each
// relies on what its connection saw before.

package sim

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a connection saw, in the order in which it came.
type sight struct {
	client int
	life   int // the number of the client's connection
	key    string
	value  string
	begin  int64 // in the order of all events
	order  int64 // when it came
}

// published are the messages of one channel.
type published struct {
	op      operation
	refused bool
}

// watchers are the kinds of operations of clients that watch.
var watchers = map[string]func(*client, []string){
	"publish": (*client).publish, "listen": (*client).listen,
	"stale": (*client).stale, "cached": (*client).cached,
}

// prepared sends what a connection begins with, if it is new, and reports whether there is one.
func (c *client) prepared(commands ...[]string) bool {
	if c.conn != nil {
		return true
	}
	c.kept = map[string]string{}
	replies, err := c.call(patience, commands...)
	if err != nil {
		return false
	}
	for _, r := range replies {
		if strings.HasPrefix(r, "-") {
			c.close()
			c.to++
			return false
		}
	}
	c.life++
	return true
}

func (c *client) publish(a []string) { c.send(a[0], a[1]) }

// send publishes a message.
func (c *client) send(channel, value string) published {
	m := published{op: operation{client: c.number, kind: "publish", args: []string{channel, value}}}
	m.op.begin, m.op.beginAt = c.s.now()
	replies, err := c.call(patience, []string{"PUBLISH", channel, value})
	m.op.end, m.op.endAt = c.s.now()
	switch {
	case errors.Is(err, errNotSent):
		m.refused = true
	case err != nil || strings.HasPrefix(replies[0], "-UNKNOWN"):
		m.op.unknown = true
	default:
		m.refused = c.isError("publish", replies[0])
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.messages = append(c.s.messages, m)
	return m
}

// isError reports whether a reply is an error. It must be one after which nothing ran.
func (c *client) isError(kind, reply string) bool {
	if !strings.HasPrefix(reply, "-") {
		return false
	}
	if !slices.ContainsFunc(retryable, func(w string) bool { return strings.HasPrefix(reply, w) }) {
		c.s.violation("client %d: %s: %s", c.number, kind, reply)
	}
	return true
}

// see notes what the connection saw, which it may have asked for.
func (c *client) see(key, value string, asked int64) {
	order, at := c.s.now()
	c.s.trace("%v %d saw %s %s", at, c.number, key, value)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.seen = append(c.s.seen, sight{c.number, c.life, key, value, asked, order})
}

// listen hears the messages of a channel for a time.
func (c *client) listen(a []string) {
	span, err := time.ParseDuration(a[1])
	if err != nil {
		panic(err)
	}
	c.channel = a[0]
	for until := time.Now().Add(span); time.Now().Before(until); {
		if c.prepared([]string{"SUBSCRIBE", c.channel}) {
			c.hear(time.Until(until))
		} else {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// hear returns the next message if it comes in time.
func (c *client) hear(wait time.Duration) string {
	text, ok := c.arrived(wait)
	words := strings.Fields(text)
	if !ok || len(words) != 3 || words[0] != "message" {
		return ""
	}
	c.see(words[1], words[2], 0)
	return words[2]
}

// arrived returns the next reply or push if one comes in time. It ends a connection that is broken.
func (c *client) arrived(wait time.Duration) (string, bool) {
	_ = c.conn.SetReadDeadline(time.Now().Add(wait))
	if _, err := c.in.Peek(1); err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			c.close()
			c.to++
		}
		return "", false
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	text, err := readReply(c.in)
	if err != nil {
		c.close()
		c.to++
	}
	return text, err == nil
}

// stale reads what a node has applied.
func (c *client) stale(a []string) {
	if !c.prepared([]string{"READONLY"}) {
		return
	}
	replies, err := c.call(patience, []string{"GET", a[0]})
	if err == nil && !c.isError("stale", replies[0]) {
		c.see(a[0], replies[0], 0)
	}
}

// cached reads what it has not kept, and forgets what invalidations name.
func (c *client) cached(a []string) {
	if !c.prepared([]string{"HELLO", "3"}, []string{"CLIENT", "TRACKING", "ON"}) {
		return
	}
	c.invalidate(time.Millisecond)
	if _, ok := c.kept[a[0]]; ok || c.conn == nil {
		return
	}
	asked, _ := c.s.now()
	_, err := fmt.Fprintf(c.conn, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(a[0]), a[0])
	for err == nil && c.conn != nil {
		text, ok := c.arrived(patience)
		switch {
		case !ok:
			c.close() // or it would be the reply to the next one
		case c.forget(text):
		case c.isError("cached", text):
			return
		default:
			c.kept[a[0]] = text
			c.see(a[0], text, asked)
			return
		}
	}
	c.close()
}

// invalidate forgets what invalidations name that come in time.
func (c *client) invalidate(wait time.Duration) {
	for c.conn != nil {
		text, ok := c.arrived(wait)
		if !ok {
			return
		}
		c.forget(text)
	}
}

// forget reports whether a push is an invalidation, and forgets what it names.
func (c *client) forget(push string) bool {
	words := strings.Fields(push)
	if len(words) < 2 || words[0] != "invalidate" {
		return false
	}
	for _, key := range words[1:] {
		delete(c.kept, key)
	}
	if words[1] == "(nil)" { // all
		clear(c.kept)
	}
	return true
}

// settleMessages checks that whoever is still connected and subscribed hears a message.
func (s *simulation) settleMessages() {
	for _, c := range s.clients {
		if c.conn == nil || c.channel == "" {
			continue
		}
		publisher := s.addClient(81, 0)
		var last published
		began := time.Now()
		for n := 0; n == 0 || last.refused || last.op.unknown; n++ {
			if time.Since(began) > recovery {
				s.violation("nobody can publish")
				return
			}
			last = publisher.send(c.channel, fmt.Sprint("last", n))
			time.Sleep(100 * time.Millisecond)
		}
		for began := time.Now(); c.conn != nil && c.hear(time.Second) != last.op.args[1]; {
			if time.Since(began) > recovery {
				s.violation("client %d is subscribed and hears nothing", c.number)
				break
			}
		}
	}
}

// settleCaches checks that what is still cached is true, now that nothing changes any more.
func (s *simulation) settleCaches() {
	for _, c := range s.clients {
		if c.conn == nil || len(c.kept) == 0 {
			continue
		}
		keys := make([]string, 0, len(c.kept))
		for k := range c.kept {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		reader := s.addClient(80, 0)
		for _, k := range keys {
			var now string
			for began := time.Now(); time.Since(began) < recovery; {
				c.invalidate(50 * time.Millisecond)
				value, kept := c.kept[k]
				if !kept || c.conn == nil {
					now = value
					break
				}
				replies, err := reader.call(patience, []string{"GET", k})
				if err == nil && !strings.HasPrefix(replies[0], "-") {
					if now = replies[0]; now == value {
						break
					}
				}
			}
			if value, kept := c.kept[k]; kept && c.conn != nil && value != now {
				s.violation("%s: %q is cached, %q is there, and no invalidation came", k, value,
					now)
			}
		}
	}
}

// checkMessages checks the order and completeness of what each subscriber heard.
func (s *simulation) checkMessages(heard []sight) {
	sent := map[string]published{}
	for _, m := range s.messages {
		sent[m.op.args[1]] = m
	}
	times := map[string]int{}
	for i, h := range heard {
		m, ok := sent[h.value]
		if !ok || m.refused || m.op.begin > h.order {
			s.violation("message %q was heard, and not published: %+v", h.value, m)
			return
		}
		if times[h.value]++; times[h.value] > 1 {
			s.violation("message %q was heard twice", h.value)
		}
		for _, before := range heard[:i] {
			if b := sent[before.value]; !m.op.unknown && m.op.end < b.op.begin {
				s.violation("message %q was heard after %q", h.value, before.value)
			}
		}
	}
	for _, m := range s.messages {
		if m.refused || m.op.unknown || times[m.op.args[1]] > 0 {
			continue
		}
		after, before := false, false
		for _, h := range heard {
			other := sent[h.value]
			after = after || !other.op.unknown && other.op.end < m.op.begin
			before = before || other.op.begin > m.op.end
		}
		if after && before {
			s.violation("message %q is missing among %v", m.op.args[1], heard)
		}
	}
}

// checkReads checks that a connection sees a counter rise, and nothing that nobody had begun.
func (s *simulation) checkReads(reads []sight) {
	last := 0
	for _, r := range reads {
		n, err := strconv.Atoi(strings.Replace(r.value, "(nil)", "0", 1))
		if err != nil {
			s.violation("%s: %q", r.key, r.value)
			return
		}
		begun := 0
		ended := 0 // before the read, which waits for those
		for _, o := range s.history {
			if o.kind != "incr" || o.args[0] != r.key {
				continue
			}
			if o.begin < r.order {
				begun++
			}
			if !o.unknown && o.end < r.begin {
				ended++
			}
		}
		if n < max(last, ended) || n > begun {
			s.violation("client %d saw %d in %s, after %d, of %d to %d", r.client, n, r.key, last,
				ended, begun)
		}
		last = n
	}
}

// checkSights checks what each connection saw of each channel and key.
func (s *simulation) checkSights() {
	type of struct {
		client, life int
		key          string
	}
	var order []of
	all := map[of][]sight{}
	for _, v := range s.seen {
		k := of{v.client, v.life, v.key}
		if all[k] == nil {
			order = append(order, k)
		}
		all[k] = append(all[k], v)
	}
	for _, k := range order {
		if strings.HasPrefix(k.key, "channel") {
			s.checkMessages(all[k])
		} else {
			s.checkReads(all[k])
		}
	}
}

// TestChecksOfSightsBite shows the checks what is slightly wrong.
func TestChecksOfSightsBite(t *testing.T) {
	message := func(value string, begin, end int64) published {
		return published{op: operation{args: []string{"channel", value}, begin: begin, end: end}}
	}
	lost := message("lost", 41, 42)
	lost.op.unknown = true
	no := message("no", 51, 52)
	no.refused = true
	saw := func(key string, values ...string) (all []sight) {
		for i, v := range values {
			all = append(all, sight{key: key, value: v, order: 60 + int64(i)})
		}
		return all
	}
	incr := operation{kind: "incr", args: []string{"counter"}, begin: 1, end: 2}
	late := saw("counter", "1")
	late[0].begin = 3
	for _, x := range []struct {
		seen []sight
		want int // violations
	}{
		{saw("channel", "a", "b", "c"), 0},
		{saw("channel", "b", "c"), 0},
		{saw("channel", "c", "lost"), 0},
		{saw("channel", "b", "lost"), 1},
		{saw("channel", "a", "c"), 1},
		{saw("channel", "a", "a"), 1},
		{saw("channel", "b", "a"), 1},
		{saw("channel", "no"), 1},
		{saw("channel", "other"), 1},
		{saw("counter", "(nil)", "1", "1", "2"), 0},
		{saw("counter", "2", "1"), 1},
		{saw("counter", "1", "(nil)"), 1},
		{saw("counter", "3"), 1},
		{saw("counter", "x"), 1},
		{late, 1}, // two have ended
	} {
		s := &simulation{seen: x.seen, history: []operation{incr, incr}, messages: []published{
			message("a", 11, 12), message("b", 21, 22), message("c", 31, 32), lost, no}}
		s.checkSights()
		if len(s.violations) != x.want {
			t.Errorf("%+v: %q", x.seen, s.violations)
		}
	}
}
