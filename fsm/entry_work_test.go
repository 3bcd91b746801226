// Tests of the work limit of an entry: the same batches run on every node and at every replay.

package fsm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/detector"
)

// burn returns a script that increments n and does about the given work.
func burn(units int) []string {
	return []string{"EVAL",
		fmt.Sprintf("redis.call('INCR', 'n') for i = 1, %d do end return 'burnt'", units), "0"}
}

func TestEntryWorkIsBounded(t *testing.T) {
	detector.Skip(t)
	incr := []string{"INCR", "light"}
	small, half, most := requestsOf(incr), requestsOf(burn(entryWork/2+1000), incr),
		requestsOf(burn(commands.MaxRequestWork*9/10))
	for _, c := range []struct {
		name    string
		batches [][]byte
		ran     int
		want    []string // the replies to each batch that ran
	}{
		{"light batches all run", [][]byte{small, small, small}, 3, []string{"1", "2", "3"}},
		{"nothing runs past the budget", [][]byte{small, most, small, most}, 2,
			[]string{"1", "burnt"}},
		{"the first always runs", [][]byte{most, most}, 1, []string{"burnt"}},
		{"batches stop between requests", [][]byte{requestsOf(burn(batchWork), incr), small}, 2,
			[]string{"burnt", "1"}},
		{"shares add up", [][]byte{half, half, half, small}, 2, []string{"burnt", "burnt"}},
	} {
		m, other := newestMachine(testTable()), newestMachine(testTable())
		e := &Entry{ClockMs: 1000, Batches: c.batches}
		result, err := m.Apply(1, e, true)
		if err != nil {
			t.Fatal(err)
		}
		if result.Ran != c.ran || len(result.Replies) != c.ran || len(result.Work) != c.ran {
			t.Fatalf("%s: %d batches ran, %d replies, want %d", c.name, result.Ran,
				len(result.Replies), c.ran)
		}
		work := uint64(0)
		for i, reply := range result.Replies {
			if got := shape(t, reply); got != c.want[i] {
				t.Errorf("%s: batch %d: %s, want %s", c.name, i, got, c.want[i])
			}
			work += result.Work[i]
		}
		if most := uint64(entryWork + commands.MaxRequestWork); work > most {
			t.Errorf("%s: %d units of work, at most %d", c.name, work, most)
		}
		if again, err := other.Apply(1, e, false); err != nil || again.Ran != c.ran {
			t.Errorf("%s: on another node %d batches ran, %v", c.name, again.Ran, err)
		}
		if !bytes.Equal(snapshotBytes(t, m.Snapshot()), snapshotBytes(t, other.Snapshot())) {
			t.Errorf("%s: the nodes differ", c.name)
		}
	}
}

// A machine that is restored half-way and one that replays run the same batches as the first one.
func TestEntryWorkAtReplay(t *testing.T) {
	detector.Skip(t)
	var entries []*Entry
	for i := range 6 {
		e := &Entry{ClockMs: int64(1000 + i)}
		for k := range 4 {
			e.Batches = append(e.Batches, requestsOf(burn(entryWork*(i+k)/5),
				[]string{"APPEND", "log", fmt.Sprint(i, k, " ")}))
		}
		entries = append(entries, e)
	}
	m, restored := newestMachine(testTable()), newestMachine(testTable())
	cut := false
	for i, e := range entries {
		result, err := m.Apply(uint64(i+1), e, true)
		if err != nil {
			t.Fatal(err)
		}
		again, err := restored.Apply(uint64(i+1), e, false)
		if err != nil || again.Ran != result.Ran {
			t.Fatalf("entry %d: %d batches ran, after a restore %d (%v)", i, result.Ran, again.Ran,
				err)
		}
		cut = cut || result.Ran < len(e.Batches)
		if restored, err = ReadSnapshot(bytes.NewReader(snapshotBytes(t, restored.Snapshot())),
			testTable()); err != nil {
			t.Fatal(err)
		}
	}
	if !cut {
		t.Error("no entry reached its limit")
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), snapshotBytes(t, restored.Snapshot())) {
		t.Error("the machines differ")
	}
}

// Below LevelSecond an entry runs whole: nodes of the previous release do not know the limit.
func TestEntryWorkBelowItsLevel(t *testing.T) {
	detector.Skip(t)
	m := NewMachine(testTable())
	e := &Entry{ClockMs: 1000, Batches: [][]byte{requestsOf(burn(entryWork), []string{"INCR", "a"}),
		requestsOf(burn(entryWork)), requestsOf([]string{"INCR", "a"})}}
	result, err := m.Apply(1, e, true)
	if err != nil {
		t.Fatal(err)
	}
	if result.Ran != 3 || shape(t, result.Replies[0]) != "burnt 1" ||
		shape(t, result.Replies[2]) != "2" {
		t.Errorf("%d batches ran", result.Ran)
	}
}
