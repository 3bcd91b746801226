// The members of a cluster of real processes change while clients write.

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// fleet is a cluster that grows and shrinks.
type fleet struct {
	t     *testing.T
	dir   string
	nodes []*process
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		for _, p := range f.nodes {
			p.kill()
			if t.Failed() {
				t.Logf("log of %s:\n%s", p.id, p.log)
			}
		}
	})
	return f
}

// start starts a node; with members to join it joins their cluster.
func (f *fleet) start(id string, join ...*process) *process {
	f.t.Helper()
	p := f.prepare(id, join...)
	p.start()
	p.waitReady()
	return p
}

// prepare is start without the start.
func (f *fleet) prepare(id string, join ...*process) *process {
	f.t.Helper()
	ports := freePorts(f.t, 3)
	p := &process{t: f.t, id: id, addr: loopback(ports[0]), http: loopback(ports[2])}
	p.args = []string{"--id", id, "--listen", p.addr, "--peer-listen", loopback(ports[1]),
		"--http-listen", p.http, "--data-dir", filepath.Join(f.dir, id)}
	p.args = append(p.args, patient...)
	var addrs []string
	for _, j := range join {
		addrs = append(addrs, j.addr)
	}
	if len(addrs) > 0 {
		p.args = append(p.args, "--join", strings.Join(addrs, ","))
	}
	f.nodes = append(f.nodes, p)
	return p
}

// raft runs a subcommand of RAFT through the node.
func (p *process) raft(args ...any) (any, error) {
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, ReadTimeout: 20 * time.Second,
		Protocol: 3, Password: p.login})
	defer c.Close()
	return c.Do(context.Background(), append([]any{"RAFT"}, args...)...).Result()
}

func (p *process) mustRaft(args ...any) {
	p.t.Helper()
	if v, err := p.raft(args...); err != nil || v != "OK" {
		p.t.Fatalf("RAFT %v on %s: %v %v", args, p.id, v, err)
	}
}

// refusedRaft fails unless the subcommand is refused with that text.
func (p *process) refusedRaft(want string, args ...any) {
	p.t.Helper()
	if v, err := p.raft(args...); err == nil || !strings.Contains(err.Error(), want) {
		p.t.Errorf("RAFT %v on %s: %v %v, want %q", args, p.id, v, err, want)
	}
}

// transfers requests a leadership transfer and reports whether it succeeded.
func (p *process) transfers(to string) bool {
	_, err := p.raft("TRANSFER", to)
	return err == nil
}

// members returns "id role" of every member as the node reports it, sorted.
func (p *process) members() []string {
	v, _ := p.raft("MEMBERS")
	rows, _ := v.([]any)
	var out []string
	for _, row := range rows {
		m, _ := row.(map[any]any)
		role := m["role"]
		if role == "leader" {
			role = "voter"
		}
		out = append(out, fmt.Sprint(m["id"], " ", role))
	}
	slices.Sort(out)
	return out
}

// waitVoters waits until a node reports these members, all of them voters.
func (p *process) waitVoters(ids ...string) {
	p.t.Helper()
	var want []string
	for _, id := range ids {
		want = append(want, id+" voter")
	}
	slices.Sort(want)
	wait.For(p.t, 20*time.Second, p.id+" sees the voters "+strings.Join(ids, " "), func() bool {
		return slices.Equal(p.members(), want)
	})
}

// strictWriters are writers whose requests must not fail.
type strictWriters struct{ *writers }

func startStrict(ps ...*process) strictWriters { return strictWriters{startWriters(ps, 4)} }

// more waits for so many further acknowledged writes.
func (w strictWriters) more(t *testing.T, n int64) {
	t.Helper()
	from := w.count.Load()
	wait.For(t, 20*time.Second, "more writes", func() bool { return w.count.Load() >= from+n })
}

