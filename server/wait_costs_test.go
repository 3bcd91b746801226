// Tests of the cost of waiting and tracking: a change costs what changed, however many keys a
// client has, and tables are bounded.

package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// A command that waits for very many keys retries only with the changed ones, and leaves nothing
// behind.
func TestWaitingForManyKeys(t *testing.T) {
	n := start(t, nil)
	n.fake.restart(commands.LevelFirst) // where commands wait on their nodes
	main := n.dial(t)
	const many = 20_000
	words := []string{"BLPOP"}
	for i := range many {
		words = append(words, fmt.Sprint("key", i))
	}
	c := n.popping(t, append(words, "0")...)
	n.waitQueues.mu.Lock()
	if got := len(n.waitQueues.byKey); got != many {
		t.Errorf("it waits for %d keys", got)
	}
	n.waitQueues.mu.Unlock()
	waiting := n.sessionOf(c)
	if got := waiting.memory.parts[memoryKeys].Load(); got < many*waitedKeyCost ||
		got > many*(waitedKeyCost+argCost+32) {
		t.Errorf("its account has %d bytes for %d keys", got, many)
	}
	main.call("SET", "key7", "no list")
	main.call("DEL", "key7")
	main.call("RPUSH", "key9", "x")
	c.want("*2\r\n$4\r\nkey9\r\n$1\r\nx\r\n")
	n.fake.mu.Lock()
	if got := len(n.fake.lastBatch); got > 200 {
		t.Errorf("the last try is a request of %d bytes", got)
	}
	n.fake.mu.Unlock()
	n.idle(t)
	if got := waiting.memory.parts[memoryKeys].Load(); got != 0 {
		t.Errorf("its account still has %d bytes", got)
	}
}

// Every command that waits for several keys finds new elements, with the changed keys alone, and
// with all keys after a change that names none.
func TestRetriesWithTheChangedKeys(t *testing.T) {
	for _, x := range []struct{ wait, push, reply string }{
		{"BLPOP a b c 0", "RPUSH b x", "*2\r\n$1\r\nb\r\n$1\r\nx\r\n"},
		{"BRPOP a b c 0", "RPUSH c x", "*2\r\n$1\r\nc\r\n$1\r\nx\r\n"},
		{"BZPOPMIN a b c 0", "ZADD b 1 x", "*3\r\n$1\r\nb\r\n$1\r\nx\r\n$1\r\n1\r\n"},
		{"BZPOPMAX a b c 0", "ZADD a 1 x", "*3\r\n$1\r\na\r\n$1\r\nx\r\n$1\r\n1\r\n"},
		{"BLMPOP 0 3 a b c LEFT COUNT 2", "RPUSH b x", "*2\r\n$1\r\nb\r\n*1\r\n$1\r\nx\r\n"},
		{"BZMPOP 0 3 a b c MIN", "ZADD c 1 x",
			"*2\r\n$1\r\nc\r\n*1\r\n*2\r\n$1\r\nx\r\n$1\r\n1\r\n"},
		{"BLMOVE a b LEFT LEFT 0", "RPUSH a x", "$1\r\nx\r\n"},
		{"XREAD BLOCK 0 STREAMS a b c $ $ $", "XADD b 1-1 f v",
			"*1\r\n*2\r\n$1\r\nb\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"},
	} {
		for _, how := range []string{"one key", "any key"} {
			n := start(t, nil)
			main := n.dial(t)
			c := n.popping(t, strings.Fields(x.wait)...)
			if how == "any key" {
				n.fake.set(func() { n.fake.wants = nil })
			}
			main.call(strings.Fields(x.push)...)
			if how == "any key" {
				n.Deliver([]commands.Event{{Kind: commands.DBChanged}})
			}
			if got := c.next(); got != x.reply {
				t.Errorf("%s, %s: %q", x.wait, how, got)
			}
			n.idle(t)
		}
	}
}

