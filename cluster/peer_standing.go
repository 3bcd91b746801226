// Who may speak to this node on the peer port, and about what. A certificate proves who a node is;
// what it is to this cluster is decided here alone.

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/lockorder"
)

// standing is what a node is to the cluster, as far as this one knows.
type standing uint8

const (
	standingUnheard standing = iota // nobody who would know has said
	standingNone                    // no member
	standingRemoved                 // its removal is committed
	standingLearner                 // a member without a vote
	standingVoter
	standingOpen // this node has no configuration: anyone may turn out to be a member
)

// isMember reports whether it is a member of a configuration that this node has.
func (s standing) isMember() bool { return s == standingLearner || s == standingVoter }

var standingNames = map[standing]string{standingUnheard: "unheard", standingNone: "none",
	standingRemoved: "removed", standingLearner: "learner", standingVoter: "voter",
	standingOpen: "open"}

func (s standing) String() string { return standingNames[s] }

// ownStanding returns what a node is by the configurations in this node's log. A voter of the
// newest or of the newest committed one is a voter: a leader that removes itself leads until that
// is committed.
func (n *Node) ownStanding(id string) standing {
	newest, known := n.view(), n.machine.members.Load()
	if len(newest.source) == 0 {
		return standingOpen
	}
	is := standingNone
	for _, servers := range [][]raft.Server{newest.source, known.configuration.Servers} {
		for _, s := range servers {
			switch {
			case string(s.ID) != id || isPlaceholder(s):
			case s.Suffrage == raft.Voter:
				return standingVoter
			default:
				is = standingLearner
			}
		}
	}
	if is == standingNone && known.retired[id] {
		return standingRemoved
	}
	return is
}

// standing is ownStanding with what members have said: a node that was away may have missed that
// another became a member, and that one may be its leader.
func (n *Node) standing(id string) standing {
	is := n.ownStanding(id)
	if is == standingNone || is == standingLearner {
		is = max(is, n.vouchers.standing(id))
	}
	return is
}

// maySendRaft returns why a node may not send Raft's messages to this one; nil: it may. Only voters
// send them. A node that this one knows as something else may have become a voter since: then this
// one asks its members, and the sender tries it again.
func (n *Node) maySendRaft(id string) error {
	switch is := n.standing(id); is {
	case standingOpen:
		return nil
	case standingVoter:
		if n.ownStanding(id) != standingVoter { // before what was said is too old
			n.askAbout(id)
		}
		return nil
	case standingRemoved:
		return fmt.Errorf("node %q was removed from the cluster", id)
	default:
		n.askAbout(id)
		return fmt.Errorf("node %q is not known to node %s as a voter", id, n.cfg.ID)
	}
}

// mayBeMember reports whether a connection can be one of a member of the configuration in this
// node's log: its certificate may name several.
func (n *Node) mayBeMember(conn *stream) bool {
	return slices.ContainsFunc(n.view().members.Servers, func(s raft.Server) bool {
		return string(s.ID) != n.cfg.ID && conn.mayBe(string(s.ID))
	})
}

const (
	// vouchedFor is how long an answer counts that a node is a voter, unvouchedFor another one.
	vouchedFor   = 10 * time.Second
	unvouchedFor = 500 * time.Millisecond
	// vouchWait bounds the wait for answers of nodes that are asked at the same time.
	vouchWait = 2 * time.Second
	// maxVouched bounds the nodes that are remembered, and maxAbout those that are asked about at a
	// time, so that strangers cost little.
	maxVouched = 64
	maxAbout   = 4
	// unheardWait is for how long this node must have had no leader before silence makes a node
	// a voter.
	unheardWait = 5 * time.Second
)

// vouchers is what members said about nodes.
type vouchers struct {
	mu     lockorder.Mutex
	asking map[string]bool
	said   map[string]vouched
}

type vouched struct {
	is    standing
	until time.Time
}

// lasts returns how long it counts. A learner may be made a voter at any time, and lead.
func (s vouched) lasts() time.Duration {
	if s.is == standingVoter {
		return vouchedFor
	}
	return unvouchedFor
}

// standing returns what was said of a node lately; 0: nothing.
func (v *vouchers) standing(id string) standing {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.said[id]; time.Now().Before(s.until) {
		return s.is
	}
	return 0
}

