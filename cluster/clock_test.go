// Tests of the cluster clock.

package cluster

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// clockOn returns the cluster clock as a linearizable read on n sees it, with the real times before
// and after.
func (c *testCluster) clockOn(n *Node) (clockMs int64, before, after time.Time) {
	c.t.Helper()
	before = time.Now()
	clockMs, err := strconv.ParseInt(c.read(n, "clock"), 10, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return clockMs, before, time.Now()
}

// TestClockAcrossLeaders gives each node another monotonic clock and checks that across leaders and
// restarts the cluster clock gains at most the real time, and loses little while a node runs.
func TestClockAcrossLeaders(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.closeAll()
		c.clock("n1").mono += 5 * time.Hour // holds from a start on
		c.clock("n2").mono += 100 * time.Hour
		for _, m := range c.members {
			c.reopen(m.ID)
		}
		c.write(c.leader(), "w")
		startMs, before, read := c.clockOn(c.leader())
		check := func(what string, mayLose time.Duration) {
			t.Helper()
			nowMs, asked, after := c.clockOn(c.leader())
			gained := time.Duration(nowMs-startMs) * time.Millisecond
			if most := after.Sub(before) + time.Millisecond; gained > most {
				t.Fatalf("%s: the clock gained %v in %v", what, gained, most)
			}
			// what the read before took may be gained already
			if least := asked.Sub(read) - mayLose; gained < least {
				t.Fatalf("%s: the clock gained %v, at least %v were to be expected", what, gained,
					least)
			}
			startMs, before, read = nowMs, asked, after
		}
		for i := range 3 {
			c.write(c.leader(), "w")
			old := c.leader().cfg.ID
			c.close(old)
			c.leader()
			// of up to a few hundred ms without a leader
			check(fmt.Sprintf("takeover %d", i), 300*time.Millisecond)
			c.reopen(old)
			c.ready(old)
			check(fmt.Sprintf("reopened %d", i), 100*time.Millisecond)
		}
		c.closeAll()
		for _, m := range c.members {
			c.reopen(m.ID)
		}
		c.leader()
		check("restart", time.Hour)
	})
}

func TestWallJumpExpiresNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		const ttl = 400 * time.Millisecond
		began := time.Now()
		c.write(c.leader(), fmt.Sprintf("ttl:%d", ttl.Milliseconds()))
		for _, clock := range c.clocks {
			clock.shiftWall(time.Hour)
		}
		toy := c.toys[c.leader().cfg.ID]
		expired := func() bool { toy.mu.Lock(); defer toy.mu.Unlock(); return len(toy.Expired) > 0 }
		eventually(t, "the deadline passes without a write", expired)
		if took := time.Since(began); took < ttl {
			t.Errorf("a TTL of %v was over after %v", ttl, took)
		} else if took > ttl+2*time.Second {
			t.Errorf("a TTL of %v was over only after %v", ttl, took)
		}
	})
}

// TestDeadlineSurvivesTakeover kills the leader in the middle of a TTL.
func TestDeadlineSurvivesTakeover(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		const ttl = 1500 * time.Millisecond
		began := time.Now()
		c.write(c.leader(), fmt.Sprintf("ttl:%d", ttl.Milliseconds()))
		c.close(c.leader().cfg.ID)
		toy := c.toys[c.leader().cfg.ID]
		expired := func() bool { toy.mu.Lock(); defer toy.mu.Unlock(); return len(toy.Expired) > 0 }
		eventually(t, "the deadline passes", expired)
		if took := time.Since(began); took < ttl || took > ttl+2*time.Second {
			t.Errorf("a TTL of %v was over after %v", ttl, took)
		}
	})
}

func TestIdleLeaderProposesNoTicks(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.write(c.leader(), "ttl:100")
		toy := c.toys["n1"]
		expired := func() bool { toy.mu.Lock(); defer toy.mu.Unlock(); return len(toy.Expired) > 0 }
		eventually(t, "the deadline passes", expired)
		last := c.nodes["n1"].raft.LastIndex()
		at := toy.asked.Load()
		eventually(t, "the leader looks for deadlines many times", func() bool {
			return toy.asked.Load() > at+20
		})
		if now := c.nodes["n1"].raft.LastIndex(); now > last+1 { // one may have been on its way
			t.Errorf("%d entries without a deadline", now-last)
		}
	})
}

// stubClock stands still until it is moved.
type stubClock struct {
	mono time.Duration
	wall time.Duration // ahead of mono
}

func (c *stubClock) Monotonic() time.Duration { return c.mono }
func (c *stubClock) Wall() time.Time {
	return time.Unix(1_700_000_000, 0).Add(c.mono + c.wall)
}

func stamped(index, term uint64, stampMs int64, markTerm uint64) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand,
		Data:       newToy().AppendEntry(nil, stampMs, stampMs*1000+7, nil),
		Extensions: appendMark(nil, markTerm)}
}

