// A limit on the memory of requests being received on the whole node. Each connection has
// freeReadBuffer of its own, so small requests are always read. A larger buffer needs room in the
// intake; a connection without room is not read until others finish, so its client sees a slow
// network. The room is held until the request is answered, because the log copies the request.
//
// Who must authenticate and has not has no part in it: see stream.exceeds. The others share by
// user, and those without a user by host, so that nobody's half requests take all of the room.

package server

import (
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// intakeRequests of the largest size fit into the intake. The log copies each about six times.
	intakeRequests = 1
	// While others wait, a client has slowTurn, plus a second per slowBytes, to send its request.
	slowTurn  = 2 * time.Second
	slowBytes = 4 << 20
)

// intake shares the room among connections. The oldest always gets what it asks for, so one always
// finishes. Then those come first whose owner holds least.
type intake struct {
	limit int // bytes, for held and for spare each

	mu     lockorder.Mutex
	spare  int              // bytes of buffers up to maxReadBuffer
	held   int              // bytes, of all turns
	turns  []*turn          // holding or waiting for room; the oldest first
	shares map[owner]*share // those that hold room or wait for it
}

// owner is whose the connections are that share room.
type owner struct {
	user string
	host netip.Prefix // host of clients without a user
}

// share is what the connections of an owner hold.
type share struct {
	owner       owner
	spare, held int // bytes
	sessions    int
}

// turn is a session's position in the intake.
type turn struct {
	s     *session
	mu    lockorder.Mutex // for wake only
	wake  chan struct{}
	held  int       // bytes; guarded by intake.mu, as are the following
	of    *share    // nil: it neither holds room nor waits for it
	wants int       // bytes more; 0: not waiting
	since time.Time // when it began to wait, or last got room
}

// interrupt makes a session that waits for its turn check its state. It never blocks.
func (t *turn) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wake != nil {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

func (t *turn) signal() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wake == nil {
		t.wake = make(chan struct{}, 1)
	}
	return t.wake
}

// errInterrupted ends a wait for room as it ends one for input.
var errInterrupted = os.ErrDeadlineExceeded

// mayGrow is the session's stream.grow. Buffers up to maxReadBuffer come from a separate room
// while it lasts, so that pipelines of small requests and large requests do not wait for each
// other.
func (s *session) mayGrow(size int, need bool) (lent bool, err error) {
	in, t := &s.srv.intake, &s.turn
	room := max(size-freeReadBuffer, 0)
	if size <= maxReadBuffer {
		if in.takeSpare(s, room) {
			in.give(t, t.held)
			return false, nil
		}
		if !need {
			return false, errInterrupted
		}
	}
	if t.held == 0 {
		if err := s.payDebt(); err != nil {
			return false, err
		}
	}
	more := room - t.held
	if more > 0 && !in.reserveOrWait(s, more) {
		if err := s.waitForRoom(t.signal()); err != nil {
			return false, err
		}
	}
	in.takeSpare(s, 0)
	return true, nil
}

func (s *session) waitForRoom(wake chan struct{}) error {
	s.state.Store(works)
	defer s.state.Store(waitsForInput)
	in, t := &s.srv.intake, &s.turn
	for !in.granted(t) {
		if s.killed.Load() {
			in.forgo(t)
			return errInterrupted
		}
		if !s.srv.closing.Load() {
			<-wake
			continue
		}
		select { // until its time is up, it may still be admitted
		case <-wake:
		case <-time.After(time.Until(s.srv.lastReads)):
			in.forgo(t)
			return errInterrupted
		}
	}
	return nil
}

// owner returns whose the session is.
func (s *session) owner() owner {
	if id := s.user.Load(); id != nil {
		return owner{user: string(id.name)}
	}
	return owner{host: halfopen.Host(s.conn)}
}

// join begins to count a session for its owner, until endTurn. The caller holds mu.
func (in *intake) join(s *session) *share {
	if s.turn.of == nil {
		o := s.owner()
		if in.shares[o] == nil {
			if in.shares == nil {
				in.shares = map[owner]*share{}
			}
			in.shares[o] = &share{owner: o}
		}
		s.turn.s, s.turn.of = s, in.shares[o]
		s.turn.of.sessions++
	}
	return s.turn.of
}

// endTurn ends what join began once the session holds nothing and waits for nothing. The caller
// holds mu.
func (in *intake) endTurn(t *turn) {
	if t.of == nil || t.held > 0 || t.wants > 0 || t.s.spare > 0 {
		return
	}
	if t.of.sessions--; t.of.sessions == 0 {
		delete(in.shares, t.of.owner)
	}
	t.of = nil
}

