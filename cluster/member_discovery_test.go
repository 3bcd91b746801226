// Tests of discovery: what an empty node decides, nodes that find each other, and automatic ids.

package cluster

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestPlanDiscovery(t *testing.T) {
	empty := func(id string) hello {
		return hello{id: id, incarnation: "i" + id, peerAddr: id + ":1",
			traits: traitAwaiting | traitFresh}
	}
	at := func(hs ...hello) (seen []sighting) {
		for _, h := range hs {
			seen = append(seen, sighting{addr: h.peerAddr, h: h})
		}
		return seen
	}
	with := func(h hello, change func(*hello)) hello { change(&h); return h }
	member := func(id, cluster string) hello {
		return with(empty(id), func(h *hello) { h.cluster, h.traits = cluster, 0 })
	}
	learner := func(id string) hello {
		return with(empty(id), func(h *hello) { h.traits |= traitLearner })
	}
	voted := func(id string) hello {
		return with(empty(id), func(h *hello) { h.traits &^= traitFresh })
	}
	silent := []sighting{{addr: "x:1", err: errors.New("refused")}}
	a, b, c, d := empty("a"), empty("b"), empty("c"), empty("d")
	for _, test := range []struct {
		name string
		self hello
		met  []string
		seen []sighting
		want string // "join …", "found …", or a part of why it waits
	}{
		{"alone", a, nil, nil, "1 of the 3 nodes"},
		{"all empty", a, nil, at(c, b), "found a b c"},
		{"all empty, not the first", b, nil, at(a, c), "another node founds"},
		{"one is missing", a, nil, at(b), "2 of the 3 nodes"},
		{"one does not answer", a, nil, append(at(b, c), silent...), "x:1 (refused)"},
		{"more than enough", b, nil, at(d, empty("e"), c), "found b c d"},
		{"two addresses of a node", a, nil, at(b, b, c), "found a b c"},
		{"another one of its id", a, nil, at(with(a, func(h *hello) { h.incarnation = "z" }), b, c),
			"two nodes have the id a"},
		{"two of an id", a, nil, at(b, with(b, func(h *hello) { h.incarnation = "z" }), c),
			"two nodes have the id b"},
		{"a cluster", a, nil, at(b, member("c", "k")), "join c"},
		{"a cluster, and some are silent", a, nil, append(at(member("c", "k")), silent...),
			"join c"},
		{"two clusters", a, nil, at(member("b", "j"), member("c", "k")),
			"several clusters answer: j, k"},
		{"one founds already", a, nil, at(b, with(c, func(h *hello) { h.traits = 0 })),
			"node c founds a cluster already"},
		{"one is about to", a, nil, at(b, with(c, func(h *hello) { h.traits |= traitFounding })),
			"node c founds a cluster already"},
		{"this one is about to", with(a, func(h *hello) { h.traits |= traitFounding }), nil,
			at(b, c), "found a b c"},
		{"one that has met the first", b, []string{"a"}, at(c, d), "node a asked a moment ago"},
		{"learners do not count", a, nil, at(b, learner("c")), "2 of the 3 nodes"},
		{"learners do not vote", a, nil, at(learner("0"), b, c), "found a b c"},
		{"a learner", learner("a"), nil, at(b, c, d), "no node of a cluster answers"},
		{"the first has voted", b, nil, at(voted("a"), c), "found b a c"},
		{"all have voted", voted("a"), nil, at(voted("b"), voted("c")), "another node founds"},
		{"an address twice", a, nil, at(b, with(c, func(h *hello) { h.peerAddr = "b:1" })),
			"nodes b and c have the peer address"},
	} {
		plan := planDiscovery(test.self, 3, test.met, append(at(test.self), test.seen...))
		got := plan.wait
		if len(plan.join) > 0 {
			got = "join"
			for _, s := range plan.join {
				got += " " + s.h.id
			}
		}
		if len(plan.found) > 0 {
			got = "found"
			for _, s := range plan.found {
				got += " " + string(s.ID)
			}
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if plan := planDiscovery(a, 3, nil, at(b, c)); !strings.Contains(plan.wait, "is this node's") {
		t.Errorf("a name service that does not know this node: %+v", plan)
	}
	if plan := planDiscovery(a, 0, nil, at(a, b, c)); plan.wait == "" {
		t.Errorf("without founders: %+v", plan)
	}
}

// pods is a cluster of nodes that discover each other.
type pods struct {
	*testCluster
	mu    sync.Mutex
	addrs map[string]string // the name service
	// finds is what a node's name service answers, in place of lookup
	finds func(ctx context.Context, id string) ([]string, error)
}

func newPods(t *testing.T) *pods {
	return &pods{testCluster: emptyCluster(t), addrs: map[string]string{}}
}

func (p *pods) lookup(context.Context) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Values(p.addrs)), nil
}

func (p *pods) register(id, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addrs[id] = addr
}

func (p *pods) unregister(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.addrs, id)
}