func TestArrivals(t *testing.T) {
	clock := &stubClock{}
	a := &arrivals{clock: clock, entryClock: newToy().EntryClock}
	applied := int64(0)
	s := newLogStore(raft.NewInmemStore(), a, func() int64 { return applied })
	store := func(at time.Duration, logs ...*raft.Log) {
		t.Helper()
		clock.mono = at
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, appliedMs, wantMs int64, wantAt time.Duration) {
		t.Helper()
		if o := a.base(stamp{clockMs: appliedMs}); o.stamp.clockMs != wantMs || o.at != wantAt {
			t.Errorf("%s: base %d at %v, want %d at %v", what, o.stamp.clockMs, o.at, wantMs,
				wantAt)
		}
	}
	ran := func(what string, appliedMs, wantUs int64, want bool) {
		t.Helper()
		if o := a.base(stamp{appliedMs, 5}); o.stamp.wallUs != wantUs || o.live != want {
			t.Errorf("%s: time of day %d, running %v, want %d, %v", what, o.stamp.wallUs, o.live,
				wantUs, want)
		}
	}
	a.reset(stamp{400, 400_007})
	ran("a log that was there at the start", 400, 400_007, false)
	a.raise(stamp{clockMs: 500})
	ran("a snapshot that was there at the start", 500, 5, false)
	store(1*time.Second, stamped(1, 1, 1000, 1), stamped(2, 1, 1010, 1))
	store(2*time.Second, stamped(3, 1, 2000, 1))
	check("newest", 2000, 2000, 2*time.Second)
	ran("newest", 2000, 2_000_007, true)
	store(3*time.Second, &raft.Log{Index: 4, Term: 1, Type: raft.LogNoop},
		&raft.Log{Index: 5, Term: 1, Type: raft.LogBarrier})
	check("noop and barrier carry no stamp", 2000, 2000, 2*time.Second)
	store(4*time.Second, stamped(6, 1, 9999, 7))
	check("nor does a void entry", 2000, 2000, 2*time.Second)
	store(5*time.Second, stamped(7, 1, 5000, 1), stamped(8, 1, 5500, 1))
	clock.mono = 6 * time.Second
	if err := s.DeleteRange(7, 8); err != nil {
		t.Fatal(err)
	}
	check("a cut suffix falls back to what stays, as of now", 2000, 2000, 6*time.Second)
	ran("who cut it lives", 2000, 2_000_007, true)
	clock.mono = 7 * time.Second
	if err := s.DeleteRange(1, 2); err != nil {
		t.Fatal(err)
	}
	check("a cut prefix changes nothing", 2000, 2000, 6*time.Second)
	check("another stamp than the machine's is not trusted", 2500, 2500, 7*time.Second)
	ran("another stamp than the machine's is not trusted", 2500, 5, false)
	applied = 3000
	a.raise(stamp{clockMs: 3000})
	check("a snapshot", 3000, 3000, 7*time.Second)
	clock.mono = 8 * time.Second
	a.raise(stamp{clockMs: 2999})
	check("an older snapshot changes nothing", 3000, 3000, 7*time.Second)
	if err := s.DeleteRange(3, 6); err != nil {
		t.Fatal(err)
	}
	check("an empty log leaves the machine's clock, as of now", 3000, 3000, 8*time.Second)
	clock.mono = 9 * time.Second
	for _, c := range []struct{ got, want reading }{
		{a.estimate(stamp{3000, 7_000_123}), reading{4_000_000, 4000}},
		{a.estimate(stamp{5000, 7_000_123}), reading{5_000_000, 2000}},
		{a.estimate(stamp{clockMs: 5000}), reading{5_000_000, clock.Wall().UnixMilli() - 5000}},
	} {
		if c.got != c.want {
			t.Errorf("estimate %v, want %v", c.got, c.want)
		}
	}
	a.reset(stamp{6000, 8_000_123})
	clock.mono += 1500 * time.Microsecond
	if got, want := a.estimate(stamp{6000, 7}), (reading{6_001_500, 2000}); got != want {
		t.Errorf("estimate %v, want %v", got, want)
	}
}

func TestLeadershipClock(t *testing.T) {
	clock := &stubClock{mono: 10 * time.Second}
	lead := newLeaderClock(clock, origin{stamp: stamp{clockMs: 500}, at: 9 * time.Second})
	if got := lead.nowMs(); got != 1500 {
		t.Errorf("now %d, want 1500", got)
	}
	clock.mono = 10*time.Second + 999*time.Microsecond
	if got := lead.nowMs(); got != 1500 {
		t.Errorf("now %d, want 1500: parts of a ms are cut off", got)
	}
	clock.mono = 0
	if got := lead.nowMs(); got != 500 {
		t.Errorf("now %d, want 500: never below the base", got)
	}
}

func TestVoidEntryDoesNotRun(t *testing.T) {
	toy := newToy()
	a := newApplier(toy, testLogger())
	entry := toy.AppendEntry(nil, 100, 0, [][]byte{[]byte("w")})
	if _, ok := a.Apply(&raft.Log{Index: 5, Term: 3, Data: entry,
		Extensions: appendMark(nil, 2)}).(voided); !ok {
		t.Error("an entry stamped in another term is not void")
	}
	if a.appliedIndex.Load() != 5 || len(toy.batches()) != 0 || a.clockMs.Load() != 0 {
		t.Errorf("applied %d, %v", a.appliedIndex.Load(), toy.batches())
	}
	if _, ok := a.Apply(&raft.Log{Index: 6, Term: 2, Data: entry,
		Extensions: appendMark(nil, 2)}).(voided); ok {
		t.Error("an entry stamped in its own term does not run")
	}
	if len(toy.batches()) != 1 || a.clockMs.Load() != 100 {
		t.Errorf("%v, clock %d", toy.batches(), a.clockMs.Load())
	}
}
