// When a follower stands for election.
//
// hashicorp/raft v1.7.3 leaves that to chance: a follower checks at random times, one to two
// heartbeat timeouts apart, whether it has heard from the leader within one. A follower that has
// not checked yet still has a leader, so it refuses its vote to one that has, which retries after
// another one to two heartbeat timeouts. Measured with 400 ms and three processes, the first write
// after kill -9 of the leader took 0.7 to 1.3 s, median 0.93 s.
//
// So the route loop makes Raft check at the right time: after enough silence, and on one follower
// after another. The first one is refused by those behind it, and then votes for them. Raft's own
// checks continue.

package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// In parts of the heartbeat timeout: how long the leader must be silent, which is more than Raft
// demands, since its messages may be late on a busy machine; and how much later each next follower
// checks. A follower whose connection to the leader broke counts from then: when the leader's
// process dies, all followers see that at once, while they last heard from it at different times.
const (
	silenceNum, silenceDen = 5, 4
	headStartDen           = 8
)

// voteStores is how many writes to the disk an election takes at the most: the candidate and then
// its voters store the term and the vote. Half as many are added for a disk that becomes slower.
const voteStores = 6

// headStart is how much sooner a follower stands than the next one: votes are split if it has not
// won by then, which takes long on a slow disk.
func headStart(beat, stores time.Duration) time.Duration {
	return min(max(beat/headStartDen, voteStores*stores), beat)
}

// storeTime returns how long the newest write to the disk took, of the log or of a vote.
func (n *Node) storeTime() time.Duration {
	return time.Duration(max(n.stores.stable.took.Load(), n.logs.writing.took.Load()))
}

// nearlyApplied is how many entries the machine may lag the commit index without counting as
// replaying.
const nearlyApplied = 8

// noteProgress records when the machine was last at or near the commit index.
func (n *Node) noteProgress(now time.Time) {
	if n.raft.CommitIndex() <= n.applied()+nearlyApplied {
		n.caughtUpAt.Store(int64(now.Sub(n.opened)))
	}
}

// replays reports whether the machine has lagged for longer than a passing load explains: the node
// just started, or returns from a pause. As a leader it could serve nobody before it has caught up,
// which it also does as a follower.
func (n *Node) replays() bool {
	return time.Since(n.opened)-time.Duration(n.caughtUpAt.Load()) > max(n.cfg.HeartbeatTimeout,
		5*followerTick)
}

// watchSilence makes Raft stand for election when it is time, and returns how long until then,
// longestRest at most. The route loop calls it on a node that does not lead.
func (n *Node) watchSilence(now time.Time) time.Duration {
	// Raft forgets its leader before it enters another term, so id is not of an earlier one.
	term := n.raft.CurrentTerm()
	contact := n.raft.LastContact()
	_, id := n.raft.LeaderWithID()
	if n.raft.State() != raft.Follower {
		return longestRest
	}
	l := n.link(string(id))
	soon := longestRest
	if id == "" {
		soon = n.watchRefusal(term, contact, now)
	}
	if id == "" && contact.IsZero() && term == n.findings.startTerm ||
		l != nil && l.refusedAt().After(contact) {
		soon = min(soon, n.watchTurn(l, term, now))
	} else {
		n.findings.own = finding{}
	}
	rank, ok := n.electionRank(string(id))
	if !ok || contact.IsZero() || contact.Equal(n.looked) {
		return soon
	}
	timeouts := n.raft.ReloadableConfig()
	base, beat := contact, timeouts.HeartbeatTimeout
	if l != nil {
		if broke := l.brokeAt(); broke.After(base) {
			base = broke
		}
	}
	due := base.Add(beat*silenceNum/silenceDen + time.Duration(rank)*headStart(beat, n.storeTime()))
	if wait := due.Sub(now); wait > 0 {
		return min(wait, soon)
	}
	n.looked = contact
	// Raft checks when its heartbeat timeout is shortened.
	longer := timeouts
	longer.HeartbeatTimeout += time.Millisecond
	longer.ElectionTimeout += time.Millisecond
	for _, t := range []raft.ReloadableConfig{longer, timeouts} {
		if err := n.raft.ReloadConfig(t); err != nil {
			n.logger.Warn("setting Raft's timeouts failed", "error", err)
		}
	}
	return soon
}

// electionRank is this node's rank among the voters that may follow the given leader; false if it
// has none.
func (n *Node) electionRank(leader string) (int, bool) {
	if leader == "" || leader == n.cfg.ID {
		return 0, false
	}
	return slices.BinarySearch(n.votersBut(leader), n.cfg.ID)
}

// votersBut returns the ids of the voters but one, in order.
func (n *Node) votersBut(one string) []string {
	var ids []string
	for _, s := range n.configuration().Servers {
		if s.Suffrage == raft.Voter && string(s.ID) != one {
			ids = append(ids, string(s.ID))
		}
	}
	slices.Sort(ids)
	return ids
}
