package node

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// TestRepliesAreNotKept has a follower's client get large replies to what goes into the log. Once
// it has them, no node holds them.
func TestRepliesAreNotKept(t *testing.T) {
	_, _, clients := startThree(t)
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	c, base := clients[0], held()
	big := strings.Repeat("x", 4<<20)
	script := "redis.call('SET', KEYS[1], ARGV[1]) return string.rep('x', 4194304)"
	for i := range 50 {
		got, err := c.Eval(t.Context(), script, []string{"k"}, i).Text()
		if err != nil || got != big {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	wait.For(t, 20*time.Second, "the replies of 200 MiB are let go", func() bool {
		return held() < base+64<<20
	})
}

// Memory is returned once when a collection is far off, and not if little is held.
func TestScavenger(t *testing.T) {
	const held, objects, goal = 1 << 30, 600 << 20, 700 << 20
	var s scavenger
	allocated := uint64(1 << 40)
	for i, c := range []struct {
		cycles, held, allocates uint64
		want                    bool
	}{
		{5, held, 20 << 20, false}, // the first look
		{5, held, 20 << 20, false}, // the goal is five looks away
		{5, held, 10 << 20, false}, // ten
		{5, held, 9 << 20, true},
		{5, held, 9 << 20, false}, // nothing has happened since
		{6, held, 9 << 20, true},
		{7, mayStay - 1, 9 << 20, false},
		{7, mayStay, 9 << 20, true},
	} {
		allocated += c.allocates
		h := heap{cycles: c.cycles, held: c.held, allocated: allocated, objects: objects,
			goal: goal}
		if got := s.look(h); got != c.want {
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
