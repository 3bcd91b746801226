// The keyspace as dry runs see it.

package keyspace

// At returns a view of a keyspace, valid while that is not written to. It shows the same content,
// but panics with ErrClosed at a key or an element that has not expired at Now and that an entry
// stamped nowMs would find expired: only that entry can decide.
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

// mustLast panics in a view if a deadline passes between Now and the time of the view.
func (db *DB) mustLast(atMs int64) {
	if atMs != 0 && atMs >= db.ks.now && atMs < db.ks.until {
		panic(ErrClosed)
	}
}
