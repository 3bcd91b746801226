// Swapping databases, and the revisions that this gives to all their keys at once.

package keyspace

// Swap swaps the contents of databases a and b, in constant time. Swapping a database with itself
// does nothing.
func (ks *Keyspace) Swap(a, b int) {
	x, y := ks.dbs[a], ks.dbs[b]
	if x == y {
		return
	}
	x.mustWrite()
	ks.dbs[a], ks.dbs[b] = y, x
	x.index, y.index = b, a
	x.swapped, y.swapped = ks.rev, ks.rev
	x.notify(nil, Flushed)
	y.notify(nil, Flushed)
	ks.mix(uint64(a)<<8|uint64(b), uint64(x.keys.size)<<32^uint64(y.keys.size))
}

// LastChange returns the revision that last changed a key, or the one that swapped its database if
// that is newer: what WATCH compares. It is 0 for a missing key.
func (db *DB) LastChange(key []byte) Revision {
	if e := db.Find(key); e != nil {
		return max(e.Changed(), db.swapped)
	}
	return 0
}

// Creation returns the revision that created a key, or the one that swapped its database if that is
// newer: the key has had one holder since. It is 0 for a missing key.
func (db *DB) Creation(key []byte) Revision {
	if e := db.Find(key); e != nil {
		return max(e.Created(), db.swapped)
	}
	return 0
}
