// Swapping databases.

package keyspace

import (
	"errors"
	"slices"
	"testing"
)

func TestSwap(t *testing.T) {
	ks := writable(1, 1)
	var notified []int
	ks.Observe(func(db int, _ *Entry, c Change) {
		if c == Flushed {
			notified = append(notified, db)
		}
	})
	a, b := ks.DB(0), ks.DB(5)
	a.SetString(k(1), []byte("a"))
	a.SetDeadline(a.Edit(k(1)), 10)
	b.SetString(k(1), []byte("b"))
	// the same key with the same deadline: the two must not be confused
	b.SetDeadline(b.Edit(k(1)), 10)
	b.SetString(k(2), nil)
	ks.Swap(5, 5)
	if ks.DB(5) != b || len(notified) != 0 {
		t.Fatal("a swap with itself did something")
	}
	rev := NewRevision(0, 2, 0)
	ks.Begin(2, rev)
	sum := ks.Sum()
	ks.Swap(5, 0)
	a, b = ks.DB(0), ks.DB(5)
	if a.Len() != 2 || b.Len() != 1 || string(a.Find(k(1)).Bytes()) != "b" ||
		string(b.Find(k(1)).Bytes()) != "a" {
		t.Fatalf("%d and %d keys, %q and %q", a.Len(), b.Len(), a.Find(k(1)).Bytes(),
			b.Find(k(1)).Bytes())
	}
	if slices.Sort(notified); !slices.Equal(notified, []int{0, 5}) {
		t.Errorf("flushed: %v", notified)
	}
	if ks.Sum() == sum {
		t.Error("the running hash is what it was")
	}
	for _, db := range []*DB{a, b} {
		if db.LastChange(k(1)) != rev || db.Creation(k(1)) != rev || db.LastChange(k(9)) != 0 ||
			db.Creation(k(9)) != 0 {
			t.Errorf("database %d: last change %d, creation %d, want %d; of no key %d and %d",
				db.index,
				db.LastChange(k(1)), db.Creation(k(1)), rev, db.LastChange(k(9)), db.Creation(k(9)))
		}
	}
	later := NewRevision(0, 3, 0)
	ks.Begin(11, later)
	if a.Len() != 1 || b.Len() != 0 || ks.Expired() != 2 {
		t.Errorf("%d and %d keys after the deadline, %d expired", a.Len(), b.Len(), ks.Expired())
	}
	a.SetString(k(1), nil)
	if a.LastChange(k(1)) != later || a.Creation(k(1)) != later {
		t.Errorf("a change after the swap counts as %d", a.LastChange(k(1)))
	}
}

// A swapped database has its own record, which may be damaged too.
func TestSwapInSnapshot(t *testing.T) {
	ks := writable(1, 7)
	ks.DB(1).SetString(k(1), nil)
	ks.Swap(1, 2)
	list := records(t, ks.Freeze())
	if len(list) != 3 || ks.Freeze().Len() != 3 {
		t.Fatalf("%d records, %d counted, want 3", len(list), ks.Freeze().Len())
	}
	restored := loadRecords(t, list)
	if restored.DB(2).LastChange(k(1)) != ks.rev || restored.DB(1).swapped != ks.rev ||
		!sameRecords(records(t, restored.Freeze()), list) {
		t.Error("what was restored is something else")
	}
	for _, damaged := range [][]byte{list[0][:2], append(slices.Clone(list[0]), 0), {1, 0, 0},
		{16, 0, 1}, {1}, {}} {
		if err := New().Load(damaged); !errors.Is(err, ErrCorrupt) {
			t.Errorf("record %v is loaded: %v", damaged, err)
		}
	}
}