// run starts a pod on its data directory.
func (p *pods) run(id string) *Node {
	p.t.Helper()
	ln := p.net.listen(p.t, id, "")
	p.register(id, ln.Addr().String())
	cfg := Config{ID: id, ClientAddr: "client-" + id, DataDir: filepath.Join(p.dir, id),
		PeerListener: ln, Discover: p.lookup, Founders: 3, Clock: p.clock(id),
		dial: p.net.dialer(id), Logger: testLogger()}
	if p.finds != nil {
		cfg.Discover = func(ctx context.Context) ([]string, error) { return p.finds(ctx, id) }
	}
	if *overTLS {
		p.ca.useTLS(PeerTLSDial)(&cfg)
	}
	toy := newToy()
	n, err := Open(cfg, toy)
	if err != nil {
		p.t.Fatal(err)
	}
	p.nodes[id], p.toys[id] = n, toy
	return n
}

// lose ends a pod and its disk.
func (p *pods) lose(id string) {
	p.t.Helper()
	p.close(id)
	p.unregister(id)
	p.wipe(id)
}

// sameCluster waits until all nodes are ready, and returns their cluster's id.
func (p *pods) sameCluster() string {
	p.t.Helper()
	for id := range p.nodes {
		p.ready(id)
	}
	ids := map[string]bool{}
	for id, n := range p.nodes {
		eventually(p.t, id+" knows its cluster", func() bool { return n.clusterID() != "" })
		ids[n.clusterID()] = true
	}
	if len(ids) != 1 {
		p.t.Fatalf("clusters %v", ids)
	}
	return slices.Collect(maps.Keys(ids))[0]
}

// TestPodsFindEachOther starts all pods empty, loses one disk, and then two: the rest is not
// replaced by a new cluster.
func TestPodsFindEachOther(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		for _, id := range []string{"p3", "p1", "p2"} {
			p.run(id)
		}
		cluster := p.sameCluster()
		p.awaitVoters("p1", "p2", "p3")
		p.write(p.leader(), "a")

		p.lose("p1")
		p.run("q1")
		if got := p.sameCluster(); got != cluster {
			t.Errorf("the cluster is %s, it was %s", got, cluster)
		}
		if err := p.leader().ChangeMembers(MemberChange{Kind: RemoveMember, ID: "p1"}); err != nil {
			t.Fatal(err)
		}
		p.awaitVoters("p2", "p3", "q1")
		p.write(p.leader(), "b")
		if got := p.converged(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("all have %q", got)
		}

		// Two of three: the one that is left has no majority, and the empty ones wait for it, also
		// while it is away.
		p.lose("p2")
		p.lose("p3")
		q2, q3 := p.run("q2"), p.run("q3")
		why := func(n *Node) string { return n.discoverOnce(t.Context()) }
		for _, n := range []*Node{q2, q3} {
			eventually(t, n.cfg.ID+" says why it waits", func() bool {
				return strings.Contains(why(n), "see coordd recover")
			})
		}
		p.close("q1")
		if got := why(q2); !strings.Contains(got, "do not answer") {
			t.Errorf("with a silent address: %q", got)
		}
		p.unregister("q1")
		if got := why(q2); !strings.Contains(got, "2 of the 3 nodes") {
			t.Errorf("without the address: %q", got)
		}
		for _, n := range []*Node{q2, q3} {
			if !n.awaitsJoin() || n.clusterID() != "" {
				t.Errorf("%s takes part in a cluster", n.cfg.ID)
			}
		}
		if got := p.run("q1"); got.clusterID() != cluster {
			t.Errorf("q1 is in cluster %s", got.clusterID())
		}
	})
}

// TestPodsApart starts pods that do not all reach each other: nobody founds a cluster before.
func TestPodsApart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		p.net.isolate("p1")
		nodes := []*Node{p.run("p1"), p.run("p2"), p.run("p3")}
		for _, n := range nodes {
			eventually(t, n.cfg.ID+" misses somebody", func() bool {
				return strings.Contains(n.discoverOnce(t.Context()), "do not answer")
			})
			if !n.awaitsJoin() {
				t.Errorf("%s founded a cluster", n.cfg.ID)
			}
		}
		p.net.heal("p1")
		p.sameCluster()
		p.awaitVoters("p1", "p2", "p3")
	})
}

