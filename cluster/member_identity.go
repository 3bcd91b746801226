// This file holds identity: which cluster a node belongs to, and which data directory stands behind a member's id. docs/adr/0010 says why.
package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
)

// incarnationKey is where the stable store keeps the data directory's incarnation: a word that no other directory has.
var incarnationKey = []byte("coordd birth")

// The Raft configuration carries the cluster's id, and the incarnations of its members, in a member without a vote that nobody could dial:
// its id is clusterPrefix and the cluster's id, its address incarnationsPrefix and "id=incarnation,…". No node can have such an id.
const (
	clusterPrefix      = "cluster/"
	incarnationsPrefix = "born/"
	incarnationBytes   = 8
	clusterBytes       = 10
)

// register is what a configuration says of the cluster's identity.
type register struct {
	cluster      string            // empty until the first leader has made one
	incarnations map[string]string // of the members that data may be sent to, by id
}

func isRegister(s raft.Server) bool { return strings.HasPrefix(string(s.ID), clusterPrefix) }

// isPlaceholder reports whether an entry of a configuration is no member: a removed one, or the register.
func isPlaceholder(s raft.Server) bool { return isRetired(s) || isRegister(s) }

func registerOf(c raft.Configuration) register {
	r := register{incarnations: map[string]string{}}
	for _, s := range c.Servers {
		if !isRegister(s) {
			continue
		}
		r.cluster = strings.TrimPrefix(string(s.ID), clusterPrefix)
		for part := range strings.SplitSeq(strings.TrimPrefix(string(s.Address), incarnationsPrefix), ",") {
			if id, incarnation, ok := strings.Cut(part, "="); ok {
				r.incarnations[id] = incarnation
			}
		}
	}
	return r
}

// server is the register as an entry of a configuration.
func (r register) server() raft.Server {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(r.incarnations)) {
		parts = append(parts, id+"="+r.incarnations[id])
	}
	return raft.Server{
		Suffrage: raft.Nonvoter, ID: raft.ServerID(clusterPrefix + r.cluster), Address: raft.ServerAddress(incarnationsPrefix + strings.Join(parts, ",")),
	}
}

func randomWord(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// NewClusterID returns an id that no other cluster has.
func NewClusterID() string { return randomWord(clusterBytes) }

// ClusterIDOf returns the id of the cluster that is made from what: equal for equal bytes, for nodes that are seeded apart from each other.
func ClusterIDOf(what []byte) string {
	sum := sha256.Sum256(what)
	return hex.EncodeToString(sum[:clusterBytes])
}

// seededIncarnation is what the register says that Seed makes, for a member: the others are seeded too, and have to know it without being told.
// It is not the directory's incarnation, which is random, or a second directory made from the same backup would pass for the first one.
func seededIncarnation(cluster, id string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + id))
	return hex.EncodeToString(sum[:incarnationBytes])
}

// readIncarnation returns the incarnation in the stores, empty where there is none.
func (s *stores) readIncarnation() (string, error) { return s.get(incarnationKey) }

// ensureIncarnation returns the incarnation in the stores, and makes one where there is none.
func (s *stores) ensureIncarnation() (string, error) {
	incarnation, err := s.readIncarnation()
	if err != nil || incarnation != "" {
		return incarnation, err
	}
	incarnation = randomWord(incarnationBytes)
	return incarnation, s.stable.Set(incarnationKey, []byte(incarnation))
}

// view is a configuration, taken apart.
type view struct {
	source   []raft.Server      // as Raft has it: while it is kept, its address tells whether Raft has another
	members  raft.Configuration // without those that are no members; not to be changed
	retired  map[string]bool    // ids of removed members
	register register
}

// view returns the newest configuration in this node's log.
func (n *Node) view() *view {
	c := n.raft.GetConfiguration().Configuration()
	if v := n.seen.Load(); v != nil && len(v.source) > 0 && len(v.source) == len(c.Servers) && &v.source[0] == &c.Servers[0] {
		return v
	}
	v := &view{source: c.Servers, register: registerOf(c), retired: retiredIDs(c)}
	v.members.Servers = slices.DeleteFunc(slices.Clone(c.Servers), isPlaceholder)
	n.seen.Store(v)
	return v
}

// clusterID returns the id of the cluster that this node belongs to for certain: the register is committed, or what came behind it in
// the log says so, since no entry for the machine enters a log before. Empty: there is none, or it may yet be replaced.
func (n *Node) clusterID() string {
	if id := n.identity.Load(); id != nil {
		return *id
	}
	id := n.view().register.cluster
	if id == "" || !n.logs.commands.Load() && !n.registerConfirmed.Load() && n.machine.members.Load().register.cluster != id {
		return ""
	}
	n.identity.Store(&id)
	return id
}

// provisional reports whether a register of this node's is still as Seed made it. The first leader puts the incarnations of the directories in its place,
// before anything is acknowledged. (Of a directory that an older version seeded, what the register says is the incarnation.)
func (n *Node) provisional(r register) bool {
	own := r.incarnations[n.cfg.ID]
	return own != n.incarnation && own == seededIncarnation(r.cluster, n.cfg.ID)
}

// admitted reports whether Raft may send the log to a member: its incarnation is in a register that is committed. The first one is taken as it
// is in the log, so that it can be committed at all. A member that runs on another processor architecture gets nothing.
func (n *Node) admitted(id string) bool {
	if l := n.link(id); l != nil && l.foreign.Load() {
		return false
	}
	r := n.view().register
	if committed := n.machine.members.Load().register; committed.cluster != "" {
		r = committed
	}
	return r.cluster == "" || r.incarnations[id] != ""
}

