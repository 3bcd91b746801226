// Identity: which cluster a node belongs to, and which data directory is behind a member's id. See
// docs/adr/0010.

package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// incarnationKey is where the stable store keeps the data directory's incarnation, its random id.
var incarnationKey = []byte("coordd birth")

// The Raft configuration carries the cluster's id and the incarnations of its members in a
// non-voter that cannot be dialed: its id is clusterPrefix and the cluster's id, its address
// incarnationsPrefix and "id=incarnation,…". No node can have such an id.
const (
	clusterPrefix      = "cluster/"
	incarnationsPrefix = "born/"
	incarnationBytes   = 8
	clusterBytes       = 10
)

// register is a configuration's record of the cluster's identity.
type register struct {
	cluster      string            // empty until the first leader sets it
	incarnations map[string]string // by id, of the members that may receive data
}

func isRegister(s raft.Server) bool { return strings.HasPrefix(string(s.ID), clusterPrefix) }

// isPlaceholder reports whether an entry of a configuration is not a member: a removed one, or the
// register.
func isPlaceholder(s raft.Server) bool { return isRetired(s) || isRegister(s) }

func registerOf(c raft.Configuration) register {
	r := register{incarnations: map[string]string{}}
	for _, s := range c.Servers {
		if !isRegister(s) {
			continue
		}
		r.cluster = strings.TrimPrefix(string(s.ID), clusterPrefix)
		for part := range strings.SplitSeq(strings.TrimPrefix(string(s.Address),
			incarnationsPrefix), ",") {
			id, incarnation, _ := strings.Cut(part, "=")
			if id != "" && incarnation != "" && r.incarnations[id] == "" {
				r.incarnations[id] = incarnation
			}
		}
	}
	return r
}

// server encodes the register as an entry of a configuration.
func (r register) server() raft.Server {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(r.incarnations)) {
		parts = append(parts, id+"="+r.incarnations[id])
	}
	return raft.Server{
		Suffrage: raft.Nonvoter, ID: raft.ServerID(clusterPrefix + r.cluster),
		Address: raft.ServerAddress(incarnationsPrefix + strings.Join(parts, ",")),
	}
}

func randomWord(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// NewClusterID returns a unique cluster id.
func NewClusterID() string { return randomWord(clusterBytes) }

// ClusterIDOf derives a cluster id from bytes, so that nodes that are seeded separately agree on
// it.
func ClusterIDOf(what []byte) string {
	sum := sha256.Sum256(what)
	return hex.EncodeToString(sum[:clusterBytes])
}

// seededIncarnation is what the register that Seed writes says for a member: all members are seeded
// separately and must agree on it. It differs from the directory's own incarnation, which is
// random; otherwise a second directory made from the same backup would pass for the first.
func seededIncarnation(cluster, id string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + id))
	return hex.EncodeToString(sum[:incarnationBytes])
}

// ensureIncarnation returns the stored incarnation, and creates it if missing.
func (s *stores) ensureIncarnation() (string, error) {
	incarnation := s.stable.text(incarnationKey)
	if incarnation != "" {
		return incarnation, nil
	}
	incarnation = randomWord(incarnationBytes)
	return incarnation, s.stable.Set(incarnationKey, []byte(incarnation))
}

// view is a parsed configuration.
type view struct {
	source   []raft.Server      // as Raft has it: its address reports whether Raft has a newer one
	members  raft.Configuration // without placeholders; must not be changed
	retired  map[string]bool    // ids of removed members
	register register
}

// view returns the newest configuration in this node's log.
func (n *Node) view() *view {
	c := n.raft.GetConfiguration().Configuration()
	if v := n.seen.Load(); v != nil && len(v.source) > 0 && len(v.source) == len(c.Servers) &&
		&v.source[0] == &c.Servers[0] {
		return v
	}
	v := &view{source: c.Servers, register: registerOf(c), retired: retiredIDs(c)}
	v.members.Servers = slices.DeleteFunc(slices.Clone(c.Servers), isPlaceholder)
	n.seen.Store(v)
	return v
}

