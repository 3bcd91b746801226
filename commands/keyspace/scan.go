package keyspace

// cursorBits is how many bits of a hash a SCAN cursor has: clients may store it in a double.
const cursorBits = 48

// cursorStart returns the smallest hash of a cursor.
func cursorStart(cursor uint64) uint64 { return cursor << (64 - cursorBits) }

// scan decides where one step of an iteration by hash ends.
type scan struct {
	count int    // elements wanted
	seen  int    // elements taken
	last  uint64 // cursor of the newest element taken
	next  uint64 // where the next step starts; 0 means the end was reached
}

// covers reports whether the element with this hash belongs to the step. Elements with equal
// cursors stay together.
func (s *scan) covers(hash uint64) bool {
	at := hash >> (64 - cursorBits)
	if s.seen >= s.count && at != s.last {
		s.next = at
		return false
	}
	s.seen++
	s.last = at
	return true
}