// XREADGROUP too, and a change of one stream does not wake the waiters of others forever: skipped
// keys are retried later.
func TestGroupsWaitForSeveralStreams(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	for _, key := range []string{"a", "b"} {
		main.call("XGROUP", "CREATE", key, "g", "$", "MKSTREAM")
	}
	c := n.popping(t, "XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "a", "b", ">", ">")
	main.call("XADD", "b", "1-1", "f", "v")
	c.want("*1\r\n*2\r\n$1\r\nb\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n")
	c = n.popping(t, "XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "a", "b", ">", ">")
	main.call("DEL", "b")
	c.want("-UNBLOCKED the stream key no longer exists\r\n")
	n.idle(t)
}

// Changes during attempts without a leader stay due, however often that repeats.
func TestKeysThatChangedAreOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.fake.restart(commands.LevelFirst) // where commands wait on their nodes
		c := n.popping(t, "BLPOP", "a", "b", "c", "0")
		n.fake.set(func() {
			n.fake.fail, n.fake.calls = &Error{NoLeader, "CLUSTERDOWN not now"}, nil
		})
		for i, key := range []string{"c", "b"} {
			n.fake.set(func() {
				q := commandOf("RPUSH", key, "x")
				q.Proto = 2
				batch := commands.AppendRequest(nil, &q)
				if _, err := n.fake.apply(batch); err != nil {
					t.Error(err)
				}
			})
			eventually(t, "a try", func() bool {
				n.fake.mu.Lock()
				defer n.fake.mu.Unlock()
				return len(n.fake.calls) > i
			})
		}
		n.fake.set(func() { n.fake.fail = nil })
		c.want("*2\r\n$1\r\nb\r\n$1\r\nx\r\n")
		if got := c.call("LLEN", "c"); got != ":1\r\n" {
			t.Errorf("%q", got)
		}
		n.idle(t)
	})
}

// All of many readers of one stream are woken.
func TestManyReadersWake(t *testing.T) {
	n := start(t, nil)
	var all []*client
	for range 3 * inlineWakes {
		all = append(all, n.popping(t, "XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
	}
	n.dial(t).call("XADD", "s", "1-1", "f", "v")
	for _, c := range all {
		c.want("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n")
	}
	n.idle(t)
}

// overlapOfAll compares all pairs.
func overlapOfAll(prefixes, before []string) error {
	for i, p := range prefixes {
		for _, b := range before {
			if overlapping(p, b) {
				return commands.Errorf(
					"ERR Prefix '%s' overlaps with an existing prefix '%s'. Prefixes for a "+
						"single client must not overlap.", p, b)
			}
		}
		for _, other := range prefixes[i+1:] {
			if overlapping(p, other) {
				return commands.Errorf(
					"ERR Prefix '%s' overlaps with another provided prefix '%s'. Prefixes for a "+
						"single client must not overlap.", p, other)
			}
		}
	}
	return nil
}

// Overlapping prefixes are found as by comparing all pairs.
func TestOverlappingPrefixes(t *testing.T) {
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	word := func() string {
		b := make([]byte, rnd.IntN(6))
		for i := range b {
			b[i] = "ab"[rnd.IntN(2)]
		}
		return string(b)
	}
	clashes := 0
	for range 20_000 {
		var before, prefixes []string
		for range rnd.IntN(5) {
			if w := word(); overlapOfAll([]string{w}, before) == nil {
				before = append(before, w)
			}
		}
		if rnd.IntN(8) == 0 {
			before = append(before, "") // CLIENT TRACKING ON BCAST without a prefix is accepted
		}
		slices.Sort(before)
		for range rnd.IntN(6) {
			prefixes = append(prefixes, word())
		}
		want, got := overlapOfAll(prefixes, before), overlap(prefixes, before)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: %q besides %q: %v, want %v", seed, prefixes, before, got, want)
		}
		if want != nil {
			clashes++
		}
	}
	if clashes < 1000 || clashes > 19_000 {
		t.Errorf("%d overlaps: the trial says little", clashes)
	}
}

// Prefixes are bounded; the maximum number costs a change no more than its key.
func TestPrefixesAreBounded(t *testing.T) {
	n := start(t, nil)
	c, w := n.dial(t), n.dial(t)
	c.call("HELLO", "3")
	words := []string{"CLIENT", "TRACKING", "ON", "BCAST"}
	if got := c.call(append(words, "PREFIX", strings.Repeat("p",
		maxPrefixBytes+1))...); got != "-ERR prefix exceeds 1024 bytes\r\n" {
		t.Errorf("%q", got)
	}
	words = append(words, "PREFIX", strings.Repeat("p", maxPrefixBytes))
	for i := range maxPrefixes - 1 {
		words = append(words, "PREFIX", fmt.Sprintf("k%05d", i))
	}
	if got := c.call(append(words, "PREFIX",
		"x")...); got != "-ERR too many prefixes: the limit is 10000 per client\r\n" {
		t.Errorf("%q", got)
	}
	if got := c.call(words...); got != "+OK\r\n" {
		t.Fatalf("%q", got)
	}
	s := n.sessionOf(c)
	if got := s.memory.parts[memoryKeys].Load(); got < maxPrefixes*prefixCost {
		t.Errorf("its account has %d bytes", got)
	}
	if got := c.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX",
		"other"); got != "-ERR too many prefixes: the limit is 10000 per client\r\n" {
		t.Errorf("%q", got)
	}
	w.call("MSET", "k00007x", "1", "k10000", "2", strings.Repeat("p", maxPrefixBytes+1), "3")
	c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$7\r\nk00007x\r\n",
		">2\r\n$10\r\ninvalidate\r\n*1\r\n$1025\r\n"+strings.Repeat("p", maxPrefixBytes+1)+"\r\n")
	c.call("CLIENT", "TRACKING", "OFF")
	if got := s.memory.parts[memoryKeys].Load(); got != 0 {
		t.Errorf("its account still has %d bytes", got)
	}
}

