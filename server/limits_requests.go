// A limit on the memory of requests being received on the whole node. Each connection has
// freeReadBuffer of its own, so small requests are always read. A larger buffer needs room in the
// intake; a connection without room is not read until others finish, so its client sees a slow
// network. The room is held until the request is answered, because the log copies the request.

package server

import (
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// intakeRequests of the largest size fit into the intake. The log copies each about six times.
	intakeRequests = 1
	// While others wait, a client has slowTurn, plus a second per slowBytes, to send its request.
	slowTurn  = 2 * time.Second
	slowBytes = 4 << 20
)

// intake shares the room among connections in order of need. The oldest always gets what it asks
// for, so one always finishes.
type intake struct {
	limit int // bytes, for held and for spare each

	mu    sync.Mutex
	spare int     // bytes of buffers up to maxReadBuffer
	held  int     // bytes, of all turns
	turns []*turn // holding or waiting for room; the oldest first
}

// turn is a session's position in the intake.
type turn struct {
	s     *session
	mu    sync.Mutex // for wake only
	wake  chan struct{}
	held  int       // bytes; guarded by intake.mu, as are the following
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
	if more > 0 && !in.take(s, more) {
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

// takeSpare sets a session's share of the spare room; false: not enough.
func (in *intake) takeSpare(s *session, want int) bool {
	if want == s.spare {
		return true
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if want > s.spare && in.spare+want-s.spare > in.limit {
		return false
	}
	in.spare += want - s.spare
	s.spare = want
	return true
}

// take reserves room if there is some; otherwise the turn waits from now on.
func (in *intake) take(s *session, more int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	t := &s.turn
	t.s = s
	if !slices.Contains(in.turns, t) {
		t.since = time.Now()
		in.turns = append(in.turns, t)
	}
	if t != in.turns[0] && (in.held+more > in.limit || in.waitsBefore(t)) {
		t.wants = more
		return false
	}
	t.held += more
	in.held += more
	t.since = time.Now()
	return true
}

// waitsBefore reports whether an older turn than t waits.
func (in *intake) waitsBefore(t *turn) bool {
	for _, other := range in.turns {
		if other == t {
			break
		}
		if other.wants > 0 {
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
	t.held -= bytes
	in.held -= bytes
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
	in.held -= t.held
	t.held, t.wants = 0, 0
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
	for i, other := range in.turns {
		if other.wants == 0 {
			continue
		}
		if i > 0 && in.held+other.wants > in.limit {
			return
		}
		other.held += other.wants
		in.held += other.wants
		other.wants = 0
		other.since = time.Now() // its client was not read while it waited
		other.interrupt()
	}
}

// closeSlow closes the slowest sender of a request if others have waited long: a request sent in
// drips would hold up all large ones. A client that only waits for the node is never closed.
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
		return
	}
}
