// Tests of the events of an entry: changes of keys, notifications, and their setting.

package fsm

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// setting encodes a change of a setting.
func setting(name, value string) []byte {
	return commands.AppendRequest(nil, &commands.Request{Proto: 2, System: true,
		Cmds: [][][]byte{commandtest.Args(name, value)}})
}

// eventText formats events for comparison.
func eventText(events []commands.Event) string {
	var b strings.Builder
	for _, e := range events {
		switch e.Kind {
		case commands.Message:
			fmt.Fprintf(&b, "%s=%s ", e.Channel, e.Payload)
		case commands.KeyChanged:
			fmt.Fprintf(&b, "%d:%s", e.DB, e.Key)
			if e.Gone {
				b.WriteString("-gone")
			}
			if e.Client != 0 {
				fmt.Fprintf(&b, "-by%d", e.Client)
			}
			b.WriteByte(' ')
		case commands.DBChanged:
			fmt.Fprintf(&b, "db%d ", e.DB)
		case commands.StateReplaced:
			b.WriteString("all ")
		}
	}
	return strings.TrimSpace(b.String())
}

func TestChangedKeysAreReported(t *testing.T) {
	m := newestMachine(testTable())
	index := uint64(0)
	apply := func(batches ...[]byte) string {
		t.Helper()
		index++
		return eventText(mustApply(t, m, index,
			&Entry{ClockMs: int64(index), WallUs: 1e12, Batches: batches}, true).Events)
	}
	if got := apply(calls("SET k 1", "DEL k")); got != "" {
		t.Errorf("reported without interest: %s", got)
	}
	m.Observe(func(db int, key string) bool { return !strings.HasPrefix(key, "not") })
	by := func(client uint64, words ...string) []byte {
		return commands.AppendRequest(nil, &commands.Request{Proto: 2, Client: client,
			Cmds: [][][]byte{commandtest.Args(words...)}})
	}
	for _, c := range []struct {
		batches [][]byte
		want    string
	}{
		{[][]byte{calls("SET k 1", "SET k 2")}, "0:k"},
		{[][]byte{calls("SET not 1", "GET k", "GET none", "DEL none")}, ""},
		{[][]byte{calls("DEL k")}, "0:k-gone"},
		{[][]byte{calls("SET k 1", "DEL k", "SET k 1")}, "0:k"},
		{[][]byte{calls("RPUSH l x", "LPOP l")}, "0:l-gone"},
		{[][]byte{calls("RENAME k k2")}, "0:k-gone 0:k2"},
		{[][]byte{by(7, "SET", "k", "1"), by(8, "SET", "k", "1"), by(7, "DEL", "k")},
			"0:k-by7 0:k-by8 0:k-gone-by7"},
		// the newest event is true
		{[][]byte{by(7, "RPUSH", "k", "1"), by(8, "DEL", "k"), by(7, "RPUSH", "k", "1", "2")},
			"0:k-by7 0:k-gone-by8 0:k-by7"},
		{[][]byte{calls("DEL k")}, "0:k-gone"},
		{[][]byte{calls("SET k 1", "FLUSHDB", "SET k 2")}, "0:k db0 0:k"},
		{[][]byte{calls("SWAPDB 0 3")}, "db3 db0"},
		{[][]byte{calls("SELECT 3", "EXPIRE k 0")}, ""},
		{[][]byte{calls("SET e v PX 1")}, "0:e"},
		{[][]byte{nil, nil}, ""},
		{[][]byte{calls("SET later v")}, "0:e-gone 0:later"},
		{[][]byte{setting("notify-keyspace-events", "K$"), calls("SET not 1", "SET k 1")},
			"__keyspace@0__:not=set 0:k __keyspace@0__:k=set"},
		{[][]byte{calls("SET not 1"), setting("notify-keyspace-events", ""), calls("SET not 1")},
			"__keyspace@0__:not=set"},
	} {
		if got := apply(c.batches...); got != c.want {
			t.Errorf("entry %d: reported %q, want %q", index, got, c.want)
		}
	}
	m.Observe(nil)
	if got := apply(calls("SET k 1")); got != "" {
		t.Errorf("reported after the interest ended: %s", got)
	}
}