// The table of tracked keys is also bounded in bytes, and in each client's account.
func TestTrackingTableIsBoundedInBytes(t *testing.T) {
	n := start(t, nil)
	n.tracking.maxBytes = 100_000
	clients := []*client{n.dial(t), n.dial(t)}
	for _, c := range clients {
		c.call("HELLO", "3")
		c.call("CLIENT", "TRACKING", "ON")
	}
	told := 0
	for i := range 100 {
		key := fmt.Sprint(i, strings.Repeat("k", 5000))
		for _, c := range clients {
			if err := c.Send(commandtest.Args("GET", key)); err != nil {
				t.Fatal(err)
			}
			for c.next() != "_\r\n" {
				told++
			}
		}
	}
	n.pubsub.delivery.settle()
	for _, c := range clients { // what was on its way
		if err := c.Send(commandtest.Args("PING")); err != nil {
			t.Fatal(err)
		}
		for c.next() != "+PONG\r\n" {
			told++
		}
	}
	n.tracking.mu.Lock()
	if got := n.tracking.bytes; got > n.tracking.maxBytes || got < n.tracking.maxBytes/2 {
		t.Errorf("the table takes %d bytes", got)
	}
	n.tracking.mu.Unlock()
	if told < 100 {
		t.Errorf("%d keys were invalidated", told)
	}
	first := n.sessionOf(clients[0])
	if got := first.memory.parts[memoryKeys].Load(); got < 10_000 || got > 100_000 {
		t.Errorf("a client's account has %d bytes", got)
	}
	other := n.dial(t)
	other.call("SET", "k", "1")
	other.call("FLUSHALL")
	n.pubsub.delivery.settle()
	n.tracking.mu.Lock()
	defer n.tracking.mu.Unlock()
	if got := first.memory.parts[memoryKeys].Load(); got != 0 || n.tracking.bytes != 0 ||
		n.tracking.items != 0 {
		t.Errorf("after FLUSHALL: %d bytes of a client, %d bytes, %d items", got, n.tracking.bytes,
			n.tracking.items)
	}
}

// A change of a key that many clients have read notifies all of them, whoever leaves first.
func TestManyClientsTrackAKey(t *testing.T) {
	n := start(t, nil)
	var all []*client
	for range 2*fewSessions + 1 {
		c := n.dial(t)
		c.call("HELLO", "3")
		c.call("CLIENT", "TRACKING", "ON")
		c.call("GET", "k")
		all = append(all, c)
	}
	for _, c := range all[:fewSessions] {
		c.call("CLIENT", "TRACKING", "OFF")
	}
	n.dial(t).call("SET", "k", "1")
	for _, c := range all[fewSessions:] {
		c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	}
	n.tracking.mu.Lock()
	defer n.tracking.mu.Unlock()
	if n.tracking.bytes != 0 || n.tracking.items != 0 {
		t.Errorf("%d bytes and %d items are left", n.tracking.bytes, n.tracking.items)
	}
}

