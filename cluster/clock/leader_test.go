// Tests of the leader's clock: the time of day, and the instants that requests name.

package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// stubClock stands still until it is moved.
type stubClock struct {
	mono time.Duration
	wall time.Duration // ahead of mono
}

func (c *stubClock) Monotonic() time.Duration { return c.mono }

func (c *stubClock) Wall() time.Time {
	return time.Unix(1_700_000_000, 0).Add(c.mono + c.wall)
}

func TestLeadershipClock(t *testing.T) {
	clock := &stubClock{mono: 10 * time.Second}
	lead := newLeader(clock, origin{stamp: Stamp{ClockMs: 500}, at: 9 * time.Second})
	if got := lead.NowMs(); got != 1500 {
		t.Errorf("now %d, want 1500", got)
	}
	clock.mono = 10*time.Second + 999*time.Microsecond
	if got := lead.NowMs(); got != 1500 {
		t.Errorf("now %d, want 1500: parts of a ms are cut off", got)
	}
	clock.mono = 0
	if got := lead.NowMs(); got != 500 {
		t.Errorf("now %d, want 500: never below the base", got)
	}
}

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
		lead := newLeader(clock, origin{})
		began := lead.Now()
		clock.wall = c.jump
		random := rand.New(rand.NewPCG(1, 2))
		last := Stamp{}
		for end := clock.mono + run; clock.mono < end; {
			clock.mono += min(time.Duration(random.Int64N(int64(50*time.Millisecond))),
				end-clock.mono)
			at := lead.Stamp()
			lead.Settled(at)
			if at.WallUs <= last.WallUs || at.ClockMs < last.ClockMs {
				t.Fatalf("a wall clock that jumped by %v: %v came after %v", c.jump, at, last)
			}
			last = at
		}
		now := lead.Now()
		gained := time.Duration(now.WallUs()-began.WallUs())*time.Microsecond - run
		if gained < c.least || gained > c.most {
			t.Errorf("a wall clock that jumped by %v: after %v the time of day gained %v, want "+
				"from %v to %v", c.jump, run, gained, c.least, c.most)
		}
	}
}

// A wall clock that is set again, in the other direction, is followed at that direction's rate.
func TestSlewingTurns(t *testing.T) {
	clock := &stubClock{mono: time.Second, wall: time.Minute}
	lead := newLeader(clock,
		origin{Stamp{1000, 1000 * (clock.Wall().UnixMilli() - time.Minute.Milliseconds())},
			clock.mono, true})
	before := lead.Now()
	clock.mono += (aheadEveryUs - 1) * time.Microsecond
	lead.Now()
	clock.wall = -time.Minute
	if now := lead.Now(); now.offsetMs != before.offsetMs {
		t.Errorf("the offset jumped by %d ms", now.offsetMs-before.offsetMs)
	}
	clock.mono += behindEveryUs * time.Microsecond
	if now := lead.Now(); now.offsetMs != before.offsetMs-1 {
		t.Errorf("the offset went by %d ms", now.offsetMs-before.offsetMs)
	}
}

// TestTimeThatWasSet: once an administrator has set the time of day to that of the wall clock,
// which is far from what entries carry, neither slewing nor a restart of all nodes undoes that.
func TestTimeThatWasSet(t *testing.T) {
	const year = 365 * 24 * time.Hour
	clock := &stubClock{mono: time.Second}
	from := origin{Stamp{1000, (clock.Wall().UnixMilli() + year.Milliseconds()) * 1000}, clock.mono,
		false}
	lead := newLeader(clock, from)
	before := lead.Now()
	lead.SetShift(-year.Milliseconds())
	lead.CatchUp(0)
	clock.mono += time.Hour
	if now := lead.Now(); now.offsetMs != before.offsetMs {
		t.Errorf("the offset went by %d ms", now.offsetMs-before.offsetMs)
	}
}

