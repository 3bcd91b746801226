// Restarts of whole clusters after their members changed: nobody knows then what was committed.

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/wait"
)

// lives is a cluster whose members come and go. What it has acknowledged is in words.
type lives struct {
	*testCluster
	addrs map[string]string // of the peer ports
	words []string
	next  int // number of the next member
}

// newLives restores a cluster of one node, whose snapshot is all that it has on disk.
func newLives(t *testing.T) *lives {
	l := &lives{testCluster: lateCluster(t, 1), addrs: map[string]string{}, next: 2,
		words: []string{"restored"}}
	l.change = func(cfg *Config) { cfg.TrailingLogs = 1 }
	l.seed("n1", LogStoreWAL, 1<<20, 1<<32, toyState{List: l.words, ClockMs: 777})
	l.addrs["n1"] = l.members[0].PeerAddr
	l.start("n1", false)
	l.ready("n1")
	return l
}

// start opens a node, at its address if it had one.
func (l *lives) start(id string, join bool) {
	l.t.Helper()
	cfg := Config{ID: id, ClientAddr: "client-" + id + ":1", DataDir: filepath.Join(l.dir, id),
		Join: join, PeerListener: l.net.listen(l.t, id, l.addrs[id]), Clock: l.clock(id),
		dial: l.net.dialer(id), Logger: testLogger()}
	l.change(&cfg)
	toy := newToy()
	n, err := Open(cfg, toy)
	if err != nil {
		l.t.Fatal(err)
	}
	l.nodes[id], l.toys[id] = n, toy
	l.addrs[id] = n.Status().PeerAddr
}

func (l *lives) voters() []string { return voters(l.leader().configuration()) }

// write has a word acknowledged.
func (l *lives) write() {
	l.t.Helper()
	word := fmt.Sprint("w", len(l.words))
	if _, err := l.leader().write(context.Background(), []byte(word), 1); err != nil {
		l.t.Fatalf("write %s: %v", word, err)
	}
	l.words = append(l.words, word)
}

// join adds a member, which becomes a voter.
func (l *lives) join() (id string) {
	l.t.Helper()
	id = fmt.Sprint("n", l.next)
	l.next++
	l.start(id, true)
	if err := l.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: id,
		PeerAddr: l.addrs[id]}); err != nil {
		l.t.Fatal(err)
	}
	eventually(l.t, id+" votes", func() bool { return slices.Contains(l.voters(), id) })
	l.ready(id)
	l.write()
	return id
}

// remove removes a member, and ends it.
func (l *lives) remove(id string) {
	l.t.Helper()
	eventually(l.t, id+" is removed", func() bool {
		lead := l.leader()
		_ = lead.ChangeMembers(membership.Change{Kind: membership.Remove, ID: id})
		_, is := lead.member(id)
		return !is
	})
	l.close(id)
	l.write()
}

// restart stops all, has one fetch its state again (empty: none), and starts all but some, which
// come later.
func (l *lives) restart(refetched string, away ...string) {
	l.t.Helper()
	all := l.voters()
	if refetched != "" {
		l.converged()
		l.close(refetched)
	}
	l.testCluster.closeAll()
	clear(l.nodes)
	if refetched != "" {
		l.refetch(refetched)
	}
	for _, id := range all {
		if !slices.Contains(away, id) {
			l.start(id, false)
		}
	}
	l.serves(fmt.Sprintf("the restart of %v without %v, %s refetched", all, away, refetched))
	l.write()
	for _, id := range away {
		l.start(id, false)
	}
	for id := range l.nodes {
		l.ready(id)
	}
	l.write()
}

// serves waits for a leader that serves.
func (l *lives) serves(after string) {
	l.t.Helper()
	defer func() {
		if !l.t.Failed() {
			return
		}
		for id, n := range l.nodes {
			s := n.Status()
			l.t.Logf("%s: %s in term %d, commit %d of %d, applied register %v, newest %v", id,
				s.Role, s.Term, s.Commit, s.LastLog, n.machine.members.Load().register,
				n.view().register)
		}
	}()
	wait.For(l.t, time.Minute, "a leader after "+after, func() bool {
		for _, n := range l.nodes {
			if s := n.Status(); s.Role == membership.Leader && s.Ready {
				return true
			}
		}
		return false
	})
}

// check compares what the nodes have with what was acknowledged.
func (l *lives) check() {
	l.t.Helper()
	if got := l.converged(); !slices.Equal(got, l.words) {
		l.t.Errorf("the nodes have %q; %q were acknowledged", got, l.words)
	}
}

