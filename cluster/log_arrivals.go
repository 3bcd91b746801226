// The stamps of entries as they arrive in this node's log.

package cluster

import (
	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
)

// arrivals has the clock know the newest stamp in the log.
type arrivals struct {
	*clock.Arrivals
	entryClock func(data []byte) (clockMs, wallUs int64, ok bool)
}

func newArrivals(by clock.Clock,
	entryClock func(data []byte) (clockMs, wallUs int64, ok bool)) *arrivals {
	return &arrivals{clock.NewArrivals(by), entryClock}
}

// stampOf returns the stamp of a command entry that is not void.
func (a *arrivals) stampOf(l *raft.Log) (s clock.Stamp, ok bool) {
	if l.Type != raft.LogCommand || isVoid(l) {
		return s, false
	}
	s.ClockMs, s.WallUs, ok = a.entryClock(l.Data)
	return s, ok
}

// stored records the newest stamped entry among logs, which were just stored.
func (a *arrivals) stored(logs []*raft.Log) {
	for i := len(logs) - 1; i >= 0; i-- {
		if s, ok := a.stampOf(logs[i]); ok {
			a.Note(s)
			return
		}
	}
}
