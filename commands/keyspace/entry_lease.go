// The mark of a lease: a node notes at a key that a client took it as a lock.

package keyspace

// leaseMark is a bit of Entry.created that no revision has. It goes with the key through all forms,
// costs no memory, and is no part of the state: no reply to a client's command on data, no snapshot
// and no running hash depends on it.
const leaseMark Revision = 1 << 63

// Lease reports whether the key is marked as a lock.
func (e *Entry) Lease() bool { return e.created&leaseMark != 0 }

// MarkLease marks the key as a lock, or takes the mark away. Only the log entry that changes e may
// do so: a snapshot may be reading an older one.
func (e *Entry) MarkLease(on bool) {
	if e.created &^= leaseMark; on {
		e.created |= leaseMark
	}
}

// ends reports whether a change ends a lease.
func ends(e *Entry, c Change) bool { return (c == Expired || c == Removed) && e.Lease() }

// likelyLease reports whether a key from a snapshot, which has no marks, probably is a lock: with a
// deadline, and a string that is no number or a hash of one field.
func likelyLease(e *Entry) bool {
	switch {
	case e.deadline == 0:
		return false
	case e.Kind() == KindHash:
		return e.Collection().Len() == 1
	case e.Kind() != KindString:
		return false
	}
	for _, c := range e.Bytes() {
		if c < '0' || c > '9' {
			return true
		}
	}
	return false
}
