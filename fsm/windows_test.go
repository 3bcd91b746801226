// WINDOW.HIT and FENCE.CHECK in the machine: what needs no log entry, the facts of windows, and
// what a snapshot keeps.

package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// What changes nothing is answered by a dry run: refused hits, PEEK, and tokens that are not newer.
func TestDryRunsOfWindows(t *testing.T) {
	m := dryRunMachine(t, "WINDOW.HIT full 2 PX 1000 COST 2", "WINDOW.HIT free 2 PX 1000",
		"WINDOW.HIT counted 20000 PX 1000 COST 20000", "FENCE.CHECK r 7", "SET text x")
	before := snapshotBytes(t, m.Snapshot())
	for call, want := range map[string]string{
		"WINDOW.HIT full 2 PX 1000":                        "*4 :0 :0 :500 :1",
		"WINDOW.HIT free 2 PX 1000":                        "",
		"WINDOW.HIT free 2 PX 1000 PEEK":                   "*4 :1 :0 :0 :0",
		"WINDOW.HIT free 2 PX 1000 full 2 PX 1000":         "*4 :0 :0 :500 :2",
		"WINDOW.HIT new 2 PX 1000 full 2 PX 1000":          "*4 :0 :0 :500 :2",
		"WINDOW.HIT new 2 PX 1000":                         "",
		"WINDOW.HIT new 2 PX 1000 COST 3":                  "*4 :0 :2 :-1 :1",
		"WINDOW.HIT new 2 PX 1000 PEEK":                    "*4 :1 :1 :0 :0",
		"WINDOW.HIT counted 20000 PX 1000 free 2 PX 1000":  "*4 :0 :0 :501 :1",
		"WINDOW.HIT counted 20000 PX 1000 COST 20000 PEEK": "*4 :0 :0 :501 :1",
		"WINDOW.HIT counted 40000 PX 1000":                 "",
		"WINDOW.HIT text 2 PX 1000":                        "-" + commands.ErrWrongType.Error(),
		"WINDOW.HIT full 2 PX 499":                         "",
		"FENCE.CHECK r 7 PX 100":                           ":1",
		"FENCE.CHECK r 6":                                  ":0",
		"FENCE.CHECK r 8":                                  "",
		"FENCE.CHECK new 0":                                "",
	} {
		got := string(m.Read(nil, calls(call), 1500, 5_500_000))
		got = strings.ReplaceAll(strings.TrimSuffix(got, "\r\n"), "\r\n", " ")
		if got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
	if !bytes.Equal(before, snapshotBytes(t, m.Snapshot())) {
		t.Error("a dry run changed the state")
	}
}

// Each window of a call is told, in scripts too: all that allowed, or those that refused.
func TestFactsOfHits(t *testing.T) {
	const script = "return redis.call('WINDOW.HIT', KEYS[1], 1, 'PX', 100, KEYS[2], 5, 'PX', 100)"
	checkFacts(t, []step{
		{0, do("WINDOW.HIT a 2 PX 100 b 20000 PX 100 COST 20000"),
			"allowed sliding a, allowed sliding b"},
		{1, do("WINDOW.HIT a 2 PX 100 PEEK"), ""},
		{1, do("WINDOW.HIT a 2 PX 100 b 20000 PX 100"), "denied sliding b"},
		{1, do("WINDOW.HIT a 1 PX 100 b 20000 PX 100"), "denied sliding a, denied sliding b"},
		{1, do("WINDOW.HIT c 1 PX 100 COST 2"), "denied sliding c"},
		{1, eval(script, "2 d e"), "allowed sliding d, allowed sliding e"},
		{2, eval(script, "2 d e"), "denied sliding d"},
		{3, do("FENCE.CHECK r 5"), ""},
	})
}

// Windows are marked as such on every node, a restored one goes on as the other, and a key from
// elsewhere is marked with its next hit.
func TestWindowsInSnapshots(t *testing.T) {
	m := newestMachine(testTable())
	mustApply(t, m, 10, &Entry{ClockMs: 1000, WallUs: 1, Batches: [][]byte{calls(
		"WINDOW.HIT exact 5 PX 1000 COST 3", "WINDOW.HIT large 9000 PX 1000 COST 8000",
		"WINDOW.HIT counted 20000 PX 1000 COST 12345", "ZADD old 900 900", "FENCE.CHECK r 9")}},
		false)
	twin := restore(t, snapshotBytes(t, m.Snapshot()), m.table)
	for i := range 40 {
		e := &Entry{ClockMs: 1100 + 50*int64(i), WallUs: int64(i) + 2, Batches: [][]byte{calls(
			"WINDOW.HIT exact 5 PX 1000", "WINDOW.HIT large 9000 PX 1000 COST 400",
			"WINDOW.HIT counted 20000 PX 1000 COST 700", "WINDOW.HIT old 5 PX 1000",
			fmt.Sprint("FENCE.CHECK r ", 5+i/4))}}
		mine := mustApply(t, m, uint64(11+i), e, true)
		theirs := mustApply(t, twin, uint64(11+i), e, true)
		if !bytes.Equal(mine.Replies[0], theirs.Replies[0]) || m.Sum() != twin.Sum() {
			t.Fatalf("entry %d: %q, restored %q", i, mine.Replies[0], theirs.Replies[0])
		}
		for _, key := range []string{"exact", "large", "counted", "old", "r"} {
			for _, of := range []*Machine{m, twin} {
				found := of.ks.DB(0).Find([]byte(key))
				if found.Window() != (key != "r") {
					t.Fatalf("entry %d: %s is a window: %v", i, key, found.Window())
				}
			}
		}
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), snapshotBytes(t, twin.Snapshot())) {
		t.Error("the snapshots differ")
	}
}
