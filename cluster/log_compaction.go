// How long the log on disk gets. Raft counts entries, and checks every half minute or so. An entry
// here may have 32 MiB, or take a quarter of a second to apply, so the log's bytes are bounded too,
// and the work of replaying it.

package cluster

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/pulse"
)

const (
	// compactAfter is how many bytes of entries come between two snapshots, or as many as the
	// newest snapshot has if that is more: a node does not write much more for snapshots than for
	// its log.
	compactAfter = 256 << 20
	// replayWork is how many units of work (commands.Env.Work, 25 ns at most) come between two
	// snapshots, or as many as reading the newest snapshot takes if that is more. A restart repeats
	// them, for a few seconds.
	replayWork = 200_000_000
	// loadWork is about how many units of work it takes to read a byte of a snapshot.
	loadWork = 2
	// trailingBytes is how many bytes of entries are kept after a snapshot for followers that lag.
	// Those that lag more get the snapshot.
	trailingBytes = 64 << 20
	// raftTrailing is how many entries Raft keeps after a snapshot: as few as leave the end of the
	// log alone. The log store decides how many stay.
	raftTrailing = 1
	loadedPoll   = 100 * time.Millisecond
)

// growth counts the bytes of entries after the newest snapshot, also from before a restart, and the
// work of those that were applied.
type growth struct {
	mu    lockorder.Mutex
	first uint64   // the index of the first of sizes
	sizes []uint32 // bytes of the entries from first on

	works []appliedWork // work of the applied entries, in their order

	bytes, work       atomic.Int64  // the sums of both
	dueBytes, dueWork atomic.Int64  // at which a snapshot is due
	wake              chan struct{} // kicked then
}

// appliedWork is the work of applying an entry.
type appliedWork struct {
	index uint64
	work  int64
}

func newGrowth() *growth { return &growth{wake: make(chan struct{}, 1)} }

// add counts stored entries. Those that they replace no longer count.
func (g *growth) add(logs []*raft.Log) {
	g.mu.Lock()
	for _, l := range logs {
		if g.cutLocked(l.Index - 1); len(g.sizes) == 0 || l.Index != g.first+uint64(len(g.sizes)) {
			g.first, g.sizes = l.Index, g.sizes[:0]
			g.bytes.Store(0)
		}
		g.sizes = append(g.sizes, uint32(len(l.Data)))
		g.bytes.Add(int64(len(l.Data)))
	}
	g.mu.Unlock()
	if g.bytes.Load() >= g.dueBytes.Load() {
		kick(g.wake)
	}
}

// applied counts the work of an applied entry.
func (g *growth) applied(index, work uint64) {
	w := appliedWork{index, int64(min(work, math.MaxInt32))}
	g.mu.Lock()
	g.works = append(g.works, w)
	g.mu.Unlock()
	if g.work.Add(w.work) >= g.dueWork.Load() {
		kick(g.wake)
	}
}

// cutLocked forgets entries after an index.
func (g *growth) cutLocked(last uint64) {
	for n := len(g.sizes); n > 0 && g.first+uint64(n)-1 > last; n-- {
		g.bytes.Add(-int64(g.sizes[n-1]))
		g.sizes = g.sizes[:n-1]
	}
}

// covered forgets entries up to the index of a snapshot.
func (g *growth) covered(index uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	applied := 0
	for _, w := range g.works {
		if w.index > index {
			break
		}
		g.work.Add(-w.work)
		applied++
	}
	g.works = slices.Clone(g.works[applied:])
	if index < g.first {
		return
	}
	n := min(index-g.first+1, uint64(len(g.sizes)))
	for _, size := range g.sizes[:n] {
		g.bytes.Add(-int64(size))
	}
	g.first, g.sizes = g.first+n, slices.Clone(g.sizes[n:])
}

// stagger lowers a bound by up to a third, by the member's rank among the ids: all members count
// the same bytes and work, and if a majority wrote snapshots at the same moment, clients would wait
// for it.
func stagger(bound int64, members raft.Configuration, id string) int64 {
	rank := int64(0)
	for _, s := range members.Servers {
		if string(s.ID) < id {
			rank++
		}
	}
	return bound - bound*rank/(3*max(int64(len(members.Servers))-1, 1))
}

