// table.sort, with the comparisons of Lua 5.1's quicksort in the same order (ltablib.c, after R.
// Sedgewick). A script can see that order in the calls of its comparison function and in the order
// of equal elements.

package script

import (
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

const errOrderFunction = "invalid order function for sorting"

// sorter sorts the elements of one table.
type sorter struct {
	L    *lua.LState
	b    *lua.Budget
	t    *lua.LTable
	less lua.LValue // the comparison function; LNil: the operator <
}

// tableSort is table.sort(t [, less]).
func tableSort(L *lua.LState) int {
	t := checkTable(L, 1)
	b := budgetOf(L)
	n := L.Length(t)
	if L.Get(2) != lua.LNil {
		checkFunction(L, 2)
	}
	s := sorter{L: L, b: b, t: t, less: L.Get(2)}
	s.sort(1, n)
	return 0
}

// sort sorts the elements from index lo to hi. It recurses into the smaller part and loops over the
// larger one, so the depth is at most the logarithm of the length.
func (s *sorter) sort(lo, hi int) {
	for lo < hi {
		s.order(lo, hi)
		if hi-lo == 1 {
			return
		}
		middle := (lo + hi) / 2
		if !s.order(lo, middle) {
			s.order(middle, hi)
		}
		if hi-lo == 2 {
			return
		}
		pivot := s.get(middle)
		s.swap(middle, hi-1)
		i := s.partition(lo, hi, pivot)
		if i-lo < hi-i {
			s.sort(lo, i-1)
			lo = i + 1
		} else {
			s.sort(i+1, hi)
			hi = i - 1
		}
	}
}

// order swaps the elements at i < j if the one at j is less, and reports whether it did.
func (s *sorter) order(i, j int) bool {
	if !s.isLess(s.get(j), s.get(i)) {
		return false
	}
	s.swap(i, j)
	return true
}

// partition moves what is less than the pivot (at hi-1) before what is greater, and returns the
// final index of the pivot. The elements at lo and hi are already on their sides and stop the two
// scans. A scan that runs past them has met an inconsistent comparison function.
func (s *sorter) partition(lo, hi int, pivot lua.LValue) int {
	i, j := lo, hi-1
	for {
		for i++; s.isLess(s.get(i), pivot); i++ {
			if i > hi {
				raise(s.L, errOrderFunction)
			}
		}
		for j--; s.isLess(pivot, s.get(j)); j-- {
			if j < lo {
				raise(s.L, errOrderFunction)
			}
		}
		if j < i {
			s.swap(hi-1, i)
			return i
		}
		s.swap(i, j)
	}
}

// swap exchanges the elements at i and j.
func (s *sorter) swap(i, j int) {
	a, b := s.get(i), s.get(j)
	s.set(i, b)
	s.set(j, a)
}

// get returns an element.
func (s *sorter) get(i int) lua.LValue { return s.L.RawGetInt(s.t, i) }

// set sets an element. One that is beyond the table, which a comparison has made shorter, costs
// what lies in between.
func (s *sorter) set(i int, v lua.LValue) {
	if i > s.t.Last() {
		s.L.RawSetInt(s.t, i, v)
		return
	}
	s.t.RawSetInt(i, v)
}

// isLess reports whether a comes before b.
func (s *sorter) isLess(a, b lua.LValue) bool {
	s.b.Charge(s.L, 1)
	if s.less == lua.LNil {
		return lessThan(s.L, s.b, a, b)
	}
	s.L.Push(s.less)
	s.L.Push(a)
	s.L.Push(b)
	s.L.Call(2, 1)
	result := lua.LVAsBool(s.L.Get(-1))
	s.L.Pop(1)
	return result
}

// lessThan is the operator < with the errors of C Lua inside a library function.
func lessThan(L *lua.LState, b *lua.Budget, x, y lua.LValue) bool {
	if x.Type() != y.Type() {
		raiseBare(L, "attempt to compare "+x.Type().String()+" with "+y.Type().String())
	}
	switch x := x.(type) {
	case lua.LNumber:
		return x < y.(lua.LNumber)
	case lua.LString:
		y := y.(lua.LString)
		b.Charge(L, int64(min(len(x), len(y)))/16)
		return strings.Compare(string(x), string(y)) < 0
	}
	meta := L.GetMetaField(x, "__lt")
	if meta == lua.LNil || !L.RawEqual(meta, L.GetMetaField(y, "__lt")) {
		raiseBare(L, "attempt to compare two "+x.Type().String()+" values")
	}
	return L.LessThan(x, y)
}
