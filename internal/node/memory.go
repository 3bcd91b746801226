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
type scavenger struct {
	cycles uint64 // of the collector, at the last look
	done   bool   // memory was returned, and the collector has not run since
}

// heap holds the runtime's measures.
type heap struct {
	cycles uint64
	held   uint64 // bytes not returned to the operating system
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
			if s.look(readHeap()) {
				debug.FreeOSMemory()
				s.cycles = readHeap().cycles
			}
		}
	}
}
