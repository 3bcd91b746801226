// How a session that waits in the middle of a command notices that its client has gone: it reads
// on, within bounds, and asks the system beyond them.

package server

import (
	"errors"
	"io"
	"os"
	"time"
)

const (
	// freeAhead is the input that every waiting session may buffer.
	freeAhead = 64 << 10
	// maxAhead bounds it with room of the node's, Config.MaxRequestBytes in all. The end of a
	// connection follows its input: what is read, and what the system buffers, can hide none.
	maxAhead = freeAhead + 1<<20
)

// watchClient waits until the connection's deadline, d away. It returns false if the client or the
// server has gone away.
func (s *session) watchClient(d time.Duration) bool {
	err := s.lookForEnd(min(d, pollInterval), nil)
	s.gone = err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	return !s.gone && s.srv.ctx.Err() == nil
}

// lookForEnd reads the connection until its deadline, and fails when the client has disconnected.
// It buffers the input. With too much of it, it asks the system instead, after a pause that wakeup
// ends.
func (s *session) lookForEnd(pause time.Duration, wakeup <-chan struct{}) error {
	if s.mayReadAhead() {
		return s.in.peek()
	}
	over := time.NewTimer(pause)
	defer over.Stop()
	select {
	case <-over.C:
	case <-wakeup:
	case <-s.srv.ctx.Done():
	}
	if !clientConnected(s.conn) {
		return io.EOF
	}
	return nil
}

// mayReadAhead reports whether there is room to buffer more input. A client that must authenticate
// has none but its own.
func (s *session) mayReadAhead() bool {
	n := len(s.in.ahead)
	return n < freeAhead || n < maxAhead && !s.in.small && s.holdAhead(n-freeAhead+peekBytes)
}

// holdAhead sets the session's share of the node's room for buffered input; false: not enough.
func (s *session) holdAhead(bytes int) bool {
	total := s.srv.ahead.Add(int64(bytes - s.aheadHeld))
	if bytes > s.aheadHeld && total > int64(s.srv.cfg.MaxRequestBytes) {
		s.srv.ahead.Add(int64(s.aheadHeld - bytes))
		return false
	}
	s.aheadHeld = bytes
	s.measure()
	return true
}
