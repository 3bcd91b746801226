// Lists: random changes against a slice, the balance of the rope, copies, and snapshots.

package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/internal/wire"
)

// checkList compares everything that l shows with want.
func checkList(t *testing.T, l *List, want []string) {
	t.Helper()
	if l.Len() != len(want) {
		t.Fatalf("Len is %d, want %d", l.Len(), len(want))
	}
	rebuilt := NewList()
	for i, value := range want {
		if got := l.At(i); got != value {
			t.Fatalf("At(%d) is %q, want %q", i, got, value)
		}
		rebuilt.PushBack([]byte(value))
	}
	countsRight(t, l)
	if l.Sum() != rebuilt.Sum() {
		t.Fatalf("Sum is %x, that of the same content built again %x", l.Sum(), rebuilt.Sum())
	}
	if !bytes.Equal(l.appendTo(nil), rebuilt.appendTo(nil)) {
		t.Fatal("the record differs from that of the same content built again")
	}
	if l.mid != nil {
		checkRope(t, l.mid)
	}
}

// checkRope checks the invariants of every node.
func checkRope(t *testing.T, r *rope) {
	t.Helper()
	if r.height == 0 {
		if len(r.piece) == 0 || len(r.piece) > pieceMax || r.count != len(r.piece) ||
			r.left != nil || r.right != nil {
			t.Fatalf("a leaf of %d elements counts %d", len(r.piece), r.count)
		}
		return
	}
	l, h := r.left, r.right
	if r.count != l.count+h.count || r.height != max(l.height, h.height)+1 ||
		max(l.height-h.height, h.height-l.height) > 1 || r.piece != nil {
		t.Fatalf("a node of %d elements and height %d has children of %d, %d and %d, %d", r.count,
			r.height, l.count, l.height, h.count, h.height)
	}
	checkRope(t, l)
	checkRope(t, h)
}

// changeList makes one random change to l and to its model. When the list is longer than long,
// changes that shorten it come more often.
func changeList(r *rand.Rand, l *List, model []string, long int) []string {
	n := len(model)
	value := strconv.Itoa(r.IntN(20))
	kind := r.IntN(16)
	if n > long && r.IntN(3) == 0 {
		kind = 9 + r.IntN(4)
	}
	switch {
	case kind < 3 || n == 0:
		l.PushBack([]byte(value))
		return append(model, value)
	case kind < 6:
		l.PushFront([]byte(value))
		return slices.Insert(model, 0, value)
	case kind < 8:
		i := r.IntN(n + 1)
		l.Insert(i, []byte(value))
		return slices.Insert(model, i, value)
	case kind == 8:
		i := r.IntN(n)
		l.Set(i, []byte(value))
		model[i] = value
		return model
	case kind == 9: // a range, mostly a short one
		first := r.IntN(n)
		last := first + r.IntN(min(n-first, 1<<r.IntN(bits.Len(uint(n)))))
		l.RemoveRange(first, last)
		return slices.Delete(model, first, last+1)
	case kind == 10: // one value of which there are many
		var positions []int
		for i, v := range model {
			if v == value && r.IntN(2) == 0 {
				positions = append(positions, i)
			}
		}
		l.Remove(positions)
		for _, i := range slices.Backward(positions) {
			model = slices.Delete(model, i, i+1)
		}
		return model
	case kind < 14:
		l.RemoveRange(0, 0)
		return slices.Delete(model, 0, 1)
	default:
		l.RemoveRange(n-1, n-1)
		return model[:n-1]
	}
}

func TestListAgainstModel(t *testing.T) {
	r := dbRand(t)
	for _, long := range []int{3, pieceMax, 3 * pieceMax, 40 * pieceMax} {
		l := NewList()
		var model []string
		var clones []*List
		var models [][]string
		for step := range 6000 {
			if step == 1000 && long > pieceMax { // a start that is long
				for range long {
					l.PushBack([]byte("x"))
					model = append(model, "x")
				}
			}
			model = changeList(r, l, model, long)
			if step%(10+long/4) == 0 {
				checkList(t, l, model)
			}
			if step%500 == 0 {
				clones, models = append(clones, l.Clone().(*List)),
					append(models, slices.Clone(model))
			}
		}
		checkList(t, l, model)
		for i, c := range clones {
			checkList(t, c, models[i])
			for range 200 { // a copy can be changed too, and does not show in the others
				models[i] = changeList(r, c, models[i], long)
			}
			checkList(t, c, models[i])
		}
		checkList(t, l, model)
	}
}

func TestListRangeAndFind(t *testing.T) {
	r := dbRand(t)
	l := NewList()
	var model []string
	for range 12 * pieceMax {
		model = changeList(r, l, model, 1<<30)
	}
	n := len(model)
	for range 500 {
		first, last := r.IntN(n), r.IntN(n)
		value := model[r.IntN(n)]
		stop := r.IntN(2 * n)
		var want, got []string
		var wantPositions, positions []int
		for i, step := first, 1-2*b2i(first > last); i != last+step; i += step {
			if len(want) <= stop {
				want = append(want, model[i])
			}
			if model[i] == value && len(wantPositions) <= stop {
				wantPositions = append(wantPositions, i)
			}
		}
		l.Range(first, last, func(value string) bool {
			got = append(got, value)
			return len(got) <= stop
		})
		l.Find([]byte(value), first, last, func() {}, func(position int) bool {
			positions = append(positions, position)
			return len(positions) <= stop
		})
		if !slices.Equal(got, want) || !slices.Equal(positions, wantPositions) {
			t.Fatalf("from %d to %d of %d, until %d: Range gives %q, want %q; Find gives %v, "+
				"want %v", first, last, n, stop, got, want, positions, wantPositions)
		}
	}
}

