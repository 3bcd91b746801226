package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/cluster/raftlog"
)

// damageSnapshots makes what is in a closed node's snapshots unreadable.
func damageSnapshots(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, snapshotsName, "*", "state.bin"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots in %s, %v", dir, err)
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("no snapshot"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefetch: a node whose snapshot cannot be read gets its state from the others again. It helps
// to elect nobody before it has what it had: here a write that the third node lacks.
func TestRefetch(t *testing.T) {
	simulated(t, func(t *testing.T) {
		for _, store := range []string{LogStoreWAL, LogStoreBolt} {
			c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs, cfg.LogStore = 1, store })
			lead := c.leader()
			ids := []string{c.followers()[0].cfg.ID, c.followers()[1].cfg.ID}
			broken, behind := ids[0], ids[1]
			for range 5 {
				c.write(lead, "w")
			}
			c.converged()
			if err := c.nodes[broken].Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.close(behind)
			c.write(lead, "only two have it")
			want := lead.applied()
			eventually(t, "the other follower has it", func() bool {
				return c.nodes[broken].applied() >= want
			})
			first := lead.cfg.ID
			c.close(broken)
			c.close(first)

			dir := filepath.Join(c.dir, broken)
			damageSnapshots(t, dir)
			if err := c.tryOpen(broken, nil); err == nil {
				t.Fatal("a node starts without its snapshot")
			}
			done, err := Refetch(dir, newToy(), testLogger())
			if err != nil || done.Node != broken || done.Owed < want {
				t.Fatalf("%+v, %v; it had entry %d", done, err, want)
			}
			c.reopen(broken)
			c.reopen(behind)
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				time.Sleep(time.Second)
				a, b := c.nodes[broken].Status(), c.nodes[behind].Status()
				if a.Role == membership.Leader || b.Role == membership.Leader ||
					a.Ready && !a.Loading {
					t.Fatalf("without the node that has all: %+v, %+v", a, b)
				}
			}
			c.reopen(first)
			c.leader()
			c.ready(broken)
			if got := strings.Join(c.converged(), " "); got != "w w w w w only two have it" {
				t.Errorf("the list is %s", got)
			}
			c.write(c.leader(), "more")
			c.converged()
			eventually(t, "nothing is owed", func() bool { return !c.nodes[broken].owes() })
			c.close(first) // the two elect a leader
			c.ready(broken)
			c.write(c.leader(), "and more")
			c.closeAll()
		}
	})
}

// A node that gets its state again votes for who has all that it had: else it and the only other
// one that is left would never have a leader.
func TestRefetchedNodeVotes(t *testing.T) {
	simulated(t, func(t *testing.T) {
		for _, members := range []int{2, 3} {
			c := newCluster(t, members, nil)
			for range 5 {
				c.write(c.leader(), "w")
			}
			c.converged()
			broken := c.followers()[0].cfg.ID
			c.close(broken) // first: the others may have more
			c.closeAll()
			if _, err := Refetch(filepath.Join(c.dir, broken), newToy(), testLogger()); err != nil {
				t.Fatal(err)
			}
			c.reopen(broken)
			for i := range 3 {
				if id := fmt.Sprint("n", i+1); id != broken {
					c.reopen(id)
					break
				}
			}
			c.ready(broken)
			c.write(c.leader(), "more")
			c.converged()
			eventually(t, "nothing is owed", func() bool { return !c.nodes[broken].owes() })
			c.closeAll()
		}
	})
}

// refetch sets the state of a closed node aside.
func (c *testCluster) refetch(id string) {
	c.t.Helper()
	if _, err := Refetch(filepath.Join(c.dir, id), newToy(), testLogger()); err != nil {
		c.t.Fatal(err)
	}
}

// TestRefetchedNodeIsNoJoiner: a member that is started with Join gets its state again and does not
// ask to be added, which its cluster refuses. Meanwhile it says what it waits for.
func TestRefetchedNodeIsNoJoiner(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 2, func(cfg *Config) {
			if cfg.ID == "n3" {
				cfg.Join, cfg.Members = true, nil
			}
		})
		n3 := c.joiner("n3", true)
		added := Member{ID: "n3", PeerAddr: n3.Status().PeerAddr}
		if err := c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: added.ID,
			PeerAddr: added.PeerAddr}); err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, added)
		c.awaitVoters("n1", "n2", "n3")
		c.write(c.leader(), "w")
		c.converged()
		c.closeAll()
		c.refetch("n3")
		c.reopen("n3")
		if s := c.nodes["n3"].Status(); s.Joining || s.Ready ||
			!strings.Contains(s.Owing, "waits for its cluster's leader") {
			t.Errorf("before it hears from the others: %+v", s)
		}
		c.reopen("n1")
		c.reopen("n2")
		c.ready("n3")
		c.write(c.leader(), "more")
		c.converged()
		eventually(t, "nothing is owed", func() bool { return c.nodes["n3"].Status().Owing == "" })
	})
}

