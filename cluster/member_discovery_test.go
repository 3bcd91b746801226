// Tests of discovery: what an empty node decides, nodes that find each other, and automatic ids.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/tests/tier"
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
	removed := func(h hello) hello { h.removed, h.refusal = true, "a was removed"; return h }
	lost := func(h hello) hello { h.lostDisk, h.refusal = true, "a has no data"; return h }
	doc := readWaitingDoc(t)
	silent := []sighting{{addr: "x:1", err: errors.New("refused")}}
	a, b, c, d := empty("a"), empty("b"), empty("c"), empty("d")
	for _, test := range []struct {
		name string
		self hello
		met  []string
		seen []sighting
		want string // "join …", what it could found: "found …", or a part of why it waits
	}{
		{"alone", a, nil, nil, "1 of the 3 nodes"},
		{"all empty", a, nil, at(c, b), "found a b c"},
		{"all empty, not the first", b, nil, at(a, c), "found b a c"},
		{"one is missing", a, nil, at(b), "2 of the 3 nodes"},
		{"one does not answer", a, nil, append(at(b, c), silent...), "x:1 (refused)"},
		{"more than enough", c, nil, at(d, empty("e"), b), "found c b d"},
		{"two addresses of a node", a, nil, at(b, b, c), "found a b c"},
		{"another one of its id", a, nil, at(with(a, func(h *hello) { h.incarnation = "z" }), b, c),
			"two nodes have the id a"},
		{"two of an id", a, nil, at(b, with(b, func(h *hello) { h.incarnation = "z" }), c),
			"two nodes have the id b"},
		{"a cluster", a, nil, at(b, member("c", "k")), "join c"},
		{"a cluster, and some are silent", a, nil, append(at(member("c", "k")), silent...),
			"join c"},
		{"a cluster from which it was removed", a, nil,
			at(member("b", "k"), removed(member("c", "k"))), "end: a was removed"},
		{"a cluster that knows a lost disk", a, nil, at(lost(member("c", "k"))),
			"end: a has no data"},
		{"two clusters, of one it was removed", a, nil,
			at(removed(member("b", "j")), lost(member("c", "k"))), "several clusters answer: j, k"},
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
		{"another one has voted", b, nil, at(voted("a"), c), "found b a c"},
		{"this one has voted", voted("a"), nil, at(b, c), "has voted for a founder that is gone"},
		{"an address twice", a, nil, at(b, with(c, func(h *hello) { h.peerAddr = "b:1" })),
			"nodes b and c have the peer address"},
	} {
		plan := planDiscovery(test.self, 3, "", test.met, append(at(test.self), test.seen...))
		if !plan.ended {
			doc.check(plan.wait)
		}
		got := plan.wait.why
		if plan.ended {
			got = "end: " + got
		}
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
	plan := planDiscovery(a, 3, "", nil, at(b, c))
	if doc.check(plan.wait); !strings.Contains(plan.wait.why, "is this node's") {
		t.Errorf("a name service that does not know this node: %+v", plan)
	}
	if plan := planDiscovery(a, 0, "", nil, at(a, b, c)); plan.wait.why == "" {
		t.Errorf("without founders: %+v", plan)
	}
	for _, err := range []error{refused("its id is taken"), errNoLeader, errNoAnswer,
		errors.New("connection refused"),
		notRun("node b had the peer address a:1; " + removedInTime + " 1m0s")} {
		doc.check(notAdded(member("c", "k"), err))
	}
	if plan = planDiscovery(a, 3, "k", nil, at(a, b, c)); len(plan.found) > 0 {
		t.Error("what has asked a cluster founds another one")
	}
	doc.check(plan.wait)
	lookup := &Node{setup: setup{cfg: Config{Discover: func(context.Context) ([]string, error) {
		return nil, errors.New("no such host")
	}}}}
	doc.check(lookup.planAround(t.Context()).wait)
	doc.end()
}

// waitingDoc is the table of docs/operations.md of what a node says that waits, and what to do.
type waitingDoc struct {
	t    *testing.T
	rows []waitingRow
}

type waitingRow struct {
	why  *regexp.Regexp
	next string
	met  bool
}