func TestMembersChangeUnderTraffic(t *testing.T) {
	f := newFleet(t)
	n1 := f.start("n1")
	w := startWriters([]*process{n1}, 4)
	strict := strictWriters{w}
	strict.more(t, 200)
	n2 := f.start("n2", n1)
	n3 := f.start("n3", n2) // a follower forwards it
	n3.waitVoters("n1", "n2", "n3")
	other := startStrict(n3)
	n4, n5 := f.start("n4", n1, n2), f.start("n5", n3)
	n5.waitVoters("n1", "n2", "n3", "n4", "n5")
	strict.more(t, 200)
	other.more(t, 200)

	// The leader is removed: first n2 becomes leader, requested through another node.
	wait.For(t, 20*time.Second, "n2 to lead", func() bool {
		_, err := n5.raft("TRANSFER", "n2")
		return err == nil || n2.role() == "master"
	})
	n4.mustRaft("REMOVE", "n2")
	n1.mustRaft("REMOVE", "n4")
	n5.waitVoters("n1", "n3", "n5")
	strict.more(t, 200)
	other.more(t, 200)
	for _, gone := range []*process{n2, n4} {
		c := gone.client()
		wait.For(t, 10*time.Second, gone.id+" says that it was removed", func() bool {
			err := c.Set(context.Background(), "x", 1, 0).Err()
			return err != nil && err.Error() == "CLUSTERDOWN the command did not run: node "+
				gone.id+" was removed from the cluster; use another node"
		})
	}
	for p, want := range map[*process]string{n5: "leader", n1: "leader",
		n2: "this node, which was removed from the cluster",
		n4: "this node, which was removed from the cluster"} {
		if list, err := p.raft("MEMBERS"); err != nil ||
			!strings.Contains(fmt.Sprint(list), "source:"+want) {
			t.Errorf("%s: %v %v", p.id, list, err)
		}
	}
	n4.refusedRaft("CLUSTERDOWN", "REMOVE", "n1")
	n1.refusedRaft(
		"ERR node n2 was removed from this cluster; ids are never reused, choose another", "ADD",
		"n2", "127.0.0.1:1")
	n3.refusedRaft("ERR node n2 was already removed", "REMOVE", "n2")
	n1.refusedRaft("ERR there is no member n9", "REMOVE", "n9")
	n1.refusedRaft("ERR there is no member n9", "PROMOTE", "n9")
	n1.refusedRaft("ERR node n3 is already a voter", "PROMOTE", "n3")
	n1.refusedRaft("ERR node n3 is already a voter, and runs at ", "ADD", "n3", "127.0.0.1:1")
	n1.refusedRaft("use host:port", "ADD", "n7", "0.0.0.0:1")

	for _, s := range []strictWriters{strict, other} {
		s.finish(t, n5.client())
		if failed := s.failed.Load(); failed > 0 {
			t.Errorf("%d requests failed, the first: %v", failed, s.failure)
		}
	}

	// A removed node stays removed when it is started again.
	n4.kill()
	n4.start()
	c := n4.client()
	wait.For(t, 10*time.Second, "n4 logs it again", func() bool {
		err := c.Get(context.Background(), "x").Err()
		return err != nil && strings.Contains(err.Error(), "n4 was removed from the cluster")
	})
}

