// Clients that must authenticate before they may do anything: the default user needs a password,
// and they have not shown one. They are nearly free. Their requests are small and run one at a
// time, there are few of them, and they have little time.

package server

import (
	"runtime"
	"time"
)

// Limits of a request before AUTH, as in Redis.
const (
	maxArgsBeforeAuth = 10
	maxBulkBeforeAuth = 16 << 10
)

// A client that means well authenticates within a few requests. Of those before, freeRequests run
// at once, and each further one delays the next.
const (
	freeRequests = 50
	requestDelay = 100 * time.Millisecond
)

// slowDown follows a request of a client that must authenticate. A stranger who sends as fast as it
// can uses no whole time slices, and soon next to nothing.
func (s *session) slowDown() {
	s.early++
	if s.early < freeRequests || s.srv.closing.Load() || s.user.Load() != nil {
		runtime.Gosched()
		return
	}
	time.Sleep(requestDelay) // nothing is read meanwhile: input waits in the kernel
}

const (
	// strangersPerSecond is how many connections of one host that end without authenticating come
	// in, after the first ones: those that may be open, wait, or be in their TLS handshakes.
	strangersPerSecond = 500
	// authGrace is how long a client has before another one of its host displaces it.
	authGrace = time.Second
)

// mustAuthenticate reports whether the session's client may do nothing before it authenticates, as
// far as this node knows.
func (s *session) mustAuthenticate() bool {
	if s.user.Load() != nil {
		return false
	}
	users := s.srv.users()
	switch {
	case users == nil:
		return true
	case users.Open:
		return false
	}
	_, err := users.of(nil)
	return err != nil
}

// letIn ends the limits of a client that need not authenticate, now that this node knows the users.
// It reports whether that is so.
func (s *session) letIn() bool {
	if s.mustAuthenticate() {
		return false
	}
	s.authenticated()
	return true
}

// countUnauthenticated counts a new session if its client must authenticate. Past the limit, the
// oldest connection of the host with the most of them ends.
func (s *Server) countUnauthenticated(c *session) {
	if !c.mustAuthenticate() {
		s.door.Identified(c.conn)
		return
	}
	c.counted = true
	if evicted := s.unauthenticated.Add(c.conn); evicted != nil {
		s.stats.unauthenticatedClosed.Add(1)
		_ = socket(evicted).Close()
	}
}

// authenticated ends what countUnauthenticated began.
func (s *session) authenticated() {
	if s.counted {
		s.counted = false
		s.srv.unauthenticated.Remove(s.conn)
		s.srv.door.Identified(s.conn)
	}
}

// tooLate reports whether a client had its time to authenticate. One that did so before RESET may
// take longer: it may be idle in a pool.
func (s *Server) tooLate(c *session, now time.Time) bool {
	switch {
	case s.cfg.AuthTimeout == 0 || c.trusted.Load():
		return false
	case !c.mustAuthenticate():
		c.unauthenticatedSince = time.Time{}
		return false
	case c.unauthenticatedSince.IsZero():
		c.unauthenticatedSince = now
	}
	return now.Sub(c.unauthenticatedSince) >= s.cfg.AuthTimeout
}