func readWaitingDoc(t *testing.T) *waitingDoc {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| `not in a cluster yet` | what to do |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	links := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	d := &waitingDoc{t: t}
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(row, "| \n"), " | ")
		why := regexp.MustCompile(`\d+`).ReplaceAllString(regexp.QuoteMeta(strings.Trim(cells[0],
			"`")), `\d+`)
		next := links.ReplaceAllString(cells[1], "operations.md, $1")
		d.rows = append(d.rows, waitingRow{
			regexp.MustCompile("^" + strings.ReplaceAll(why, "…", ".+")),
			strings.ReplaceAll(next, "`", ""), false})
	}
	return d
}

// check compares what a node says with the first row that fits.
func (d *waitingDoc) check(w waiting) {
	d.t.Helper()
	if w.why == "" { // it joins
		return
	}
	for i := range d.rows {
		if row := &d.rows[i]; row.why.MatchString(w.why) {
			if row.met = true; w.next != row.next {
				d.t.Errorf("%s: the next act is %q, and by docs/operations.md %q", w.why, w.next,
					row.next)
			}
			return
		}
	}
	d.t.Errorf("docs/operations.md does not have %q", w.why)
}

// end reports the rows that no node says.
func (d *waitingDoc) end() {
	for _, row := range d.rows {
		if !row.met {
			d.t.Errorf("no node says %v", row.why)
		}
	}
}

// pods is a cluster of nodes that discover each other.
type pods struct {
	*testCluster
	founders int
	mu       sync.Mutex
	addrs    map[string]string // the name service
	// finds is what a node's name service answers, in place of lookup
	finds func(ctx context.Context, id string) ([]string, error)
}

func newPods(t *testing.T) *pods {
	return &pods{testCluster: emptyCluster(t), founders: 3, addrs: map[string]string{}}
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
	cfg := Config{ID: id, ClientAddr: "client-" + id + ":1", DataDir: filepath.Join(p.dir, id),
		PeerListener: ln, Discover: p.lookup, Founders: p.founders, Clock: p.clock(id),
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

// found tells a pod to found the cluster, as soon as it can, and returns the cluster's id.
func (p *pods) found(id string) (cluster string) {
	p.t.Helper()
	eventually(p.t, id+" founds the cluster", func() (ok bool) {
		var err error
		cluster, err = p.nodes[id].Found()
		return err == nil
	})
	return cluster
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

// TestPodsFindEachOther starts all pods empty and has one found a cluster, loses one disk, and then
// two: the rest is not replaced by a new cluster, also if somebody asks for one.
func TestPodsFindEachOther(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		for _, id := range []string{"p3", "p1", "p2"} {
			p.run(id)
		}
		why := func(n *Node) string { return n.discoverOnce(t.Context()).why }
		for _, n := range p.nodes {
			eventually(t, n.cfg.ID+" waits to be told", func() bool {
				return strings.Contains(why(n), "3 empty nodes are found: p1, p2, p3; coordd found")
			})
		}
		founded := p.found("p2")
		cluster := p.sameCluster()
		for id, n := range p.nodes {
			if again, err := n.Found(); founded != cluster || again != cluster || err != nil {
				t.Errorf("%s says that it founded %s, %v; p2 founded %s", id, again, err, founded)
			}
		}
		p.awaitVoters("p1", "p2", "p3")
		p.write(p.leader(), "a")

		p.lose("p1")
		p.run("q1")
		if got := p.sameCluster(); got != cluster {
			t.Errorf("the cluster is %s, it was %s", got, cluster)
		}
		gone := membership.Change{Kind: membership.Remove, ID: "p1"}
		if err := p.leader().ChangeMembers(gone); err != nil {
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
		for _, n := range []*Node{q2, q3} {
			eventually(t, n.cfg.ID+" says why it waits", func() bool {
				return strings.Contains(why(n), "see coordd recover")
			})
		}
		p.close("q1")
		refuses := func(want string) {
			t.Helper()
			if _, err := q2.Found(); !errors.Is(err, ErrNotRun) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("told to found a cluster, q2 says %v, want %q", err, want)
			}
		}
		refuses("do not answer")
		p.unregister("q1")
		refuses("2 of the 3 nodes")
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
				return strings.Contains(n.discoverOnce(t.Context()).why, "do not answer")
			})
			if !n.awaitsJoin() {
				t.Errorf("%s founded a cluster", n.cfg.ID)
			}
		}
		p.net.heal("p1")
		p.found("p1")
		p.sameCluster()
		p.awaitVoters("p1", "p2", "p3")
	})
}

