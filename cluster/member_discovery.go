// Discovery: a node without state looks for others at the addresses that Config.Discover returns,
// again and again, and joins their cluster. If they are empty, too, it waits until one of them is
// told to found a cluster with the others: Found. A node in a cluster looks for nodes of another
// one. docs/adr/0028 and 0059 have the cases.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
)

const (
	discoverEvery = 500 * time.Millisecond
	// strangersEvery is how often a node in a cluster looks for nodes of another one.
	strangersEvery = 10 * time.Second
	// discoverLookup bounds one call of Config.Discover.
	discoverLookup = 5 * time.Second
	// maxDiscovered bounds the addresses that are asked.
	maxDiscovered = 64
	// metLately is how long an empty node that has asked this one counts as one that must answer
	// before this one founds a cluster.
	metLately = 3 * time.Second
	// longestLook is how long the look before founding a cluster may take: what was met before it
	// must still count after it.
	longestLook = metLately / 2
	// foundWait is how long Found waits for the cluster's id.
	foundWait = 10 * time.Second
)

// sighting is what was found at an address.
type sighting struct {
	addr string
	h    hello // the hello of the node there, also if it refused the connection
	err  error // nobody answered
}

// discoveryPlan is what an empty node can do: join, or found a cluster when it is told to, or
// neither.
type discoveryPlan struct {
	join  []sighting    // ask these members
	found []raft.Server // a cluster founded now would have these voters
	wait  waiting       // why it does not join
	ended bool          // it was removed from the cluster, or lost its disk: wait says so
}

// waiting is why a node is not in a cluster, and the next act. docs/operations.md has all.
type waiting struct{ why, next string }

// Next acts of a node that waits. Only that of nodes which are all empty may be to found a cluster.
const (
	nextFound = "if there never was a cluster here: coordd found, on one of them. If there was " +
		"one, bring its nodes back with their disks, or coordd restore a backup"
	nextFoundElsewhere = "if there never was a cluster here: coordd found, on another node. If " +
		"there was one, bring its nodes back with their disks, or coordd restore a backup"
	nextStart = "start the others, on their data directories if they have any. If those had the " +
		"data and are gone for good: coordd restore a backup"
	nextSilent = "start the nodes there, on their data directories. Take an address out of " +
		"--discover or DNS only if no data is there any more"
	nextNobody = "start the members on their data directories, or have --discover name their " +
		"peer addresses"
	nextNameThis = "have --discover name the peer addresses of all nodes, this one's too"
	nextNameThat = "wait; if it stays so, have --discover name that node's peer address too"
	nextFounding = "wait; if it lasts, read the log of that node: it may be one that waits for " +
		"its own (operations.md, A snapshot that cannot be read)"
	nextBring = "bring nodes back with their disks. If those of a majority are lost: coordd " +
		"recover, on the node with the data (operations.md, A lost majority); the empty ones " +
		"then join by themselves"
	nextRemoval  = "wait: the new node joins when the old one is removed"
	nextRefused  = "mend what it is refused for, and start the node again if its flags change"
	nextClusters = "stop the nodes of the wrong one, or take them out of --discover"
	nextTwoIDs   = "stop one of the two, and give it an empty data directory and an id of its own"
	nextTwoAddrs = "give each node its own --peer-advertise"
	nextLookup   = "mend the name in --discover, or the DNS server"
	nextAsked    = "bring the nodes of that cluster back with their disks. If it is gone for " +
		"good, start this node again"
	nextLook = "wait: it looks for its cluster"
)

