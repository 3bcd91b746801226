// This file holds when a follower stands for election.
//
// hashicorp/raft v1.7.3 leaves that to chance: a follower looks at random times, from one to two heartbeat timeouts apart, whether it has
// heard from the leader within one. And whoever has not looked yet still has a leader, so that it refuses its vote to the one that has; the
// refused one tries again after another one to two heartbeat timeouts. Measured here with 400 ms and three processes, the first write after kill -9
// of the leader took 0.7 to 1.3 s, 0.93 s in the middle.
//
// So the steering loop makes Raft look at the right time: when there has been silence for long enough, and on one follower after the other,
// each at a moment of its own. The first one is refused by those behind it, and gives them its vote. Raft's own looks go on beside it.
package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// In parts of the heartbeat timeout: how long the leader has to be silent, which is more than Raft asks for, since its word may come late
// from a busy machine; and how much later each next follower looks. A follower whose connection to the leader broke counts from then: all
// see that at the same time when the leader's process dies, while they had its last word at different ones.
const (
	silenceNum, silenceDen = 5, 4
	staggerDen             = 8
)

// nearlyApplied is how many entries the machine may be behind what is committed without being one that replays.
const nearlyApplied = 8

// noteProgress notes when the machine was last as far as what is known to be committed, or nearly so.
func (n *Node) noteProgress(now time.Time) {
	if n.raft.CommitIndex() <= n.applied()+nearlyApplied {
		n.caughtUpAt.Store(int64(now.Sub(n.opened)))
	}
}

// replays reports whether the machine has been behind for longer than a passing load explains: the node has just started, or comes back from a
// pause. As a leader it could serve nobody before it has caught up, while another member may be able to. It does catch up without a leader.
func (n *Node) replays() bool {
	return time.Since(n.opened)-time.Duration(n.caughtUpAt.Load()) > max(n.cfg.HeartbeatTimeout, 5*followerTick)
}

// watchSilence makes Raft stand for election when it is time, and returns how long it is until then, followerTick at most. The steering
// loop calls it on a node that does not lead.
func (n *Node) watchSilence(now time.Time) time.Duration {
	contact := n.raft.LastContact()
	_, id := n.raft.LeaderWithID()
	rank, ok := n.electionRank(string(id))
	if !ok || contact.IsZero() || contact.Equal(n.looked) || n.raft.State() != raft.Follower {
		return followerTick
	}
	timeouts := n.raft.ReloadableConfig()
	base, beat := contact, timeouts.HeartbeatTimeout
	if l := n.link(string(id)); l != nil {
		if broke := l.brokeAt(); broke.After(base) {
			base = broke
		}
	}
	due := base.Add(beat*silenceNum/silenceDen + time.Duration(rank)*beat/staggerDen)
	if wait := due.Sub(now); wait > 0 {
		return min(wait, followerTick)
	}
	n.looked = contact
	// Raft looks when its heartbeat timeout is made shorter.
	longer := timeouts
	longer.HeartbeatTimeout += time.Millisecond
	longer.ElectionTimeout += time.Millisecond
	for _, t := range []raft.ReloadableConfig{longer, timeouts} {
		if err := n.raft.ReloadConfig(t); err != nil {
			n.logger.Warn("Raft's timeouts cannot be set", "error", err)
		}
	}
	return followerTick
}

// electionRank is this node's place among the voters that may follow the leader, which has that id; false where it has none.
func (n *Node) electionRank(leader string) (int, bool) {
	if leader == "" || leader == n.cfg.ID {
		return 0, false
	}
	var ids []string
	for _, s := range n.configuration().Servers {
		if s.Suffrage == raft.Voter && string(s.ID) != leader {
			ids = append(ids, string(s.ID))
		}
	}
	slices.Sort(ids)
	return slices.BinarySearch(ids, n.cfg.ID)
}
