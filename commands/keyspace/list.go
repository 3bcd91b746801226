package keyspace

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/internal/wire"
)

// List is a sequence of elements. Its two ends are short slices, so that pushing and popping are
// cheap; what is between them is a rope. A list no longer than an end is one slice. Where the parts
// meet depends on the list's history, and is not visible.
type List struct {
	head []element
	mid  *rope // nil: empty
	tail []element
	weight
}

// NewList returns an empty list.
func NewList() *List { return &List{} }

func newElement(value []byte) element { return element{xxhash.Sum64(value), string(value)} }

// Kind returns KindList.
func (l *List) Kind() Kind { return KindList }

// Len returns the number of elements.
func (l *List) Len() int { return len(l.head) + l.between() + len(l.tail) }

// between returns the number of elements in the rope.
func (l *List) between() int {
	if l.mid == nil {
		return 0
	}
	return l.mid.count
}

// Sum returns a hash over the content and its order.
func (l *List) Sum() uint64 {
	d := digestOf(l.head)
	if l.mid != nil {
		d = d.then(l.mid.digest)
	}
	d = d.then(digestOf(l.tail))
	return pairSum(d.sum, d.power)
}

// Clone returns a copy that can change while l is read.
func (l *List) Clone() Collection {
	return &List{slices.Clone(l.head), l.mid, slices.Clone(l.tail), l.weight}
}

// PushFront inserts copies of values at the front, one after another. Together they move the others
// fewer times.
func (l *List) PushFront(values ...[]byte) {
	for len(values) > 0 {
		some := values[:min(len(values), pieceMax)]
		values = values[len(some):]
		l.head = slices.Insert(l.head, 0, make([]element, len(some))...)
		for i, v := range some {
			l.head[len(some)-1-i] = newElement(v)
			l.bytes += itemSize(len(v))
		}
		l.spill()
	}
}

// PushBack appends a copy of value.
func (l *List) PushBack(value []byte) {
	l.tail = append(l.tail, newElement(value))
	l.bytes += itemSize(len(value))
	l.spill()
}

// spill moves half of an end that has become too long to the rope. Half stays, so that alternating
// pushes and pops do not move elements each time.
func (l *List) spill() {
	if n := len(l.head) / 2; len(l.head) > pieceMax {
		l.mid = concat(leaf(slices.Clone(l.head[n:])), l.mid)
		l.head = slices.Delete(l.head, n, len(l.head))
	}
	if n := len(l.tail) / 2; len(l.tail) > pieceMax {
		l.mid = concat(l.mid, leaf(slices.Clone(l.tail[:n])))
		l.tail = slices.Delete(l.tail, 0, n)
	}
}

// refill moves the rope's outermost leaf to an end that has become empty.
func (l *List) refill() {
	if len(l.head) == 0 && l.mid != nil {
		l.head, l.mid = append(l.head, l.mid.first()...), l.mid.withoutFirst()
	}
	if len(l.tail) == 0 && l.mid != nil {
		l.tail, l.mid = append(l.tail, l.mid.last()...), l.mid.withoutLast()
	}
}

// At returns the element at position i, 0 to Len()-1.
func (l *List) At(i int) string {
	if i < len(l.head) {
		return l.head[i].value
	}
	if i -= len(l.head); i < l.between() {
		return l.mid.at(i).value
	}
	return l.tail[i-l.between()].value
}

// Set replaces the element at position i, 0 to Len()-1, by a copy of value.
func (l *List) Set(i int, value []byte) {
	e := newElement(value)
	l.bytes += itemSize(len(value)) - itemSize(len(l.At(i)))
	if i < len(l.head) {
		l.head[i] = e
		return
	}
	if i -= len(l.head); i < l.between() {
		l.mid = l.mid.set(i, e)
		return
	}
	l.tail[i-l.between()] = e
}

// Insert inserts a copy of value before the element at position i, or at the end if i is Len().
func (l *List) Insert(i int, value []byte) {
	e, middle := newElement(value), l.between()
	l.bytes += itemSize(len(value))
	switch at := i - len(l.head); {
	case at < 0:
		l.head = slices.Insert(l.head, i, e)
	case at < middle:
		l.mid = l.mid.insert(at, e)
	default:
		l.tail = slices.Insert(l.tail, at-middle, e)
	}
	l.spill()
}