// begin reports whether to ask about a node now: half of the time for which the last answer counts
// is over.
func (v *vouchers) begin(id string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.said[id]
	if v.asking[id] || len(v.asking) >= maxAbout || time.Until(s.until) > s.lasts()/2 {
		return false
	}
	if v.asking == nil {
		v.asking, v.said = map[string]bool{}, map[string]vouched{}
	}
	v.asking[id] = true
	return true
}

// note notes an answer. Of too many, all but those about voters are forgotten.
func (v *vouchers) note(id string, is standing) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.asking, id)
	full := len(v.said) >= maxVouched
	maps.DeleteFunc(v.said, func(_ string, s vouched) bool {
		return full && s.is != standingVoter || time.Now().After(s.until)
	})
	s := vouched{is: is}
	s.until = time.Now().Add(s.lasts())
	v.said[id] = s
}

// askAbout asks other nodes what a node is, in the background.
func (n *Node) askAbout(id string) {
	if !n.vouchers.begin(id) {
		return
	}
	go func() { // ends with the mux at the latest
		is := n.heardAbout(id)
		if is == standingUnheard &&
			(n.route.Load().leaderID == id || n.leaderless() > unheardWait) {
			// All who could vouch for it are gone, and it may be this node's only leader.
			is = standingVoter
			n.mux.warnings.Warn("no member that would know has told what a node is, and no "+
				"leader is known: it counts as a voter", "node", id)
		}
		n.vouchers.note(id, is)
		if !is.isMember() {
			n.mux.warnings.Warn("a node claims to be a member, and no member knows it", "node", id)
		}
	}()
}

// leaderless returns for how long this node has known no leader.
func (n *Node) leaderless() time.Duration {
	if at := n.leaderLost.Load(); at > 0 {
		return time.Since(n.opened) - time.Duration(at)
	}
	return 0
}

// whatIs answers the question of another node, but not by what others said: two nodes would vouch
// for each other's word. Without a leader this node may have missed that the other became a voter,
// and so it has, perhaps of others too, if its leader is no voter in its log.
func (n *Node) whatIs(id string) standing {
	is := n.ownStanding(id)
	if is == standingNone || is == standingLearner {
		lead := n.route.Load().leaderID
		if lead == "" || n.ownStanding(lead) != standingVoter {
			return standingUnheard
		}
	}
	return is
}

// heardAbout returns the most that a member says of a node. If none vouches for it, nodes of this
// cluster at the addresses of Config.Discover are asked: all members may have been replaced.
func (n *Node) heardAbout(id string) standing {
	members := map[string]string{} // addresses by id
	for _, s := range n.view().members.Servers {
		if addr, ok := n.peerAddr(string(s.ID)); ok {
			members[string(s.ID)] = addr
		}
	}
	is := n.heardFromAll(members, id)
	if is.isMember() || n.cfg.Discover == nil {
		return is
	}
	found := map[string]string{}
	seen, _ := n.lookAround(n.mux.ctx) // or none are found
	for _, s := range seen {
		if s.err == nil && s.h.cluster == n.clusterID() && members[s.h.id] == "" {
			found[s.h.id] = s.addr
		}
	}
	return max(is, n.heardFromAll(found, id))
}

// heardFromAll asks nodes, whose addresses are by id, about another one.
func (n *Node) heardFromAll(nodes map[string]string, id string) (most standing) {
	delete(nodes, n.cfg.ID)
	delete(nodes, id)
	answers := make(chan standing, len(nodes))
	for other, addr := range nodes {
		go func() { answers <- n.heardFrom(other, addr, id) }()
	}
	late := time.NewTimer(vouchWait)
	defer late.Stop()
	for range nodes {
		select {
		case is := <-answers:
			if most = max(most, is); most == standingVoter {
				return most
			}
		case <-late.C:
			return most
		case <-n.stop:
			return most
		}
	}
	return most
}

// heardFrom asks one node about another.
func (n *Node) heardFrom(other, addr, id string) standing {
	r, err := n.exchange(other, addr, adminRequest{About: id})
	switch {
	case err != nil || r.missed || r.Standing == standingUnheard.String():
		return standingUnheard
	case r.Standing == "": // a release before 0.2, which cannot say: as it was there
		return standingVoter
	case r.Standing == standingLearner.String():
		return standingLearner
	case r.Standing == standingVoter.String():
		return standingVoter
	}
	return standingNone
}

// speaker returns the node that a message of Raft names as its sender.
func speaker(rpc raft.RPC) string {
	if m, ok := rpc.Command.(raft.WithRPCHeader); ok {
		return string(m.GetRPCHeader().ID)
	}
	return ""
}
