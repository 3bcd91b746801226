package cluster

import (
	"testing"
)

// TestConfirmAsksAMajority reads while the followers are well, and while one or the other pauses.
func TestConfirmAsksAMajority(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		c.write(lead, "a")
		answered := func(n *Node) uint64 {
			l := lead.link(n.cfg.ID)
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.ackNonce
		}
		const apart = 8
		a, b := c.followers()[0], c.followers()[1]
		eventually(t, "one follower to answer alone", func() bool {
			c.read(lead, "a")
			return max(answered(a), answered(b))-min(answered(a), answered(b)) > apart
		})
		for _, silent := range []*Node{a, b} {
			c.net.pause(silent.cfg.ID)
			for from := max(answered(a), answered(b)); max(answered(a), answered(b)) < from+apart; {
				if got := c.read(lead, "a"); got != "1" {
					t.Fatalf("a read without %s: %q", silent.cfg.ID, got)
				}
			}
			c.net.resume(silent.cfg.ID)
		}
	})
}

// TestAnswersEndWithTheirConnection: a member that has answered a question from a later term has
// said nothing yet on its next connection, least of all that it is in no later term.
func TestAnswersEndWithTheirConnection(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		l, term := lead.link(c.followers()[0].cfg.ID), lead.raft.CurrentTerm()
		const nonce = 1 << 40 // of no question that is asked here
		later := appendTermReport(nil, termReport{term: term + 1})
		if err := l.termAnswer(frame{id: nonce, payload: later}); err != nil {
			t.Fatal(err)
		}
		if l.answered(nonce, term) {
			t.Fatal("an answer from a later term counts")
		}
		l.mu.Lock()
		first := l.wire
		l.mu.Unlock()
		first.close()
		eventually(t, "another connection", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.wire != nil && l.wire != first
		})
		if l.answered(nonce, term) {
			t.Error("the answer from a later term counts on the next connection")
		}
	})
}
