package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// What lives here: how much memory Go's runtime may take, and giving back what a peak has left.

// memoryPart is the part of a container's memory that the heap may take before the collector works harder.
const memoryPart = 0.9

// limitMemory has the runtime heed the container's limit, where there is one and GOMEMLIMIT does not say otherwise.
func limitMemory() {
	_, _ = memlimit.Set(memlimit.WithRatio(memoryPart), memlimit.WithProvider(memlimit.FromCgroup))
}

const (
	// quietPeriod is how long the collector has had nothing to do before it is asked to look once more: garbage of a peak would stay for as long as little
	// is allocated.
	quietPeriod = 10 * time.Second
	// mayStay is what is not worth a collection, bytes.
	mayStay = 64 << 20
)

// scavenger gives memory back when the process has become quiet, once each time.
type scavenger struct {
	cycles uint64 // of the collector, when it last looked
	done   bool   // memory was given back, and the collector has not run since
}

// heap is what the runtime tells of itself.
type heap struct {
	cycles uint64
	held   uint64 // bytes that are not given back
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	return heap{samples[0].Value.Uint64(), samples[1].Value.Uint64() - samples[2].Value.Uint64()}
}

// look reports whether memory is to be given back now. What was live at the newest collection does not tell how much that is: it may have been at the peak.
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

// run looks until ctx ends.
func (s *scavenger) run(ctx context.Context) {
	tick := time.NewTicker(quietPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if s.look(readHeap()) {
				debug.FreeOSMemory()
				s.cycles = readHeap().cycles
			}
		}
	}
}
