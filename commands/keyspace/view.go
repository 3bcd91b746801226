// This file contains the keyspace as dry runs see it: as it is, but for what the next entry may
// find gone.

package keyspace

// At gives a view of a keyspace that is not written to, for as long as it is not. It shows the
// same, but panics with ErrClosed where an entry stamped with nowMs would find a key or a field
// gone not expired at Now: only the entry can say so.
func (ks *Keyspace) At(nowMs int64) *Keyspace {
	view := *ks
	view.until, view.writable = nowMs, false
	for i, db := range ks.dbs {
		d := *db
		d.ks = &view
		view.dbs[i] = &d
	}
	return &view
}

// mustLast panics in a view if a deadline that was not over at Now is over.
func (db *DB) mustLast(atMs int64) {
	if atMs != 0 && atMs >= db.ks.now && atMs < db.ks.until {
		panic(ErrClosed)
	}
}
