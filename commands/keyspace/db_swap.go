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

// LastChange returns what differs after each change of a key, for WATCH to compare: the revision of
// the last one, or the one that swapped its database if that is newer, and, if elements
// that expire are quietly swept, how many there are. It is 0 for a missing key.
func (db *DB) LastChange(key []byte) Revision {
	e := db.Find(key)
	if e == nil {
		return 0
	}
	changed := max(e.Changed(), db.swapped)
	// in each form: one that is awake may rest later
	if kind := e.Kind(); db.ks.quiet && (kind == KindHash || kind == KindSet) {
		changed += Revision(e.Collection().Len()) * elementsStep
	}
	return changed
}

// elementsStep is far more than revisions differ by, and odd.
const elementsStep = 0x9e3779b97f4a7c15

// Creation returns the revision that created a key, or the one that swapped its database if that is
// newer: the key has had one holder since. It is 0 for a missing key.
func (db *DB) Creation(key []byte) Revision {
	if e := db.Find(key); e != nil {
		return db.CreationOf(e)
	}
	return 0
}

// CreationOf is Creation for the entry of an existing key of db.
func (db *DB) CreationOf(e *Entry) Revision { return max(e.Created(), db.swapped) }
