// Moving and copying whole keys.

package keyspace

import "slices"

// Rename moves the value of a key and its deadline to another key, whatever that held, and reports
// whether from existed. Renaming a key to itself does nothing.
func (db *DB) Rename(from, to []byte) bool { return db.Move(from, db, to) }

// Move is Rename to a key of the database dst.
func (db *DB) Move(from []byte, dst *DB, to []byte) bool {
	e := db.Edit(from)
	if e == nil || (db == dst && e.Key() == view(to)) {
		return e != nil
	}
	db.remove(e)
	dst.put(to, e.Bytes(), e.Collection(), e.deadline)
	return true
}

// share returns a copy of a collection that shares its nodes. It marks them in both: a dry run,
// which runs beside reads, aborts here.
func (db *DB) share(c Collection) Collection {
	db.mustWrite()
	return c.Clone()
}

// Copy sets to, in the database dst, to the value and deadline of from, and reports whether from
// existed. A key must not be copied to itself.
func (db *DB) Copy(from []byte, dst *DB, to []byte) bool {
	e := db.Find(from)
	if e == nil {
		return false
	}
	dst.mustWrite() // first, as in share
	coll, str := e.Collection(), e.Bytes()
	if coll != nil {
		coll = dst.share(coll)
	}
	if e.form == texted {
		e.text().own = false
	}
	// Clipped: long strings share memory, and appending to the copy must not write past the end of
	// the original.
	dst.put(to, slices.Clip(str), coll, e.deadline)
	return true
}
