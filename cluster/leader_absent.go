// When followers know that there is no leader, none of them waits for a heartbeat timeout.
//
// A follower finds the leader dead when its connection to the leader broke, and the leader's
// address then refuses another one: the kernel answers for a process that is not there. A process
// that is paused or slow, a lost packet and a host that is down do not look like that. A follower
// that has just started finds that it has not heard from a leader yet. Followers tell each other
// what they find. When a majority of the voters has found the same in the same term, the one with
// the longest log stands for election at once, and the next one a moment later, if that does not
// win. A voter that refuses its vote for a term that it entered stands a moment later as well:
// what the dead leader sent last may have reached it after it told how long its log was.
// docs/adr/0021 has the argument.

package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/lockorder"
)

// finding is that a voter has no leader: that of the term is dead, or it has heard from none since
// it started.
type finding struct {
	term      uint64
	lastIndex uint64        // index of the last entry in the voter's log
	stores    time.Duration // how long its newest write to the disk took
	at        time.Time     // when this node learned of it
}

// findings holds the newest finding of each member.
type findings struct {
	mu      lockorder.Mutex
	others  map[string]finding
	refused refusal // the newest

	standsIn atomic.Uint64 // the term in which this node stands if it asks itself to

	// in which the node started: in a later one, somebody may just have been elected
	startTerm uint64

	deadIn uint64    // the newest term whose leader this node found dead; the route loop's
	own    finding   // zero while this node has a leader; the route loop's
	stood  time.Time // the time of the finding for which this node stood; the route loop's
}

// refusal is a vote that this node refused because its own log is longer, for the term that it
// entered by that.
type refusal struct {
	candidate string
	term      uint64
	at        time.Time
}

func (d *findings) note(member string, f finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.others == nil {
		d.others = map[string]finding{}
	}
	f.at = time.Now()
	d.others[member] = f
}

// watchTurn tells the other members that this node has no leader, and stands for election when it
// is its turn. dead is the link to the leader of term, nil if there has been none since the start.
// It returns when to look again at the latest.
func (n *Node) watchTurn(dead *link, term uint64, now time.Time) time.Duration {
	d, members := &n.findings, n.configuration()
	if d.own.at.IsZero() || d.own.term != term {
		d.own = finding{term: term, lastIndex: n.raft.LastIndex(), stores: n.storeTime(),
			at: now}
		if dead != nil {
			d.deadIn = term
		}
	}
	for _, s := range members.Servers {
		if l := n.link(string(s.ID)); l != nil && l != dead {
			l.tell(d.own)
		}
	}
	at, majority := d.turn(members, n.cfg.ID, now, n.cfg.HeartbeatTimeout)
	if !majority || d.stood == d.own.at || !n.fitToLead() {
		return longestRest
	}
	if wait := at.Sub(now); wait > 0 {
		return min(wait, longestRest)
	}
	d.stood = d.own.at
	n.logger.Info("a majority has no leader, this node stands for election", "term", term)
	n.loops.Go(func() { n.stand(term) })
	return longestRest
}

// turn returns when it is a voter's turn to stand, and whether a majority of the voters has found
// what it has. A node waits for those with longer logs, and a moment for voters that have not
// spoken, one of which may have one.
func (d *findings) turn(members raft.Configuration, self string, now time.Time,
	beat time.Duration) (at time.Time, majority bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	voters, agree, ahead, votes := 0, 0, 0, false
	at = d.own.at
	slowest := d.own.stores
	for _, s := range members.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		id := string(s.ID)
		f := d.others[id]
		if id == self {
			agree, votes = agree+1, true
			continue
		}
		if f.term != d.own.term || now.Sub(f.at) > beat {
			continue
		}
		agree++
		slowest = max(slowest, f.stores)
		if f.at.After(at) {
			at = f.at
		}
		if f.lastIndex > d.own.lastIndex || f.lastIndex == d.own.lastIndex && id < self {
			ahead++
		}
	}
	if agree < voters-1 { // one voter may be the dead leader
		ahead++
	}
	return at.Add(time.Duration(ahead) * headStart(beat, slowest)), votes && agree > voters/2
}

// watchRefusal stands for election when a candidate that this node refused has had the time to win
// without it, and at once if it could not: the other voters are too few, since this node found the
// leader dead. Raft would wait up to two heartbeat timeouts, and so would the candidate. The route
// loop calls it while no leader is known; contact is when one was last heard from. It returns when
// to look again at the latest.
func (n *Node) watchRefusal(term uint64, contact, now time.Time) time.Duration {
	n.findings.mu.Lock()
	defer n.findings.mu.Unlock()
	r := &n.findings.refused
	if r.term != term || contact.After(r.at) || !n.fitToLead() {
		return longestRest
	}
	others := n.votersBut(r.candidate)
	rank, voter := slices.BinarySearch(others, n.cfg.ID)
	if !voter {
		return longestRest
	}
	beat := n.cfg.HeartbeatTimeout
	due := r.at.Add(beat/2 + time.Duration(rank)*headStart(beat, n.storeTime()))
	dead := n.findings.deadIn
	needed := dead > 0 && dead+1 == term && len(others)-1 <= (len(others)+1)/2
	if wait := due.Sub(now); wait > 0 && !needed {
		return min(wait, longestRest)
	}
	n.logger.Info("who was refused a vote did not win, this node stands for election",
		"refused", r.candidate, "term", term)
	*r = refusal{}
	n.loops.Go(func() { n.stand(term) })
	return longestRest
}

// noteRefusal notes that this node refused a vote.
func (n *Node) noteRefusal(candidate string, term uint64) {
	n.findings.mu.Lock()
	n.findings.refused = refusal{candidate: candidate, term: term, at: time.Now()}
	n.findings.mu.Unlock()
	kick(n.routeWake)
}

// stand makes Raft stand for election at once, as when a leader hands over: voters that have heard
// from the leader of term lately do not refuse.
func (n *Node) stand(term uint64) {
	self := raft.ServerID(n.cfg.ID)
	addr, err := n.ServerAddr(self)
	if err == nil {
		n.findings.standsIn.Store(term)
		err = n.askToStand(self, addr)
	}
	if err != nil && err.Error() != errElected.Error() { // Raft stands later, by itself
		n.logger.Warn("standing for election failed", "error", err)
	}
}