// planDiscovery decides what the node self can do after it has seen what answers. met are the ids
// of empty nodes that asked this one lately, asked is the cluster that it has asked to add it.
//
// A cluster can be founded only if founders nodes or more are found, this node among them, every
// address answers, and all of them are empty: what does not answer may have data. That proves
// nothing, since an address may be missing, so that nobody founds one without being told to.
func planDiscovery(self hello, founders int, asked string, met []string,
	seen []sighting) discoveryPlan {
	clusters, nodes, silent := map[string][]sighting{}, map[string]hello{self.id: self}, []string{}
	here := false
	for _, s := range seen {
		known, again := nodes[s.h.id]
		switch {
		case s.err != nil:
			silent = append(silent, fmt.Sprintf("%s (%v)", s.addr, s.err))
		case s.h.id == self.id && s.h.incarnation == self.incarnation:
			here = true
		case again && known.incarnation != s.h.incarnation:
			return awaiting(nextTwoIDs, "two nodes have the id %s: at %s and elsewhere", s.h.id,
				s.addr)
		case s.h.cluster != "":
			clusters[s.h.cluster] = append(clusters[s.h.cluster], s)
		default:
			nodes[s.h.id] = s.h
		}
	}
	switch {
	case len(clusters) > 1:
		return awaiting(nextClusters, "nodes of several clusters answer: %s; only one may be "+
			"named by --discover", strings.Join(slices.Sorted(maps.Keys(clusters)), ", "))
	case len(clusters) == 1:
		for _, members := range clusters {
			return planJoining(members)
		}
	case founders == 0 || self.isLearner():
		return awaiting(nextNobody, "no node of a cluster answers")
	case len(silent) > 0:
		return awaiting(nextSilent, "no cluster is found, and these addresses do not answer: %s; "+
			"a node there may have data", strings.Join(silent, ", "))
	case !here:
		return awaiting(nextNameThis, "no cluster is found, and none of the addresses is this "+
			"node's: others may be missing, too")
	}
	for _, id := range met {
		if _, ok := nodes[id]; !ok {
			return awaiting(nextNameThat, "node %s asked a moment ago and is not among those "+
				"found now", id)
		}
	}
	plan := planFounding(self, founders, nodes)
	if len(plan.found) > 0 && asked != "" {
		return awaiting(nextAsked, "this node has asked cluster %s to add it, and no node of it "+
			"is found any more; if that is gone for good, start the node again", asked)
	}
	return plan
}

// planJoining is planDiscovery when there is one cluster: only the word of its nodes ends this one.
func planJoining(members []sighting) discoveryPlan {
	for _, s := range members {
		if s.h.removed || s.h.lostDisk {
			return discoveryPlan{wait: waiting{why: s.h.refusal}, ended: true}
		}
	}
	return discoveryPlan{join: members}
}

// awaiting is the plan of a node that can do nothing.
func awaiting(next, format string, args ...any) discoveryPlan {
	return discoveryPlan{wait: waiting{fmt.Sprintf(format, args...), next}}
}

// planFounding is planDiscovery when everything that was found has no cluster.
func planFounding(self hello, founders int, nodes map[string]hello) discoveryPlan {
	voters, addrs := []string{}, map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		h := nodes[id]
		switch other := addrs[h.peerAddr]; {
		case h.traits&traitAwaiting == 0, id != self.id && h.traits&traitFounding != 0:
			return awaiting(nextFounding, "node %s founds a cluster already", id)
		case h.isLearner():
			continue
		case h.peerAddr == "" || other != "":
			return awaiting(nextTwoAddrs, "nodes %s and %s have the peer address %q", other, id,
				h.peerAddr)
		}
		addrs[h.peerAddr] = id
		voters = append(voters, id)
	}
	switch {
	case len(voters) < founders:
		return awaiting(nextStart, "%d of the %d nodes of --founders are found: %s", len(voters),
			founders, strings.Join(voters, ", "))
	case self.traits&traitFresh == 0: // Raft founds none then
		return awaiting(nextFoundElsewhere, "this node has voted for a founder that is gone: "+
			"coordd found on another one founds a cluster")
	}
	plan := awaiting(nextFound, "%d empty nodes are found: %s; coordd found on one of them founds "+
		"a cluster with them", len(voters), strings.Join(voters, ", "))
	others := slices.DeleteFunc(voters, func(id string) bool { return id == self.id })
	for _, id := range append([]string{self.id}, others...)[:founders] {
		plan.found = append(plan.found, raft.Server{ID: raft.ServerID(id),
			Address: raft.ServerAddress(nodes[id].peerAddr)})
	}
	return plan
}

