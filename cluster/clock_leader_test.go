// Tests of the leader's clock: the time of day, and the instants that requests name.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"github.com/coordd/coordd/internal/tests/seeds"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestTimeOfDayIsSlewed moves the wall clock of a leader: the time of day follows at the slew rate,
// never goes back, and does not follow small differences.
func TestTimeOfDayIsSlewed(t *testing.T) {
	const run = 10 * time.Minute
	for _, c := range []struct {
		jump time.Duration
		// that the time of day may go on in run, beyond what the clock does
		least, most time.Duration
	}{
		{0, 0, 0},
		{deadbandMs * time.Millisecond, 0, 0},
		{-deadbandMs * time.Millisecond, 0, 0},
		{time.Minute, 290 * time.Millisecond, 300 * time.Millisecond},
		{-time.Minute, -3 * time.Second, -2900 * time.Millisecond},
		// and there it stays
		{150 * time.Millisecond, 150 * time.Millisecond, 150 * time.Millisecond},
		{-150 * time.Millisecond, -150 * time.Millisecond, -150 * time.Millisecond},
		{-time.Hour, -3 * time.Second, -2900 * time.Millisecond},
	} {
		clock := &stubClock{mono: time.Second}
		lead := newLeaderClock(clock, origin{})
		began := lead.now()
		clock.wall = c.jump
		random := rand.New(rand.NewPCG(1, 2))
		last := stamp{}
		for end := clock.mono + run; clock.mono < end; {
			clock.mono += min(time.Duration(random.Int64N(int64(50*time.Millisecond))),
				end-clock.mono)
			at := lead.stamp()
			lead.settled(at)
			if at.wallUs <= last.wallUs || at.clockMs < last.clockMs {
				t.Fatalf("a wall clock that jumped by %v: %v came after %v", c.jump, at, last)
			}
			last = at
		}
		now := lead.now()
		gained := time.Duration(now.wallUs()-began.wallUs())*time.Microsecond - run
		if gained < c.least || gained > c.most {
			t.Errorf("a wall clock that jumped by %v: after %v the time of day gained %v, want "+
				"from %v to %v", c.jump, run, gained, c.least, c.most)
		}
	}
}

// A wall clock that is set again, in the other direction, is followed at that direction's rate.
func TestSlewingTurns(t *testing.T) {
	clock := &stubClock{mono: time.Second, wall: time.Minute}
	lead := newLeaderClock(clock,
		origin{stamp{1000, 1000 * (clock.Wall().UnixMilli() - time.Minute.Milliseconds())},
			clock.mono, true})
	before := lead.now()
	clock.mono += (aheadEveryUs - 1) * time.Microsecond
	lead.now()
	clock.wall = -time.Minute
	if now := lead.now(); now.offsetMs != before.offsetMs {
		t.Errorf("the offset jumped by %d ms", now.offsetMs-before.offsetMs)
	}
	clock.mono += behindEveryUs * time.Microsecond
	if now := lead.now(); now.offsetMs != before.offsetMs-1 {
		t.Errorf("the offset went by %d ms", now.offsetMs-before.offsetMs)
	}
}

// TestTimeThatWasSet: once an administrator has set the time of day to that of the wall clock,
// which is far from what entries carry, neither slewing nor a restart of all nodes undoes that.
func TestTimeThatWasSet(t *testing.T) {
	const year = 365 * 24 * time.Hour
	clock := &stubClock{mono: time.Second}
	from := origin{stamp{1000, (clock.Wall().UnixMilli() + year.Milliseconds()) * 1000}, clock.mono,
		false}
	lead := newLeaderClock(clock, from)
	before := lead.now()
	lead.setShift(-year.Milliseconds())
	lead.catchUp(0)
	clock.mono += time.Hour
	if now := lead.now(); now.offsetMs != before.offsetMs {
		t.Errorf("the offset went by %d ms", now.offsetMs-before.offsetMs)
	}
}

