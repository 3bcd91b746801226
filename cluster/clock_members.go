// The wall clocks of the members: the time of day jumps only where a majority of them is.

package cluster

import (
	"math"
	"slices"
	"time"

	"github.com/hashicorp/raft"
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
func (n *Node) noteShift(clock *leaderClock) {
	if m, ok := n.machine.machine.(Shifter); ok {
		clock.setShift(m.ShiftMs())
	}
}

// walls is what the wall clocks of the voters say.
type walls struct {
	aheadMs int64 // a majority is ahead of this node's by as much at least
	known   bool  // there are so many
	settled bool  // those that are not known yet would change nothing
}

// awaitWalls returns how far a majority of the voters' wall clocks is ahead of this node's. If the
// cluster's clock stood still it waits for those that count, while it leads in term.
func (n *Node) awaitWalls(term uint64) (w walls) {
	n.askMembers()
	for began := time.Now(); ; {
		w = n.wallsAhead()
		if w.settled || n.arrivals.running() || time.Since(began) >= wallsWait || !n.leadsIn(term) {
			break
		}
		n.noteProgress(time.Now())
		select {
		case <-time.After(leaderTick):
		case <-n.stop:
			return walls{}
		}
	}
	switch {
	case n.arrivals.running():
	case !w.known:
		n.logger.Warn("the wall clocks of a majority are not known: TIME goes on where it stopped")
	case max(w.aheadMs, -w.aheadMs) > wrongWallMs:
		n.logger.Warn("the wall clock of this node is wrong, or those of a majority are",
			"behind-ms", w.aheadMs)
	}
	return w
}

// wrongWallMs is how far wall clocks may differ before this is logged.
const wrongWallMs = 1000

// settleWalls has the time of day follow a majority of the wall clocks slowly. It jumps to those
// that became known after the beginning of a leadership, until those of a majority are where no
// other could change it.
func (n *Node) settleWalls(lead *leadership) {
	ahead, silent, voters := n.voterWalls()
	lead.steer(steerTo(ahead, voters))
	if !lead.wallsOpen {
		return
	}
	w := majorityOf(ahead, silent, voters)
	if w.known {
		if jumpMs := lead.catchUp(w.aheadMs); jumpMs > wrongWallMs {
			n.logger.Warn("TIME jumps forward to the wall clocks of a majority", "ms", jumpMs)
		}
	}
	lead.wallsOpen = !w.settled
}

// wallsAhead compares the wall clocks of the voters with this node's.
func (n *Node) wallsAhead() walls { return majorityOf(n.voterWalls()) }

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

// steerTo returns how far what the time of day follows is ahead of this node's wall clock: 0,
// unless a majority of the wall clocks is ahead of it, or behind.
func steerTo(ahead []int64, voters int) int64 {
	if least, ok := majorityAt(slices.Clone(ahead), voters); ok && least > 0 {
		return least
	}
	behind := make([]int64, len(ahead))
	for i, ms := range ahead {
		behind[i] = -ms
	}
	if least, ok := majorityAt(behind, voters); ok && least > 0 {
		return -least
	}
	return 0
}

// majorityOf returns what the clocks of some voters say, of which silent ones may say more.
func majorityOf(ahead []int64, silent, voters int) (w walls) {
	w.aheadMs, w.known = majorityAt(slices.Clone(ahead), voters)
	most, _ := majorityAt(append(ahead, slices.Repeat([]int64{math.MaxInt64}, silent)...), voters)
	w.settled = silent == 0 || w.known && most != math.MaxInt64 && most-w.aheadMs <= wrongWallMs
	return w
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
