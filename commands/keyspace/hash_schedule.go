// This file contains how a database knows of its hashes' fields that have a deadline: an order of
// those hashes by the earliest one. It is brought up to date by Changed; where in it a hash lies is
// kept beside the deadlines, so that other entries pay nothing.

package keyspace

// fieldsOver reports whether an entry is a hash whose fields' deadlines have all passed: then there
// is no such key any more.
func fieldsOver(e *Entry) bool {
	h, ok := e.coll.(*Hash)
	return ok && h.over()
}

// scheduled is where an entry lies in the order, 0 if it does not.
func scheduled(e *Entry) int64 {
	if h, ok := e.coll.(*Hash); ok && h.ttls != nil {
		return h.ttls.due
	}
	return 0
}

// unscheduled is a collection that is not in the order, whatever it was cloned from.
func unscheduled(c Collection) Collection {
	if h, ok := c.(*Hash); ok && h.ttls != nil {
		h.ttls.due = 0
	}
	return c
}

// schedule puts an entry into its place in the order after its fields were changed.
func (db *DB) schedule(e *Entry) {
	h, ok := e.coll.(*Hash)
	if !ok || h.ttls == nil {
		return
	}
	first, _ := h.ttls.order.Min()
	if first.atMs == h.ttls.due {
		return
	}
	db.unschedule(e)
	if h.ttls.due = first.atMs; first.atMs != 0 {
		db.fields.Set(deadline{first.atMs, e.hash, e})
	}
}

// unschedule takes an entry out of the order.
func (db *DB) unschedule(e *Entry) {
	if due := scheduled(e); due != 0 {
		db.fields.Delete(deadline{due, e.hash, e})
		e.coll.(*Hash).ttls.due = 0
	}
}

// sweepFields removes up to most fields whose deadline has passed, those of the hash with the
// earliest first, and counts them. A hash of which nothing is left goes at once.
func (db *DB) sweepFields(most int) (removed int) {
	for removed < most {
		d, ok := earliest(db.fields)
		if !ok || d.atMs >= db.ks.now {
			break
		}
		if db.dead(d.entry) {
			db.expire(d.entry)
			removed++
			continue
		}
		e := db.Edit([]byte(d.entry.key))
		removed += e.coll.(*Hash).sweep(most - removed)
		db.tell(e, FieldsExpired)
		db.Changed(e)
	}
	return removed
}

// deadByFields counts the hashes that do not exist because the deadlines of all their fields have
// passed.
func (db *DB) deadByFields() (n int) {
	db.fields.Scan(func(d deadline) bool {
		if d.atMs >= db.ks.now {
			db.mustLast(d.atMs)
			return false
		}
		if fieldsOver(d.entry) && (d.entry.deadline == 0 || d.entry.deadline >= db.ks.now) {
			n++
		}
		return true
	})
	return n
}

// VolatileHashes counts the hashes with fields that have a deadline.
func (db *DB) VolatileHashes() int { return db.fields.Len() }
