// Tests of epochs, and of the description of a snapshot file.

package fsm

import (
	"bytes"
	"testing"

	"github.com/coordd/coordd/commands/keyspace"
)

func TestEpochs(t *testing.T) {
	table := testTable()
	m := newestMachine(table)
	set := func(index uint64, key string) uint64 {
		t.Helper()
		mustApply(t, m, index, &Entry{ClockMs: 5, Batches: [][]byte{calls("SET " + key + " v")}},
			true)
		return uint64(m.ks.DB(0).Find([]byte(key)).Created())
	}
	last := set(1<<40, "a")
	for _, epoch := range []uint64{1, 2, 7, keyspace.MaxEpoch} {
		for _, wrong := range []uint64{0, m.Epoch(), keyspace.MaxEpoch + 1} {
			if _, _, err := m.EnterEpoch(wrong); err == nil {
				t.Errorf("epoch %d after %d is accepted", wrong, m.Epoch())
			}
		}
		before := m.Index()
		index, term, err := m.EnterEpoch(epoch)
		if err != nil || index <= before || index != m.Index() || term>>32 != epoch {
			t.Fatal(index, term, err)
		}
		m = restore(t, snapshotBytes(t, m.Snapshot()), table)
		if m.Epoch() != epoch || m.Index() != index {
			t.Fatal(m.Epoch(), m.Index())
		}
		if next := set(index+1, "b"); next <= last || int64(next) < 0 {
			t.Fatalf("revision %d in epoch %d, after %d", next, epoch, last)
		} else {
			last = next
		}
		mustApply(t, m, index+2, &Entry{ClockMs: 5, Batches: [][]byte{calls("DEL b")}}, true)
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
		Bytes: int64(len(file))}); err != nil || info != want {
		t.Errorf("%+v %v, want %+v", info, err, want)
	}
	if n := m.Snapshot().Size(); n != int64(len(file)) {
		t.Errorf("Size is %d, the file has %d bytes", n, len(file))
	}
}
