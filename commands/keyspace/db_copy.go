// This file contains the ways to put or take a whole key besides those of db.go: creating one that
// is known not to exist, renaming, copying, picking one at random.

package keyspace

// Create makes a string of a key that does not exist: Find has just said so. One whose deadline has
// passed and that was not swept yet makes room.
func (db *DB) Create(key, value []byte) *Entry {
	db.mustWrite()
	if e := db.keys.find(hashKey(key), key); e != nil {
		db.expire(e)
	}
	e := db.add(key)
	e.str = append([]byte(nil), value...)
	db.Changed(e)
	return e
}

// put makes key hold a value with a deadline, in the place of whatever it held. The key is a new
// one: it gets the current revision as its creation.
func (db *DB) put(key []byte, str []byte, coll Collection, deadlineMs int64) {
	db.Delete(key)
	e := db.add(key)
	e.str, e.coll = str, unscheduled(coll)
	db.Changed(e)
	db.SetDeadline(e, deadlineMs)
}

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

// Random returns a key that exists, chosen by seed with about equal chances, or nil where there is
// none.
func (db *DB) Random(seed uint64) *Entry {
	n := db.keys.size
	if n == 0 {
		return nil
	}
	start := db.keys.at(int(seed % uint64(n)))
	var found *Entry
	alive := func(s slot) bool {
		if !db.dead(s.entry) {
			found = s.entry
		}
		return found == nil
	}
	db.keys.from(start.hash, alive)
	if found == nil {
		db.keys.from(0, alive)
	}
	return found
}