// TestMemberIsReplaced loses a node's disk under load and replaces the node; then it moves a node
// to another address.
func TestMemberIsReplaced(t *testing.T) {
	tier.Check(t)
	ps := startProcesses(t, 3)
	f := newFleet(t)
	wait.For(t, 20*time.Second, "n3 to follow", func() bool {
		return ps[2].role() == "slave" || ps[2].transfers("n1")
	})
	strict := startStrict(ps[0], ps[1])
	strict.more(t, 200)
	ps[2].kill()
	wait.For(t, 10*time.Second, "the leader sees that n3 has gone", func() bool {
		for _, p := range ps[:2] {
			if infoField(p.client(), "replication", "connected_slaves") == "1" {
				return true
			}
		}
		return false
	})
	ps[0].refusedRaft(
		"without node n2 there is no majority: only 1 of 2 voters are connected", "REMOVE", "n2")
	ps[0].mustRaft("REMOVE", "n3")
	n4 := f.start("n4", ps[1])
	n4.waitVoters("n1", "n2", "n4")
	if err := n4.client().Set(context.Background(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}

	// An empty node with the id of a voter is refused: it could vote twice.
	ports := freePorts(t, 2)
	imposter := &process{t: t, id: "n4", addr: loopback(ports[0])}
	imposter.args = []string{"--id", "n4", "--listen", imposter.addr, "--peer-listen",
		loopback(ports[1]), "--data-dir", filepath.Join(f.dir, "empty"), "--join", ps[0].addr}
	imposter.start()
	imposter.waitRefusal("the cluster refused this node: node n4 is already a voter, and runs at " +
		n4.flag("--peer-listen") + ": give the new node an --id of its own")

	// n4 is started again with another peer address, and its --join, which no longer has an effect.
	n4.stop()
	moved := loopback(freePorts(t, 1)[0])
	n4.setFlag("--peer-listen", moved)
	n4.start()
	n4.waitReady()
	wait.For(t, 20*time.Second, "the new address is known", func() bool {
		v, _ := ps[0].raft("MEMBERS")
		return strings.Contains(fmt.Sprint(v), "peer-address:"+moved)
	})
	strict.more(t, 200)
	strict.finish(t, n4.client())
	if failed := strict.failed.Load(); failed > 0 {
		t.Errorf("%d requests failed while a member was replaced and one moved, the first: %v",
			failed, strict.failure)
	}
	// The founders are started again with their initial flags, without n3: n1 and n4 alone are a
	// majority then.
	ps[0].stop()
	ps[0].start()
	ps[0].waitReady()
	ps[1].kill()
	wait.For(t, 10*time.Second, "n1 and n4 serve alone", func() bool {
		return n4.client().Set(context.Background(), "k", "w", 0).Err() == nil &&
			ps[0].client().Get(context.Background(), "k").Val() == "w"
	})
	if n := strings.Count(fmt.Sprint(ps[0].members()), "voter"); n != 3 {
		t.Errorf("%d voters: %v", n, ps[0].members())
	}
}

// TestChangesOneAtATime requests several changes at once, and some that are refused.
func TestChangesOneAtATime(t *testing.T) {
	f := newFleet(t)
	n1 := f.start("n1")
	// Nobody listens at these addresses: both stay without a vote, and n1 continues alone.
	ports := freePorts(t, 4)
	errs := make(chan error, len(ports))
	for i, port := range ports {
		go func() {
			_, err := n1.raft("ADD", fmt.Sprintf("x%d", i), loopback(port))
			errs <- err
		}()
	}
	for range ports {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got, want := n1.members(), []string{"n1 voter", "x0 learner", "x1 learner", "x2 learner",
		"x3 learner"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	n1.mustRaft("ADD", "x0", loopback(ports[0])) // again
	n1.refusedRaft("node x0 already has the peer address", "ADD", "x9", loopback(ports[0]))
	n1.refusedRaft("node x0 cannot be promoted yet: it has not caught up and is not connected",
		"PROMOTE", "x0")
	n1.refusedRaft("node n1 is the last voter", "REMOVE", "n1")
	n1.refusedRaft("no other voter is connected", "TRANSFER")
	n1.refusedRaft("cannot reach the leader's peer address", "ADD", "y", "192.0.2.1:7000")
	n1.mustRaft("REMOVE", "x0")
	n1.mustRaft("SNAPSHOT")
	n1.kill()
	n1.start()
	n1.waitReady()
	if got, want := n1.members(), []string{"n1 voter", "x1 learner", "x2 learner",
		"x3 learner"}; !slices.Equal(got, want) {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	n1.refusedRaft("node x0 was removed from this cluster", "ADD", "x0", loopback(ports[0]))
}
