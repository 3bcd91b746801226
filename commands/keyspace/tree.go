// This file contains what the trees of all collections have in common.

package keyspace

import "github.com/tidwall/btree"

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// loadShare is how many elements are taken out of a tree, one by one, in the time in which each of
// its elements is looked at and put into a new one, as a share of them.
const loadShare = 16

// RebuildCheaper reports whether to take out some of n elements by making a tree of those that
// stay.
func RebuildCheaper(some, n int) bool { return some > n/loadShare }

// without returns t without the elements that goes holds for, of which there are some; it may
// change t.
func without[T any](t *btree.BTreeG[T], less func(a, b T) bool, some int,
	goes func(T) bool) *btree.BTreeG[T] {
	rest := newTree(less)
	if some < t.Len() {
		t.Scan(func(item T) bool {
			if !goes(item) {
				rest.Load(item)
			}
			return true
		})
	}
	return rest
}

// finder returns a function that looks up elements, with less work where they come in order.
func finder[T any](t *btree.BTreeG[T]) func(T) (T, bool) {
	hint := new(btree.PathHint)
	return func(item T) (T, bool) { return t.GetHint(item, hint) }
}
