// This file contains the exchange of two databases, and the revisions that it gives to all their
// keys at once.

package keyspace

// Swap exchanges what databases a and b hold, in constant time. To exchange a database with itself
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
	x.tell(nil, Flushed)
	y.tell(nil, Flushed)
	ks.mix(uint64(a)<<8|uint64(b), uint64(x.keys.size)<<32^uint64(y.keys.size))
}

// LastChange is the revision that last changed a key, or the one that swapped its database where
// that is newer: what WATCH compares. It is 0 for a key that does not exist.
func (db *DB) LastChange(key []byte) Revision {
	if e := db.Find(key); e != nil {
		return max(e.changed, db.swapped)
	}
	return 0
}

// Creation is the revision since which a key is that of one holder: the one that created it, or the
// one that swapped its database where that is newer. It is 0 for a key that does not exist.
func (db *DB) Creation(key []byte) Revision {
	if e := db.Find(key); e != nil {
		return max(e.created, db.swapped)
	}
	return 0
}