// Subscriptions count in their client's account.
func TestSubscriptionsAreAccountedFor(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	s := n.sessionOf(c)
	c.raw(calls("SUBSCRIBE a b", "PSUBSCRIBE p*", "SSUBSCRIBE s"))
	for range 4 {
		c.next()
	}
	if got := s.memory.parts[memoryKeys].Load(); got != 4*subscriptionCost+5 {
		t.Errorf("%d bytes", got)
	}
	c.call("UNSUBSCRIBE", "a")
	c.call("RESET")
	if got := s.memory.parts[memoryKeys].Load(); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
}

// Many clients that have read the same keys do not make applying wait for the table.
func TestChangesOfKeysThatManyTrack(t *testing.T) {
	n := start(t, nil)
	tr := &n.tracking
	var changes []keyChange
	for i := range 3 {
		changes = append(changes, keyChange{key: fmt.Sprint("k", i)})
	}
	for range lockedClients + 1 {
		s := &session{srv: n.Server, noted: noted{tracked: map[string]uint32{}}}
		tr.mu.Lock()
		for _, c := range changes {
			tr.note(s, c.key)
		}
		tr.mu.Unlock()
	}
	if invalidations, done := tr.changedSome(changes); done != 1 || len(invalidations) != 1 {
		t.Errorf("%d changes, %d messages at once", done, len(invalidations))
	}
	told := 0
	tr.changed(changes[1:], 1, func(v *invalidation) { told += len(v.to) })
	if told != 2*(lockedClients+1) || len(tr.keys) != 0 || tr.bytes != 0 {
		t.Errorf("%d were told, %d keys and %d bytes are left", told, len(tr.keys), tr.bytes)
	}
}

// An insufficient answer does not wake waiters.
func TestWaitIsWokenByWhatSuffices(t *testing.T) {
	w := &replicationWaiter{waiter: waiter{wakeup: make(chan struct{}, 1)},
		q: &replicationQuestion{}, want: 2}
	w.receive(&Replication{Index: 7, Others: []uint64{7, 6}}, 7)
	if len(w.wakeup) > 0 {
		t.Error("one of two holds it")
	}
	w.receive(&Replication{Index: 9, Others: []uint64{9, 7}}, 9)
	if len(w.wakeup) == 0 {
		t.Error("both hold it, and nobody was told")
	}
	if own, others := w.q.held(9); own != 1 || others != 2 {
		t.Error(own, others)
	}
}

// Messages to many patterns share one copy of the payload.
func TestPatternsShareThePayload(t *testing.T) {
	m := published("message", &commands.Event{Channel: []byte("c"), Payload: []byte("text")})
	p := m.forPattern([]byte("c*"))
	if &p.body[0] != &m.body[0] {
		t.Error("the payload is copied")
	}
	var total atomic.Int64
	m.countIn(&total)
	m.retain()
	alone := total.Load()
	for range 2 {
		p := m.forPattern([]byte("c*"))
		p.countIn(&total)
		p.retain()
		if got, want := total.Load(), alone+int64(p.own()+2*referenceCost); got != want {
			t.Errorf("%d bytes are counted, want %d", got, want)
		}
		m.release() // the pattern's still holds it
		if got := total.Load(); got < alone {
			t.Errorf("%d bytes are counted while %d wait", got, alone)
		}
		m.retain()
		p.release()
		if got := total.Load(); got != alone {
			t.Errorf("%d bytes are counted in the end, want %d", got, alone)
		}
	}
	for proto, want := range map[int]string{2: "*", 3: ">"} {
		head, _ := p.head(framing{proto: proto})
		if got := head + string(p.body); got != want+
			"4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$1\r\nc\r\n$4\r\ntext\r\n" {
			t.Errorf("%q", got)
		}
	}
}
