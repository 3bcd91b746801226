// Moving and copying whole keys.

package keyspace

// Rename moves the value of a key with its deadline to another key, in the place of what that held,
// and reports whether from existed. To rename a key to itself does nothing.
func (db *DB) Rename(from, to []byte) bool { return db.Move(from, db, to) }

// Move is Rename to a key of the database dst.
func (db *DB) Move(from []byte, dst *DB, to []byte) bool {
	e := db.Edit(from)
	if e == nil || (db == dst && e.key == view(to)) {
		return e != nil
	}
	db.remove(e)
	dst.put(to, e.str, e.coll, e.deadline)
	return true
}

// Copy makes to, in the database dst, hold what from holds, deadline included, in the place of what
// it held, and reports whether from existed. A key must not be copied to itself.
func (db *DB) Copy(from []byte, dst *DB, to []byte) bool {
	e := db.Find(from)
	if e == nil {
		return false
	}
	// before what the copy shares is marked as shared: a dry run, which is aborted here, runs
	// beside reads
	dst.mustWrite()
	coll := e.coll
	if coll != nil {
		coll = coll.Clone()
	}
	// Clipped: the two strings share memory, and appending to the copy must not write behind the
	// original's end.
	e.own = false
	dst.put(to, e.str[:len(e.str):len(e.str)], coll, e.deadline)
	return true
}
