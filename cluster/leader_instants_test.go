// Tests of the instants that requests name, on clusters.

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// TestIdleClusterNamesTheTime: after an hour without a write, the first reads name the current
// time, through any node. Otherwise a window by script that was full an hour ago would stay full.
func TestIdleClusterNamesTheTime(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		seen := func(n *Node) (us int64) {
			t.Helper()
			if _, err := fmt.Sscan(c.read(n, "seen"), &us); err != nil {
				t.Fatal(err)
			}
			return us
		}
		for _, n := range c.nodes {
			before := seen(n)
			for _, clock := range c.clocks {
				clock.shift(time.Hour)
			}
			gained := time.Duration(seen(n)-before) * time.Microsecond
			if gained < time.Hour-2*readAhead {
				t.Errorf("%s: an hour later reads name instants %v later", n.cfg.ID, gained)
			}
		}
	})
}

// readAhead is how far past the newest applied stamp reads may name instants.
const readAhead = 20 * time.Millisecond

// instantsFrom returns a leadership of n whose reads have named all instants up to a stamp, and its
// clock, which stands still. An entry is in flight whose stamp is so many µs later.
func instantsFrom(n *Node, stampUs, room int64) (*leadership, *fixedClock, clock.Stamp) {
	fixed := &fixedClock{mono: time.Hour}
	a := newArrivals(fixed, nil)
	// from there earlier leaders' reads may have named all up to stampUs
	earlier := clock.Stamp{ClockMs: 1000, WallUs: stampUs - readAhead.Microseconds()}
	a.Reset(earlier)
	lead, _ := a.Lead(earlier)
	fixed.mono += time.Duration(stampUs+room-lead.Now().WallUs()) * time.Microsecond
	return &leadership{term: n.raft.CurrentTerm(), Leader: lead}, fixed, lead.Stamp()
}

// TestFrameOfManyInstants: a frame of reads is answered as far as instants are available. In a
// bubble there would be none: no time passes while a node that is alone writes an entry.
func TestFrameOfManyInstants(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	c.write(n, "w")
	const room = 100
	lead, fixed, _ := instantsFrom(n, c.toys[n.cfg.ID].stampUs, room)
	fixed.mono += readAhead / 2
	u := &call{batches: make([][]byte, 10*room)}
	for i := range u.batches {
		u.batches[i] = []byte("seen")
	}
	// asked at the beginning of time, so that no instant is too old for them on a busy machine
	p := readPass{n: n, lead: lead}
	if replies, ok := p.replies(u); !ok || len(replies) < room/2 || len(replies) > room {
		t.Errorf("%d batches are answered (%v), with room for %d", len(replies), ok, room)
	}
	if replies, ok := p.replies(u); ok {
		t.Errorf("%d batches are answered without room", len(replies))
	}
}

// TestParkedReadFindsItsTick: a read that is parked while the proposer has nothing to propose
// causes an entry. In a bubble it would find no instant, as in TestFrameOfManyInstants.
func TestParkedReadFindsItsTick(t *testing.T) {
	// the sweep looks for parked reads as well
	c := newCluster(t, 1, func(cfg *Config) { cfg.ReplyWait = time.Hour })
	n := c.leader()
	u := newLocalCall([]byte("seen"), 1, n.leaderDeadline(fair.Workload{}))
	n.pause.mu.Lock()
	n.inFlight.Add(1)
	n.park(n.route.Load().lead, u)
	n.inFlight.Add(-1)
	n.pause.mu.Unlock()
	received(t, "its answer", u.done)
	if reply, err := u.result(); err != nil || len(reply) == 0 {
		t.Errorf("%q %v", reply, err)
	}
}

// TestReadRunsInVainOnce: a read that has run without finding an instant does not run again before
// there is one.
func TestReadRunsInVainOnce(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	c.write(n, "w")
	toy := c.toys[n.cfg.ID]
	lead, fixed, inFlight := instantsFrom(n, toy.stampUs, 1)
	fixed.mono += readAhead / 2
	u := &call{batches: [][]byte{[]byte("seen")}}
	p := readPass{n: n, lead: lead}
	for range 10 {
		if _, ok := p.replies(u); ok || toy.runs != 1 {
			t.Fatalf("without an instant: answered %v, runs %d", ok, toy.runs)
		}
	}
	lead.Settled(inFlight)
	// asked at the beginning of time, so that no instant is too old
	if _, ok := p.replies(u); !ok || toy.runs != 2 {
		t.Fatalf("with an instant: answered %v, runs %d", ok, toy.runs)
	}
}

