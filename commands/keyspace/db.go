package keyspace

import (
	"bytes"
	"errors"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// DB is one database.
type DB struct {
	ks       *Keyspace
	index    int
	keys     *index
	volatile deadlines               // deadlines of the keys
	elements *btree.BTreeG[deadline] // collections by the earliest deadline of an element
	swapped  Revision                // revision of the newest Swap; 0 if there was none
	bytes    int64                   // what the keys count: see memory_count.go
	opened   *openBoxes              // see entry_rest.go
}

func newDB(ks *Keyspace, number int) *DB {
	return &DB{ks: ks, index: number, keys: newIndex(ks.gen), elements: newTree(deadlineLess),
		opened: &openBoxes{}}
}

// view returns b as a string without a copy. It must not be stored or outlive b.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Find returns the entry of an existing key, else nil. The entry is for reading only.
func (db *DB) Find(key []byte) *Entry {
	e := db.keys.find(hashKey(key), key)
	if e == nil || db.dead(e) {
		return nil
	}
	if e.form == rested && db.ks.writable {
		return db.ks.awake(e) // the next command of a script is likely to read or change it too
	}
	return e
}

// dead reports whether an entry's deadline has passed, or those of all elements of a
// collection: it does not exist any more, though it is not swept yet.
func (db *DB) dead(e *Entry) bool {
	if e.deadline != 0 && e.deadline < db.ks.now || elementsOver(e) {
		return true
	}
	if db.ks.until != 0 {
		db.mustLast(e.deadline)
		db.mustLast(nextElement(e))
	}
	return false
}

// Edit returns the entry of an existing key, ready to change, else nil. Call Changed after the
// change.
func (db *DB) Edit(key []byte) *Entry {
	hash := hashKey(key)
	e := db.existing(hash, key)
	if e == nil {
		return nil
	}
	if e.form == rested || uint64(e.gen) != db.ks.gen {
		if e.form == rested {
			e = db.ks.awake(e)
		} else {
			e = e.clone()
		}
		e.gen = uint32(db.ks.gen)
		db.insert(hash, e)
	}
	return db.open(e)
}

// existing returns the entry of an existing key, to be replaced, else nil.
func (db *DB) existing(hash uint64, key []byte) *Entry {
	e := db.keys.find(hash, key)
	if e == nil {
		return nil
	}
	db.mustWrite()
	if db.dead(e) {
		db.expire(e)
		return nil
	}
	return e
}

// insert stores an entry in all indexes. It replaces an older one with the same key and deadline.
func (db *DB) insert(hash uint64, e *Entry) {
	db.keys.set(hash, e)
	if due := scheduled(e); due != 0 {
		db.elements.Set(deadline{due, hash, e})
	}
}

// set stores e in place of old, which has the same key, or adds it if old is nil.
func (db *DB) set(hash uint64, old, e *Entry) *Entry {
	if old == nil {
		return db.add(hash, e)
	}
	db.unschedule(old)
	db.close(old)
	before := old.valueSize()
	e.uncount()
	e.inherit(Entry{created: old.created, changed: old.changed, deadline: old.deadline,
		gen: uint32(db.ks.gen)})
	db.wrote(e)
	db.keys.set(hash, e)
	db.count(e.valueSize() - before)
	return e
}

// add adds an entry for a key that is not in the database.
func (db *DB) add(hash uint64, e *Entry) *Entry {
	db.mustWrite()
	e.uncount()
	e.inherit(Entry{created: db.ks.rev, gen: uint32(db.ks.gen)})
	db.wrote(e)
	db.keys.set(hash, e)
	db.count(int(e.Size()))
	db.notify(e, Added)
	return e
}

// SetString sets key to a copy of value, whatever it held. It keeps the deadline: see SetDeadline.
func (db *DB) SetString(key, value []byte) *Entry {
	hash := hashKey(key)
	e := db.set(hash, db.existing(hash, key), newString(key, value))
	db.Changed(e)
	return e
}

// Overwrite is SetString, but whoever sets another value than the key has is its new holder: the
// key counts as new.
func (db *DB) Overwrite(key, value []byte) *Entry {
	hash := hashKey(key)
	old := db.existing(hash, key)
	same := old != nil && old.Kind() == KindString && bytes.Equal(old.Bytes(), value)
	e := db.set(hash, old, newString(key, value))
	if !same {
		e.renew(db.ks.rev)
	}
	db.Changed(e)
	return e
}

// OverwriteCollection is SetCollection, but the key counts as new.
func (db *DB) OverwriteCollection(key []byte, c Collection) *Entry {
	e := db.SetCollection(key, c)
	e.renew(db.ks.rev)
	return e
}

// SetCollection sets key to c, whatever it held. It keeps the deadline. The caller fills c and
// calls Changed.
func (db *DB) SetCollection(key []byte, c Collection) *Entry {
	hash := hashKey(key)
	return db.open(db.set(hash, db.existing(hash, key), newBox(key, c)))
}

// Changed records a change of e, which came from Edit or a setter: e gets the current revision. An
// empty collection removes its key, as on Redis.
func (db *DB) Changed(e *Entry) {
	if e.Emptied() {
		db.remove(e)
		return
	}
	e.touch(db.ks.rev)
	if !e.boxes() {
		db.notify(e, Modified)
		db.ks.mix(e.hash()+uint64(db.index), xxhash.Sum64(e.Bytes()))
		return
	}
	db.schedule(e)
	db.recount(e, e.valueSize())
	db.notify(e, Modified)
	db.ks.mix(e.hash()+uint64(db.index), e.box().coll.Sum())
}

// Noted records a change of e, which came from Edit and holds a collection, that WATCH does not
// count and that wakes no waiters: who has read what of a stream. With wake it wakes them.
func (db *DB) Noted(e *Entry, wake bool) {
	db.recount(e, e.valueSize())
	if wake {
		db.notify(e, Modified)
	}
	db.ks.mix(e.hash()+uint64(db.index), e.Collection().Sum())
}

// SetDeadline sets when e, which came from Edit or a setter, expires (ms of the cluster clock), 0
// for never.
func (db *DB) SetDeadline(e *Entry, atMs int64) {
	if e.deadline == atMs {
		return
	}
	db.notify(e, Retimed)
	if e.deadline != 0 {
		db.volatile.remove(e.deadline)
		db.count(-deadlineCost)
	}
	if atMs != 0 {
		db.volatile.add(atMs)
		db.count(deadlineCost)
	}
	hash := e.hash()
	e.deadline = atMs
	db.keys.set(hash, e)
	e.touch(db.ks.rev)
	db.notify(e, Modified)
	db.ks.mix(hash+uint64(db.index), uint64(atMs)+1)
}

// Delete removes key and reports whether it existed.
func (db *DB) Delete(key []byte) bool {
	e := db.existing(hashKey(key), key)
	if e == nil {
		db.Lacks(key)
		return false
	}
	db.remove(e)
	return true
}

// Lacks notes that a command's reply says that a key, or something in it, does not exist, even if
// the command changed nothing.
func (db *DB) Lacks(key []byte) {
	if db.ks.lacks != nil {
		db.ks.lacks(db.index, key, db.ks.writable)
	}
}

// expire removes an entry whose deadline, or those of all its elements, has passed.
func (db *DB) expire(e *Entry) {
	if e.deadline != 0 && e.deadline < db.ks.now {
		db.notify(e, Expired)
		db.ks.expired++
	} else {
		db.notify(e, ElementsExpired)
	}
	db.drop(e)
}

// remove removes an existing entry.
func (db *DB) remove(e *Entry) {
	db.notify(e, Removed)
	db.drop(e)
}

// drop removes an entry from all indexes.
func (db *DB) drop(e *Entry) {
	db.close(e)
	hash := e.hash()
	db.keys.remove(hash, e)
	db.count(-int(e.Size()))
	if e.deadline != 0 {
		db.volatile.remove(e.deadline)
	}
	db.unschedule(e)
	db.ks.mix(hash+uint64(db.index), 0)
}

// Flush removes every key. The observer is told even if there is none, as Redis tells its clients.
func (db *DB) Flush() {
	db.mustWrite()
	db.notify(nil, Flushed)
	if db.keys.size > 0 {
		db.ks.mix(uint64(db.index), uint64(db.keys.size))
		db.closeAll()
		db.keys, db.volatile, db.elements = newIndex(db.ks.gen), deadlines{}, newTree(deadlineLess)
		db.count(-int(db.bytes))
	}
}

// notify notifies the observer of a change to e, or to all entries if e is nil.
func (db *DB) notify(e *Entry, c Change) {
	if db.ks.observe != nil {
		db.ks.observe(db.index, e, c)
	}
	if db.ks.trace != nil && (db.ks.tracing || ends(e, c)) {
		db.ks.trace(db.index, e, c)
	}
}

// Len returns the number of existing keys.
func (db *DB) Len() int {
	n := db.keys.size
	db.keys.dueBefore(max(db.ks.now, db.ks.until), func(atMs int64) {
		if atMs < db.ks.now {
			n--
		}
		db.mustLast(atMs)
	})
	return n - db.deadByElements()
}

// Size returns the number of keys, including expired ones that are not swept yet.
func (db *DB) Size() int { return db.keys.size }

// Volatile returns the number of keys with a deadline, including expired ones that are not swept
// yet.
func (db *DB) Volatile() int { return db.volatile.n }

// MeanTTL returns how long they have left on average, ms; 0: there are none.
func (db *DB) MeanTTL() int64 { return max(db.volatile.mean()-db.ks.now, 0) }

// Each calls f with every existing key, in the order of (hash, key), until f returns false. f must
// not change the keyspace.
func (db *DB) Each(f func(*Entry) bool) {
	db.keys.from(0, func(s slot) bool { return db.dead(s.entry) || f(s.entry) })
}

// Scan calls f with the keys from cursor on, at least count of them if there are as many, and
// returns the next cursor, 0 at the end. An iteration visits a key that exists throughout exactly
// once: the order does not depend on other keys, and keys with equal cursors come in one step.
func (db *DB) Scan(cursor uint64, count int, f func(*Entry)) (next uint64) {
	s := scan{count: count}
	db.keys.from(cursorStart(cursor), func(sl slot) bool {
		if !s.covers(sl.hash) {
			return false
		}
		if !db.dead(sl.entry) {
			f(sl.entry)
		}
		return true
	})
	return s.next
}

// ErrClosed is the panic of a change outside of an entry: in a dry run, or by a handler that should
// only read.
var ErrClosed = errors.New("keyspace: a change outside of an entry")

func (db *DB) mustWrite() {
	if !db.ks.writable {
		panic(ErrClosed)
	}
	db.ks.edits++
}

// Create creates a string for a key that does not exist, as Find has just reported. It removes an
// expired key that is not swept yet.
func (db *DB) Create(key, value []byte) *Entry {
	db.mustWrite()
	hash := hashKey(key)
	if e := db.keys.find(hash, key); e != nil {
		db.expire(e)
	}
	e := db.add(hash, newString(key, value))
	db.Changed(e)
	return e
}

// put sets key to a collection, or to a string if that is nil, with a deadline, whatever it held.
// It takes over both. The key counts as new: its creation is the current revision.
func (db *DB) put(key []byte, str []byte, coll Collection, deadlineMs int64) {
	db.Delete(key)
	var e *Entry
	switch {
	case coll != nil:
		e = newBox(key, unscheduled(coll))
	case len(str) > maxPacked:
		e = newText(key, str)
	default:
		e = newString(key, str)
	}
	db.open(db.add(hashKey(key), e))
	db.Changed(e)
	db.SetDeadline(e, deadlineMs)
}

// Random returns an existing key, chosen by seed with nearly equal chances, or nil if there is
// none.
func (db *DB) Random(seed uint64) *Entry {
	n := db.keys.size
	if n == 0 {
		return nil
	}
	start := db.keys.at(int(seed % uint64(n)))
	var found *Entry
	alive := func(s slot) bool {
		if !db.dead(s.entry) {
			found = s.entry
		}
		return found == nil
	}
	db.keys.from(start.hash, alive)
	if found == nil {
		db.keys.from(0, alive)
	}
	return found
}
