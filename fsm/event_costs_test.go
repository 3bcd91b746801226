// Tests of what the events of an entry take on every node, against its work.

package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

func allNotifications(t *testing.T) commands.NotifyFlags {
	t.Helper()
	f, err := commands.ParseNotifyFlags("KEAn")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// keptBytes returns what the messages of an entry take until the next. Messages share bytes.
func keptBytes(events []commands.Event) (n int) {
	shared := map[*byte]int{} // by the last byte: a key is the end of its channel
	for i := range events {
		n += commands.EventBytes
		for _, b := range [][]byte{events[i].Channel, events[i].Payload} {
			if len(b) > 0 {
				last := &b[len(b)-1]
				shared[last] = max(shared[last], len(b))
			}
		}
	}
	for _, size := range shared {
		n += size
	}
	return n
}

// checkKept fails if the events of an entry take more than it was charged for.
func checkKept(t *testing.T, r Result, what string) {
	t.Helper()
	most := int(r.Spent)*commands.MessageSpent + 3*commands.MessageSpent*len(r.Events) // rounded
	if kept := keptBytes(r.Events); kept > most {
		t.Fatalf("%s: %d events take %d bytes, for %d units", what, len(r.Events), kept, r.Spent)
	}
}

// Whatever an entry does and sweeps, its work bounds the bytes of its messages.
func TestEventsOfRandomEntriesAreCharged(t *testing.T) {
	seed := seeds.Of(t)
	table := testTable()
	g := random.NewCalls(table, seed)
	var long []string
	for i, size := range []int{0, 300, 5_000, 70_000} {
		long = append(long, fmt.Sprint("k", i, strings.Repeat("k", size)))
	}
	g.Pools = slices.Concat([]random.Pool{{Part: "milliseconds", Values: soon},
		{Part: "key", Values: long}}, g.Pools)
	g.Strays = 1
	m := newestMachine(table)
	m.events.notify = allNotifications(t)
	messages, swept := 0, 0
	for index := range uint64(1500) {
		e := &Entry{Origin: 1, Batches: g.Batches()}
		e.ClockMs, e.WallUs = g.Stamps()
		r := mustApply(t, m, index+1, e, true)
		checkKept(t, r, fmt.Sprintf("%s=%d: entry %d", seeds.Variable, seed, index+1))
		messages += len(r.Events)
		for i := range r.Events {
			if strings.HasSuffix(string(r.Events[i].Channel), "__:expired") {
				swept++
			}
		}
	}
	if messages < 1000 || swept < 10 {
		t.Errorf("%d messages, %d of keys that expired", messages, swept)
	}
}

// One script cannot have every node keep much more than what it pays for, by any command.
func TestEventsOfAScriptAreBounded(t *testing.T) {
	const most = 48 << 20
	for _, c := range []struct{ name, script string }{
		{"PUBLISH", "redis.call('publish', '', k)"},
		{"SET in the past", "redis.call('set', k, '', 'PXAT', 1)"},
		{"short SET in the past", "redis.call('set', 's', '', 'PXAT', 1)"},
		{"INCR", "redis.call('incr', k)"},
		{"RENAME", "redis.call('set', k, '') redis.call('rename', k, l)"},
		{"EXPIRE", "redis.call('set', k, '') redis.call('expire', k, 1000)"},
		{"a list that empties", "redis.call('rpush', k, 1) redis.call('lpop', k)"},
		{"LOCKS RELEASE", "redis.call('hset', k, 'me', 1) redis.call('pexpire', k, 9999) " +
			"redis.call('locks', 'release', k, 'me')"},
		{"MSET of two keys", "local t = {} for i = 1, 360, 4 do t[i], t[i+1], t[i+2], t[i+3] = " +
			"k, '', l, '' end redis.call('mset', unpack(t))"},
	} {
		w := newWaitMachine(t)
		w.Machine.events.notify = allNotifications(t)
		source := "local k, l = string.rep('k', 524288), string.rep('l', 524288) while true do " +
			c.script + " end"
		e := &Entry{Term: w.term, ClockMs: w.clock, WallUs: w.clock * 1000,
			Batches: [][]byte{requestsOf([]string{"EVAL", source, "0"})}}
		r := mustApply(t, w.Machine, w.Index()+1, e, false)
		checkKept(t, r, c.name)
		if kept := keptBytes(r.Events); kept > most {
			t.Errorf("%s: %d events take %d bytes", c.name, len(r.Events), kept)
		}
	}
}

// Keys that expire together are swept by as many entries as their notifications need. Meanwhile
// none of them is seen.
func TestSweepIsBoundedByItsEvents(t *testing.T) {
	const keys, size = 200, 96 << 10
	w := newWaitMachine(t)
	w.Machine.events.notify = allNotifications(t)
	name := func(i int) string { return fmt.Sprint(i, strings.Repeat("k", size)) }
	for i := range keys {
		set := commandtest.Args("SET", name(i), "", "PX", "1000")
		if i%2 > 0 {
			set = commandtest.Args("HSETEX", name(i), "PX", "1000", "FIELDS", "1", "f", "")
		}
		w.apply(commands.Request{Proto: 2, Cmds: [][][]byte{set}})
	}
	w.clock += 10_000
	entries, gone := 0, 0
	for ; w.ks.DB(0).Volatile()+w.ks.DB(0).VolatileCollections() > 0 && entries < keys; entries++ {
		exists := requestsOf([]string{"EXISTS", name(keys - 2), name(keys - 1)},
			[]string{"DBSIZE"})
		r := mustApply(t, w.Machine, w.Index()+1, &Entry{Term: w.term, ClockMs: w.clock,
			WallUs: w.clock * 1000, Batches: [][]byte{exists}}, true)
		checkKept(t, r, "sweeping")
		if kept := keptBytes(r.Events); kept > sweepWork*commands.MessageSpent+size+1000 {
			t.Errorf("one entry sweeps with %d bytes of messages", kept)
		}
		for i := range r.Events {
			if strings.Contains(string(r.Events[i].Channel[:20]), "__keyspace@0__:") &&
				(string(r.Events[i].Payload) == "expired" || string(r.Events[i].Payload) == "del") {
				gone++
			}
		}
		if got := string(r.Replies[0]); got != ":0\r\n:0\r\n" {
			t.Fatalf("entry %d: expired keys are seen: %q", entries, got)
		}
	}
	if _, due := w.NextDeadline(); due || gone != keys || entries < 3 {
		t.Errorf("%d entries sweep %d of %d keys", entries, gone, keys)
	}
}

// What clients of a node want to know does not count as work, which would differ between nodes: it
// is bounded, by what they cannot be told more than once.
func TestChangesOfAnEntryAreBounded(t *testing.T) {
	for _, c := range []struct {
		name, script string
		events       int
	}{
		{"flushing again and again", "for i = 1, 1000 do redis.call('flushall') end", 16},
		{"long names", "local k = string.rep('k', 524288) for i = 1, 40 do local n = k .. i " +
			"redis.call('set', n, '') redis.call('del', n) end", 32},
	} {
		w := newWaitMachine(t)
		w.Observe(func(int, string) bool { return true })
		e := &Entry{Term: w.term, ClockMs: w.clock, WallUs: w.clock * 1000,
			Batches: [][]byte{requestsOf([]string{"EVAL", c.script, "0"})}}
		r := mustApply(t, w.Machine, w.Index()+1, e, true)
		bytes := 0
		for i := range r.Events {
			bytes += len(r.Events[i].Key)
		}
		last := r.Events[len(r.Events)-1]
		if len(r.Events) != c.events || bytes > changedBytes || last.Kind != commands.DBChanged ||
			r.Replies[0][0] != '$' {
			t.Errorf("%s: %d events with %d bytes, %q", c.name, len(r.Events), bytes, r.Replies[0])
		}
	}
}
