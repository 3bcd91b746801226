// The wall clocks of the members: the time of day jumps only where a majority of them is.

package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
)

// wallsWait bounds how long a new leader of a cluster whose clock stood still waits for the wall
// clocks of a majority. Its links to those that elected it are up or about to be.
const wallsWait = 2 * time.Second

// wallKept is how long a member's wall clock counts: it may be set at any time. A leader asks every
// askEvery, a new one when it begins to wait.
const wallKept = 2 * wallsWait

// wallMs returns this node's wall clock, ms since 1970, as it tells others.
func (n *Node) wallMs() uint64 { return uint64(max(n.cfg.Clock.Wall().UnixMilli(), 0)) }

// noteWall notes what a member's wall clock shows now; 0: it tells none. The caller holds mu.
func (l *link) noteWall(wallMs uint64) {
	l.wallMs, l.walled = 0, l.n.cfg.Clock.Monotonic()
	if wallMs != 0 {
		l.wallMs = int64(wallMs) - l.walled.Milliseconds()
	}
}

// wall returns the member's wall clock, ms since 1970, if it told it lately. tells: if it has not,
// it may soon.
func (l *link) wall() (ms int64, known, tells bool) {
	if l == nil {
		return 0, false, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.n.cfg.Clock.Monotonic()
	return l.wallMs + now.Milliseconds(), l.wallMs != 0 && now-l.walled <= wallKept,
		l.wire == nil || l.peer.abilities&abilityWalls != 0
}

// noteShift tells a leader's clock what an administrator has set.
func (n *Node) noteShift(c *clock.Leader) {
	if m, ok := n.machine.machine.(Shifter); ok {
		c.SetShift(m.ShiftMs())
	}
}

// awaitWalls returns how far a majority of the voters' wall clocks is ahead of this node's. If the
// cluster's clock stood still it waits for those that count, while it leads in term.
func (n *Node) awaitWalls(term uint64) (w clock.Walls) {
	n.askMembers()
	for began := time.Now(); ; {
		w = n.wallsAhead()
		if w.Settled || n.arrivals.Running() || time.Since(began) >= wallsWait || !n.leadsIn(term) {
			break
		}
		n.noteProgress(time.Now())
		select {
		case <-time.After(leaderTick):
		case <-n.stop:
			return clock.Walls{}
		}
	}
	switch {
	case n.arrivals.Running():
	case !w.Known:
		n.logger.Warn("the wall clocks of a majority are not known: TIME goes on where it stopped")
	case max(w.AheadMs, -w.AheadMs) > clock.WrongWallMs:
		n.logger.Warn("the wall clock of this node is wrong, or those of a majority are",
			"behind-ms", w.AheadMs)
	}
	return w
}

// settleWalls has the time of day follow a majority of the wall clocks slowly. It jumps to those
// that became known after the beginning of a leadership, until those of a majority are where no
// other could change it.
func (n *Node) settleWalls(lead *leadership) {
	ahead, silent, voters := n.voterWalls()
	lead.Steer(ahead, voters)
	if !lead.wallsOpen {
		return
	}
	w := clock.MajorityOf(ahead, silent, voters)
	if w.Known {
		if jumpMs := lead.CatchUp(w.AheadMs); jumpMs > clock.WrongWallMs {
			n.logger.Warn("TIME jumps forward to the wall clocks of a majority", "ms", jumpMs)
		}
	}
	lead.wallsOpen = !w.Settled
}

// wallsAhead compares the wall clocks of the voters with this node's.
func (n *Node) wallsAhead() clock.Walls { return clock.MajorityOf(n.voterWalls()) }

// voterWalls returns how far the wall clocks of voters are ahead of this node's. A silent one may
// still say anything, a member of release 0.1 never does.
func (n *Node) voterWalls() (ahead []int64, silent, voters int) {
	own := n.cfg.Clock.Wall().UnixMilli()
	for _, s := range n.view().members.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == n.cfg.ID {
			ahead = append(ahead, 0)
			continue
		}
		switch ms, known, tells := n.link(string(s.ID)).wall(); {
		case known:
			ahead = append(ahead, ms-own)
		case tells:
			silent++
		}
	}
	return ahead, silent, voters
}