// refetchedPods has a found a cluster of a, b and c, closes all, and sets the state of a aside.
func refetchedPods(t *testing.T) (p *pods, cluster string) {
	p = newPods(t)
	for _, id := range []string{"a", "b", "c"} {
		p.run(id)
	}
	cluster = p.found("a")
	p.awaitVoters("a", "b", "c")
	p.write(p.leader(), "w")
	p.converged()
	for _, id := range []string{"a", "b", "c"} {
		p.close(id)
		p.unregister(id)
	}
	p.refetch("a")
	return p, cluster
}

// TestRefetchedNodeStaysInItsCluster: a node that was refetched, and has no configuration, knows
// its cluster. It neither joins another one nor takes anything from it, and goes on in its own.
func TestRefetchedNodeStaysInItsCluster(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p, cluster := refetchedPods(t)
		for _, id := range []string{"d", "e", "f"} {
			p.run(id)
		}
		other := p.found("d")
		p.awaitVoters("d", "e", "f")
		p.write(p.leader(), "of the other cluster")
		a := p.run("a")
		eventually(t, "a sees the other cluster", func() bool {
			return strings.Contains(a.Status().Stranger, other)
		})
		// an operator's error, which is refused if the node answers
		add := membership.Change{Kind: membership.Add, ID: "a", PeerAddr: a.Status().PeerAddr}
		if err := p.leader().ChangeMembers(add); !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		p.close("a")
		if err := p.leader().ChangeMembers(add); err != nil {
			t.Fatal(err)
		}
		a = p.run("a")
		for range 20 {
			time.Sleep(discoverEvery) // of the simulation
			if s := a.Status(); a.clusterID() != cluster || s.Joining || len(s.Members) > 0 {
				t.Fatalf("a is in cluster %s, it was in %s: %+v", a.clusterID(), cluster, s)
			}
		}
		for _, id := range []string{"d", "e", "f"} {
			p.close(id)
			p.unregister(id)
		}
		p.run("b")
		p.run("c")
		if got := p.sameCluster(); got != cluster {
			t.Errorf("the cluster is %s, it was %s", got, cluster)
		}
		if got := strings.Join(p.converged(), " "); got != "w" {
			t.Errorf("the list is %s", got)
		}
	})
}

// TestRefetchedNodeIsNotEmpty: no cluster is founded with a node that was refetched, whether it is
// told to found one or an empty node beside it is. known: whether it knew its cluster for certain.
func TestRefetchedNodeIsNotEmpty(t *testing.T) {
	for known, wants := range map[bool][]string{
		true:  {"", "exists, and this node joins it"},
		false: {"coordd refetch has run on this node", "node a founds a cluster already"}} {
		runSimulated(t, fmt.Sprint("it knows its cluster: ", known), func(t *testing.T) {
			p, cluster := (*pods)(nil), ""
			if known {
				p, cluster = refetchedPods(t)
			} else { // it has founded one, and nobody has heard of it
				p = newPods(t)
				a := p.run("a")
				p.run("b")
				p.run("c")
				eventually(t, "a begins", func() bool {
					return a.found(t.Context()) == "" && !a.awaitsJoin()
				})
				p.close("a")
				p.lose("b")
				p.lose("c")
				p.refetch("a")
			}
			p.founders = 2
			a, d := p.run("a"), p.run("d")
			p.run("e")
			got, err := a.Found()
			if a.CanFound() || got != cluster || known != (err == nil) ||
				err != nil && !strings.Contains(err.Error(), wants[0]) {
				t.Errorf("a is told to found a cluster: %q, %v; it was in %q", got, err, cluster)
			}
			if got, err := d.Found(); err == nil || !strings.Contains(err.Error(), wants[1]) {
				t.Errorf("d is told to found a cluster: %q, %v, want %s", got, err, wants[1])
			}
			if !d.awaitsJoin() {
				t.Error("d takes part in a cluster")
			}
			if known {
				p.run("b")
				p.run("c")
				if got := p.sameCluster(); got != cluster {
					t.Errorf("the cluster is %s, it was %s", got, cluster)
				}
			}
		})
	}
}

