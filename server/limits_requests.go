package server

// This file holds what requests that are being received may take on the whole node. A connection has freeReadBuffer for itself, so small
// requests are always read. A larger buffer needs room in the intake, and a connection that finds none is not read until others are done:
// its client waits, as on a slow network. The room is kept until the request was answered, because the request is copied on its way to the log.

import (
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// intakeRequests of the largest size fit into the intake. Each is copied about six times on its way through the log.
	intakeRequests = 1
	// A client that others wait for has slowTurn, and a second more for each slowBytes that it takes, to send its request.
	slowTurn  = 2 * time.Second
	slowBytes = 4 << 20
)

// intake shares the room among connections, in the order in which they began to need some. The eldest always gets what it asks for:
// so somebody always comes to an end.
type intake struct {
	limit int // bytes, of held and of spare each

	mu    sync.Mutex
	spare int     // bytes of buffers of up to maxReadBuffer
	held  int     // bytes, by all turns
	turns []*turn // who holds room, or waits for some; the eldest first
}

// turn is a session's place in the intake.
type turn struct {
	s     *session
	mu    sync.Mutex // for wake alone
	wake  chan struct{}
	held  int       // bytes; this and what follows is guarded by intake.mu
	wants int       // bytes more; 0: it does not wait
	since time.Time // when it began to wait, or got room last
}

// interrupt makes a session look around that waits for its turn. It never blocks.
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

// errLookAround ends a wait for room as it ends one for input.
var errInterrupted = os.ErrDeadlineExceeded

// mayGrow is the session's stream.grow. Buffers of up to maxReadBuffer come from a room of their own as long as that lasts, so that pipelines of small
// requests and large requests do not wait for each other.
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
		select { // until its time is over, it may still come to its turn
		case <-wake:
		case <-time.After(time.Until(s.srv.lastReads)):
			in.forgo(t)
			return errInterrupted
		}
	}
	return nil
}

// takeSpare makes a session's part of the spare room what it wants; false: there is not so much.
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

// take gives room at once if there is some; else the turn waits from now on.
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

// waitsBefore reports whether somebody waits who came before t.
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

// give gives room back.
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

// leaveOut counts a session's buffer no more: its request was answered, or waits in a command for as long as it likes, and others are not to
// wait for that. The buffer counts among what connections take: see account.
func (in *intake) leaveOut(s *session) {
	in.takeSpare(s, 0)
	in.give(&s.turn, s.turn.held)
}

// leave gives all back, at the end of the session.
func (in *intake) leave(s *session) {
	in.takeSpare(s, 0)
	in.mu.Lock()
	defer in.mu.Unlock()
	t := &s.turn
	in.held -= t.held
	t.held, t.wants = 0, 0
	in.grant(t)
}

// settle ends t's turn if it has nothing, and wakes those for whom there is room now. The caller holds mu.
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
		other.since = time.Now() // its client has not been read since it began to wait
		other.interrupt()
	}
}

// look closes the client that sends its request slowest, where others have waited for room for long: a request that is sent in
// drips would hold up all large ones. Who waits for nothing but the node is never closed.
func (in *intake) closeSlow(now time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	waits := slices.ContainsFunc(in.turns, func(t *turn) bool { return t.wants > 0 && now.Sub(t.since) >= slowTurn })
	if !waits {
		return
	}
	for _, t := range in.turns {
		patience := slowTurn + time.Duration(t.held/slowBytes)*time.Second
		if t.wants > 0 || t.s.state.Load() != waitsForInput || now.Sub(t.since) < patience {
			continue
		}
		t.s.srv.clientMemory.evicted.Add(1)
		t.s.srv.warnings.Warn("closed a client that sends a large request too slowly while others wait", "client", t.s.addr, "bytes", t.held)
		t.s.kill()
		return
	}
}