// RemoveRange removes the elements from position first to last, inclusive, which must exist.
func (l *List) RemoveRange(first, last int) {
	head, middle := len(l.head), l.between()
	// part returns the intersection of the range with n elements that start at position base.
	part := func(base, n int) (from, to int) {
		return min(max(first-base, 0), n), max(min(last+1-base, n), 0)
	}
	if from, to := part(0, head); from < to {
		l.bytes -= itemsSize(l.head[from:to])
		l.head = slices.Delete(l.head, from, to)
	}
	l.bytes -= l.mid.size()
	if from, to := part(head, middle); to-from == 1 {
		l.mid = l.mid.without(0, []int{from})
	} else if from < to {
		before, rest := l.mid.split(from)
		_, behind := rest.split(to - from)
		l.mid = join(before, behind)
	}
	l.bytes += l.mid.size()
	if from, to := part(head+middle, len(l.tail)); from < to {
		l.bytes -= itemsSize(l.tail[from:to])
		l.tail = slices.Delete(l.tail, from, to)
	}
	l.refill()
}

// Remove removes the elements at positions, which must exist and rise strictly.
func (l *List) Remove(positions []int) {
	head, middle := len(l.head), l.between()
	inMid, _ := slices.BinarySearch(positions, head)
	inTail, _ := slices.BinarySearch(positions, head+middle)
	l.head = keepOthers(l.head, 0, positions[:inMid])
	if l.mid != nil {
		l.mid = l.mid.without(head, positions[inMid:inTail])
	}
	l.tail = keepOthers(l.tail, head+middle, positions[inTail:])
	l.bytes = itemsSize(l.head) + l.mid.size() + itemsSize(l.tail)
	l.refill()
}

// Range calls f with the elements from position first to last, inclusive, until it returns false;
// in reverse if first > last. The positions must exist. f must not change the list.
func (l *List) Range(first, last int, f func(value string) bool) {
	n := max(last-first, first-last) + 1
	if first <= last {
		l.ascend(first, func(piece []element) bool {
			for i := range piece {
				if n--; !f(piece[i].value) || n == 0 {
					return false
				}
			}
			return true
		})
		return
	}
	l.descend(first, func(piece []element) bool {
		for i := range piece {
			if n--; !f(piece[len(piece)-1-i].value) || n == 0 {
				return false
			}
		}
		return true
	})
}

// Find calls found with the positions of the elements equal to value, from position first to last,
// inclusive, until it returns false; in reverse if first > last. The positions must exist. compared
// is called before each comparison of the bytes: of an element with the value's length and hash.
func (l *List) Find(value []byte, first, last int, compared func(),
	found func(position int) bool) {
	hash := xxhash.Sum64(value)
	is := func(e *element) bool { // whoever chooses both can make unequal ones with equal hashes
		if len(e.value) != len(value) {
			return false
		}
		compared()
		return e.value == view(value)
	}
	position, left := first, max(last-first, first-last)+1
	if first <= last {
		l.ascend(first, func(piece []element) bool {
			piece = piece[:min(left, len(piece))]
			for i := range piece {
				if piece[i].hash == hash && is(&piece[i]) && !found(position+i) {
					return false
				}
			}
			position += len(piece)
			left -= len(piece)
			return left > 0
		})
		return
	}
	l.descend(first, func(piece []element) bool {
		piece = piece[max(len(piece)-left, 0):]
		for i := range piece {
			if e := &piece[len(piece)-1-i]; e.hash == hash && is(e) && !found(position-i) {
				return false
			}
		}
		position -= len(piece)
		left -= len(piece)
		return left > 0
	})
}

// ascend calls f with the pieces of the list from position i on, in order, until it returns false.
func (l *List) ascend(i int, f func([]element) bool) {
	if i < len(l.head) && !f(l.head[i:]) {
		return
	}
	i = max(i-len(l.head), 0)
	middle := l.between()
	if i < middle && !l.mid.ascend(i, f) {
		return
	}
	if i = max(i-middle, 0); i < len(l.tail) {
		f(l.tail[i:])
	}
}

// descend calls f with the pieces of the list up to position i, the last first, until it returns
// false.
func (l *List) descend(i int, f func([]element) bool) {
	head, middle := len(l.head), l.between()
	if i >= head+middle && !f(l.tail[:i-head-middle+1]) {
		return
	}
	if i = min(i, head+middle-1); i >= head && !l.mid.descend(i-head, f) {
		return
	}
	if i = min(i, head-1); i >= 0 {
		f(l.head[:i+1])
	}
}

func (l *List) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(l.Len()))
	l.ascend(0, func(piece []element) bool {
		for i := range piece {
			dst = wire.AppendBytes(dst, piece[i].value)
		}
		return true
	})
	return dst
}

func (l *List) rests() bool { return l.mid == nil }

func wakeList(b block) Collection {
	l := &List{tail: make([]element, b.Uvarint())}
	for i := range l.tail {
		value := b.text()
		l.tail[i] = element{hashOf(value), value}
	}
	return l
}

func readList(r *reader) *List {
	l := NewList()
	for range r.Count(1) {
		l.PushBack(r.Bytes())
	}
	return l
}
