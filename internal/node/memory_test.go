package node

import "testing"

// Memory is returned once after each quiet period, and not if little is held.
func TestScavenger(t *testing.T) {
	var s scavenger
	for i, c := range []struct {
		cycles, held uint64
		want         bool
	}{
		{5, 1 << 30, false}, // busy
		{9, 1 << 30, false},
		{9, 1 << 30, true},
		{9, 1 << 30, false}, // nothing has happened since
		{10, 1 << 30, false},
		{10, mayStay - 1, false},
		{10, mayStay, true},
	} {
		if got := s.look(heap{c.cycles, c.held}); got != c.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}