// TestStampFollowsReads: while the time of day follows a wall clock back, a stamp is still later
// than what reads have named.
func TestStampFollowsReads(t *testing.T) {
	clock := &stubClock{mono: time.Second}
	ahead := 1000 * (clock.Wall().UnixMilli() + time.Minute.Milliseconds())
	lead := newLeaderClock(clock, origin{stamp{1000, ahead}, clock.mono, true})
	clock.mono += 2 * readAheadUs * time.Microsecond
	lead.now() // it begins to follow
	clock.mono += (behindEveryUs - 501) * time.Microsecond
	s, before := lead.stamp(), lead.now()
	lead.settled(s)
	clock.mono += 500 * time.Microsecond
	named := s.wallUs
	for range 400 {
		us, ok := lead.instant(named, s.wallUs, 0)
		if !ok || us <= named {
			t.Fatalf("a read names %d %v after %d", us, ok, named)
		}
		named = us
	}
	clock.mono += 2 * time.Microsecond
	if now := lead.now(); now.offsetMs != before.offsetMs-1 {
		t.Fatalf("the offset went by %d ms", now.offsetMs-before.offsetMs)
	}
	if next := lead.stamp(); next.wallUs <= named {
		t.Errorf("an entry is stamped %d µs before what a read has named", named-next.wallUs)
	}
}

// TestTimeOfDayGoesOn: a new leader continues from the newest stamp, whatever its own wall clock
// says. Only if the cluster clock stood still does it jump to the wall clock of a majority, and
// only forward.
func TestTimeOfDayGoesOn(t *testing.T) {
	clock := &stubClock{mono: 3 * time.Second}
	wallMs := clock.Wall().UnixMilli()
	const clockMs = 5000
	for _, c := range []struct {
		what string
		from origin
		// how far a majority's wall clocks are ahead, if they are known and the clock stood still
		ahead *int64
		want  int64 // the time of day, ms
	}{
		{"the first leader", origin{at: clock.mono}, nil, wallMs},
		{"the first leader, agreed", origin{at: clock.mono}, new(int64(deadbandMs)), wallMs},
		{"the first leader, wrong", origin{at: clock.mono}, new(int64(-60_000)), wallMs - 60_000},
		{"behind", origin{stamp{clockMs, (wallMs - 60_000) * 1000}, clock.mono, true}, nil,
			wallMs - 60_000},
		{"ahead", origin{stamp{clockMs, (wallMs+60_000)*1000 + 999}, clock.mono, true}, nil,
			wallMs + 60_000},
		{"a second later", origin{stamp{clockMs, (wallMs + 60_000) * 1000},
			clock.mono - time.Second, true}, nil, wallMs + 61_000},
		{"stood still", origin{stamp{clockMs, (wallMs - 60_000) * 1000}, clock.mono, false},
			new(int64(-deadbandMs)), wallMs},
		{"stood still, nothing known", origin{stamp{clockMs, (wallMs - 60_000) * 1000}, clock.mono,
			false}, nil, wallMs - 60_000},
		{"stood still, this node is ahead", origin{stamp{clockMs, (wallMs - 60_000) * 1000},
			clock.mono, false}, new(int64(-50_000)), wallMs - 50_000},
		{"stood still, this node is far ahead", origin{stamp{clockMs, (wallMs - 60_000) * 1000},
			clock.mono, false}, new(int64(-70_000)), wallMs - 60_000},
		{"stood still, this node is behind", origin{stamp{clockMs, (wallMs - 60_000) * 1000},
			clock.mono, false}, new(int64(50_000)), wallMs + 50_000},
		{"stood still, ahead", origin{stamp{clockMs, (wallMs + 60_000) * 1000}, clock.mono, false},
			new(int64), wallMs + 60_000},
		{"not known", origin{stamp{clockMs, 0}, clock.mono, true}, nil, wallMs},
	} {
		lead := newLeaderClock(clock, c.from)
		if c.ahead != nil {
			lead.catchUp(*c.ahead)
		}
		if got := lead.now().wallUs() / 1000; got != c.want {
			t.Errorf("%s: the time of day is %d, want %d", c.what, got, c.want)
		}
		if at := lead.stamp(); at.wallUs <= c.from.stamp.wallUs {
			t.Errorf("%s: %d was stamped after %d", c.what, at.wallUs, c.from.stamp.wallUs)
		}
	}
}