// discover runs until the node stops.
func (n *Node) discover() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n.loops.Go(func() {
		select {
		case <-n.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	n.awaitCluster(ctx)
	for ctx.Err() == nil {
		n.lookForStrangers(ctx)
		every := strangersEvery
		if len(n.view().source) == 0 { // its leader learns by the look where it is
			every = discoverEvery
		}
		pauseDiscovery(ctx, every)
	}
}

// pauseDiscovery waits for about as long as it is told to, never in step with others.
func pauseDiscovery(ctx context.Context, about time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(about/2 + rand.N(about)):
	}
}

// awaitCluster returns when the node belongs to a cluster.
func (n *Node) awaitCluster(ctx context.Context) {
	if !n.awaitsJoin() {
		return
	}
	told, toldAt := "", time.Time{}
	for n.awaitsJoin() && ctx.Err() == nil {
		now := n.discoverOnce(ctx)
		why := now.why
		n.awaits.Store(&now)
		if why != "" && ctx.Err() == nil && (why != told || time.Since(toldAt) > time.Minute) {
			told, toldAt = why, time.Now()
			n.logger.Info("not in a cluster yet", "reason", why)
		}
		pauseDiscovery(ctx, discoverEvery)
	}
	if s := n.view().members.Servers; len(s) > 0 {
		n.logger.Info("the node is a member of a cluster", "members", len(s))
	}
}

// discoverOnce takes one step, and returns why the node is not in a cluster after it.
func (n *Node) discoverOnce(ctx context.Context) waiting {
	n.discovering <- struct{}{}
	defer func() { <-n.discovering }()
	if !n.awaitsJoin() {
		return waiting{}
	}
	plan := n.planAround(ctx)
	if len(plan.join) > 0 {
		n.asked = plan.join[0].h.cluster
		return n.askToJoin(plan.join)
	}
	return plan.wait
}

// planAround looks around and decides what to do. The caller holds the token of discovering.
func (n *Node) planAround(ctx context.Context) discoveryPlan {
	seen, err := n.lookAround(ctx)
	if err != nil {
		return awaiting(nextLookup, "looking up --discover failed: %v", err)
	}
	plan := planDiscovery(n.hello("", ""), n.cfg.Founders, n.asked, n.metAwaiting(), seen)
	if plan.ended {
		n.fail(errors.New(plan.wait.why))
	}
	return plan
}

// CanFound reports whether the node waits for a cluster, and could be told to found it.
func (n *Node) CanFound() bool {
	return n.cfg.Discover != nil && n.cfg.Founders > 0 && !n.cfg.Learner && n.awaitsJoin()
}

// Found founds a cluster with the empty nodes that discovery finds, and returns its id. If the node
// belongs to a cluster already, it only returns the id. Errors: ErrNotRun with the reason, and
// nothing has happened; ErrRefused: nor ever will; ErrUnknown: the founding has begun, and waits
// for a majority of those nodes.
func (n *Node) Found() (cluster string, err error) {
	if n.awaitsJoin() {
		if !n.CanFound() {
			return "", refused("this node waits for a cluster to join: only a node with " +
				"--discover and --founders, and without --learner, founds one")
		}
		if why := n.found(context.Background()); why != "" {
			return "", notRun(why)
		}
	}
	for deadline := time.Now().Add(foundWait); ; {
		if cluster = n.clusterID(); cluster != "" {
			return cluster, nil
		}
		if why := n.owing(); why != "" {
			return "", notRun(why)
		}
		if time.Now().After(deadline) {
			return "", unknown("the founding has begun, and waits for a majority of the nodes")
		}
		select {
		case <-time.After(adminPause):
		case <-n.closing:
			return "", errStopping
		}
	}
}

// found founds a cluster if a look around, after this node has said that it is about to, allows it.
// Of two nodes that are told to found one at the same time, where one sees the other, either that
// one looks after the other has said so and does not, or the other has met it and does not.
func (n *Node) found(ctx context.Context) (why string) {
	n.discovering <- struct{}{}
	defer func() { <-n.discovering }()
	if !n.awaitsJoin() {
		return ""
	}
	n.founding.Store(true)
	defer n.founding.Store(false)
	began := time.Now()
	plan := n.planAround(ctx)
	switch {
	case len(plan.join) > 0:
		return fmt.Sprintf("cluster %s exists, and this node joins it", plan.join[0].h.cluster)
	case len(plan.found) == 0:
		return plan.wait.why
	case time.Since(began) > longestLook:
		return "the nodes answer too slowly to found a cluster"
	}
	if err := n.raft.BootstrapCluster(
		raft.Configuration{Servers: plan.found}).Error(); err != nil {
		return "founding a cluster failed: " + err.Error()
	}
	n.logger.Warn("this node was told to: it founds a new cluster with the empty nodes found",
		"voters", len(plan.found))
	return ""
}

// lookForStrangers notes whether a node of another cluster is at one of the addresses of
// Config.Discover. Clients may reach either cluster then, and both would acknowledge.
func (n *Node) lookForStrangers(ctx context.Context) {
	own := n.clusterID()
	seen, err := n.lookAround(ctx)
	if err != nil || own == "" { // as before
		return
	}
	var why string
	for _, s := range seen {
		if s.h.removed && s.h.cluster == own { // one that owes has no link that would tell it
			n.markRemoved()
			return
		}
		if s.err == nil && s.h.cluster != "" && s.h.cluster != own {
			why = fmt.Sprintf("node %s of another cluster, %s, is among the nodes of --discover; "+
				"this one belongs to cluster %s", s.h.id, s.h.cluster, own)
		}
	}
	if was := n.stranger.Swap(&why); was != nil && *was == why || was == nil && why == "" {
		return
	}
	if why == "" {
		n.logger.Info("no node of another cluster is found any more")
		return
	}
	n.logger.Error("the node is not ready", "reason", why)
}

// askToJoin asks the members to add this node, until one of them does.
func (n *Node) askToJoin(members []sighting) (w waiting) {
	change := membership.Change{Kind: membership.Add, ID: n.cfg.ID,
		PeerAddr: n.mux.Addr().String()}
	for _, s := range members {
		r, err := n.exchange(s.h.id, s.addr, adminRequest{Change: &change})
		if err == nil {
			err = r.err()
		}
		if err == nil {
			return waiting{}
		}
		w = notAdded(s.h, err)
	}
	return w
}

// notAdded is why a node waits that a member does not add.
func notAdded(h hello, err error) waiting {
	w := waiting{fmt.Sprintf("node %s of cluster %s does not add this node: %v", h.id, h.cluster,
		err), nextBring}
	switch {
	case errors.Is(err, ErrRefused):
		w.next = nextRefused
	case strings.Contains(err.Error(), removedInTime):
		w.next = nextRemoval
	default:
		w.why += "; if the cluster has lost the disks of a majority, see coordd recover"
	}
	return w
}

// lookAround asks everyone at the addresses of Config.Discover who they are.
func (n *Node) lookAround(ctx context.Context) ([]sighting, error) {
	ctx, cancel := context.WithTimeout(ctx, discoverLookup)
	defer cancel()
	addrs, err := n.cfg.Discover(ctx)
	if err != nil {
		return nil, err
	}
	if len(addrs) > maxDiscovered {
		return nil, fmt.Errorf("%d addresses, at most %d are asked", len(addrs), maxDiscovered)
	}
	seen := make([]sighting, len(addrs))
	var asked sync.WaitGroup
	for i, addr := range addrs {
		asked.Go(func() {
			h, err := n.probe(addr)
			seen[i] = sighting{addr, h, err}
		})
	}
	asked.Wait()
	return seen, nil
}

// meetAwaiting notes an empty node that asked this one.
func (n *Node) meetAwaiting(h hello) {
	if h.traits&traitAwaiting == 0 || h.isLearner() || n.cfg.Discover == nil {
		return
	}
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	if n.met == nil {
		n.met = map[string]time.Time{}
	}
	maps.DeleteFunc(n.met, func(_ string, at time.Time) bool { return time.Since(at) > metLately })
	if len(n.met) < maxDiscovered {
		n.met[h.id] = time.Now()
	}
}

// metAwaiting returns the empty nodes that asked this one lately.
func (n *Node) metAwaiting() (ids []string) {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for id, at := range n.met {
		if time.Since(at) < metLately {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// answerStranger answers a node that is no member. It may ask to be added itself, if this node
// discovers others, too: with TLS, its certificate names it.
func (n *Node) answerStranger(peer hello, q adminRequest) adminReply {
	if n.cfg.Discover == nil || q.Change == nil || q.Change.Kind != membership.Add ||
		q.Change.ID != peer.id || q.Change.PeerAddr != peer.peerAddr {
		return adminReply{Outcome: outcomeRefused,
			Reason: fmt.Sprintf("node %q is not a member", peer.id)}
	}
	return n.askOnce(q) // it asks again
}
