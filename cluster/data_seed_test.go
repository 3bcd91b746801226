// Tests of data directories that are created from a state, and of the barrier.

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/membership"
)

// seed replaces the directory of a member of c.
func (c *testCluster) seed(id, store string, index, term uint64, state toyState) {
	c.t.Helper()
	dir := filepath.Join(c.dir, id)
	if err := os.RemoveAll(dir); err != nil {
		c.t.Fatal(err)
	}
	cfg := Config{ID: id, DataDir: dir, Members: c.members, LogStore: store}
	if err := Seed(cfg, Origin{Cluster: "seeded", Index: index, Term: term, Level: firstLevel},
		func(w io.Writer) error {
			return json.NewEncoder(w).Encode(state)
		}); err != nil {
		c.t.Fatal(err)
	}
}

// TestSeededCluster seeds two members of three; the third still has the log of the old cluster.
func TestSeededCluster(t *testing.T) {
	for _, store := range []string{LogStoreWAL, LogStoreBolt} {
		runSimulated(t, store, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *Config) { cfg.LogStore = store })
			for i := range 30 {
				c.write(c.leader(), fmt.Sprint("old", i))
			}
			for _, m := range c.members {
				c.close(m.ID)
			}
			state := toyState{List: []string{"kept"}, ClockMs: 777}
			for _, id := range []string{"n1", "n2"} {
				c.seed(id, store, 1<<20, 1<<32, state)
			}
			for _, id := range []string{"n3", "n1", "n2"} {
				c.reopen(id)
			}
			if s := c.leader().Status(); s.Term <= 1<<32 || s.ClockMs < 777 {
				t.Errorf("%+v", s)
			}
			// n3 belongs to another cluster: neither takes the other's word
			for _, n := range []string{"n1", "n2"} {
				c.ready(n)
				c.write(c.nodes[n], "before "+n)
			}
			if s := c.nodes["n3"].Status(); s.Ready || s.Term > 1<<32 ||
				slices.Contains(c.toys["n3"].batches(), "kept") {
				t.Errorf("n3 was taken in: %+v", s)
			}
			c.close("n3")
			c.seed("n3", store, 1<<20, 1<<32, state)
			c.reopen("n3")
			for _, n := range []string{"n1", "n2", "n3"} {
				c.ready(n)
				c.write(c.nodes[n], "new "+n)
			}
			want := []string{"kept", "before n1", "before n2", "new n1", "new n2", "new n3"}
			if got := c.converged(); !slices.Equal(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
			for _, m := range c.members { // and again, from what they have on disk now
				c.close(m.ID)
			}
			for _, m := range c.members {
				c.reopen(m.ID)
			}
			for _, m := range c.members {
				c.ready(m.ID)
			}
			if got := c.converged(); !slices.Equal(got, want) {
				t.Fatalf("after a restart %q, want %q", got, want)
			}
		})
	}
}

// TestJoinerOfARestoredCluster lets a node join that gets the seeded snapshot and can then store
// nothing, also after it has been restarted: what it knows of the others is what Seed wrote, which
// ends none of them.
func TestJoinerOfARestoredCluster(t *testing.T) {
	for size := 1; size <= 3; size += 2 {
		runSimulated(t, fmt.Sprint(size), func(t *testing.T) {
			full, change := unwritables()
			c := lateCluster(t, size)
			c.change = change
			for _, m := range c.members {
				c.seed(m.ID, LogStoreWAL, 1<<20, 1<<32, toyState{List: []string{"restored"}})
			}
			for _, m := range c.members {
				c.reopen(m.ID)
			}
			for _, m := range c.members {
				c.ready(m.ID)
			}
			lead := c.leader()
			c.write(lead, "a")
			n4 := c.joiner("n4", true)
			full["n4"].Store(true)
			if err := lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n4",
				PeerAddr: n4.Status().PeerAddr}); err != nil {
				t.Fatal(err)
			}
			for range 2 { // as it is, and restarted
				eventually(t, "n4 has the snapshot and no more", func() bool {
					return c.nodes["n4"].machine.members.Load().register.cluster != "" &&
						c.nodes["n4"].raft.LastIndex() == 1<<20
				})
				time.Sleep(5 * time.Second)
				c.write(lead, "beside n4")
				for id, n := range c.nodes {
					if n.failure.Load() {
						t.Errorf("%s ended: %v", id, <-n.Failed())
					}
				}
				c.close("n4")
				c.joiner("n4", true)
			}
			full["n4"].Store(false)
			eventually(t, "n4 votes", func() bool {
				return slices.Contains(voters(lead.configuration()), "n4")
			})
			c.converged()
		})
	}
}

// TestNobodyEndsANodeWithData: another node's word that this one has lost its disk ends it only if
// it has no data of the cluster, or if that is from before.
func TestNobodyEndsANodeWithData(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		c.converged()
		n := c.followers()[0]
		for _, cluster := range []string{n.clusterID(), "other"} {
			n.toldLostDisk(hello{id: "n9", cluster: cluster, refusal: "you have no data"})
			if n.failure.Load() {
				t.Fatalf("it ended by the word of a node of %s", cluster)
			}
		}
		c.ready(n.cfg.ID)
	})
}

// TestForgottenByARestore starts a member on an empty directory beside the only one that was
// seeded.
func TestForgottenByARestore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := lateCluster(t, 3)
		c.seed("n1", LogStoreWAL, 1<<20, 1<<32, toyState{List: []string{"kept"}, ClockMs: 777})
		c.reopen("n1")
		c.reopen("n2")
		c.fails("n2", "has not run since, coordd restore n2, too")
	})
}