// A register that may still be replaced is none to stay with: no entry for the machine follows it.
func TestRefetchKeepsACertainCluster(t *testing.T) {
	var d onDisk
	for _, step := range []struct {
		entry raft.Log
		want  string
	}{
		{raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
			Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{
				{ID: "n1", Address: "h:1"}, register{cluster: "k"}.server()}})}, ""},
		{raft.Log{Index: 2, Term: 1, Type: raft.LogCommand}, "k"},
	} {
		if d.note(&step.entry); d.cluster() != step.want {
			t.Errorf("after entry %d: cluster %q, want %q", d.last.last, d.cluster(), step.want)
		}
	}
}

// TestRefetchedNodeWasRemoved: a node that discovers others learns of its removal also while it has
// no configuration.
func TestRefetchedNodeWasRemoved(t *testing.T) {
	simulated(t, func(t *testing.T) {
		p, _ := refetchedPods(t)
		p.run("b")
		p.run("c")
		gone := membership.Change{Kind: membership.Remove, ID: "a"}
		if err := p.leader().ChangeMembers(gone); err != nil {
			t.Fatal(err)
		}
		a := p.run("a")
		eventually(t, "a knows that it was removed", func() bool { return a.Status().Removed })
	})
}

// A refetch that was interrupted anywhere is finished by another one, which owes as much, and until
// then the node says so.
func TestInterruptedRefetch(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		id := c.followers()[0].cfg.ID
		dir := filepath.Join(c.dir, id)
		for _, moved := range [][]string{{}, {walName}, {walName, snapshotsName}} {
			c.write(c.leader(), "w")
			c.converged()
			eventually(t, "nothing is owed", func() bool { return !c.nodes[id].owes() })
			if err := c.nodes[id].Snapshot(); err != nil {
				t.Fatal(err)
			}
			want := c.nodes[id].applied()
			c.close(id)
			v, err := readVersion(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := beginRefetch(dir, v, testLogger()); err != nil {
				t.Fatal(err)
			}
			kept := filepath.Join(dir, "moved")
			if err := os.MkdirAll(kept, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range moved {
				err := os.Rename(filepath.Join(dir, name), filepath.Join(kept, name))
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := c.tryOpen(id, nil); err == nil || !strings.Contains(err.Error(), "again") {
				t.Fatalf("%v is moved, and the node starts: %v", moved, err)
			}
			if done, err := Refetch(dir, newToy(), testLogger()); err != nil || done.Owed < want {
				t.Fatalf("%v is moved: %+v, %v; it had entry %d", moved, done, err, want)
			}
			if err := os.RemoveAll(kept); err != nil {
				t.Fatal(err)
			}
			c.reopen(id)
			c.ready(id)
		}
		c.converged()
	})
}

// A snapshot of which a file is missing is refused like a damaged one, and so is a log to which no
// snapshot leads. Refetching helps: a segment still names the members.
func TestSnapshotsWithoutFiles(t *testing.T) {
	for _, lost := range []string{"*/" + snapshotStateName, "*/" + snapshotMetaName, "*"} {
		runSimulated(t, lost, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 1 })
			id := c.followers()[0].cfg.ID
			for range 5 {
				c.write(c.leader(), "w")
			}
			c.converged()
			if err := c.nodes[id].Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.close(id)
			dir := filepath.Join(c.dir, id)
			paths, err := filepath.Glob(filepath.Join(dir, snapshotsName, lost))
			if err != nil || len(paths) == 0 {
				t.Fatalf("%v, %v", paths, err)
			}
			for _, path := range paths {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.tryOpen(id, nil); !errors.Is(err, disk.ErrDamaged) {
				t.Fatalf("it starts: %v", err)
			}
			if _, err = Refetch(dir, newToy(), testLogger()); err != nil {
				t.Fatal(err)
			}
			c.reopen(id)
			c.ready(id)
			c.converged()
		})
	}
}

// TestRefetchRefuses what would lose data.
func TestRefetchRefuses(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.write(c.leader(), "w")
		dir := filepath.Join(c.dir, "n1")
		if _, err := Refetch(dir, newToy(), testLogger()); err == nil ||
			!strings.Contains(err.Error(), "in use") {
			t.Errorf("a directory in use: %v", err)
		}
		c.close("n1")
		if _, err := Refetch(dir, newToy(), testLogger()); err == nil ||
			!strings.Contains(err.Error(), "only voter") {
			t.Errorf("the only voter: %v", err)
		}
		if _, err := Refetch(t.TempDir(), newToy(), testLogger()); err == nil ||
			!strings.Contains(err.Error(), "not a data directory") {
			t.Errorf("another directory: %v", err)
		}
		c.reopen("n1")
		c.leader()
		if got := strings.Join(c.converged(), " "); got != "w" {
			t.Errorf("the list is %s", got)
		}
	})
}