// TestInstantsOfReads: they rise, after what is applied and before what is in flight.
func TestInstantsOfReads(t *testing.T) {
	clock := &stubClock{mono: time.Second}
	lead := newLeaderClock(clock, origin{})
	step := func(d time.Duration) { clock.mono += d }
	var lastUs, stampUs, readUs, askedUs int64
	read := func(what string, want bool) {
		t.Helper()
		us, ok := lead.instant(lastUs, stampUs, askedUs)
		switch {
		case ok != want:
			t.Fatalf("%s: an instant: %v", what, ok)
		case ok && (us <= readUs || us <= lastUs || us >= lead.now().wallUs()):
			t.Fatalf("%s: %d after %d and %d, now %d", what, us, readUs, lastUs,
				lead.now().wallUs())
		case ok:
			readUs = us
		}
	}
	step(time.Minute)
	read("before any entry", false)
	first := lead.stamp()
	step(10 * time.Millisecond)
	read("it is under way", false)
	lastUs, stampUs = first.wallUs-1, first.wallUs
	read("it is applied", true)
	lead.settled(first)
	second := lead.stamp()
	if second.wallUs <= readUs {
		t.Fatalf("stamped %d after a read of %d", second.wallUs, readUs)
	}
	for range readRoomUs / 2 {
		read("another is under way", true)
	}
	if readUs >= second.wallUs {
		t.Fatalf("a read that does not see the entry of %d named %d", second.wallUs, readUs)
	}
	step(time.Millisecond)
	lead.settled(second) // it failed
	for range readRoomUs / 2 {
		read("it failed", true)
	}
	step(readAheadUs * time.Microsecond)
	askedUs = lead.now().wallUs()
	read("the newest entry is as old as it may be", true)
	step(time.Hour)
	askedUs = lead.now().wallUs()
	read("the newest entry is too old", false)
	third := lead.stamp()
	lastUs, stampUs = third.wallUs-1, third.wallUs
	step(time.Second) // the disk is slow
	lead.settled(third)
	read("it was stamped when the read was there already", true)
	if readUs > stampUs+readAheadUs || readUs < askedUs {
		t.Fatalf("%d is named after %d, asked for at %d", readUs, stampUs, askedUs)
	}
	for range readRoomUs {
		read("", true)
	}
	read("no more room", false)
	lastUs = lead.now().wallUs() + 1
	read("entries named later ones than the clock shows", false)
}

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
			if gained < time.Hour-2*readAheadUs*time.Microsecond {
				t.Errorf("%s: an hour later reads name instants %v later", n.cfg.ID, gained)
			}
		}
	})
}

// TestFrameOfManyInstants: a frame of reads is answered as far as instants are available. In a
// bubble there would be none: no time passes while a node that is alone writes an entry.
func TestFrameOfManyInstants(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	c.write(n, "w")
	lead, room := n.route.Load().lead, 100
	lead.mu.Lock()
	lead.inFlightUs = append(lead.inFlightUs, c.toys[n.cfg.ID].stampUs+int64(room))
	lead.mu.Unlock()
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
	u := newLocalCall([]byte("seen"), 1, n.leaderDeadline(Workload{}))
	n.pause.mu.Lock()
	n.inFlight.Add(1)
	n.park(n.route.Load().lead, u)
	n.inFlight.Add(-1)
	n.pause.mu.Unlock()
	received(t, "its answer", u.done)
	if reply, err := u.take(); err != nil || len(reply) == 0 {
		t.Errorf("%q %v", reply, err)
	}
}

// TestReadRunsInVainOnce: a read that has run without finding an instant does not run again before
// there is one.
func TestReadRunsInVainOnce(t *testing.T) {
	c := newCluster(t, 1, nil)
	n := c.leader()
	c.write(n, "w")
	lead, toy := n.route.Load().lead, c.toys[n.cfg.ID]
	lead.mu.Lock()
	lead.inFlightUs = append(lead.inFlightUs, toy.stampUs+1)
	lead.readUs = max(lead.readUs, toy.stampUs)
	lead.mu.Unlock()
	u := &call{batches: [][]byte{[]byte("seen")}}
	p := readPass{n: n, lead: lead}
	for range 10 {
		if _, ok := p.replies(u); ok || toy.runs != 1 {
			t.Fatalf("without an instant: answered %v, runs %d", ok, toy.runs)
		}
	}
	lead.mu.Lock()
	lead.inFlightUs = nil
	lead.mu.Unlock()
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

// TestTimeOfDayAfterStop: after the whole cluster was down, the time of day moves forward to the
// wall clock. After one node was down, it does not follow that node's wall clock if that leads
// next.
func TestTimeOfDayAfterStop(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		offset := func() (ms int64) {
			t.Helper()
			if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
				t.Fatal(err)
			}
			return ms
		}
		was := offset()
		next := c.followers()[0].cfg.ID
		c.close(next)
		c.clock(next).shiftWall(time.Minute)
		c.reopen(next)
		c.ready(next)
		eventually(t, "the node that was down has an entry", func() bool {
			a := c.nodes[next].arrivals
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.live
		})
		eventually(t, "it leads", func() bool {
			if n := c.leader(); n.cfg.ID != next {
				err := n.TransferLeadership(next)
				return err == nil || errors.Is(err, ErrUnknown)
			}
			return true
		})
		if got := offset(); got != was {
			t.Errorf("the offset was %d ms and is %d ms: a wall clock that is wrong was followed",
				was,
				got)
		}
		c.closeAll()
		for _, m := range c.members {
			c.clock(m.ID).shiftWall(time.Hour)
			c.reopen(m.ID)
		}
		if got := offset(); got < was+time.Hour.Milliseconds() ||
			got > was+time.Hour.Milliseconds()+10*time.Minute.Milliseconds() {
			t.Errorf("after an hour in which no node ran the offset grew by %d ms", got-was)
		}
	})
}

