// A database's order of the collections whose elements have deadlines, by the earliest one. Changed
// updates it. A collection's position in the order is stored beside its deadlines, so other entries
// pay nothing.

package keyspace

// ttlsOf returns the deadlines of a collection's elements, nil if it has none.
func ttlsOf(c Collection) *ttls {
	switch c := c.(type) {
	case *Hash:
		return c.ttls
	case *Set:
		return c.ttls
	}
	return nil
}

// ttlsIn is ttlsOf for the collection in an entry's box: one with deadlines never rests.
func ttlsIn(e *Entry) *ttls {
	if !e.boxes() {
		return nil
	}
	return ttlsOf(e.box().coll)
}

// elementsOver reports whether an entry is a collection whose elements have all expired: then the
// key does not exist.
func elementsOver(e *Entry) bool {
	t := ttlsIn(e)
	return t != nil && t.over(e.box().coll.(mortal).size())
}

// scheduled returns an entry's position in the order, 0 if it has none.
func scheduled(e *Entry) int64 {
	if t := ttlsIn(e); t != nil {
		return t.due
	}
	return 0
}

// unscheduled returns c without a position in the order, whatever it was cloned from.
func unscheduled(c Collection) Collection {
	if t := ttlsOf(c); t != nil {
		t.due = 0
	}
	return c
}

// nextElement returns the earliest deadline of an entry's elements that have not expired, 0 if
// there is none.
func nextElement(e *Entry) (atMs int64) {
	t := ttlsIn(e)
	if t == nil {
		return 0
	}
	t.order.Ascend(elementDeadline{atMs: t.ks.now}, func(d elementDeadline) bool {
		atMs = d.atMs
		return false
	})
	return atMs
}

// schedule updates an entry's position in the order after a change of its elements. A collection
// without deadlines can rest again.
func (db *DB) schedule(e *Entry) {
	t := ttlsIn(e)
	if t == nil {
		return
	}
	first, some := t.order.Min()
	if first.atMs != t.due {
		db.unschedule(e)
		if t.due = first.atMs; some {
			db.elements.Set(deadline{first.atMs, e.hash(), e})
		}
	}
	if !some {
		e.box().coll.(mortal).dropTTLs()
	}
}

// unschedule removes an entry from the order.
func (db *DB) unschedule(e *Entry) {
	if due := scheduled(e); due != 0 {
		db.elements.Delete(deadline{due, e.hash(), e})
		ttlsIn(e).due = 0
	}
}

// sweepElements removes up to most expired elements, the collection with the earliest first, and
// returns how many. It removes a collection that becomes empty.
func (db *DB) sweepElements(most int) (removed int) {
	for db.ks.maySweep(most - removed) {
		if db.elements.Len() == 0 { // fast, as every entry asks all databases
			break
		}
		d, _ := db.elements.Min()
		if d.atMs >= db.ks.now {
			break
		}
		if db.dead(d.entry) {
			db.expire(d.entry)
			removed++
			continue
		}
		e := db.Edit([]byte(d.entry.Key()))
		removed += ttlsIn(e).sweep(e.box().coll.(mortal), most-removed)
		db.notify(e, ElementsExpired)
		if db.ks.quiet && !e.Emptied() {
			db.schedule(e)
			db.Noted(e, true)
		} else {
			db.Changed(e)
		}
	}
	return removed
}

// deadByElements returns the number of collections that do not exist because all their elements
// have expired.
func (db *DB) deadByElements() (n int) {
	db.elements.Scan(func(d deadline) bool {
		if d.atMs >= db.ks.now {
			db.mustLast(d.atMs)
			return false
		}
		if elementsOver(d.entry) && (d.entry.deadline == 0 || d.entry.deadline >= db.ks.now) {
			n++
		}
		return true
	})
	return n
}

// PassedCollections returns the number of collections with an expired element that is not swept
// yet, but no more than most.
func (db *DB) PassedCollections(most int) (n int) {
	db.elements.Scan(func(d deadline) bool {
		if d.atMs >= db.ks.now || n >= most {
			return false
		}
		n++
		return true
	})
	return n
}

// VolatileCollections returns the number of collections with elements that have a deadline.
func (db *DB) VolatileCollections() int { return db.elements.Len() }
