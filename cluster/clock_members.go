// The wall clocks of the members: the time of day jumps only where a majority of them is.

package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// wallsWait bounds how long a new leader of a cluster whose clock stood still waits for the wall
// clocks of a majority. Its links to those that elected it are up or about to be.
const wallsWait = 2 * time.Second

// noteWall notes the wall clock of a member that connected. The caller holds mu.
func (l *link) noteWall(wallMs uint64) {
	l.wallMs = 0
	if wallMs != 0 {
		l.wallMs = int64(wallMs) - l.n.cfg.Clock.Monotonic().Milliseconds()
	}
}

// wall returns the member's wall clock, ms since 1970, as its newest hello tells; false: it tells
// none.
func (l *link) wall() (ms int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wallMs + l.n.cfg.Clock.Monotonic().Milliseconds(), l.wallMs != 0
}

// noteShift tells a leader's clock what an administrator has set.
func (n *Node) noteShift(clock *leaderClock) {
	if m, ok := n.machine.machine.(Shifter); ok {
		clock.setShift(m.ShiftMs())
	}
}

// awaitWalls returns how far a majority of the voters' wall clocks is ahead of this node's. If the
// cluster's clock stood still it waits for them; agreed is false if there are too few.
func (n *Node) awaitWalls() (aheadMs int64, agreed bool) {
	for began := time.Now(); ; {
		aheadMs, agreed = n.wallsAhead()
		if agreed || n.arrivals.running() || time.Since(began) >= wallsWait {
			break
		}
		select {
		case <-time.After(leaderTick):
		case <-n.stop:
			return 0, false
		}
	}
	switch {
	case n.arrivals.running():
	case !agreed:
		n.logger.Warn("the wall clocks of a majority are not known: TIME goes on where it stopped")
	case max(aheadMs, -aheadMs) > wrongWallMs:
		n.logger.Warn("the wall clock of this node is wrong, or those of a majority are",
			"behind-ms", aheadMs)
	}
	return aheadMs, agreed
}

// wrongWallMs is how far wall clocks may differ before this is logged.
const wrongWallMs = 1000

// wallsAhead returns by how much at least the wall clocks of a majority of the voters are ahead of
// this node's.
func (n *Node) wallsAhead() (aheadMs int64, known bool) {
	var ahead []int64
	voters, own := 0, n.cfg.Clock.Wall().UnixMilli()
	for _, s := range n.view().members.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == n.cfg.ID {
			ahead = append(ahead, 0)
		} else if l := n.link(string(s.ID)); l != nil {
			if ms, ok := l.wall(); ok {
				ahead = append(ahead, ms-own)
			}
		}
	}
	return majorityAt(ahead, voters)
}

// majorityAt returns the largest value that a majority of the voters is at or past, given the
// values of some of them; false: of too few.
func majorityAt(values []int64, voters int) (value int64, ok bool) {
	if len(values) <= voters/2 {
		return 0, false
	}
	slices.Sort(values)
	return values[len(values)-1-voters/2], true
}