// A majority is at or past the value, whoever is silent or wrong.
func TestMajorityAt(t *testing.T) {
	for _, c := range []struct {
		values []int64
		voters int
		want   int64
		ok     bool
	}{
		{[]int64{7}, 1, 7, true},
		{nil, 1, 0, false},
		{[]int64{7}, 2, 0, false},
		{[]int64{7, 5}, 2, 5, true},
		{[]int64{0}, 3, 0, false},
		{[]int64{0, 900}, 3, 0, true}, // one is silent
		{[]int64{900, 0, 1}, 3, 1, true},
		{[]int64{-900, 0, 1}, 3, 0, true},
		{[]int64{900, 1, 900, 0}, 4, 1, true},
		{[]int64{900, 1, 900, 0, 2}, 5, 2, true},
		{[]int64{900, 1, 900}, 5, 1, true},
	} {
		got, ok := majorityAt(slices.Clone(c.values), c.voters)
		if got != c.want || ok != c.ok {
			t.Errorf("%v of %d voters: %d %v", c.values, c.voters, got, ok)
		}
	}
}

// TestOneWrongWallClock restarts all nodes, one of which has a wall clock that is a year ahead,
// until that one leads first. The time of day is what the others say.
func TestOneWrongWallClock(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		offset := func() (ms int64) {
			t.Helper()
			if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
				t.Fatal(err)
			}
			return ms
		}
		const year, apart = 365 * 24 * time.Hour, int64(10 * time.Minute / time.Millisecond)
		was := offset()
		const wrong = "n2"
		c.clock(wrong).shiftWall(year)
		for led := false; !led; {
			c.closeAll()
			for _, m := range c.members {
				c.reopen(m.ID)
			}
			led = c.leader().cfg.ID == wrong
			if got := offset(); got < was || got > was+apart {
				t.Fatalf("%s leads, and the offset grew by %d ms", c.leader().cfg.ID, got-was)
			}
			c.write(c.leader(), "w")
		}
		c.closeAll()
		for _, m := range c.members {
			if m.ID != wrong {
				c.clock(m.ID).shiftWall(year) // no longer wrong: as if a year had passed
			}
			c.reopen(m.ID)
		}
		if got := offset(); got < was+year.Milliseconds() ||
			got > was+year.Milliseconds()+apart {
			t.Errorf("after a year the offset grew by %d ms", got-was)
		}
	})
}

// TestSteadyClock: if one of the two clocks runs 8 % fast, the combined clock does not, also when
// the fast one changes or makes up for a loss.
func TestSteadyClock(t *testing.T) {
	for _, c := range []struct {
		what  string
		rates func(at time.Duration) (a, b float64)
		least float64 // of the true time
	}{
		{"both right", func(time.Duration) (a, b float64) { return 1, 1 }, 0.9999},
		{"the first fast", func(time.Duration) (a, b float64) { return 1.08, 1 }, 0.9999},
		{"the second fast", func(time.Duration) (a, b float64) { return 1, 1.08 }, 0.9999},
		{"the first swings", func(at time.Duration) (a, b float64) {
			if at/time.Second%2 == 0 {
				return 0.92, 1
			}
			return 1.08, 1
		}, 0.95},
	} {
		var truth, a, b time.Duration
		a, b = time.Hour, 5*time.Hour
		clock := steadyClock{read: func() (time.Duration, time.Duration) { return a, b }}
		random := rand.New(rand.NewPCG(3, 4))
		type at struct{ truth, clock time.Duration }
		seen := []at{{0, clock.now()}}
		for truth < time.Minute {
			step := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
			ra, rb := c.rates(truth)
			truth, a, b = truth+step, a+time.Duration(float64(step)*ra),
				b+time.Duration(float64(step)*rb)
			now := at{truth, clock.now()}
			if now.clock < seen[len(seen)-1].clock {
				t.Fatalf("%s: the clock went back", c.what)
			}
			for range 3 { // from any earlier moment on
				then := seen[random.IntN(len(seen))]
				if gained, real := now.clock-then.clock,
					now.truth-then.truth; gained > real+anchorEvery/12+10*time.Microsecond {
					t.Fatalf("%s: the clock gained %v in %v", c.what, gained, real)
				}
			}
			seen = append(seen, now)
		}
		if got := float64(seen[len(seen)-1].clock-seen[0].clock) / float64(truth); got < c.least ||
			got > 1 {
			t.Errorf("%s: the clock ran at %.5f", c.what, got)
		}
	}
}