// TestRestartBehindAnOldSnapshot: the newest snapshot knows none of those who are to elect and to
// follow a leader.
func TestRestartBehindAnOldSnapshot(t *testing.T) {
	t.Run("the first is away", func(t *testing.T) {
		simulated(t, func(t *testing.T) {
			l := newLives(t)
			l.join()
			l.join()
			l.restart("", "n1")
			l.check()
		})
	})
	t.Run("the first was removed", func(t *testing.T) {
		simulated(t, func(t *testing.T) {
			l := newLives(t)
			for range 3 {
				l.join()
			}
			l.remove("n1")
			l.restart("")
			l.check()
		})
	})
}

// TestRefetchedJoinerVotes: the others need a member that has nothing and became a voter after the
// configurations that they send it first.
func TestRefetchedJoinerVotes(t *testing.T) {
	for _, away := range []bool{false, true} {
		simulated(t, func(t *testing.T) {
			l := newLives(t)
			id := l.join()
			if away {
				l.restart(id, l.join())
			} else {
				l.restart(id)
			}
			l.check()
		})
	}
}

// TestRandomLives has members join, leave, take snapshots, fetch their state again, and all of them
// restarted, with a minority away. There is a leader after each act, with all that was
// acknowledged.
func TestRandomLives(t *testing.T) {
	detector.Skip(t)
	from := seeds.Of(t)
	for i := range uint64(6) {
		simulated(t, func(t *testing.T) { randomLives(t, rand.New(rand.NewPCG(from, i))) })
	}
}

func randomLives(t *testing.T, r *rand.Rand) {
	l := newLives(t)
	for range 14 {
		all := l.voters()
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		switch act := r.IntN(10); {
		case act < 2:
			l.write()
		case act == 2:
			t.Log("snapshot", all[0], l.nodes[all[0]].Snapshot())
		case act < 6 && len(all) < 5:
			t.Log("join", l.join())
		case act == 6 && len(all) > 2:
			t.Log("remove", all[0])
			l.remove(all[0])
		default:
			away := all[:r.IntN((len(all)-1)/2+1)]
			refetched := ""
			if r.IntN(2) == 0 && len(all) > 1 {
				refetched = all[len(all)-1]
			}
			t.Log("restart without", away, "refetched", refetched)
			// the cluster idles, in simulated time
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
			l.restart(refetched, away...)
		}
	}
	l.check()
}

// TestStallBesideAWaitingLearner: a leader whose voters store nothing lets another one take over,
// although a learner stores what clients write, and what the leader logs to find out whether it may
// have its vote.
func TestStallBesideAWaitingLearner(t *testing.T) {
	simulated(t, func(t *testing.T) {
		full, change := unwritables()
		learner := "n4"
		c := newCluster(t, 4, func(cfg *Config) {
			change(cfg)
			cfg.Learner = cfg.ID == learner
		})
		eventually(t, "three vote", func() bool {
			return len(voters(c.leader().configuration())) == 3
		})
		lead := c.leader()
		c.write(lead, "a")
		c.converged()
		lead.changing <- struct{}{} // until the others are full
		learner = ""
		c.close("n4")
		c.reopen("n4")
		c.ready("n4")
		eventually(t, "n4 waits for its vote", func() bool {
			lead.link("n4").ask(0)
			return lead.wantsVote("n4") && lead.caughtUp(lead.route.Load().lead, "n4") == nil
		})
		for _, f := range c.followers() {
			full[f.cfg.ID].Store(f.cfg.ID != "n4")
		}
		<-lead.changing
		var wrote sync.WaitGroup
		last := lead.raft.LastIndex()
		next := time.Now()
		eventually(t, "the leader lets another take over", func() bool {
			if time.Now().After(next) {
				next = next.Add(time.Second)
				wrote.Go(func() { _, _ = lead.write(context.Background(), []byte("b"), 1) })
			}
			return lead.stalledLeader.Load()
		})
		barriers := 0
		for i := last + 1; i <= lead.raft.LastIndex(); i++ {
			var l raft.Log
			if err := lead.logs.peek(i, &l); err == nil && l.Type == raft.LogBarrier {
				barriers++
			}
		}
		if barriers > 1 {
			t.Errorf("%d barriers were added to a log that nobody stores", barriers)
		}
		for _, m := range c.members {
			full[m.ID].Store(false)
		}
		wrote.Wait()
	})
}
