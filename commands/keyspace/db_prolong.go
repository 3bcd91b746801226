// Deadlines that a lease moves: of keys, and of fields of hashes. It is no change of the key that
// anybody waits for or is notified of, only a later end.

package keyspace

// held returns the entry of a key, if a revision created it and it has the deadline atMs, or its
// field has; nil if not.
func (db *DB) held(key, field []byte, created Revision, atMs int64) *Entry {
	e := db.Find(key)
	switch {
	case e == nil || e.Created() != created:
		return nil
	case len(field) == 0 && e.deadline == atMs:
		return e
	case len(field) == 0 || ttlsIn(e) == nil:
		return nil
	}
	h, ok := e.box().coll.(*Hash) //hash: one field of it
	if !ok {
		return nil
	}
	if own, exists := h.Deadline(field); !exists || own != atMs {
		return nil
	}
	return e
}

// Held reports whether a revision created a key, and it has the deadline atMs, or its field has, if
// one is named.
func (db *DB) Held(key, field []byte, created Revision, atMs int64) bool {
	return db.held(key, field, created, atMs) != nil
}

// Prolong moves the deadline of what is Held from fromMs to toMs, neither of which is 0, and
// reports whether it was. The key's revision stays, and the observer is not told.
func (db *DB) Prolong(key, field []byte, created Revision, fromMs, toMs int64) bool {
	e := db.held(key, field, created, fromMs)
	switch {
	case e == nil:
		return false
	case fromMs == toMs:
		return true
	case e.form == rested || uint64(e.gen) != db.ks.gen || len(field) > 0:
		e = db.Edit(key)
	}
	if len(field) > 0 {
		h, _ := e.box().coll.(*Hash) //hash: one field of it
		h.SetDeadline(db.ks, field, toMs)
		db.schedule(e)
		db.Noted(e, false)
		return true
	}
	db.volatile.remove(fromMs)
	db.volatile.add(toMs)
	hash := e.hash()
	e.deadline = toMs
	db.keys.set(hash, e)
	db.ks.mix(hash+uint64(db.index), uint64(toMs)+1)
	return true
}