// TestSeededAgain seeds a member again that lost its disk after it had acknowledged a write. It
// does not pass for the first one, even if the only other member lacks the write.
func TestSeededAgain(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := lateCluster(t, 3)
		state := toyState{List: []string{"kept"}, ClockMs: 777}
		for _, m := range c.members {
			c.seed(m.ID, LogStoreWAL, 1<<20, 1<<32, state)
		}
		for _, m := range c.members {
			c.reopen(m.ID)
		}
		c.write(c.leader(), "first")
		for _, m := range c.members {
			eventually(t, m.ID+" is registered", func() bool { return c.leader().admitted(m.ID) })
		}
		c.converged()
		c.close("n3")
		c.write(c.leader(), "acknowledged")
		c.close("n1")
		c.close("n2")
		c.seed("n1", LogStoreWAL, 1<<20, 1<<32, state)
		c.reopen("n1")
		c.reopen("n3")
		c.fails("n1", "node n1 has no data, but node n3 knows that it had some")
		c.reopen("n2")
		c.ready("n2")
		c.ready("n3")
		if got, want := c.converged(), []string{"kept", "first", "acknowledged"}; !slices.Equal(got,
			want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestPipelineOfAnUnregistered removes a follower's incarnation from what the leader knows to be
// committed: an open pipeline carries nothing more.
func TestPipelineOfAnUnregistered(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, f := c.leader(), c.followers()[0]
		c.write(lead, "a")
		eventually(t, "everyone is registered", func() bool {
			return lead.admitted("n1") && lead.admitted("n2") && lead.admitted("n3")
		})
		c.converged()
		all := lead.machine.members.Load()
		r := registerOf(all.configuration)
		delete(r.incarnations, f.cfg.ID)
		lead.machine.members.Store(newCommitted(all.index,
			raft.Configuration{Servers: []raft.Server{r.server()}}))
		for range 5 {
			c.write(lead, "b")
		}
		if got := c.toys[f.cfg.ID].batches(); lead.leads() && !slices.Equal(got, []string{"a"}) {
			t.Errorf("the follower got %q", got)
		}
		lead.machine.members.Store(newCommitted(all.index, all.configuration))
		c.converged()
	})
}

// TestSeedLeavesNothing fails in the middle: the directory is as it was.
func TestSeedLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	there := t.TempDir()
	for _, dir := range []string{filepath.Join(t.TempDir(), "new"), there} {
		err := Seed(Config{ID: "n1", DataDir: dir},
			Origin{Cluster: "x", Index: 5, Term: 5, Level: firstLevel}, func(w io.Writer) error {
				_, _ = w.Write(make([]byte, 100_000))
				return broken
			})
		if !errors.Is(err, broken) {
			t.Error(err)
		}
		if files, err := os.ReadDir(dir); len(files) > 0 || (dir != there) != os.IsNotExist(err) {
			t.Error(dir, files, err)
		}
	}
}

// What an interrupted call left is refused by a node, and another call replaces it.
func TestInterruptedSeed(t *testing.T) {
	dir, left := filepath.Join(t.TempDir(), "n1"), filepath.Join(t.TempDir(), "left")
	state := func(w io.Writer) error { return json.NewEncoder(w).Encode(toyState{}) }
	from := Origin{Cluster: "x", Index: 5, Term: 5, Level: firstLevel}
	if err := Seed(Config{ID: "n1", DataDir: dir}, from, func(w io.Writer) error {
		return errors.Join(os.CopyFS(left, os.DirFS(dir)), state(w))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, seedingName)); !os.IsNotExist(err) {
		t.Error("the mark is left:", err)
	}
	if n, err := Open(Config{ID: "n1", DataDir: left}, newToy()); err == nil ||
		!strings.HasSuffix(err.Error(), "was not restored to the end: run coordd restore again") {
		t.Fatal(n, err)
	}
	if err := Seed(Config{ID: "n1", DataDir: left}, from, state); err != nil {
		t.Fatal(err)
	}
	n, err := Open(Config{ID: "n1", DataDir: left}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	eventually(t, "it leads", func() bool { return n.Status().Ready })
	if err := Seed(Config{ID: "n1", DataDir: left}, from, state); err == nil ||
		!strings.Contains(err.Error(), "is not empty") {
		t.Error(err)
	}
}

// TestSurveyOfALogWithAGap surveys a log that begins before a received snapshot.
func TestSurveyOfALogWithAGap(t *testing.T) {
	inner := raft.NewInmemStore()
	for _, l := range []*raft.Log{{Index: 1, Type: raft.LogCommand},
		{Index: 101, Type: raft.LogNoop}} {
		if err := inner.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	s := newLogStore(inner, newArrivals(clock.System{}, newToy().EntryClock),
		func() int64 {
			return 0
		})
	if end, err := s.survey(); end != 0 || err != nil {
		t.Error(end, err)
	}
}

// TestBarrier reads each node's own state after a barrier: it has what another node acknowledged
// before.
func TestBarrier(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		ctx := context.Background()
		for i := range 60 {
			writer, reader := c.nodes[fmt.Sprint("n", i%3+1)], c.nodes[fmt.Sprint("n", (i/3)%3+1)]
			c.write(writer, fmt.Sprint("w", i))
			if err := reader.Barrier(ctx); err != nil {
				t.Fatal(err)
			}
			if got, err := reader.readLocal([]byte(fmt.Sprint("w", i))); err != nil ||
				string(got) != "1" {
				t.Fatalf("write %d through %s is not seen behind a barrier of %s: %q %v", i,
					writer.cfg.ID, reader.cfg.ID, got, err)
			}
		}
		follower := c.followers()[0]
		c.net.isolate(follower.cfg.ID)
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if err := follower.Barrier(short); !errors.Is(err, ErrNotRun) {
			t.Errorf("a node that is cut off: %v", err)
		}
		c.net.heal(follower.cfg.ID)
	})
}
