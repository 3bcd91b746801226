// Tests of the cluster clock, on clusters.

package cluster

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
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

// fixedClock stands still until it is moved.
type fixedClock struct{ mono time.Duration }

func (c *fixedClock) Monotonic() time.Duration { return c.mono }
func (c *fixedClock) Wall() time.Time          { return time.Unix(1_700_000_000, 0).Add(c.mono) }

func stamped(index, term uint64, stampMs int64, markTerm uint64) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand,
		Data:       newToy().AppendEntry(nil, stampMs, stampMs*1000+7, nil),
		Extensions: appendMark(nil, markTerm)}
}

func TestArrivals(t *testing.T) {
	fixed := &fixedClock{}
	a := newArrivals(fixed, newToy().EntryClock)
	applied := int64(0)
	s := newLogStore(raft.NewInmemStore(), a, func() int64 { return applied })
	store := func(at time.Duration, logs ...*raft.Log) {
		t.Helper()
		fixed.mono = at
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, appliedMs, wantMs int64, wantAt time.Duration) {
		t.Helper()
		lead, _ := a.Lead(clock.Stamp{ClockMs: appliedMs})
		if got, want := lead.NowMs(), wantMs+(fixed.mono-wantAt).Milliseconds(); got != want {
			t.Errorf("%s: a leader's clock shows %d, want %d: %d at %v", what, got, want, wantMs,
				wantAt)
		}
	}
	ran := func(what string, appliedMs, wantUs int64, want bool) {
		t.Helper()
		lead, live := a.Lead(clock.Stamp{ClockMs: appliedMs, WallUs: 5})
		now := lead.Now()
		gotUs := now.WallUs() - (now.ClockMs()-appliedMs)*1000
		if gotUs != wantUs/1000*1000 || live != want {
			t.Errorf("%s: time of day %d, running %v, want %d, %v", what, gotUs, live, wantUs, want)
		}
	}
	a.Reset(clock.Stamp{ClockMs: 400, WallUs: 400_007})
	ran("a log that was there at the start", 400, 400_007, false)
	a.Raise(clock.Stamp{ClockMs: 500})
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
	fixed.mono = 6 * time.Second
	if err := s.DeleteRange(7, 8); err != nil {
		t.Fatal(err)
	}
	check("a cut suffix falls back to what stays, as of now", 2000, 2000, 6*time.Second)
	ran("who cut it lives", 2000, 2_000_007, true)
	fixed.mono = 7 * time.Second
	if err := s.DeleteRange(1, 2); err != nil {
		t.Fatal(err)
	}
	check("a cut prefix changes nothing", 2000, 2000, 6*time.Second)
	check("another stamp than the machine's is not trusted", 2500, 2500, 7*time.Second)
	ran("another stamp than the machine's is not trusted", 2500, 5, false)
	applied = 3000
	a.Raise(clock.Stamp{ClockMs: 3000})
	check("a snapshot", 3000, 3000, 7*time.Second)
	fixed.mono = 8 * time.Second
	a.Raise(clock.Stamp{ClockMs: 2999})
	check("an older snapshot changes nothing", 3000, 3000, 7*time.Second)
	if err := s.DeleteRange(3, 6); err != nil {
		t.Fatal(err)
	}
	check("an empty log leaves the machine's clock, as of now", 3000, 3000, 8*time.Second)
	fixed.mono = 9 * time.Second
	type shown struct{ clockMs, wallUs int64 }
	for _, c := range []struct {
		applied clock.Stamp
		want    shown
	}{
		{clock.Stamp{ClockMs: 3000, WallUs: 7_000_123}, shown{4000, 8_000_000}},
		{clock.Stamp{ClockMs: 5000, WallUs: 7_000_123}, shown{5000, 7_000_000}},
		{clock.Stamp{ClockMs: 5000}, shown{5000, fixed.Wall().UnixMilli() * 1000}},
	} {
		got := a.Estimate(c.applied)
		if (shown{got.ClockMs(), got.WallUs()}) != c.want {
			t.Errorf("estimate %v, want %v", got, c.want)
		}
	}
	a.Reset(clock.Stamp{ClockMs: 6000, WallUs: 8_000_123})
	fixed.mono += 1500 * time.Microsecond
	got := a.Estimate(clock.Stamp{ClockMs: 6000, WallUs: 7})
	if want := (shown{6001, 8_001_500}); (shown{got.ClockMs(), got.WallUs()}) != want {
		t.Errorf("estimate %v, want %v", got, want)
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
	if _, ok := a.Apply(&raft.Log{Index: 6, Term: 3, Data: entry,
		Extensions: appendMark(nil, 3)}).(voided); ok {
		t.Error("an entry stamped in its own term does not run")
	}
	if len(toy.batches()) != 1 || a.clockMs.Load() != 100 {
		t.Errorf("%v, clock %d", toy.batches(), a.clockMs.Load())
	}
}

// A key outlives its time by no more than the outage and stampEvery, although nobody writes: an
// idle leader stamps the log while there is a deadline, and when it stops.
func TestIdleTimeCountsAfterARestart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		c.write(lead, "w")
		now := func() int64 { return lead.route.Load().lead.NowMs() }
		began := now()
		for _, toy := range c.toys {
			toy.mu.Lock()
			toy.Deadline = began + time.Hour.Milliseconds()
			toy.mu.Unlock()
		}
		const idle = 10 * time.Second
		for range 20 {
			time.Sleep(idle / 20)
			for id, n := range c.nodes { // any of them may be killed
				if old := now() - n.machine.clockMs.Load(); old > stampEvery.Milliseconds()+500 {
					t.Fatalf("the newest stamp of %s is %d ms old", id, old)
				}
			}
		}
		for _, id := range []string{c.followers()[0].cfg.ID, c.followers()[1].cfg.ID,
			lead.cfg.ID} { // without a successor
			c.close(id)
		}
		for _, m := range c.members {
			c.reopen(m.ID)
		}
		lead = c.leader()
		if ran := now() - began; ran < (idle - 4*time.Second).Milliseconds() {
			t.Errorf("%d ms of %v count", ran, idle)
		}
	})
}