// TestTwoFounders has two empty nodes that see different ones, since their name services differ,
// told to found a cluster at the same time. The one that is seen does not if the other has looked
// meanwhile, and the other does not while that one is about to.
func TestTwoFounders(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		type looks struct{} // the key of what happens before a look
		nodes := map[string]*Node{}
		p.finds = func(ctx context.Context, id string) ([]string, error) {
			before, _ := ctx.Value(looks{}).(func())
			if before == nil {
				return nil, errors.New("the test looks")
			}
			before()
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
			return n.found(context.WithValue(t.Context(), looks{}, before))
		}
		if why := try(p2, func() {
			if _, err := p1.lookAround(context.WithValue(t.Context(), looks{},
				func() {})); err != nil {
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

// TestFounderDies ends the pod that founds the cluster once it has begun, with its disk. If nobody
// has its log, another one is told to.
func TestFounderDies(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		p.run("p2")
		p.run("p3")
		founder := p.run("p1")
		eventually(t, "p1 begins", func() bool {
			return founder.found(t.Context()) == "" && !founder.awaitsJoin()
		})
		p.lose("p1")
		p.run("q1")
		eventually(t, "the others have the log, or another one founds", func() bool {
			_, err := p.nodes["q1"].Found()
			return err == nil
		})
		p.sameCluster()
		p.write(p.leader(), "a")
	})
}

// asker answers probes as any node: with the hello that it is given.
type asker struct {
	ln net.Listener
	h  atomic.Pointer[hello]
}

func (a *asker) serve() {
	for {
		conn, err := a.ln.Accept()
		if err != nil {
			return
		}
		_, err = conn.Read(make([]byte, 1))
		if err == nil {
			_, err = readHello(conn)
		}
		if h := a.h.Load(); err == nil && h != nil {
			_, _ = conn.Write(appendHello(nil, *h))
		}
		_ = conn.Close()
	}
}

// TestNothingIsFoundedUntold shows an empty node all subsets of the other members of its cluster:
// each has its data, or has an empty disk, or is absent from the name service. It never founds a
// cluster by itself, and could only be told to if all that it finds are empty, and enough.
func TestNothingIsFoundedUntold(t *testing.T) {
	if *overTLS {
		t.Skip("the nodes that it imitates speak no TLS")
	}
	for _, founders := range []int{1, 3} {
		simulated(t, func(t *testing.T) {
			p := newPods(t)
			p.founders = founders
			n := p.run("p0")
			var others []*asker
			defer func() {
				for _, a := range others {
					_ = a.ln.Close()
				}
			}()
			for i := range 6 {
				a := &asker{ln: p.net.listen(t, fmt.Sprintf("p%d", i+1), "")}
				others = append(others, a)
				go a.serve()
			}
			for _, members := range []int{3, 5, 7} {
				for states := range membersSeen(members - 1) {
					p.show(n, others, states)
					time.Sleep(discoverEvery) // of the simulation; it looks by itself, too
					empties := 1 + strings.Count(states, "empty")
					n.discovering <- struct{}{}
					n.asked = "" // in an earlier subset
					<-n.discovering
					why := n.discoverOnce(t.Context()).why
					if !n.awaitsJoin() || n.raft.CurrentTerm() != 0 {
						t.Fatalf("beside%s, an empty node founds a cluster", states)
					}
					could := !strings.Contains(states, "data") && empties >= founders
					if strings.Contains(why, "coordd found") != could {
						t.Errorf("beside%s, with %d founders: %q", states, founders, why)
					}
				}
			}
		})
	}
}

// membersSeen returns all that other members may look like. Which of them looks so makes no
// difference but in make check.
func membersSeen(others int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range int(math.Pow(3, float64(others))) {
			states, before, sorted := "", 0, true
			for range others {
				states += []string{" absent", " empty", " data"}[k%3]
				sorted = sorted && before <= k%3
				before, k = k%3, k/3
			}
			if (sorted || tier.Checking()) && !yield(states) {
				return
			}
		}
	}
}

// show has the others look so.
func (p *pods) show(n *Node, others []*asker, states string) {
	for i, state := range strings.Fields(states) {
		id, h := fmt.Sprintf("p%d", i+1), n.hello("", "")
		h.id, h.incarnation, h.peerAddr = id, id, others[i].ln.Addr().String()
		if state == "data" {
			h.cluster, h.traits = "k", 0
		}
		others[i].h.Store(&h)
		if p.register(id, h.peerAddr); state == "absent" {
			p.unregister(id)
		}
	}
}

// TestMajorityIsAway has the founder of a cluster of three lose its disk while the others are not
// in the name service: it waits, and joins them when they are back. Told to, it founds another
// cluster: the nodes of both are not ready while they see each other.
func TestMajorityIsAway(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p := newPods(t)
		p.founders = 1
		p.run("p1")
		cluster := p.found("p1")
		p.run("p2")
		p.run("p3")
		p.awaitVoters("p1", "p2", "p3")
		p.write(p.leader(), "a")
		leave := func(ids ...string) {
			for _, id := range ids {
				p.unregister(id)
				p.close(id)
			}
		}
		leave("p2", "p3")
		p.lose("p1")
		q1 := p.run("q1")
		for range 20 {
			if why := q1.discoverOnce(t.Context()).why; !strings.Contains(why,
				"1 empty nodes are found: q1; coordd found") || !q1.awaitsJoin() {
				t.Fatalf("q1 takes part in a cluster, or says %q", why)
			}
			time.Sleep(discoverEvery)
		}
		p.run("p2")
		p.run("p3")
		if got := p.sameCluster(); got != cluster {
			t.Errorf("the cluster is %s, it was %s", got, cluster)
		}
		p.write(p.leader(), "b")
		if got := p.converged(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("all have %q", got)
		}

		leave("p2")
		p.lose("q1")
		r1 := p.run("r1")
		eventually(t, "r1 has asked p3", func() bool {
			return strings.Contains(r1.discoverOnce(t.Context()).why, "see coordd recover")
		})
		leave("p3")
		if _, err := r1.Found(); err == nil || !strings.Contains(err.Error(), "has asked cluster") {
			t.Errorf("r1 has seen the cluster, and founds another one: %v", err)
		}
		p.close("r1")
		r1 = p.run("r1")
		if second := p.found("r1"); second == cluster {
			t.Error("r1 is in the first cluster")
		}
		p.ready("r1")
		p.run("p2")
		p.run("p3")
		nodes := []*Node{r1, p.nodes["p2"], p.nodes["p3"]}
		for _, n := range nodes {
			eventually(t, n.cfg.ID+" sees the other cluster", func() bool {
				return strings.Contains(n.Status().Stranger, "of another cluster")
			})
		}
		p.unregister("r1")
		for _, n := range nodes[1:] {
			eventually(t, n.cfg.ID+" sees no other cluster any more", func() bool {
				return n.Status().Stranger == ""
			})
		}
		if r1.Status().Stranger == "" {
			t.Error("r1 does not see the first cluster any more")
		}
	})
}