// TestInstantsRise has clients on all nodes name instants by writes and reads, while leaders
// change, nodes restart, and wall clocks jump by a minute. A reply names an earlier instant than
// every request sent after it, and a read that does not see an entry names an earlier one than that
// entry.
func TestInstantsRise(t *testing.T) {
	simulated(t, func(t *testing.T) {
		seed := seeds.Of(t)
		random := rand.New(rand.NewPCG(seed, 1))
		c := newCluster(t, 3, func(cfg *Config) { cfg.SnapshotThreshold = 64 })
		c.clock("n2").shiftWall(time.Minute)
		c.clock("n3").shiftWall(-time.Minute)
		var all namings
		for round := range 6 {
			var wg sync.WaitGroup
			stop := make(chan struct{})
			for _, n := range c.nodes {
				for k := range 2 {
					wg.Go(func() { all.name(n, k == 0, stop) })
				}
			}
			had := all.writes.Load()
			eventually(t, "clients are served", func() bool { return all.writes.Load() > had+20 })
			switch round % 3 {
			case 0:
				eventually(t, "another leads", func() bool {
					return c.leader().TransferLeadership("") == nil
				})
			case 1:
				c.clock(c.leader().cfg.ID).shiftWall(
					time.Duration(random.Int64N(121)-60) * time.Second)
				_ = c.leader().Snapshot()
			}
			had = all.writes.Load()
			eventually(t, "clients are served again",
				func() bool { return all.writes.Load() > had+20 })
			close(stop)
			wg.Wait()
			if round == 2 {
				c.closeAll()
				for _, m := range c.members {
					c.reopen(m.ID)
				}
			} else if round%3 == 2 {
				id := c.leader().cfg.ID
				c.close(id)
				c.reopen(id)
			}
		}
		all.check(t)
	})
}

// naming is one instant that a client was told.
type naming struct {
	us, sawUs    int64 // sawUs: of a read, the newest that an entry named before it
	asked, heard time.Time
	write        bool
}

type namings struct {
	writes atomic.Int64

	mu  sync.Mutex
	all []naming
}

// name names instants until stop is closed.
func (a *namings) name(n *Node, write bool, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		e := naming{write: write, asked: time.Now()}
		var reply []byte
		var err error
		if write {
			reply, err = n.write(context.Background(), []byte("time"), 1)
		} else {
			reply, err = n.read(context.Background(), []byte("seen"))
		}
		e.heard = time.Now()
		if err != nil {
			continue
		}
		if k, _ := fmt.Sscan(string(reply), &e.us, &e.sawUs); k == 0 {
			panic(fmt.Sprintf("the reply %q", reply))
		}
		a.mu.Lock()
		a.all = append(a.all, e)
		a.mu.Unlock()
		if write {
			a.writes.Add(1)
		}
	}
}

func (a *namings) check(t *testing.T) {
	t.Helper()
	slices.SortFunc(a.all, func(x, y naming) int { return int(x.us - y.us) })
	var writes []int64
	asked := time.Time{} // the latest among those of earlier instants
	for i, e := range a.all {
		if i > 0 && a.all[i-1].us == e.us {
			t.Fatalf("%d was named twice: %+v %+v", e.us, a.all[i-1], e)
		}
		if e.heard.Before(asked) {
			t.Fatalf("%d (a write: %v) was answered %v before an earlier instant was asked for",
				e.us, e.write, asked.Sub(e.heard))
		}
		if e.asked.After(asked) {
			asked = e.asked
		}
		if e.write {
			writes = append(writes, e.us)
		} else if k := len(writes); k > 0 && writes[k-1] > e.sawUs {
			t.Fatalf("a read named %d and did not see the entry of %d, but only those up to %d",
				e.us, writes[k-1], e.sawUs)
		}
	}
	t.Logf("%d instants, %d of them by writes", len(a.all), len(writes))
	if len(writes) < 200 || len(a.all)-len(writes) < 200 {
		t.Error("too few to show anything")
	}
}

// TestOffsetStays: while no wall clock jumps, the offset of the time of day from the cluster clock
// is constant to the millisecond, on every node and across leaders.
func TestOffsetStays(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		want := c.read(c.leader(), "wall")
		for range 3 {
			for _, n := range c.nodes {
				for range 200 {
					if got := c.read(n, "wall"); got != want {
						t.Fatalf("the offset is %s ms, it was %s", got, want)
					}
				}
				eventually(t, n.cfg.ID+" has the entry", func() bool {
					return c.toys[n.cfg.ID].Clock() > 0
				})
				if got, err := n.readLocal([]byte("wall")); err != nil || string(got) != want {
					t.Fatalf("by its own state %s has an offset of %s ms, it was %s; %v", n.cfg.ID,
						got,
						want, err)
				}
			}
			old := c.leader()
			eventually(t, "another leads", func() bool { return old.TransferLeadership("") == nil })
			c.leader()
		}
	})
}