// boundLog is the loop that takes a snapshot when the log has grown enough.
func (n *Node) boundLog() {
	g := n.logs.growth
	if !n.awaitLoaded() {
		// a log that is too long at the start gets its snapshot once there is something to write
		return
	}
	poll := pulse.NewTicker(spacePoll)
	defer poll.Stop()
	warned := false
	var pause time.Duration // after early snapshots that failed
	var notBefore time.Time
	for {
		size := n.stores.snapshots.newest.Load().size
		members := n.view().members
		bytes := stagger(max(int64(n.cfg.compactAfter), size), members, n.cfg.ID)
		work := stagger(max(int64(n.cfg.replayWork), size*loadWork), members, n.cfg.ID)
		over := func() bool { return g.bytes.Load() >= bytes || g.work.Load() >= work }
		due, short := over(), n.logs.space.short()
		if short {
			if !warned {
				n.logger.Warn("there is little room on the disk: the log is kept short")
			}
			warned = true
			n.spareRoom()
			due = time.Now().After(notBefore) && n.promising() && (due || n.early(size))
		}
		if due {
			before := n.stores.snapshots.newest.Load().index
			if err := n.Snapshot(); err != nil && err != errStopping {
				n.logger.Warn("snapshot failed while the log grows", "error", err)
				pause = min(max(2*pause, spacePoll), earlyPause)
				notBefore = time.Now().Add(pause)
			} else {
				pause = 0
			}
			if over() && n.stores.snapshots.newest.Load().index > before {
				continue // that much arrived while the snapshot was written
			}
		}
		// What still exceeds the bound could not be covered, for nothing new is committed, or there
		// is no room: retry when there is more.
		dueBytes, dueWork := again(g.bytes.Load(), bytes), again(g.work.Load(), work)
		if short {
			dueBytes = min(dueBytes, g.bytes.Load()+earlyGrowth)
		}
		g.dueBytes.Store(dueBytes)
		g.dueWork.Store(dueWork)
		for waits := true; waits; {
			select {
			case <-g.wake:
				waits = false
			case <-poll.C:
				poll.Next()
				waits = !n.logs.space.short()
			case <-n.stop:
				return
			}
		}
	}
}

// promising reports whether a snapshot would not be the same as the newest one, and not fail.
func (n *Node) promising() bool {
	return n.machine.appliedIndex.Load() > n.stores.snapshots.newest.Load().index &&
		n.logs.space.fits()
}

// early reports whether a node whose disk is short of room takes a snapshot before it is due, when
// the newest one has size bytes.
func (n *Node) early(size int64) bool {
	space, grown := n.logs.space, n.logs.growth.bytes.Load()
	return grown >= max(earlyGrowth, size/8) || n.logs.refused() ||
		grown >= earlyGrowth && space.left() < segmentBytes
}

// again returns the size at which growth is checked next.
func again(grown, bound int64) int64 {
	if grown < bound {
		return bound
	}
	return grown + bound/8
}

// awaitLoaded waits until the machine has replayed the log. It returns false when the node stops
// first.
func (n *Node) awaitLoaded() bool {
	ticker := time.NewTicker(loadedPoll)
	defer ticker.Stop()
	for n.machine.loading() {
		select {
		case <-ticker.C:
		case <-n.stop:
			return false
		}
	}
	return true
}

// retained returns how many of the newest entries are kept after a snapshot.
func (s *logStore) retained(first, last uint64) uint64 {
	most, mostBytes := s.trailing, s.trailingBytes
	if s.space.short() {
		most, mostBytes = min(most, shortTrailing), min(mostBytes, shortTrailingBytes)
	}
	kept, size := uint64(0), 0
	for i := last; i >= max(first, 1) && kept < most; i-- {
		var l raft.Log
		if s.peek(i, &l) != nil {
			break
		}
		if size += len(l.Data); size > mostBytes {
			break
		}
		kept++
	}
	return kept
}
