package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/coordd/coordd/internal/pulse"
)

// memoryPart is the part of a container's memory that the heap may use before the collector works
// harder.
const memoryPart = 0.9

// limitMemory sets GOMEMLIMIT from the container's limit, if there is one and GOMEMLIMIT is not
// set.
func limitMemory() {
	_, _ = memlimit.Set(memlimit.WithRatio(memoryPart), memlimit.WithProvider(memlimit.FromCgroup))
}

const (
	// lookPeriod is how often the scavenger looks.
	lookPeriod = time.Second
	// quietPeriod is how long the garbage of a peak may stay until the collector runs by itself.
	quietPeriod = 10 * time.Second
	// mayStay bytes are not worth a collection.
	mayStay = 64 << 20
)

// scavenger returns memory to the operating system when the process becomes quiet, once each time.
// It also sets how far the heap may grow.
type scavenger struct {
	cycles    uint64 // cycles of the collector, at the last look
	allocated uint64 // bytes, at the last look
	done      bool   // memory was returned, and the collector has not run since
	percent   int    // how far the heap may grow
	fixed     bool   // the environment says how far
}

// heap holds the runtime's measures.
type heap struct {
	cycles    uint64
	held      uint64 // bytes not returned to the operating system
	live      uint64 // bytes that the latest collection left
	allocated uint64 // bytes, ever
	objects   uint64 // bytes, with garbage
	goal      uint64 // bytes of objects at which the next collection ends
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/gc/heap/goal:bytes"},
	}
	metrics.Read(samples)
	n := func(i int) uint64 { return samples[i].Value.Uint64() }
	return heap{cycles: n(0), held: n(1) - n(2), live: n(3), allocated: n(4), objects: n(5),
		goal: n(6)}
}

// adapt reports whether the collector's percentage has to change, and stores it. Between half of
// largeHeap and all of it the percentage stays, so that it does not go back and forth.
func (s *scavenger) adapt(h heap) bool {
	old := s.percent
	switch {
	case s.fixed:
	case h.live >= largeHeap:
		s.percent = gcPercentLarge
	case h.live < largeHeap/2:
		s.percent = gcPercent
	}
	return s.percent != old
}

// look reports whether to return memory now: when the process allocates so little that the next
// collection would not come within the quiet period. The live heap of the latest collection does
// not tell how much there is to return: that collection may have been at the peak.
func (s *scavenger) look(h heap) bool {
	if h.cycles != s.cycles {
		s.cycles, s.done = h.cycles, false
	}
	soon := h.objects + (h.allocated-s.allocated)*uint64(quietPeriod/lookPeriod)
	s.allocated = h.allocated
	if soon >= h.goal || s.done || h.held < mayStay {
		return false
	}
	s.done = true
	return true
}

func (s *scavenger) run(ctx context.Context) {
	tick := pulse.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Next()
			h := readHeap()
			if s.adapt(h) {
				debug.SetGCPercent(s.percent)
			}
			if s.look(h) {
				debug.FreeOSMemory()
				s.cycles = readHeap().cycles
			}
		}
	}
}
