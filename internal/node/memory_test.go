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
		if got := s.look(heap{cycles: c.cycles, held: c.held}); got != c.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}

// A large heap grows less, and the environment's GOGC stays.
func TestScavengerAdapts(t *testing.T) {
	s, fixed := scavenger{percent: gcPercent}, scavenger{percent: 50, fixed: true}
	for i, c := range []struct {
		live    uint64
		percent int
		changes bool
	}{
		{largeHeap - 1, gcPercent, false},
		{largeHeap, gcPercentLarge, true},
		{largeHeap / 2, gcPercentLarge, false},
		{largeHeap/2 - 1, gcPercent, true},
		{largeHeap / 2, gcPercent, false},
	} {
		if changes := s.adapt(heap{live: c.live}); changes != c.changes || s.percent != c.percent {
			t.Errorf("step %d: %d, changed: %v", i, s.percent, changes)
		}
		if fixed.adapt(heap{live: c.live}) || fixed.percent != 50 {
			t.Errorf("step %d: GOGC is overruled", i)
		}
	}
}