func TestStrangersAreNotAdded(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n1 := c.nodes["n1"]
		n9 := c.joiner("n9", true)
		ask := func(change membership.Change) error {
			r, err := n9.exchange("n1", n1.mux.Addr().String(), adminRequest{Change: &change})
			return errors.Join(err, r.err())
		}
		if _, err := n9.Found(); !errors.Is(err, ErrRefused) {
			t.Errorf("a node that waits to be added, told to found a cluster: %v", err)
		}
		own := membership.Change{Kind: membership.Add, ID: "n9", PeerAddr: n9.mux.Addr().String()}
		if err := ask(own); err == nil || !strings.Contains(err.Error(), "is not a member") {
			t.Errorf("without discovery: %v", err)
		}
		c.change = func(cfg *Config) {
			cfg.Discover = func(context.Context) ([]string, error) { return nil, nil }
		}
		c.close("n1")
		c.reopen("n1")
		n1 = c.leader()
		for _, change := range []membership.Change{{Kind: membership.Remove, ID: "n9"},
			{Kind: membership.Transfer},
			{Kind: membership.Add, ID: "n8", PeerAddr: own.PeerAddr},
			{Kind: membership.Add, ID: "n9", PeerAddr: "127.0.0.1:1"}} {
			if err := ask(change); !errors.Is(err, ErrRefused) {
				t.Errorf("%+v: %v", change, err)
			}
		}
		if err := ask(own); err != nil {
			t.Error(err)
		}
		eventually(t, "n9 is a member", func() bool { return n1.ownStanding("n9").isMember() })
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
		if files, err := os.ReadDir(dir); err != nil || len(files) != 2 ||
			files[0].Name() != lockName {
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