// What expires soon does so soon, also if the entry that says so finds a leader that rests.
func TestRestingLeaderMeetsDeadlines(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		toy := c.toys[lead.cfg.ID]
		for i := range 40 {
			settled(t, lead)
			time.Sleep(time.Duration(i) * followerTick / 20)
			deadline := lead.route.Load().lead.NowMs() + 15
			if i%2 == 1 { // about when a rest is over
				deadline += followerTick.Milliseconds()
			}
			for _, toy := range c.toys {
				toy.mu.Lock()
				toy.Deadline, toy.Expired = deadline, nil
				toy.mu.Unlock()
			}
			c.write(lead, "w")
			var expired []int64
			eventually(t, "it expires", func() bool {
				toy.mu.Lock()
				defer toy.mu.Unlock()
				expired = toy.Expired
				return len(expired) > 0
			})
			if late := expired[0] - deadline; late > leaderTick.Milliseconds()+2 {
				t.Errorf("%d ms late", late)
			}
		}
	})
}

// A leader that looks again soon is woken by no entry.
func TestBusyLeaderIsNotWoken(t *testing.T) {
	simulated(t, func(t *testing.T) {
		lead := newCluster(t, 1, nil).leader()
		settled(t, lead)
		eventually(t, "it rests", lead.resting.Load)
		lead.inFlight.Add(1)
		defer lead.inFlight.Add(-1)
		kick(lead.routeWake)
		eventually(t, "it rests no more", func() bool { return !lead.resting.Load() })
	})
}

// A node that stops alone says in the log what the clock is.
func TestStopStampsTheLog(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		c.write(lead, "w")
		began := lead.route.Load().lead.NowMs()
		toy := c.toys["n1"]
		toy.mu.Lock()
		toy.Deadline = began + time.Hour.Milliseconds()
		toy.mu.Unlock()
		const idle = 2500 * time.Millisecond // no other stamp is due
		time.Sleep(idle)
		c.close("n1")
		c.reopen("n1")
		if ran := c.leader().route.Load().lead.NowMs() - began; ran < idle.Milliseconds() {
			t.Errorf("%d ms of %v count", ran, idle)
		}
	})
}