// TestStampFollowsReads: while the time of day follows a wall clock back, a stamp is still later
// than what reads have named.
func TestStampFollowsReads(t *testing.T) {
	clock := &stubClock{mono: time.Second}
	ahead := 1000 * (clock.Wall().UnixMilli() + time.Minute.Milliseconds())
	lead := newLeader(clock, origin{Stamp{1000, ahead}, clock.mono, true})
	clock.mono += 2 * readAheadUs * time.Microsecond
	lead.Now() // it begins to follow
	clock.mono += (behindEveryUs - 501) * time.Microsecond
	s, before := lead.Stamp(), lead.Now()
	lead.Settled(s)
	clock.mono += 500 * time.Microsecond
	named := s.WallUs
	for range 400 {
		us, ok := lead.Instant(named, s.WallUs, 0)
		if !ok || us <= named {
			t.Fatalf("a read names %d %v after %d", us, ok, named)
		}
		named = us
	}
	clock.mono += 2 * time.Microsecond
	if now := lead.Now(); now.offsetMs != before.offsetMs-1 {
		t.Fatalf("the offset went by %d ms", now.offsetMs-before.offsetMs)
	}
	if next := lead.Stamp(); next.WallUs <= named {
		t.Errorf("an entry is stamped %d µs before what a read has named", named-next.WallUs)
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
		{"behind", origin{Stamp{clockMs, (wallMs - 60_000) * 1000}, clock.mono, true}, nil,
			wallMs - 60_000},
		{"ahead", origin{Stamp{clockMs, (wallMs+60_000)*1000 + 999}, clock.mono, true}, nil,
			wallMs + 60_000},
		{"a second later", origin{Stamp{clockMs, (wallMs + 60_000) * 1000},
			clock.mono - time.Second, true}, nil, wallMs + 61_000},
		{"stood still", origin{Stamp{clockMs, (wallMs - 60_000) * 1000}, clock.mono, false},
			new(int64(-deadbandMs)), wallMs},
		{"stood still, nothing known", origin{Stamp{clockMs, (wallMs - 60_000) * 1000}, clock.mono,
			false}, nil, wallMs - 60_000},
		{"stood still, this node is ahead", origin{Stamp{clockMs, (wallMs - 60_000) * 1000},
			clock.mono, false}, new(int64(-50_000)), wallMs - 50_000},
		{"stood still, this node is far ahead", origin{Stamp{clockMs, (wallMs - 60_000) * 1000},
			clock.mono, false}, new(int64(-70_000)), wallMs - 60_000},
		{"stood still, this node is behind", origin{Stamp{clockMs, (wallMs - 60_000) * 1000},
			clock.mono, false}, new(int64(50_000)), wallMs + 50_000},
		{"stood still, ahead", origin{Stamp{clockMs, (wallMs + 60_000) * 1000}, clock.mono, false},
			new(int64), wallMs + 60_000},
		{"not known", origin{Stamp{clockMs, 0}, clock.mono, true}, nil, wallMs},
	} {
		lead := newLeader(clock, c.from)
		if c.ahead != nil {
			lead.CatchUp(*c.ahead)
		}
		if got := lead.Now().WallUs() / 1000; got != c.want {
			t.Errorf("%s: the time of day is %d, want %d", c.what, got, c.want)
		}
		if at := lead.Stamp(); at.WallUs <= c.from.stamp.WallUs {
			t.Errorf("%s: %d was stamped after %d", c.what, at.WallUs, c.from.stamp.WallUs)
		}
	}
}

// TestInstantsOfReads: they rise, after what is applied and before what is in flight.
func TestInstantsOfReads(t *testing.T) {
	clock := &stubClock{mono: time.Second}
	lead := newLeader(clock, origin{})
	step := func(d time.Duration) { clock.mono += d }
	var lastUs, stampUs, readUs, askedUs int64
	read := func(what string, want bool) {
		t.Helper()
		us, ok := lead.Instant(lastUs, stampUs, askedUs)
		switch {
		case ok != want:
			t.Fatalf("%s: an instant: %v", what, ok)
		case ok && (us <= readUs || us <= lastUs || us >= lead.Now().WallUs()):
			t.Fatalf("%s: %d after %d and %d, now %d", what, us, readUs, lastUs,
				lead.Now().WallUs())
		case ok:
			readUs = us
		}
	}
	step(time.Minute)
	read("before any entry", false)
	first := lead.Stamp()
	step(10 * time.Millisecond)
	read("it is under way", false)
	lastUs, stampUs = first.WallUs-1, first.WallUs
	read("it is applied", true)
	lead.Settled(first)
	second := lead.Stamp()
	if second.WallUs <= readUs {
		t.Fatalf("stamped %d after a read of %d", second.WallUs, readUs)
	}
	for range readRoomUs / 2 {
		read("another is under way", true)
	}
	if readUs >= second.WallUs {
		t.Fatalf("a read that does not see the entry of %d named %d", second.WallUs, readUs)
	}
	step(time.Millisecond)
	lead.Settled(second) // it failed
	for range readRoomUs / 2 {
		read("it failed", true)
	}
	step(readAheadUs * time.Microsecond)
	askedUs = lead.Now().WallUs()
	read("the newest entry is as old as it may be", true)
	step(time.Hour)
	askedUs = lead.Now().WallUs()
	read("the newest entry is too old", false)
	third := lead.Stamp()
	lastUs, stampUs = third.WallUs-1, third.WallUs
	step(time.Second) // the disk is slow
	lead.Settled(third)
	read("it was stamped when the read was there already", true)
	if readUs > stampUs+readAheadUs || readUs < askedUs {
		t.Fatalf("%d is named after %d, asked for at %d", readUs, stampUs, askedUs)
	}
	for range readRoomUs {
		read("", true)
	}
	read("no more room", false)
	lastUs = lead.Now().WallUs() + 1
	read("entries named later ones than the clock shows", false)
}
