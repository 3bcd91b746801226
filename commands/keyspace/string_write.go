// Writing into the middle of a string, for SETRANGE and the bit commands.

package keyspace

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// RoomAhead bounds the spare capacity of a growing string, bytes.
const RoomAhead = 1 << 20

// WriteAt writes part into a string at offset, and creates the key if missing. It first pads the
// string with zeros. The key must not hold another type.
func (db *DB) WriteAt(key []byte, offset int, part []byte) *Entry {
	e := db.edit(key)
	before := e.valueSize()
	if size := offset + len(part); size > len(e.str) {
		if size > cap(e.str) || !e.own { // another entry may own the bytes past the end
			grown := make([]byte, len(e.str), size+min(size, RoomAhead))
			copy(grown, e.str)
			e.str = grown
		}
		old := len(e.str)
		e.str = e.str[:size]
		clear(e.str[old:])
	} else if !e.own {
		e.str = slices.Clone(e.str)
	}
	e.own = true
	copy(e.str[offset:], part)
	db.recount(e, before)
	e.changed = db.ks.rev
	db.notify(e, Modified)
	// not the whole string: it may be long
	db.ks.mix(e.hash+uint64(db.index), xxhash.Sum64(part)^pairSum(uint64(offset),
		uint64(len(e.str))))
	return e
}

// Rewritten reports whether the revision being applied has already changed e. A writer that copies
// the whole value at most once per revision uses it to know whether it has.
func (db *DB) Rewritten(e *Entry) bool { return e.changed == db.ks.rev }