// The setting of notifications is part of the state, and unknown flags are refused.
func TestNotifySettingIsState(t *testing.T) {
	table := testTable()
	m := newestMachine(table)
	result := mustApply(t, m, 1, &Entry{ClockMs: 1, Batches: [][]byte{
		setting("notify-keyspace-events", "KEA"), setting("notify-keyspace-events", "q"),
		setting("other", "1"),
	}}, true)
	replies := string(bytes.Join(result.Replies, nil))
	if want := "+OK\r\n-ERR Invalid event class character. Use 'Ag$lshzxeKEtmdn'.\r\n-ERR no " +
		"such setting\r\n"; replies != want {
		t.Errorf("%q, want %q", replies, want)
	}
	if got := string(m.Read(nil, setting("notify-keyspace-events", ""), 1, 1)); got[0] != '-' {
		t.Errorf("set by a read: %q", got)
	}
	restored := restore(t, snapshotBytes(t, m.Snapshot()), table)
	if got := restored.Notify().String(); got != "AKE" {
		t.Errorf("restored as %q", got)
	}
	mustApply(t, restored, 2, &Entry{ClockMs: 2,
		Batches: [][]byte{setting("notify-keyspace-events", "")}}, true)
	if got := restore(t, snapshotBytes(t, restored.Snapshot()), table).Notify(); got != 0 {
		t.Errorf("restored as %q after it was switched off", got)
	}
}

// Changes are reported while somebody wants to know, also of entries that a starting node has in
// its own log, of which the last may not be committed before a client asks. So is a snapshot that
// replaces everything.
func TestAdapterReportsChanges(t *testing.T) {
	var reported []string
	a := NewAdapter(testTable(), 7, func(events []commands.Event) {
		reported = append(reported, eventText(events))
	}, func(err error) { t.Fatal(err) })
	index := uint64(0)
	apply := func(line string) {
		index++
		a.Apply(&raft.Log{Index: index, Data: AppendEntry(nil,
			&Entry{ClockMs: int64(index), Batches: [][]byte{calls(line)}})})
	}
	a.Replaying(true)
	apply("SET oldest 1")
	a.SetInterest(func(int, string) bool { return true })
	apply("SET old 1")
	a.Replaying(false)
	apply("SET new 1")
	snapshot := snapshotBytes(t, a.m.Snapshot())
	if err := a.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
		t.Fatal(err)
	}
	apply("SET newer 1")
	a.SetInterest(nil)
	apply("SET newest 1")
	if got := strings.Join(reported, ", "); got != "0:old, 0:new, all, 0:newer" {
		t.Errorf("reported %q", got)
	}
}

