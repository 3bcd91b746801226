package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
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
	// quietPeriod without a collection starts one: the garbage of a peak would stay while little is
	// allocated.
	quietPeriod = 10 * time.Second
	// mayStay bytes are not worth a collection.
	mayStay = 64 << 20
)

// scavenger returns memory to the operating system when the process becomes quiet, once each time.
// It also sets how far the heap may grow.
type scavenger struct {
	cycles  uint64 // of the collector, at the last look
	done    bool   // memory was returned, and the collector has not run since
	percent int    // how far the heap may grow
	fixed   bool   // the environment says how far
}

// heap holds the runtime's measures.
type heap struct {
	cycles uint64
	held   uint64 // bytes not returned to the operating system
	live   uint64 // bytes that the latest collection left
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64() - samples[2].Value.Uint64(),
		samples[3].Value.Uint64()}
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

// look reports whether to return memory now. The live heap of the latest collection does not tell
// how much there is to return: that collection may have been at the peak.
func (s *scavenger) look(h heap) bool {
	quiet := h.cycles == s.cycles
	if !quiet {
		s.cycles, s.done = h.cycles, false
	}
	if !quiet || s.done || h.held < mayStay {
		return false
	}
	s.done = true
	return true
}

func (s *scavenger) run(ctx context.Context) {
	tick := time.NewTicker(quietPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
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
