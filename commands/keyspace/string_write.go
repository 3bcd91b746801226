// Writing into a string, for APPEND, SETRANGE and the bit commands.

package keyspace

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// RoomAhead bounds the spare capacity of a growing string, bytes.
const RoomAhead = 1 << 20

// AppendString appends to a string, and creates it if missing. The key must not hold another type.
func (db *DB) AppendString(key, tail []byte) *Entry {
	hash := hashKey(key)
	e := db.existing(hash, key)
	if old := stringOf(e); len(old)+len(tail) <= maxPacked {
		e = db.set(hash, e, newString(key, append(slices.Clip(old), tail...)))
	} else {
		t := db.editText(key)
		before := t.valueSize()
		// Appending in place is safe under a running snapshot: its slice header ends before the new
		// bytes.
		t.str = append(t.str, tail...)
		e = &t.Entry
		db.recount(e, before)
	}
	db.rewritten(e, xxhash.Sum64(tail)+uint64(len(e.Bytes())))
	return e
}

// WriteAt writes part into a string at offset, and creates the key if missing. It first pads the
// string with zeros. The key must not hold another type.
func (db *DB) WriteAt(key []byte, offset int, part []byte) *Entry {
	hash := hashKey(key)
	e := db.existing(hash, key)
	old := stringOf(e)
	if size := max(len(old), offset+len(part)); size <= maxPacked {
		value := make([]byte, size)
		copy(value, old)
		copy(value[offset:], part)
		e = db.set(hash, e, newString(key, value))
	} else {
		t := db.editText(key)
		before := t.valueSize()
		t.writeAt(offset, part)
		e = &t.Entry
		db.recount(e, before)
	}
	db.rewritten(e, xxhash.Sum64(part)^pairSum(uint64(offset), uint64(len(e.Bytes()))))
	return e
}

// stringOf returns the string of an entry that may be nil.
func stringOf(e *Entry) []byte {
	if e == nil {
		return nil
	}
	return e.Bytes()
}

// editText returns the string at key, ready to change in place, and creates it if missing.
func (db *DB) editText(key []byte) *text {
	e := db.Edit(key)
	if e == nil || e.form != texted {
		e = db.set(hashKey(key), e, newText(key, slices.Clone(stringOf(e))))
	}
	return e.text()
}

// writeAt writes part at offset, after padding with zeros.
func (t *text) writeAt(offset int, part []byte) {
	if size := offset + len(part); size > len(t.str) {
		if size > cap(t.str) || !t.own { // another entry may own the bytes past the end
			grown := make([]byte, len(t.str), size+min(size, RoomAhead))
			copy(grown, t.str)
			t.str = grown
		}
		old := len(t.str)
		t.str = t.str[:size]
		clear(t.str[old:])
	} else if !t.own {
		t.str = slices.Clone(t.str)
	}
	t.own = true
	copy(t.str[offset:], part)
}

// rewritten records a change of a part of a string, of which it takes a hash: the whole string may
// be long.
func (db *DB) rewritten(e *Entry, sum uint64) {
	db.wrote(e)
	e.touch(db.ks.rev)
	db.notify(e, Modified)
	db.ks.mix(e.hash()+uint64(db.index), sum)
}

// wrote notes that the revision being applied writes the value of e, if that is a long string.
func (db *DB) wrote(e *Entry) {
	if e.form == texted {
		e.text().wrote = db.ks.rev
	}
}

// Rewritten reports whether the revision being applied has already changed e. A writer that copies
// the whole value at most once per revision uses it to know whether it has.
func (db *DB) Rewritten(e *Entry) bool { return e.Changed() == db.ks.rev }

// RewrittenValue is Rewritten of the value: another deadline copies no string.
func (db *DB) RewrittenValue(e *Entry) bool {
	return db.Rewritten(e) && (e.form != texted || e.text().wrote == db.ks.rev)
}
