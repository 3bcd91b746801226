// A database's order of the hashes whose fields have deadlines, by the earliest one. Changed
// updates it. A hash's position in the order is stored beside its deadlines, so other entries pay
// nothing.

package keyspace

// hashIn returns the hash in an entry's box, else nil: a hash with deadlines never rests.
func hashIn(e *Entry) *Hash {
	if !e.boxes() {
		return nil
	}
	h, _ := e.box().coll.(*Hash)
	return h
}

// fieldsOver reports whether an entry is a hash whose fields have all expired: then the key does
// not exist.
func fieldsOver(e *Entry) bool {
	h := hashIn(e)
	return h != nil && h.over()
}

// scheduled returns an entry's position in the order, 0 if it has none.
func scheduled(e *Entry) int64 {
	if h := hashIn(e); h != nil && h.ttls != nil {
		return h.ttls.due
	}
	return 0
}

// unscheduled returns c without a position in the order, whatever it was cloned from.
func unscheduled(c Collection) Collection {
	if h, ok := c.(*Hash); ok && h.ttls != nil {
		h.ttls.due = 0
	}
	return c
}

// nextField returns the earliest deadline of a hash's fields that have not expired, 0 if there is
// none.
func nextField(e *Entry) (atMs int64) {
	h := hashIn(e)
	if h == nil || h.ttls == nil {
		return 0
	}
	h.ttls.order.Ascend(fieldDeadline{atMs: h.ttls.ks.now}, func(d fieldDeadline) bool {
		atMs = d.atMs
		return false
	})
	return atMs
}

// schedule updates an entry's position in the order after a change of its fields.
func (db *DB) schedule(e *Entry) {
	h := hashIn(e)
	if h == nil || h.ttls == nil {
		return
	}
	first, _ := h.ttls.order.Min()
	if first.atMs == h.ttls.due {
		return
	}
	db.unschedule(e)
	if h.ttls.due = first.atMs; first.atMs != 0 {
		db.fields.Set(deadline{first.atMs, e.hash(), e})
	}
}

// unschedule removes an entry from the order.
func (db *DB) unschedule(e *Entry) {
	if due := scheduled(e); due != 0 {
		db.fields.Delete(deadline{due, e.hash(), e})
		hashIn(e).ttls.due = 0
	}
}

// sweepFields removes up to most expired fields, the hash with the earliest first, and returns how
// many. It removes a hash that becomes empty.
func (db *DB) sweepFields(most int) (removed int) {
	for db.ks.maySweep(most - removed) {
		if db.fields.Len() == 0 { // fast, as every entry asks all databases
			break
		}
		d, _ := db.fields.Min()
		if d.atMs >= db.ks.now {
			break
		}
		if db.dead(d.entry) {
			db.expire(d.entry)
			removed++
			continue
		}
		e := db.Edit([]byte(d.entry.Key()))
		removed += hashIn(e).sweep(most - removed)
		db.notify(e, FieldsExpired)
		if db.ks.quiet && !e.Emptied() {
			db.schedule(e)
			db.Noted(e, true)
		} else {
			db.Changed(e)
		}
	}
	return removed
}

// deadByFields returns the number of hashes that do not exist because all their fields have
// expired.
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

// VolatileHashes returns the number of hashes with fields that have a deadline.
func (db *DB) VolatileHashes() int { return db.fields.Len() }
