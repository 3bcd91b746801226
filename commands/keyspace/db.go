package keyspace

import (
	"errors"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// DB is one database.
type DB struct {
	ks    *Keyspace
	index int
	keys  *index
	// expiry holds the entries that have a deadline. Each database has its own, so that Swap moves
	// it along.
	expiry  *btree.BTreeG[deadline]
	fields  *btree.BTreeG[deadline] // hashes by the earliest deadline of a field
	swapped Revision                // of the newest Swap; 0 if there was none
}

func newDB(ks *Keyspace, number int) *DB {
	return &DB{ks: ks, index: number, keys: newIndex(ks.gen), expiry: newExpiry(),
		fields: newExpiry()}
}

// view reads b as a string without a copy; it must not outlive b or be stored.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Find returns the entry of a key that exists, else nil. The entry is for reading only.
func (db *DB) Find(key []byte) *Entry {
	e := db.keys.find(hashKey(key), key)
	if e == nil || db.dead(e) {
		return nil
	}
	return e
}

// dead reports whether an entry's deadline has passed, or those of all fields of a hash: it does
// not exist any more, though it was not swept yet.
func (db *DB) dead(e *Entry) bool {
	if e.deadline != 0 && e.deadline < db.ks.now || e.coll != nil && fieldsOver(e) {
		return true
	}
	if db.ks.until != 0 {
		db.mustLast(e.deadline)
		db.mustLast(scheduled(e))
	}
	return false
}

// Edit returns the entry of a key that exists, ready to be changed, else nil. Whoever changed it
// calls Changed.
func (db *DB) Edit(key []byte) *Entry {
	e := db.keys.find(hashKey(key), key)
	if e == nil {
		return nil
	}
	db.mustWrite()
	if db.dead(e) {
		db.expire(e)
		return nil
	}
	if uint64(e.gen) == db.ks.gen {
		return e
	}
	c := *e
	c.gen, c.own = uint32(db.ks.gen), false
	if e.coll != nil {
		c.coll = e.coll.Clone()
	}
	db.insert(&c)
	return &c
}

// insert puts an entry under its key everywhere, over an older one with the same key and deadline
// if there is one.
func (db *DB) insert(e *Entry) {
	db.keys.set(e)
	if e.deadline != 0 {
		db.expiry.Set(deadline{e.deadline, e.hash, e})
	}
	if due := scheduled(e); due != 0 {
		db.fields.Set(deadline{due, e.hash, e})
	}
}

// add makes an entry of a key that is not in the database.
func (db *DB) add(key []byte) *Entry {
	db.mustWrite()
	e := &Entry{hash: hashKey(key), key: string(key), created: db.ks.rev, gen: uint32(db.ks.gen)}
	db.insert(e)
	db.tell(e, Added)
	return e
}

// edit returns the entry of key, ready to be changed, making one where there is none.
func (db *DB) edit(key []byte) *Entry {
	if e := db.Edit(key); e != nil {
		return e
	}
	return db.add(key)
}

// SetString makes key a string with a copy of value, whatever it held. Its deadline stays: see
// SetDeadline.
func (db *DB) SetString(key, value []byte) *Entry {
	e := db.edit(key)
	db.unschedule(e)
	e.coll = nil
	e.str = append([]byte(nil), value...)
	db.Changed(e)
	return e
}

// AppendString appends to a string, making it where there is none. The key must not hold another
// type.
func (db *DB) AppendString(key, tail []byte) *Entry {
	e := db.edit(key)
	// Appending in place is safe under a running snapshot: its own header of the slice ends before
	// the new bytes.
	e.str = append(e.str, tail...)
	e.changed = db.ks.rev
	db.tell(e, Modified)
	// not the whole string: it may be long
	db.ks.mix(e.hash+uint64(db.index), xxhash.Sum64(tail)+uint64(len(e.str)))
	return e
}

// SetCollection makes key hold c, whatever it held. Its deadline stays. The caller fills c and
// calls Changed.
func (db *DB) SetCollection(key []byte, c Collection) *Entry {
	e := db.edit(key)
	db.unschedule(e)
	e.str, e.coll = nil, c
	return e
}

// Changed records that e, which came from Edit or a setter, was changed: it gets the current
// revision, and a collection that is now empty removes its key, as on Redis.
func (db *DB) Changed(e *Entry) {
	if e.Emptied() {
		db.remove(e)
		return
	}
	db.schedule(e)
	e.changed = db.ks.rev
	db.tell(e, Modified)
	if e.coll != nil {
		db.ks.mix(e.hash+uint64(db.index), e.coll.Sum())
	} else {
		db.ks.mix(e.hash+uint64(db.index), xxhash.Sum64(e.str))
	}
}

// Noted records that e, which came from Edit and holds a collection, was changed in a way that
// WATCH does not count and that brings those who wait for the key nothing: who read what of a
// stream. With wake they look again all the same.
func (db *DB) Noted(e *Entry, wake bool) {
	if wake {
		db.tell(e, Modified)
	}
	db.ks.mix(e.hash+uint64(db.index), e.coll.Sum())
}

// SetDeadline sets when e, which came from Edit or a setter, expires (ms of the cluster clock); 0
// makes it stay.
func (db *DB) SetDeadline(e *Entry, atMs int64) {
	if e.deadline == atMs {
		return
	}
	if e.deadline != 0 {
		db.expiry.Delete(deadline{e.deadline, e.hash, e})
	}
	if atMs != 0 {
		db.expiry.Set(deadline{atMs, e.hash, e})
	}
	e.deadline = atMs
	e.changed = db.ks.rev
	db.tell(e, Modified)
	db.ks.mix(e.hash+uint64(db.index), uint64(atMs)+1)
}

// Delete removes key and reports whether it existed.
func (db *DB) Delete(key []byte) bool {
	e := db.keys.find(hashKey(key), key)
	if e == nil {
		return false
	}
	db.mustWrite()
	if db.dead(e) {
		db.expire(e)
		return false
	}
	db.remove(e)
	return true
}

// expire removes an entry whose deadline has passed, or those of all of its fields.
func (db *DB) expire(e *Entry) {
	if e.deadline != 0 && e.deadline < db.ks.now {
		db.tell(e, Expired)
		db.ks.expired++
	} else {
		db.tell(e, FieldsExpired)
	}
	db.drop(e)
}

// remove takes out an entry that exists.
func (db *DB) remove(e *Entry) {
	db.tell(e, Removed)
	db.drop(e)
}

// drop takes an entry out everywhere.
func (db *DB) drop(e *Entry) {
	db.keys.remove(e)
	if e.deadline != 0 {
		db.expiry.Delete(deadline{e.deadline, e.hash, e})
	}
	db.unschedule(e)
	db.ks.mix(e.hash+uint64(db.index), 0)
}

// Flush removes every key.
func (db *DB) Flush() {
	db.mustWrite()
	if db.keys.size > 0 {
		db.tell(nil, Flushed)
		db.ks.mix(uint64(db.index), uint64(db.keys.size))
		db.keys, db.expiry, db.fields = newIndex(db.ks.gen), newExpiry(), newExpiry()
	}
}

// tell tells the observer of a change to an entry, or to all of them where e is nil.
func (db *DB) tell(e *Entry, c Change) {
	if db.ks.observe != nil {
		db.ks.observe(db.index, e, c)
	}
}

// Len counts the keys that exist.
func (db *DB) Len() int {
	n := db.keys.size
	db.expiry.Scan(func(d deadline) bool {
		if d.atMs >= db.ks.now {
			db.mustLast(d.atMs)
			return false
		}
		n--
		return true
	})
	return n - db.deadByFields()
}

// Size counts the keys, those included that are past their deadline and not swept yet.
func (db *DB) Size() int { return db.keys.size }

// Volatile counts the keys that have a deadline, those included that are past it and not swept yet.
func (db *DB) Volatile() int { return db.expiry.Len() }

// Each calls f with every key that exists, in the order of (hash, key), until f answers false. f
// must not change the keyspace.
func (db *DB) Each(f func(*Entry) bool) {
	db.keys.from(0, func(s slot) bool { return db.dead(s.entry) || f(s.entry) })
}

// Scan calls f with the keys from a cursor on, at least count of them where there are as many, and
// returns the cursor to go on from, 0 at the end. A key that exists during the whole of an
// iteration is seen once: the order does not depend on other keys, and keys whose cursors are equal
// come in one step.
func (db *DB) Scan(cursor uint64, count int, f func(*Entry)) (next uint64) {
	s := scan{count: count}
	db.keys.from(cursorStart(cursor), func(sl slot) bool {
		if !s.take(sl.hash) {
			return false
		}
		if !db.dead(sl.entry) {
			f(sl.entry)
		}
		return true
	})
	return s.next
}

// ErrClosed is what a change panics with that no entry makes: a handler that only reads is wrong,
// or a command is tried that would write.
var ErrClosed = errors.New("keyspace: a change outside of an entry")

func (db *DB) mustWrite() {
	if !db.ks.writable {
		panic(ErrClosed)
	}
	db.ks.edits++
}

// Create makes a string of a key that does not exist: Find has just said so. One whose deadline has
// passed and that was not swept yet makes room.
func (db *DB) Create(key, value []byte) *Entry {
	db.mustWrite()
	if e := db.keys.find(hashKey(key), key); e != nil {
		db.expire(e)
	}
	e := db.add(key)
	e.str = append([]byte(nil), value...)
	db.Changed(e)
	return e
}

// put makes key hold a value with a deadline, in the place of whatever it held. The key is a new
// one: it gets the current revision as its creation.
func (db *DB) put(key []byte, str []byte, coll Collection, deadlineMs int64) {
	db.Delete(key)
	e := db.add(key)
	e.str, e.coll = str, unscheduled(coll)
	db.Changed(e)
	db.SetDeadline(e, deadlineMs)
}

// Random returns a key that exists, chosen by seed with about equal chances, or nil where there is
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
