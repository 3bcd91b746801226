// What the trees of all collections share.

package keyspace

import "github.com/tidwall/btree"

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// loadShare is the share of a tree's elements, as 1/loadShare, whose removal one by one takes as
// long as rebuilding the tree.
const loadShare = 16

// RebuildCheaper reports whether removing some of n elements is cheaper by building a new tree of
// the rest.
func RebuildCheaper(some, n int) bool { return some > n/loadShare }

// without returns t without the elements for which goes holds, some in number; it may change t.
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

// finder returns a function that looks up elements, faster in order.
func finder[T any](t *btree.BTreeG[T]) func(T) (T, bool) {
	hint := new(btree.PathHint)
	return func(item T) (T, bool) { return t.GetHint(item, hint) }
}