// clusterID returns the id of the cluster that this node belongs to for certain: the register is
// committed, or a later log entry implies that it is, since no entry for the machine is logged
// before. A node that owes keeps the one that it had. Empty: there is none, or it may still be
// replaced.
func (n *Node) clusterID() string {
	if id := n.identity.Load(); id != nil {
		return *id
	}
	id := n.view().register.cluster
	if id == "" || !n.logs.commands.Load() && !n.registerConfirmed.Load() &&
		n.machine.members.Load().register.cluster != id {
		return ""
	}
	n.identity.Store(&id)
	return id
}

// known returns the incarnation that the directory of a member has, as far as a register proves it:
// what Seed wrote proves nothing, and whoever joins has it until the log has brought more.
func (r register) known(id string) string {
	if v := r.incarnations[id]; v != seededIncarnation(r.cluster, id) {
		return v
	}
	return ""
}

// provisional reports whether this node's register is still as Seed wrote it. The first leader
// replaces it with the directories' incarnations before it acknowledges anything. (In a directory
// seeded by an older version, the register holds the incarnation itself.)
func (n *Node) provisional(r register) bool {
	own := r.incarnations[n.cfg.ID]
	return own != n.incarnation && own == seededIncarnation(r.cluster, n.cfg.ID)
}

// admitted reports whether Raft may send the log to a member: its incarnation is in a committed
// register. The first register counts before it is committed, and until a leader's barrier has
// passed so does the one that it found in its log, so that they can be: after a restart nobody
// knows what was committed, and who joined since the newest snapshot may be needed for it. A member
// with another processor architecture receives nothing.
func (n *Node) admitted(id string) bool {
	if l := n.link(id); l != nil && l.foreign.Load() {
		return false
	}
	found, committed := n.view().register, n.machine.members.Load().register
	if committed.incarnations[id] != "" {
		return true
	}
	lead := n.route.Load().lead
	first := committed.cluster == "" || lead == nil || lead.term != n.raft.CurrentTerm()
	return first && (found.cluster == "" || found.incarnations[id] != "")
}

// fitToLead reports whether this node may ask for votes, stands when it is asked to, and is to be
// chosen as the next leader: members ask before anyone raises a term. A node of no cluster must
// have tried all others first: if one of them has data, this node must not found a second cluster.
// A node with another processor architecture than most others cannot lead them. A node that replays
// its log, or cannot store entries, lets others go first. One that owes entries must not lead
// without them.
func (n *Node) fitToLead() bool {
	if n.failure.Load() || n.owes() || n.outnumbered() || n.replays() || n.storeFailing() {
		return false
	}
	if n.clusterID() != "" {
		return true
	}
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for _, s := range n.view().members.Servers {
		if string(s.ID) == n.cfg.ID {
			continue
		}
		if l := n.links[string(s.ID)]; l == nil || !l.probed() {
			return false
		}
	}
	return true
}

// mayTakeOver reports whether a leader may hand leadership over to this node.
func (n *Node) mayTakeOver() bool { return !n.leaving.Load() && n.fitToLead() }

// mayStand returns why this node may not stand for election when a node asks it to, nil: it may. A
// late message would depose the leader that was elected since: no other than the leader that it
// follows may ask, and this node asks itself for one term.
func (n *Node) mayStand(asked string) error {
	_, leader := n.raft.LeaderWithID()
	switch {
	case !n.mayTakeOver():
		return errUnfit
	case asked == n.cfg.ID && (n.raft.State() != raft.Follower ||
		n.raft.CurrentTerm() != n.findings.standsIn.Load()),
		asked != n.cfg.ID && asked != string(leader):
		return errElected
	}
	return nil
}

// outnumbered reports whether more than half of the other voters have another processor
// architecture.
func (n *Node) outnumbered() bool {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	others, foreign := 0, 0
	for _, s := range n.view().members.Servers {
		if l := n.links[string(s.ID)]; l != nil && s.Suffrage == raft.Voter {
			others++
			if l.foreign.Load() {
				foreign++
			}
		}
	}
	return foreign > others/2
}

