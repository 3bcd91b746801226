// The marks of a key: what clients use it for, as the machine has seen them do.

package keyspace

// mark is a bit of Entry.created and Entry.changed that no revision has: in the first it says that
// clients use the key as a lock, in the second as a window. It goes with the key through all forms
// and costs no memory. No reply to a client's command on data and no running hash depends on it.
const mark Revision = 1 << 63

// Lease reports whether the key is marked as a lock.
func (e *Entry) Lease() bool { return e.created&mark != 0 }

// Acquired reports whether the key is marked as a lock that a LOCK command took: with both marks.
func (e *Entry) Acquired() bool { return e.created&e.changed&mark != 0 }

// Window reports whether the key is marked as a window.
func (e *Entry) Window() bool { return e.created&mark == 0 && e.changed&mark != 0 }

// MarkLease marks the key as a lock, or takes all marks away. Only the log entry that changes e may
// do so: a snapshot may be reading an older one. A lock that a LOCK command took stays one.
func (e *Entry) MarkLease(on bool) {
	if on && e.Acquired() {
		return
	}
	e.created, e.changed = e.created&^mark, e.changed&^mark
	if on {
		e.created |= mark
	}
}

// MarkAcquired marks the key as a lock that a LOCK command took, under the same condition.
func (e *Entry) MarkAcquired() { e.created, e.changed = e.created|mark, e.changed|mark }

// MarkWindow marks the key as a window, under the same condition.
func (e *Entry) MarkWindow() {
	e.created, e.changed = e.created&^mark, e.changed|mark
}

// renew notes that e counts as created at a revision: whoever took the lock has it no more.
func (e *Entry) renew(at Revision) {
	if e.Acquired() {
		e.changed &^= mark
	}
	e.created = e.created&mark | at
}

// touch notes that e is changed at a revision.
func (e *Entry) touch(at Revision) { e.changed = e.changed&mark | at }

// ends reports whether a change ends a lease.
func ends(e *Entry, c Change) bool { return (c == Expired || c == Removed) && e.Lease() }

// The marks in a record, beside the kind.
const (
	recordLease  = 0x80
	recordWindow = 0x40
	recordMarks  = recordLease | recordWindow
)

// recordMark returns the marks of e for its record.
func recordMark(e *Entry) byte {
	switch {
	case e.Acquired():
		return recordMarks
	case e.Lease():
		return recordLease
	case e.Window():
		return recordWindow
	}
	return 0
}

// markLikely marks a key from a snapshot of a release that knew no marks: with a deadline, a string
// that is no number and a hash of one field are probably locks, numbers and sorted sets windows.
func markLikely(e *Entry) {
	if e.deadline == 0 {
		return
	}
	switch e.Kind() {
	case KindString:
		if isDigits(e.Bytes()) {
			e.MarkWindow()
		} else {
			e.MarkLease(true)
		}
	case KindHash:
		e.MarkLease(e.Collection().Len() == 1)
	case KindZSet:
		e.MarkWindow()
	}
}

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
