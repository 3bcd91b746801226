// This file contains the change of some bytes in the middle of a string, for SETRANGE and the bit
// commands.

package keyspace

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// RoomAhead bounds the room that a string which grows gets for growing on, bytes.
const RoomAhead = 1 << 20

// WriteAt writes part into a string from offset on, making the key where there is none. The string
// gets zeros at its end until it is long enough. The key must not hold another type.
func (db *DB) WriteAt(key []byte, offset int, part []byte) *Entry {
	e := db.edit(key)
	if size := offset + len(part); size > len(e.str) {
		if size > cap(e.str) || !e.own { // what lies behind the end may be another's
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
	e.changed = db.ks.rev
	db.tell(e, Modified)
	// not the whole string: it may be long
	db.ks.mix(e.hash+uint64(db.index), xxhash.Sum64(part)^pairSum(uint64(offset),
		uint64(len(e.str))))
	return e
}

// Rewritten reports whether e was changed already by what is being applied, at this revision. A
// writer that goes over the whole value at most once a revision can tell by it what it did already.
func (db *DB) Rewritten(e *Entry) bool { return e.changed == db.ks.rev }
