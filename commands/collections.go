// What the commands of hashes, sets and sorted sets share: typed lookups, and the change of a
// collection.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// ErrNotPositive is the error for a count that is not a number or is negative.
const ErrNotPositive Error = "ERR value is out of range, must be positive"

// collectionKey is the KeySpec of a command with one key, its first argument.
var collectionKey = KeySpec{First: 1, Last: 1, Step: 1}

// What a lookup returns for a missing key: empty, and for reading only.
var (
	noHash = keyspace.NewHash()
	noZSet = keyspace.NewZSet()
)

// findHash returns the hash at key for reading, an empty one if the key does not exist, or
// ErrWrongType.
func findHash(x *Call, key []byte) (*keyspace.Hash, error) {
	h, err := findCollection(x, key, noHash)
	if err == nil && x.Level < LevelSecond {
		x.Spend(h.Dead() / 8) // as in 0.1, whoever skips them
	}
	return h, err
}

// walkHash is findHash for who walks over all fields.
func walkHash(x *Call, key []byte) (*keyspace.Hash, error) {
	h, err := findHash(x, key)
	if err == nil {
		x.spendDeadElements(h, math.MaxInt)
	}
	return h, err
}

// walkHashOf is walkHash for an entry, false if it is of another type.
func (x *Call) walkHashOf(e *keyspace.Entry) (h *keyspace.Hash, ok bool) {
	if h, ok = e.Collection().(*keyspace.Hash); ok {
		x.spendDeadElements(h, math.MaxInt)
	}
	return h, ok
}

// mortal is a collection whose elements may have deadlines.
type mortal interface {
	keyspace.Collection
	Deadline(name []byte) (atMs int64, exists bool)
	SetDeadline(ks *keyspace.Keyspace, name []byte, atMs int64)
	Delete(name []byte) bool
	Dead() int
}

// spendDeadElements adds the work of skipping expired elements that are not swept yet, for who
// walks over most elements.
func (x *Call) spendDeadElements(c mortal, most int) {
	if x.Level >= LevelSecond {
		x.Spend(min(c.Dead(), most))
	}
}

// A collection with so many elements at most may rest, and is then read from its block. That takes
// so many units of Env.Work for each.
const (
	restedElements = 40
	wokenElement   = 3
)

// spendWaking adds the work of finding a collection, for who names many: any of them may rest.
// Which do differs between nodes, so each is charged as if it did.
func (x *Call) spendWaking(c keyspace.Collection) {
	if n := c.Len(); x.Level >= LevelSecond && n <= restedElements {
		x.Spend(wokenElement * n)
	}
}

// findZSet is findHash for sorted sets.
func findZSet(x *Call, key []byte) (*keyspace.ZSet, error) { return findCollection(x, key, noZSet) }

// compactable is a collection with a small form, which is searched linearly.
type compactable interface {
	keyspace.Collection
	Compact() bool
}

// searched is how many elements of a small form are compared in a unit of work.
const searched = 16

// findCollection returns the collection at key for reading, none if the key does not exist, or
// ErrWrongType.
func findCollection[T keyspace.Collection](x *Call, key []byte, none T) (T, error) {
	e := x.find(key)
	if e == nil {
		if none.Kind() != keyspace.KindList {
			x.spendLookups(0)
		}
		return none, nil
	}
	c, ok := e.Collection().(T)
	if !ok {
		return none, ErrWrongType
	}
	if small, ok := any(c).(compactable); ok && small.Compact() &&
		(x.Level < LevelSecond || x.oneKey()) {
		// each argument after the key may be a name to look up
		x.Spend((len(x.Args) - 2) * c.Len() / searched)
	}
	if c.Kind() != keyspace.KindList {
		x.spendLookups(c.Len())
	}
	return c, nil
}

// editHash returns the hash at key and its entry, both ready to change. It creates them if missing.
// findHash has checked the type. Lookup and edit are two steps, so that a command that changes
// nothing writes nothing.
func editHash(x *Call, key []byte) (*keyspace.Entry, *keyspace.Hash) {
	return editCollection(x, key, keyspace.NewHash)
}

// editZSet is editHash for sorted sets.
func editZSet(x *Call, key []byte) (*keyspace.Entry, *keyspace.ZSet) {
	return editCollection(x, key, keyspace.NewZSet)
}

func editCollection[T keyspace.Collection](x *Call, key []byte,
	create func() T) (*keyspace.Entry, T) {
	if e := x.DB().Edit(key); e != nil {
		return e, e.Collection().(T)
	}
	c := create()
	return x.DB().SetCollection(key, c), c
}

// storeCollection sets key to c, without a deadline, whatever it held, and notifies event. An empty
// c removes the key.
func storeCollection(x *Call, key []byte, c keyspace.Collection, class NotifyClass, event string) {
	if c.Len() == 0 {
		x.deleteKey(key)
		return
	}
	store := x.DB().SetCollection
	if x.Level >= LevelSecond { // whoever overwrites a key is its new holder
		store = x.DB().OverwriteCollection
	}
	before := x.kindAt(x.Tx.DB, key)
	e := store(key, c)
	x.DB().SetDeadline(e, 0)
	x.overwritten(x.Tx.DB, key, before, c.Kind())
	x.changed(e, class, event)
}