// mayCampaign reports whether this node may ask for votes. One of no cluster yet has to have tried all of the others: when one of them has
// data, this node must not found a second cluster. One that runs on another processor architecture than most of the others leads nobody,
// and one that has yet to apply much of its log, or cannot store entries, lets others go first.
func (n *Node) mayCampaign() bool {
	if n.failure.Load() || n.outnumbered() || n.replays() || n.storeFailing() {
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

// outnumbered reports whether more than half of the other voters run on another processor architecture.
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

// admit says why a Raft connection is not taken: it has to be meant for this very data directory, and to come from the same cluster.
func (n *Node) admit(incarnation, cluster string) error {
	own, r := n.clusterID(), n.view().register
	seeded := n.provisional(r) && incarnation == r.incarnations[n.cfg.ID]
	switch {
	case n.failure.Load():
		return n.lost
	case incarnation != "" && incarnation != n.incarnation && !seeded:
		n.failLostDisk("another member")
		return fmt.Errorf("it is meant for the data that node %s had before", n.cfg.ID)
	case own != "" && (cluster != own || incarnation == ""):
		return fmt.Errorf("it comes from a node of cluster %q that knows this one as %q, and this one belongs to cluster %s", cluster, incarnation, own)
	case own == "" && incarnation == "" && (cluster != "" || n.knowsCluster()):
		return fmt.Errorf("a cluster is there, and node %s waits to be taken into it", n.cfg.ID)
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

// failLostDisk ends a node of no cluster that its fellows remember data of. A node that has data of its own is told so in the hello.
func (n *Node) failLostDisk(who string) {
	if n.clusterID() != "" || n.failure.Load() {
		return
	}
	n.fail(lostDiskError(n.cfg.ID, who))
}

func lostDiskError(id, who string) error {
	return fmt.Errorf("node %s has no data, and %s knows that it had some: it lost its disk, and as an empty node it could undo what the cluster has acknowledged; "+
		"take it out with RAFT REMOVE %s, and let an empty node under a new id --join", id, who, id)
}

// fail ends the node's part for a reason that an operator has to deal with.
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

// Failed returns a channel that gets the reason when the node cannot be part of its cluster, and has to be closed.
func (n *Node) Failed() <-chan error { return n.failed }

// checkIdentity compares who the other end of a connection is with what this node knows. It returns why the connection is refused, and
// whether the reason is that the other end lost its disk.
func (n *Node) checkIdentity(h hello) (refusal string, lost bool) {
	if l := n.link(h.id); l != nil {
		l.noteClaim(h.cluster)
	}
	r, own := n.view().register, n.clusterID()
	if h.cluster != "" && h.cluster == r.cluster {
		n.registerConfirmed.Store(true)
		own = n.clusterID()
	}
	known := r.incarnations[h.id]
	other := h.arch != "" && h.arch != n.cfg.arch
	if !other || own == h.cluster && known == h.incarnation || own == "" { // else it may be a stranger with a member's id
		n.setForeign(h.id, other)
	}
	switch {
	case own != "" && h.cluster != "" && own != h.cluster:
		return fmt.Sprintf("node %s belongs to cluster %s, and node %s to cluster %s: one of them was restored or recovered, or founded anew; "+
			"the one that is not wanted is emptied, and joins under a new id", n.cfg.ID, own, h.id, h.cluster), false
	case own != "" && known != "" && known != h.incarnation && !n.provisional(r):
		return lostDiskError(h.id, "node "+n.cfg.ID).Error(), true
	case own == "" && h.cluster != "" && h.expects != "" && h.expects != n.incarnation:
		n.failLostDisk("node " + h.id)
		return lostDiskError(n.cfg.ID, "node "+h.id).Error(), false
	case other:
		return fmt.Sprintf("node %s runs on %s and node %s on %s: the nodes of a cluster run on one processor architecture, or their floating-point "+
			"numbers could differ in the last bit", n.cfg.ID, n.cfg.arch, h.id, h.arch), false
	}
	return "", false
}

// setForeign notes whether a member runs on another processor architecture than this node.
func (n *Node) setForeign(id string, foreign bool) {
	if l := n.link(id); l != nil && l.foreign.Swap(foreign) != foreign {
		n.roles.notify()
	}
}

// found makes the cluster's id, once this node leads the members that were started empty, and returns whether there is one now. It notes the incarnations of
// all members that are connected, which have to be a majority: until then nothing is acknowledged to anybody. Members that were seeded have the id,
// and lack the incarnations.
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
	if r.cluster == "" {
		r.cluster = NewClusterID()
	}
	if err := n.register(r); err != nil {
		n.logger.Warn("the cluster was not founded", "error", err)
		return false
	}
	n.mux.closeUnnamed()
	n.logger.Info("the cluster is founded", "cluster", r.cluster, "members", strings.Join(slices.Sorted(maps.Keys(incarnations)), ","))
	return true
}

func (n *Node) register(r register) error {
	s := r.server()
	return configured(n.raft.AddNonvoter(s.ID, s.Address, 0, changeWait))
}

// incarnationOf returns the incarnation that a member last told, empty where it is not connected.
func (n *Node) incarnationOf(id string) string {
	if id == n.cfg.ID {
		return n.incarnation
	}
	if l := n.link(id); l != nil && l.up() {
		return l.incarnation()
	}
	return ""
}

// unregistered returns the register with the members that came since, and without those that are gone; ok is false where nothing changed.
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

// isOtherCluster reports whether a cluster's id is another one than this node's own.
func (n *Node) isOtherCluster(cluster string) bool {
	own := n.clusterID()
	return own != "" && cluster != "" && cluster != own
}