// admit returns why a Raft connection is refused: it must be meant for this very data directory,
// and come from the same cluster.
func (n *Node) admit(conn *stream, incarnation, cluster string) error {
	own, r := n.clusterID(), n.view().register
	seeded := n.provisional(r) && incarnation == r.incarnations[n.cfg.ID]
	switch {
	case n.failure.Load():
		return n.lost
	case incarnation != "" && incarnation != n.incarnation && !seeded:
		if n.mayBeMember(conn) {
			n.failLostDisk("another member", cluster, incarnation)
		}
		return fmt.Errorf("it is for an earlier incarnation of node %s", n.cfg.ID)
	case own != "" && (cluster != own || incarnation == ""):
		return fmt.Errorf(
			"it comes from cluster %q and is for incarnation %q; this node belongs to cluster %s",
			cluster, incarnation, own)
	case own == "" && incarnation == "" && (cluster != "" || n.knowsCluster()):
		return fmt.Errorf("node %s has not joined the existing cluster yet", n.cfg.ID)
	}
	return nil
}

// knowsCluster reports whether another member said that it belongs to a cluster.
func (n *Node) knowsCluster() bool {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for _, l := range n.links {
		if l.hasCluster() {
			return true
		}
	}
	return false
}

// failLostDisk ends a node of no cluster whose members remember data of it: an incarnation in their
// cluster.
func (n *Node) failLostDisk(who, cluster, incarnation string) {
	if n.clusterID() != "" || n.failure.Load() {
		return
	}
	n.fail(lostDiskError(n.cfg.ID, who, cluster, incarnation))
}

// toldLostDisk takes a member's word that this node has lost its disk. A node that has data of its
// cluster does not end by it, but it must if it was seeded again: that data is from before.
func (n *Node) toldLostDisk(h hello) {
	own := n.clusterID()
	if own == "" || own == h.cluster && n.provisional(n.view().register) {
		n.fail(errors.New(h.refusal))
	}
}

// lostDiskError tells an operator what to do about a node that is known by an incarnation in a
// cluster and has another. One that nobody knows but by Seed may have been forgotten by a restore.
func lostDiskError(id, who, cluster, incarnation string) error {
	forgotten := ""
	if incarnation != "" && incarnation == seededIncarnation(cluster, id) {
		forgotten = fmt.Sprintf("; if the cluster was just restored and has not run since, "+
			"coordd restore %s, too", id)
	}
	return fmt.Errorf("node %s has no data, but %s knows that it had some: mount its volume if it "+
		"is missing; if its disk is lost, RAFT REMOVE %s, then --join an empty node under a new id"+
		"%s", id, who, id, forgotten)
}

// fail ends the node's participation for a reason that needs an operator.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.lost = notRun(err.Error())
		n.failure.Store(true)
		n.mux.mute()
		n.writes.close(n.lost)
		n.reads.close(n.lost)
		n.failed <- err
	})
}

// Failed returns a channel that receives the reason when the node cannot take part in its cluster
// and must be closed.
func (n *Node) Failed() <-chan error { return n.failed }

// checkIdentity compares a peer's identity with what this node knows. It returns why the connection
// is refused (empty: it is not), and whether the peer lost its disk.
func (n *Node) checkIdentity(h hello) (refusal string, lost bool) {
	r, own, foreign := n.meet(h)
	known := r.known(h.id)
	switch {
	case own != "" && h.cluster != "" && own != h.cluster:
		return fmt.Sprintf("node %s belongs to cluster %s, node %s to cluster %s: one was "+
			"restored, recovered or founded again; empty the unwanted one and --join it under a "+
			"new id", n.cfg.ID, own, h.id, h.cluster), false
	case own != "" && known != "" && known != h.incarnation:
		if runs := n.runsAt(h.id); runs != "" { // it is not the disk: its act would end that one
			return fmt.Sprintf("node %s has no data, and a node with that id and its data runs at "+
				"%s: %s", h.id, runs, actOfATwin), true
		}
		return lostDiskError(h.id, "node "+n.cfg.ID, own, known).Error(), true
	case own == "" && h.cluster != "" && h.expects != "" && h.expects != n.incarnation &&
		(h.to == "" || h.to == n.cfg.ID): // not meant for the node that had this address
		if n.ownStanding(h.id).isMember() {
			n.failLostDisk("node "+h.id, h.cluster, h.expects)
		}
		return lostDiskError(n.cfg.ID, "node "+h.id, h.cluster, h.expects).Error(), false
	case foreign:
		// otherwise their floating-point numbers could differ in the last bit
		return fmt.Sprintf("node %s runs on %s, node %s on %s: all nodes of a cluster need the "+
			"same processor architecture", n.cfg.ID, n.cfg.arch, h.id, h.arch), false
	}
	return "", false
}