// A directory that only 0.1 has known has no mark. Its log is whole, and tells what the node owes,
// which 0.1 would forget: it cannot open the directory from then on.
func TestRefetchWhereOnlyAnEarlierReleaseWas(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 1 })
		id := c.followers()[0].cfg.ID
		for range 5 {
			c.write(c.leader(), "w")
		}
		c.converged()
		if err := c.nodes[id].Snapshot(); err != nil {
			t.Fatal(err)
		}
		c.write(c.leader(), "w")
		c.converged()
		want := c.nodes[id].applied()
		c.close(id)
		dir := filepath.Join(c.dir, id)
		damageSnapshots(t, dir)
		for _, name := range []string{filepath.Join(walName, raftlog.MarkName), promisesName,
			lockName} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if done, err := Refetch(dir, newToy(), testLogger()); err != nil || done.Owed < want {
			t.Fatalf("%+v, %v; it had entry %d", done, err, want)
		}
		if v, err := readVersion(dir); err != nil || v.level < owingLevel {
			t.Errorf("0.1 opens it: %+v, %v", v, err)
		}
		c.reopen(id)
		c.ready(id)
		c.converged()
		eventually(t, "nothing is owed", func() bool { return !c.nodes[id].owes() })
	})
}

// TestWhatWasInterruptedSaysSo: each command names what was interrupted, and what to do next.
func TestWhatWasInterruptedSaysSo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		c.converged()
		id := c.followers()[0].cfg.ID
		dir := filepath.Join(c.dir, id)
		c.close(id)
		says := func(when, look, refetch string) {
			t.Helper()
			o, err := OpenOffline(dir, newToy(), testLogger())
			if err == nil {
				_ = o.Close()
			}
			if err == nil || !strings.Contains(err.Error(), look) {
				t.Errorf("%s, recover: %v", when, err)
			}
			if _, err = Refetch(dir, newToy(), testLogger()); refetch != "" &&
				(err == nil || !strings.Contains(err.Error(), refetch)) ||
				refetch == "" && err != nil {
				t.Errorf("%s, refetch: %v", when, err)
			}
		}
		v, err := readVersion(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := beginRefetch(dir, v, testLogger()); err != nil {
			t.Fatal(err)
		}
		first := filepath.Join(dir, refetchedPrefix+"1")
		if err := os.Mkdir(first, dirMode); err != nil {
			t.Fatal(err)
		}
		err = os.Rename(filepath.Join(dir, walName), filepath.Join(first, walName))
		if err != nil {
			t.Fatal(err)
		}
		interrupted := "coordd refetch was interrupted"
		err = CheckDir(dir, id, LogStoreWAL, levelsOf(newToy()).CheckLevel)
		var wrong *DirError
		if err == nil || !strings.Contains(err.Error(), interrupted) || !errors.As(err, &wrong) ||
			wrong.Next != "coordd refetch --data-dir "+dir+", again" {
			t.Errorf("a refetch, check-config: %v, next %+v", err, wrong)
		}
		says("a refetch", interrupted, "")
		if err := CheckDir(dir, id, LogStoreWAL, levelsOf(newToy()).CheckLevel); err != nil {
			t.Errorf("a refetch that was repeated, check-config: %v", err)
		}
		moved := "has moved the state of node " + id + " away: start it"
		says("a refetch that was repeated", moved, moved)
		both := first + ", " + filepath.Join(dir, refetchedPrefix+"2")
		says("a refetch that was repeated", both, moved)

		x := exchangeOf(dir, "7")
		err = errors.Join(os.Mkdir(x.staged, dirMode), os.Mkdir(x.kept, dirMode),
			os.Link(filepath.Join(dir, versionName), filepath.Join(x.staged, versionName)),
			os.Rename(filepath.Join(dir, versionName), filepath.Join(x.kept, versionName)))
		if err != nil {
			t.Fatal(err)
		}
		again := "--accept-lost-writes, without --before-entry, finishes it"
		says("a recovery", again, again)
		if err := c.tryOpen(id, nil); err == nil || !strings.Contains(err.Error(), again) {
			t.Errorf("a recovery, a node: %v", err)
		}
		if err := os.RemoveAll(x.staged); err != nil {
			t.Fatal(err)
		}
		if err := markSeeding(dir); err != nil {
			t.Fatal(err)
		}
		says("a restore", "run coordd restore again", "run coordd restore again")
	})
}