// TestTwoFounders has two empty nodes that see different ones, since their name services differ,
// about to found a cluster at the same time. The one that is seen waits for the other if that looks
// meanwhile, and the other waits while that one is about to.
func TestTwoFounders(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		type looks struct{}
		var meanwhile func() // before the second look
		nodes := map[string]*Node{}
		p.finds = func(ctx context.Context, id string) ([]string, error) {
			if n, _ := ctx.Value(looks{}).(*int); n == nil {
				return nil, errors.New("the test looks")
			} else if *n++; *n == 2 {
				meanwhile()
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if id == "p1" {
				return []string{p.addrs["p1"], p.addrs["p2"], p.addrs["p3"]}, nil
			}
			return []string{p.addrs["p2"], p.addrs["p3"], p.addrs["p4"]}, nil
		}
		for _, id := range []string{"p1", "p2", "p3", "p4"} {
			nodes[id] = p.run(id)
		}
		p1, p2 := nodes["p1"], nodes["p2"]
		try := func(n *Node, before func()) string {
			meanwhile = before
			return n.discoverOnce(context.WithValue(t.Context(), looks{}, new(int)))
		}
		if why := try(p2, func() {
			if _, err := p1.lookAround(context.WithValue(t.Context(), looks{},
				new(int))); err != nil {
				t.Error(err)
			}
		}); !strings.Contains(why, "node p1 asked a moment ago") || !p2.awaitsJoin() {
			t.Errorf("p2 founds a cluster, and p1 has seen it: %q", why)
		}
		if why := try(p1, func() { p2.founding.Store(true) }); !strings.Contains(why,
			"node p2 founds a cluster already") || !p1.awaitsJoin() {
			t.Errorf("p1 founds a cluster, and p2 is about to: %q", why)
		}
		p2.founding.Store(false)
		if why := try(p1, func() {}); why != "" {
			t.Errorf("p1 does not found a cluster: %s", why)
		}
	})
}

// TestFounderDies ends the pod that founds the cluster once it has begun, with its disk.
func TestFounderDies(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		p.run("p2")
		p.run("p3")
		founder := p.run("p1")
		eventually(t, "p1 begins", func() bool { return !founder.awaitsJoin() })
		p.lose("p1")
		p.run("q1")
		p.sameCluster()
		p.write(p.leader(), "a")
	})
}

func TestStrangersAreNotAdded(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n1 := c.nodes["n1"]
		n9 := c.joiner("n9", true)
		ask := func(change MemberChange) error {
			r, err := n9.exchange("n1", n1.mux.Addr().String(), adminRequest{Change: &change})
			return errors.Join(err, r.err())
		}
		own := MemberChange{Kind: AddMember, ID: "n9", PeerAddr: n9.mux.Addr().String()}
		if err := ask(own); err == nil || !strings.Contains(err.Error(), "is not a member") {
			t.Errorf("without discovery: %v", err)
		}
		n1.cfg.Discover = func(context.Context) ([]string, error) { return nil, nil }
		for _, change := range []MemberChange{{Kind: RemoveMember, ID: "n9"},
			{Kind: TransferLeader},
			{Kind: AddMember, ID: "n8", PeerAddr: own.PeerAddr},
			{Kind: AddMember, ID: "n9", PeerAddr: "127.0.0.1:1"}} {
			if err := ask(change); !errors.Is(err, ErrRefused) {
				t.Errorf("%+v: %v", change, err)
			}
		}
		if err := ask(own); err != nil {
			t.Error(err)
		}
		eventually(t, "n9 is a member", func() bool { return n1.isMember("n9") })
	})
}

// TestAutomaticIDs makes ids, and sets aside the directory of a node that was removed.
func TestAutomaticIDs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		dir := t.TempDir()
		for host, begins := range map[string]string{"coordd-0": "coordd-0.", "a.b.c": "a.",
			"":   "node.",
			"hö": "node.", strings.Repeat("x", 63): strings.Repeat("x", 40) + "."} {
			id, err := AutoID(dir, host)
			if err != nil || CheckID(id) != nil || !strings.HasPrefix(id, begins) ||
				autoBase(id)+"." != begins {
				t.Errorf("%q: %q %v", host, id, err)
			}
		}
		for id, base := range map[string]string{"a.b": "", "coordd-0": "", "a.bcdfg": "",
			".bcdfgh":  "",
			"a.abcdef": "", "a.bcdfgh": "a", "a.b.bcdfgh": "a.b"} {
			if got := autoBase(id); got != base {
				t.Errorf("%q begins with %q, want %q", id, got, base)
			}
		}

		c := newCluster(t, 1, nil)
		n := c.nodes["n1"]
		c.write(n, "a")
		dir = filepath.Join(c.dir, "n1")
		if id, err := AutoID(dir, "other"); err != nil || id != "n1" {
			t.Errorf("the directory's id is %q %v", id, err)
		}
		if _, err := SetAsideRemoved(dir); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("a directory in use: %v", err)
		}
		c.close("n1")
		if kept, err := SetAsideRemoved(dir); kept != "" || err != nil {
			t.Errorf("the directory of a member: %q %v", kept, err)
		}
		c.reopen("n1")
		c.nodes["n1"].markRemoved()
		c.close("n1")
		old := filepath.Join(dir, setAsidePrefix+"n0")
		if err := os.Mkdir(old, 0o700); err != nil {
			t.Fatal(err)
		}
		// interrupted after the first file
		kept := filepath.Join(dir, setAsidePrefix+"n1")
		if err := os.Mkdir(kept, 0o700); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := SetAsideRemoved(dir); err != nil || got != kept && got != "" {
				t.Fatalf("%q %v", got, err)
			}
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("what is left: %v %v", files, err)
		}
		if v, err := readVersion(kept); err != nil || v.node != "n1" {
			t.Errorf("set aside: %+v %v", v, err)
		}
		if id, err := AutoID(dir, "pod"); err != nil || id == "n1" {
			t.Errorf("the next id: %q %v", id, err)
		}
	})
}
