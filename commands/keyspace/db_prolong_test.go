package keyspace

import (
	"slices"
	"testing"
)

// Prolong moves a deadline, and nobody but the running hash and a later snapshot sees that. What
// was frozen before keeps the old one.
func TestProlong(t *testing.T) {
	ks := writable(1, 7)
	db, created := ks.DB(0), ks.rev
	small, text := []byte("small"), k(1)
	setDeadlines(ks, small, 100, 0)
	for i := range 300 {
		db.SetDeadline(db.SetString(k(i), []byte("v")), 100)
	}
	list := NewList()
	list.PushBack([]byte("v"))
	e := db.SetCollection([]byte("list"), list) // it comes to rest
	db.Changed(e)
	db.SetDeadline(e, 100)
	ks.End()
	frozen := ks.Freeze()
	was := records(t, frozen)
	ks.Begin(2, NewRevision(0, 8, 0))
	changes := 0
	ks.Observe(func(int, *Entry, Change) { changes++ })
	mean, size := db.MeanTTL(), ks.Size()
	for _, c := range []struct {
		key, field []byte
		created    Revision
		fromMs     int64
	}{
		{k(999), nil, created, 100}, {text, nil, created + 1, 100}, {text, nil, created, 99},
		{text, []byte("0"), created, 100}, {small, []byte("1"), created, 100},
		{small, []byte("9"), created, 100}, {small, []byte("0"), created, 99},
		{small, nil, created, 100}, {[]byte("list"), []byte("0"), created, 100},
	} {
		if db.Prolong(c.key, c.field, c.created, c.fromMs, 500) {
			t.Errorf("%s %s of %d is prolonged from %d", c.key, c.field, c.created, c.fromMs)
		}
	}
	for _, c := range [][2][]byte{{text, nil}, {[]byte("list"), nil}, {small, []byte("0")}} {
		sum, last := ks.Sum(), db.LastChange(c[0])
		if !db.Prolong(c[0], c[1], created, 100, 100) || ks.Sum() != sum {
			t.Errorf("%s: nothing to prolong is a change", c[0])
		}
		if !db.Prolong(c[0], c[1], created, 100, 500) || !db.Held(c[0], c[1], created, 500) {
			t.Errorf("%s is not prolonged", c[0])
		}
		if ks.Sum() == sum || db.LastChange(c[0]) != last || changes > 0 || ks.Size() != size {
			t.Errorf("%s: the running hash is %d, was %d; last change %d, was %d; %d changes",
				c[0], ks.Sum(), sum, db.LastChange(c[0]), last, changes)
		}
	}
	if got := db.MeanTTL(); got <= mean {
		t.Errorf("the mean is %d, was %d", got, mean)
	}
	ks.End()
	if got := records(t, frozen); !slices.EqualFunc(got, was, slices.Equal) {
		t.Error("what was frozen has changed")
	}
	other := loadRecords(t, records(t, ks.Freeze()))
	for _, ks := range []*Keyspace{ks, other} {
		ks.Begin(101, NewRevision(0, 9, 0))
		db := ks.DB(0)
		if got := names(db); !slices.Equal(got, []string{"key:1", "list", "small"}) {
			t.Errorf("%q are left", got)
		}
		if h, _ := db.Find(small).Collection().(*Hash); h.Len() != 2 {
			t.Errorf("%d fields are left", h.Len())
		}
		if at, ok := ks.NextDeadline(); at != 500 || !ok {
			t.Errorf("the next deadline is %d", at)
		}
		ks.Begin(501, NewRevision(0, 10, 0))
		if got := names(db); !slices.Equal(got, []string{"small"}) {
			t.Errorf("%q are left at the end", got)
		}
		ks.End()
	}
}