// A client behind others in the wait queue gets nothing.
func TestBehindGetsNothing(t *testing.T) {
	m := newestMachine(testTable())
	behind := func(words ...string) []byte {
		return commands.AppendRequest(nil, &commands.Request{Proto: 2, Behind: true,
			Cmds: [][][]byte{commandtest.Args(words...)}})
	}
	mustApply(t, m, 1, &Entry{ClockMs: 1, WallUs: 1e12, Batches: [][]byte{
		calls("RPUSH l a", "ZADD z 1 a", "XADD s 1-1 f v", "XGROUP CREATE s g 0", "SET str x"),
	}}, true)
	before := m.Sum()
	for i, c := range []struct {
		call []byte
		want string
	}{
		{behind("BLPOP", "l", "0"), "?0\r\n*0\r\n"},
		{behind("BRPOP", "none", "l", "1"), "?1000\r\n*0\r\n"},
		{behind("BLMOVE", "l", "to", "LEFT", "LEFT", "0"), "?0\r\n*0\r\n"},
		{behind("BRPOPLPUSH", "l", "to", "0"), "?0\r\n*0\r\n"},
		{behind("BLMPOP", "0", "1", "l", "LEFT"), "?0\r\n*0\r\n"},
		{behind("BZPOPMIN", "z", "0"), "?0\r\n*0\r\n"},
		{behind("BZPOPMAX", "z", "0"), "?0\r\n*0\r\n"},
		{behind("BZMPOP", "0", "1", "z", "MIN"), "?0\r\n*0\r\n"},
		{behind("BLPOP", "str", "0"),
			"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"},
		{behind("BLPOP", "l", "x"), "-ERR timeout is not a float or out of range\r\n"},
	} {
		result := mustApply(t, m, uint64(i+2),
			&Entry{ClockMs: 1, WallUs: 1e12, Batches: [][]byte{c.call}}, true)
		if got := string(result.Replies[0]); got != c.want {
			t.Errorf("call %d: %q, want %q", i, got, c.want)
		}
	}
	if got := m.Sum().Sum; got != before.Sum {
		t.Error("something was changed")
	}
	result := mustApply(t, m, 100, &Entry{ClockMs: 1, WallUs: 1e12, Batches: [][]byte{
		behind("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">"),
	}}, true)
	if got := string(result.Replies[0]); !strings.HasPrefix(got, "?0\r\n") {
		t.Errorf("XREADGROUP: %q", got)
	}
}

// TestChannelsHaveABound releases locks of long names, and those for which a long name waits: no
// message goes out on a channel that is too long to subscribe to, which matching would cost all.
func TestChannelsHaveABound(t *testing.T) {
	const release = "local token = redis.call('FENCE', KEYS[1]) " +
		"return redis.call('LOCKS', 'RELEASE', KEYS[1], 'o', token)"
	long := strings.Repeat("k", 4096)
	for _, c := range []struct {
		key, head string
		sets      []string
		sent      int
	}{
		{"k", "w", []string{"HSET", "k", "o", "1"}, 2},
		{"k", long, []string{"HSET", "k", "o", "1"}, 1},
		{"k", strings.Repeat("w", 1<<20), []string{"HSET", "k", "o", "1"}, 1},
		{long, "w", []string{"HSET", long, "o", "1"}, 0},
		{"k", "w", []string{"HSET", "k", "mode", "read", "o", "1"}, 1},
		{long, "w", []string{"HSET", long, "mode", "read", "o", "1"}, 0},
	} {
		m := newestMachine(testTable())
		var batch []byte
		for _, words := range [][]string{c.sets, {"PEXPIRE", c.key, "1000"},
			{"RPUSH", "redisson_lock_queue:{" + c.key + "}", c.head},
			{"EVAL", release, "1", c.key}} {
			batch = append(batch, commands.AppendRequest(nil, &commands.Request{Proto: 2,
				Cmds: [][][]byte{commandtest.Args(words...)}})...)
		}
		r := mustApply(t, m, 1, &Entry{ClockMs: 1, WallUs: 1e12, Batches: [][]byte{batch}}, true)
		if got := string(r.Replies[0]); !strings.HasSuffix(got, "\r\n:1\r\n:1\r\n:1\r\n") {
			t.Fatalf("%.200q", got)
		}
		for _, e := range r.Events {
			if err := commands.CheckChannel(e.Channel); err != nil {
				t.Errorf("%.20s with %.10s…: %v", c.sets, c.head, err)
			}
		}
		if len(r.Events) != c.sent {
			t.Errorf("%.20s with %.10s…: %d messages", c.sets, c.head, len(r.Events))
		}
	}
}

// Later entries do not keep the events of a large entry in memory.
func TestEventsOfALargeEntryAreReleased(t *testing.T) {
	m := newestMachine(testTable())
	m.Observe(func(int, string) bool { return true })
	args := []string{"MSET"}
	for i := range 2 * keptEvents {
		args = append(args, fmt.Sprint("k", i), "")
	}
	many := commands.AppendRequest(nil, &commands.Request{Proto: 2,
		Cmds: [][][]byte{commandtest.Args(args...)}})
	if n := len(mustApply(t, m, 1, &Entry{ClockMs: 1, Batches: [][]byte{many}},
		false).Events); n != 2*keptEvents {
		t.Fatalf("%d events", n)
	}
	mustApply(t, m, 2, &Entry{ClockMs: 2, Batches: [][]byte{calls("SET k 1")}}, false)
	if n := cap(m.events.list); n > keptEvents {
		t.Errorf("room for %d events is kept", n)
	}
	for i, e := range m.events.list[1:cap(m.events.list)] {
		if e.Key != "" {
			t.Fatalf("event %d is still held", i+1)
		}
	}
}
