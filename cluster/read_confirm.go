// Confirmation of leadership, which makes reads linearizable.
//
// raft.VerifyLeader does not suffice. It counts any answer to any AppendEntries that arrives after
// the call, even if that message was sent and answered long before: after a pause of this process
// (SIGSTOP, live migration), an answer that waited in the socket would confirm a leader that was
// deposed meanwhile. It also waits for Raft's main loop, which sits in fsync under load.
//
// Instead the read loop asks each voter for its current term and counts the answers to this very
// question. A node raises its term, on disk and then in memory, before it votes in a later one. So
// when a majority (this node included) is in no later term after the question was asked, no later
// leader was elected before it, and every write acknowledged by then is at or below the commit
// index noted before the question.
//
// A question costs both ends a system call and a wake-up, as much as several reads. So as few
// members are asked as make a majority, those that answered first the last time.

package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/trace"
)

const (
	// askOthers is how long those that are asked alone may take before all are asked.
	askOthers = 2 * time.Millisecond
	// askAgain is how long to wait for answers before asking again: a connection may have been
	// lost with the question on it.
	askAgain = 50 * time.Millisecond
	// compareEvery so many questions goes to all, to find out who answers first.
	compareEvery = 64
)

// confirm returns true if this node still led in lead's term at some time after the call began. It
// returns false if that cannot be established: the leadership is gone, no majority answers within
// ReplyWait, or the node stops. With all, it asks all voters at once.
func (n *Node) confirm(lead *leadership, all bool) bool {
	first := n.nonce + 1
	all = all || first%compareEvery == 0
	timer := time.NewTimer(askAgain)
	defer timer.Stop()
	for limit := time.Now().Add(n.cfg.ReplyWait); time.Now().Before(limit); {
		others, need := n.quorum()
		if n.raft.CurrentTerm() != lead.term {
			return false
		}
		if need == 0 {
			n.trace.Record(trace.Event{Kind: trace.Confirmed, Question: first})
			return true
		}
		asked, patience := others, askAgain
		if !all && len(others) > need {
			slices.SortStableFunc(others, func(a, b *link) int {
				return cmp.Compare(b.confirmed, a.confirmed)
			})
			asked, patience = others[:need], askOthers
		}
		all = true
		n.nonce++
		for _, l := range asked {
			l.ask(n.nonce)
		}
		timer.Reset(patience)
		for asking := true; asking; {
			select {
			case <-n.confirmed:
			case <-timer.C:
				asking = false
			case <-n.stop:
				return false
			}
			have := 0
			for _, l := range others {
				if l.answered(first, lead.term) {
					l.confirmed = first
					have++
				}
			}
			if have >= need {
				n.trace.Record(trace.Event{Kind: trace.Confirmed, Question: first, Need: need})
				return n.raft.CurrentTerm() == lead.term
			}
			if n.route.Load().lead != lead {
				return false
			}
		}
	}
	return false
}

// quorum returns the links to the other voters, and how many of them must answer for a majority of
// all voters.
func (n *Node) quorum() (others []*link, need int) {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	voters, own := 0, 0
	v := n.view()
	for _, s := range v.members.Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) == n.cfg.ID {
			own = 1 // a node that is being removed does not count itself
		} else if l := n.links[string(s.ID)]; l != nil &&
			l.incarnation() == v.register.incarnations[string(s.ID)] {
			others = append(others, l)
		}
	}
	return others, voters/2 + 1 - own
}

// termReport answers a leader's question.
func (n *Node) termReport() termReport {
	took, _ := n.pace()
	return termReport{term: n.raft.CurrentTerm(), lastIndex: n.raft.LastIndex(),
		applied: n.applied(), trouble: n.troubleOfLog(), pace: took}
}