// TestSystemClockIsSafe reads the clock from several goroutines: it advances for each of them, at
// about the rate of real time.
func TestSystemClockIsSafe(t *testing.T) {
	var wg sync.WaitGroup
	began, real := SystemClock{}.Monotonic(), time.Now()
	for range 4 {
		wg.Go(func() {
			last := SystemClock{}.Monotonic()
			for range 20_000 {
				now := SystemClock{}.Monotonic()
				if now < last {
					t.Errorf("%v after %v", now, last)
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
	gained, went := SystemClock{}.Monotonic()-began, time.Since(real)
	if gained > went+time.Millisecond || gained < went/2 {
		t.Errorf("the clock gained %v in %v", gained, went)
	}
}

func BenchmarkSystemClock(b *testing.B) {
	for b.Loop() {
		SystemClock{}.Monotonic()
	}
}

// A key outlives its time by no more than the outage and stampEvery, although nobody writes: an
// idle leader stamps the log while there is a deadline, and when it stops.
func TestIdleTimeCountsAfterARestart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		c.write(lead, "w")
		now := func() int64 { return lead.route.Load().lead.nowMs() }
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

// A node that stops alone says in the log what the clock is.
func TestStopStampsTheLog(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		c.write(lead, "w")
		began := lead.route.Load().lead.nowMs()
		toy := c.toys["n1"]
		toy.mu.Lock()
		toy.Deadline = began + time.Hour.Milliseconds()
		toy.mu.Unlock()
		const idle = 2500 * time.Millisecond // no other stamp is due
		time.Sleep(idle)
		c.close("n1")
		c.reopen("n1")
		if ran := c.leader().route.Load().lead.nowMs() - began; ran < idle.Milliseconds() {
			t.Errorf("%d ms of %v count", ran, idle)
		}
	})
}

// TestWrongWallClockAmongTheFirst restarts all nodes, one of which has a wall clock that is behind.
// It is among the two that begin, and the third, which is right, comes later: then the time of day
// is where those two are.
func TestWrongWallClockAmongTheFirst(t *testing.T) {
	for _, late := range []time.Duration{0, time.Second, time.Minute} {
		runSimulated(t, late.String(), func(t *testing.T) {
			c := newCluster(t, 3, nil)
			c.write(c.leader(), "w")
			offset := func() (ms int64) {
				t.Helper()
				if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
					t.Fatal(err)
				}
				return ms
			}
			was := offset()
			c.closeAll()
			for _, m := range c.members {
				c.clock(m.ID).shiftWall(10 * time.Hour)
			}
			c.clock("n2").shiftWall(-time.Hour)
			c.reopen("n1")
			c.reopen("n2")
			time.Sleep(late)
			c.reopen("n3")
			c.ready("n3")
			eventually(t, "the time of day is that of the majority", func() bool {
				grew := time.Duration(offset()-was) * time.Millisecond
				return grew >= 10*time.Hour && grew < 10*time.Hour+10*time.Minute
			})
		})
	}
}

// It is settled what the clocks say once those that are silent cannot change it.
func TestMajorityIsSettled(t *testing.T) {
	for _, c := range []struct {
		ahead          []int64
		silent, voters int
		want           walls
	}{
		{[]int64{0}, 0, 1, walls{0, true, true}},
		{[]int64{0}, 2, 3, walls{0, false, false}},
		{[]int64{0, 50}, 1, 3, walls{0, true, true}},
		{[]int64{0, 5000}, 1, 3, walls{0, true, false}},
		{[]int64{0, 5000}, 0, 3, walls{0, true, true}}, // the third is of release 0.1
		{[]int64{0, 5000, 5001}, 0, 3, walls{5000, true, true}},
		{[]int64{0}, 0, 3, walls{0, false, true}},
		{[]int64{0, 1, 5000}, 2, 5, walls{0, true, false}},
		{[]int64{0, 1, 5000, 2}, 1, 5, walls{1, true, true}},
	} {
		if got := majorityOf(c.ahead, c.silent, c.voters); got != c.want {
			t.Errorf("%v, %d silent of %d: %+v", c.ahead, c.silent, c.voters, got)
		}
	}
}