// meet notes what a peer's hello says. It returns this node's register, the cluster that it belongs
// to for certain, and whether the peer has another processor architecture.
func (n *Node) meet(h hello) (r register, own string, foreign bool) {
	if l := n.link(h.id); l != nil {
		l.noteClaim(h.cluster)
	}
	r, own = n.view().register, n.clusterID()
	if h.cluster != "" && h.cluster == r.cluster {
		n.registerConfirmed.Store(true)
		own = n.clusterID()
	}
	foreign = h.arch != "" && h.arch != n.cfg.arch
	// a foreign stranger may use a member's id
	if !foreign || own == "" || own == h.cluster && r.incarnations[h.id] == h.incarnation {
		n.setForeign(h.id, foreign)
	}
	return r, own, foreign
}

// setForeign notes whether a member has another processor architecture.
func (n *Node) setForeign(id string, foreign bool) {
	if l := n.link(id); l != nil && l.foreign.Swap(foreign) != foreign {
		n.roles.notify()
	}
}

// foundersWait is how long founding waits for the founders that a majority can do without. As a
// rule they start at the same time, and with them the cluster has its feature level from the
// beginning.
const foundersWait = time.Second

// foundCluster creates the cluster's id, once this node leads members that started empty, and
// reports whether the cluster has one. It registers the incarnations of all connected members,
// which must be a majority: nothing is acknowledged before. Seeded members have the id and lack the
// incarnations.
func (n *Node) foundCluster() bool {
	v := n.view()
	if v.register.cluster != "" && !n.provisional(v.register) {
		return true
	}
	incarnations, voters, known := map[string]string{}, 0, 0
	for _, s := range v.members.Servers {
		incarnation := n.incarnationOf(string(s.ID))
		if incarnation != "" {
			incarnations[string(s.ID)] = incarnation
		}
		if s.Suffrage == raft.Voter {
			voters++
			if incarnation != "" {
				known++
			}
		}
	}
	r := register{v.register.cluster, incarnations}
	if known <= voters/2 || r.cluster == "" && n.knowsCluster() {
		return false
	}
	if since := &n.lastLeader.founders; known < voters {
		if since.IsZero() {
			*since = time.Now()
		}
		if time.Since(*since) < foundersWait {
			return false
		}
	}
	if r.cluster == "" {
		r.cluster = NewClusterID()
	}
	if err := n.register(r); err != nil {
		n.logger.Warn("founding the cluster failed", "error", err)
		return false
	}
	n.mux.closeUnnamed()
	n.logger.Info("cluster founded", "cluster", r.cluster, "members",
		strings.Join(slices.Sorted(maps.Keys(incarnations)), ","))
	return true
}

func (n *Node) register(r register) error {
	s := r.server()
	return configured(n.raft.AddNonvoter(s.ID, s.Address, 0, changeWait))
}

// incarnationOf returns a connected member's incarnation, empty if it is not connected.
func (n *Node) incarnationOf(id string) string {
	if id == n.cfg.ID {
		return n.incarnation
	}
	if l := n.link(id); l != nil && l.up() {
		return l.incarnation()
	}
	return ""
}

// unregistered returns the register with members that were added, and without those that are gone;
// ok is false if nothing changed.
func (n *Node) unregistered() (next register, ok bool) {
	v := n.view()
	next = register{v.register.cluster, map[string]string{}}
	for _, s := range v.members.Servers {
		incarnation := v.register.incarnations[string(s.ID)]
		if incarnation == "" {
			incarnation = n.incarnationOf(string(s.ID))
		}
		if incarnation != "" {
			next.incarnations[string(s.ID)] = incarnation
		}
	}
	return next, next.cluster != "" && !maps.Equal(next.incarnations, v.register.incarnations)
}

// isOtherCluster reports whether a cluster's id differs from this node's.
func (n *Node) isOtherCluster(cluster string) bool {
	own := n.clusterID()
	return own != "" && cluster != "" && cluster != own
}
