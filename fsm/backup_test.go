// Tests of where revisions go on, and of the description of a snapshot file.

package fsm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// setAt sets a key in the entry of an index, and returns the key's token.
func setAt(t *testing.T, m *Machine, index uint64, wallUs int64) keyspace.Revision {
	t.Helper()
	mustApply(t, m, index, &Entry{ClockMs: 5, WallUs: wallUs,
		Batches: [][]byte{calls("DEL k", "SET k v")}}, true)
	return m.ks.DB(0).Find([]byte("k")).Created()
}

func TestContinueAbove(t *testing.T) {
	table := testTable()
	m := newestMachine(table)
	last, lastTerm := setAt(t, m, 1<<40, 1), uint64(1<<31)
	for _, start := range []keyspace.Revision{m.newestRevision() + 1, keyspace.NewRevision(1, 7, 1),
		keyspace.NewRevision(1, 1<<41-1, 0), keyspace.NewRevision(3, 0, 5),
		keyspace.NewRevision(428, 3, 0), MaxStart} {
		for _, wrong := range []keyspace.Revision{0, m.newestRevision(), MaxStart + 1} {
			if _, _, err := m.ContinueAbove(wrong); err == nil {
				t.Errorf("%d after %d is accepted", wrong, m.newestRevision())
			}
		}
		index, term, err := m.ContinueAbove(start)
		if err != nil || index != m.Index() || index == 0 || term <= lastTerm {
			t.Fatal(index, term, err)
		}
		lastTerm = term
		m = restore(t, snapshotBytes(t, m.Snapshot()), table)
		for range 3 {
			next := setAt(t, m, m.Index()+1, 1)
			if next <= max(start, last) || int64(next) < 0 {
				t.Fatalf("revision %d after %d and %d", next, start, last)
			}
			last = next
		}
	}
}

// copyOfState is what a node that lags has, or a backup.
type copyOfState struct {
	file   []byte
	newest keyspace.Revision
	atUs   int64
}

// Recoveries and restores of common descent, on any copies, by a clock that is right, give each
// cluster tokens above those of all before. A clock that is behind the copy is found out.
func TestTokensOfCommonDescent(t *testing.T) {
	seed := seeds.Of(t)
	table := testTable()
	for round := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, round))
		nowUs := int64(1_790_000_000_000_000) + r.Int64N(1<<50)
		m := newestMachine(table)
		m.epoch = r.Uint64N(4) // release 0.1 counted them
		m.index = r.Uint64N(1 << 33)
		var largest keyspace.Revision
		var copies []copyOfState
		for range 30 {
			for range 1 + r.IntN(3) {
				entries := 1 + r.Uint64N(1<<r.Uint64N(30))
				nowUs += int64(entries)*2 + r.Int64N(1<<r.Uint64N(45)) // fewer than 2^19 a second
				token := setAt(t, m, m.Index()+entries, nowUs)
				if token <= largest {
					t.Fatalf("seed %d, round %d: token %d after %d", seed, round, token, largest)
				}
				largest = token
				if r.IntN(3) == 0 || len(copies) == 0 {
					copies = append(copies, copyOfState{snapshotBytes(t, m.Snapshot()),
						m.newestRevision(), nowUs})
				}
			}
			nowUs += 2
			from := copies[r.IntN(len(copies))]
			m = restore(t, from.file, table)
			wrong, behindUs := m.NextStart(from.atUs - 1 - r.Int64N(from.atUs))
			if behindUs <= 0 || wrong <= from.newest || wrong < startAt(from.atUs-1) {
				t.Fatalf("seed %d, round %d: a clock that is behind gives %d, %d", seed, round,
					wrong, behindUs)
			}
			start, behindUs := m.NextStart(nowUs)
			if _, _, err := m.ContinueAbove(start); err != nil || behindUs != 0 {
				t.Fatalf("seed %d, round %d: %v, behind by %d", seed, round, err, behindUs)
			}
		}
	}
}

func TestCheckSnapshot(t *testing.T) {
	m := newestMachine(testTable())
	mustApply(t, m, 9,
		&Entry{ClockMs: 1234,
			Batches: [][]byte{calls("SET a 1", "HSET h f v", "SWAPDB 0 3", "SET b 1")}}, true)
	file := snapshotBytes(t, m.Snapshot())
	info, err := CheckSnapshot(bytes.NewReader(file), testTable())
	if want := (BackupInfo{Index: 9, ClockMs: 1234, Keys: 3,
		Bytes: int64(len(file)), Memory: m.Stats().Memory}); err != nil || info != want {
		t.Errorf("%+v %v, want %+v", info, err, want)
	}
	if n := m.Snapshot().Size(); n != int64(len(file)) {
		t.Errorf("Size is %d, the file has %d bytes", n, len(file))
	}
}