func b2i(b bool) int { return int(wire.BoolByte(b)) }

// The same elements in another order, or another number of equal ones, have another Sum.
func TestListSumDependsOnOrder(t *testing.T) {
	sums := map[uint64]string{}
	for _, values := range []string{"", "a", "b", "ab", "ba", "aa", "aaa", "aba", "aab", "abaca",
		"acaba"} {
		l := NewList()
		for i := range values {
			l.PushBack([]byte(values[i : i+1]))
		}
		if other, ok := sums[l.Sum()]; ok {
			t.Errorf("%q and %q have the same Sum", values, other)
		}
		sums[l.Sum()] = values
	}
}

// A long list that is filled at one end and emptied at the other keeps its nodes full and its ends
// short.
func TestListAsQueue(t *testing.T) {
	l := NewList()
	next := 0
	for i := range 100 * pieceMax {
		l.PushFront(strconv.AppendInt(nil, int64(i), 10))
		if i%3 == 0 && i > 20*pieceMax {
			if got := l.At(l.Len() - 1); got != strconv.Itoa(next) {
				t.Fatalf("the last is %s, want %d", got, next)
			}
			l.RemoveRange(l.Len()-1, l.Len()-1)
			next++
		}
	}
	if len(l.head) > pieceMax || len(l.tail) > pieceMax {
		t.Errorf("the ends have %d and %d elements", len(l.head), len(l.tail))
	}
	if limit := bits.Len(uint(l.Len()/(pieceMax/2))) * 3 / 2; l.mid.height > limit {
		t.Errorf("the rope of %d elements is %d high, want %d at most", l.mid.count, l.mid.height,
			limit)
	}
	checkRope(t, l.mid)
}

// A snapshot of lists holds the content of its moment, though they change while it is written. What
// is restored gives the same snapshot and continues like the original, whatever the history of its
// lists.
func TestSnapshotOfLists(t *testing.T) {
	r := dbRand(t)
	ks := New()
	models := map[string][]string{}
	index := uint64(0)
	change := func(ks *Keyspace, models map[string][]string, r *rand.Rand) {
		index++
		ks.Begin(1, NewRevision(0, index, 0))
		i := r.IntN(4)
		key := fmt.Sprint("l", i)
		e := ks.DB(0).Edit([]byte(key))
		if e == nil {
			e = ks.DB(0).SetCollection([]byte(key), NewList())
		}
		models[key] = changeList(r, e.Collection().(*List), models[key], 1<<(3*i))
		ks.DB(0).Changed(e)
		ks.End()
	}
	for range 3000 {
		change(ks, models, r)
	}
	frozen := ks.Freeze()
	then := map[string][]string{}
	for i := range 4 {
		key := fmt.Sprint("l", i)
		then[key] = slices.Clone(models[key])
	}
	written := make(chan [][]byte)
	go func() { written <- records(t, frozen) }()
	for range 1000 {
		change(ks, models, r)
	}
	restored := loadRecords(t, wait.Receive(t, time.Minute, "the snapshot", written))
	restored.RestoreSum(1)
	for i := range 4 {
		key := fmt.Sprint("l", i)
		if e := restored.DB(0).Find([]byte(key)); e != nil {
			checkList(t, e.Collection().(*List), then[key])
		} else if len(then[key]) > 0 {
			t.Fatalf("%s is not in the snapshot", key)
		}
	}
	again := loadRecords(t, records(t, restored.Freeze()))
	again.RestoreSum(1)
	seed := r.Uint64()
	a, b := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 0))
	other := map[string][]string{}
	for key, model := range then {
		other[key] = slices.Clone(model)
	}
	for range 1000 {
		change(restored, then, a)
		index--
		change(again, other, b)
	}
	if !sameRecords(records(t, restored.Freeze()), records(t, again.Freeze())) ||
		restored.Sum() != again.Sum() {
		t.Fatal("two machines, one restored later than the other, differ")
	}
}

func TestDamagedListRecords(t *testing.T) {
	l := NewList()
	for _, value := range []string{"", "one", "two"} {
		l.PushBack([]byte(value))
	}
	record := appendRecord(nil, 0, newBox(k(1), l))
	for n := range record {
		if err := New().Load(record[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d of %d bytes of a record are loaded: %v", n, len(record), err)
		}
	}
	claimed := append(appendRecord(nil, 0, newBox(k(1), NewList())), 0)
	// a count of 34 thousand million
	claimed = append(claimed[:len(claimed)-2], 0xff, 0xff, 0xff, 0xff, 0x7f)
	if err := New().Load(claimed); !errors.Is(err, ErrCorrupt) {
		t.Errorf("more elements than a record can hold are believed: %v", err)
	}
}

// The list keeps copies of what its caller passes.
func TestListKeepsCopies(t *testing.T) {
	l := NewList()
	value := []byte("value")
	l.PushBack(value)
	l.PushFront(value)
	l.Insert(1, value)
	l.PushBack(nil)
	l.Set(3, value)
	copy(value, "xxxxx")
	checkList(t, l, []string{"value", "value", "value", "value"})
}

func BenchmarkListQueue(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l := NewList()
			for i := range n {
				l.PushFront(strconv.AppendInt(nil, int64(i), 10))
			}
			value := []byte("an element as queues have it")
			for b.Loop() {
				l.PushFront(value)
				l.RemoveRange(l.Len()-1, l.Len()-1)
				l.Sum()
			}
		})
	}
}

func BenchmarkListInsert(b *testing.B) {
	l := NewList()
	for i := range 100_000 {
		l.PushFront(strconv.AppendInt(nil, int64(i), 10))
	}
	value := []byte("an element as queues have it")
	for b.Loop() {
		l.Insert(50_000, value)
		l.RemoveRange(40_000, 40_000)
	}
}
