package keyspace

// cursorBits is how much of a hash a SCAN cursor shows: it has to survive clients that keep it in a
// double.
const cursorBits = 48

// cursorStart is the smallest hash that a cursor stands for.
func cursorStart(cursor uint64) uint64 { return cursor << (64 - cursorBits) }

// scan decides where one step of an iteration by hash ends.
type scan struct {
	count int    // elements wanted
	seen  int    // elements taken
	last  uint64 // cursor of the newest element taken
	next  uint64 // where the next step starts; 0 means the end was reached
}

// take reports whether the element with this hash belongs to the step. Elements that share a cursor
// are never parted.
func (s *scan) take(hash uint64) bool {
	at := hash >> (64 - cursorBits)
	if s.seen >= s.count && at != s.last {
		s.next = at
		return false
	}
	s.seen++
	s.last = at
	return true
}