// hold changes what a turn holds. The caller holds mu.
func (in *intake) hold(t *turn, more int) {
	t.held += more
	t.of.held += more
	in.held += more
}

// takeSpare sets a session's share of the spare room; false: not enough. An owner holds at most as
// much as it leaves free.
func (in *intake) takeSpare(s *session, want int) bool {
	if want == s.spare {
		return true
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	of, more := in.join(s), want-s.spare
	defer in.endTurn(&s.turn)
	if more > 0 && of.spare+more > in.limit-in.spare-more {
		return false
	}
	in.spare += more
	of.spare += more
	s.spare = want
	return true
}

// reserveOrWait reserves room if there is some; otherwise the turn waits from now on.
func (in *intake) reserveOrWait(s *session, more int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	t := &s.turn
	in.join(s)
	if !slices.Contains(in.turns, t) {
		t.since = time.Now()
		in.turns = append(in.turns, t)
	}
	if t != in.turns[0] && (in.held+more > in.limit || in.waitsBefore(t)) {
		t.wants = more
		return false
	}
	in.hold(t, more)
	t.since = time.Now()
	return true
}

// waitsBefore reports whether an older turn than t waits, of an owner that holds no more.
func (in *intake) waitsBefore(t *turn) bool {
	for _, other := range in.turns {
		if other == t {
			break
		}
		if other.wants > 0 && other.of.held <= t.of.held {
			return true
		}
	}
	return false
}

func (in *intake) granted(t *turn) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return t.wants == 0
}

// forgo ends a wait.
func (in *intake) forgo(t *turn) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if t.wants == 0 {
		return
	}
	t.wants = 0
	in.grant(t)
}

// give returns room.
func (in *intake) give(t *turn, bytes int) {
	if bytes == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hold(t, -bytes)
	in.grant(t)
}

// leaveOut stops counting a session's buffer: its request is answered, or blocks indefinitely, and
// must not hold up others. The buffer still counts in the session's account.
func (in *intake) leaveOut(s *session) {
	in.takeSpare(s, 0)
	in.give(&s.turn, s.turn.held)
}

// leave returns everything at the end of the session.
func (in *intake) leave(s *session) {
	in.takeSpare(s, 0)
	in.mu.Lock()
	defer in.mu.Unlock()
	t := &s.turn
	if t.of == nil {
		return
	}
	in.hold(t, -t.held)
	t.wants = 0
	in.grant(t)
}

// grant ends t's turn if it holds and wants nothing, and admits those for whom there is room. The
// caller holds mu.
func (in *intake) grant(t *turn) {
	if t.held == 0 && t.wants == 0 {
		if i := slices.Index(in.turns, t); i >= 0 {
			in.turns = slices.Delete(in.turns, i, i+1)
		}
	}
	in.endTurn(t)
	for next := in.next(); next != nil; next = in.next() {
		if next != in.turns[0] && in.held+next.wants > in.limit {
			return
		}
		in.hold(next, next.wants)
		next.wants = 0
		next.since = time.Now() // its client was not read while it waited
		next.interrupt()
	}
}

// next returns the waiting turn that is to get room: the oldest of all turns, or else the oldest of
// the owner that holds least; nil: none waits. The caller holds mu.
func (in *intake) next() (next *turn) {
	for i, t := range in.turns {
		switch {
		case t.wants == 0:
		case i == 0:
			return t
		case next == nil || t.of.held < next.of.held:
			next = t
		}
	}
	return next
}

// closeSlow closes those that send a request too slowly if others have waited long: requests sent
// in drips would hold up all large ones. A client that only waits for the node is never closed.
func (in *intake) closeSlow(now time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	waits := slices.ContainsFunc(in.turns, func(t *turn) bool {
		return t.wants > 0 && now.Sub(t.since) >= slowTurn
	})
	if !waits {
		return
	}
	for _, t := range in.turns {
		patience := slowTurn + time.Duration(t.held/slowBytes)*time.Second
		if t.wants > 0 || t.s.state.Load() != waitsForInput || now.Sub(t.since) < patience {
			continue
		}
		t.s.srv.clientMemory.evicted.Add(1)
		t.s.srv.warnings.Warn(
			"closed a client that sends a large request too slowly while others wait", "client",
			t.s.addr, "bytes", t.held)
		t.s.kill()
	}
}
