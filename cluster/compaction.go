// This file holds how long the log on disk gets. Raft counts entries, and looks every half minute or so; an entry here may have 32 MiB, so
// its bytes are bounded too.
package cluster

import (
	"sync/atomic"

	"github.com/hashicorp/raft"
)

const (
	// compactAfter is how many bytes of entries come between two snapshots at most, or as many as the newest snapshot has, where that is more:
	// a node does not write much more for its snapshots than for its log.
	compactAfter = 256 << 20
	// trailingBytes is how many bytes of entries stay behind a snapshot at most, for followers that lag. Those that lag more get the snapshot.
	trailingBytes = 64 << 20
	// raftTrailing is how many entries Raft leaves behind a snapshot: as few as leave the end of the log alone. How many stay the log store decides.
	raftTrailing = 1
)

// growth counts the bytes of entries since the newest snapshot was begun.
type growth struct {
	bytes atomic.Int64
	due   atomic.Int64  // the bytes at which a snapshot is wanted
	wake  chan struct{} // kicked then
}

func newGrowth() *growth { return &growth{wake: make(chan struct{}, 1)} }

func (g *growth) add(logs []*raft.Log) {
	size := int64(0)
	for _, l := range logs {
		size += int64(len(l.Data))
	}
	if g.bytes.Add(size) >= g.due.Load() {
		kick(g.wake)
	}
}

// boundLog is the loop that takes a snapshot when the log has grown enough.
func (n *Node) boundLog() {
	g := n.logs.growth
	for {
		bound := max(int64(n.cfg.compactAfter), n.stores.snapshots.newest.Load().size)
		due := bound
		if g.bytes.Load() >= bound {
			if err := n.Snapshot(); err != nil {
				n.logger.Warn("the log grows, and no snapshot can be taken", "error", err)
			}
			if grown := g.bytes.Load(); grown >= bound { // nor was there anything new that is committed: again when there is more
				due = grown + bound/8
			}
		}
		g.due.Store(due)
		select {
		case <-g.wake:
		case <-n.stop:
			return
		}
	}
}

// retained returns how many of the newest entries stay behind a snapshot, given the index of the last one.
func (s *logStore) retained(first, last uint64) uint64 {
	kept, size := uint64(0), 0
	for i := last; i >= max(first, 1) && kept < s.trailing; i-- {
		var l raft.Log
		if s.GetLog(i, &l) != nil {
			break
		}
		if size += len(l.Data); size > s.trailingBytes {
			break
		}
		kept++
	}
	return kept
}
