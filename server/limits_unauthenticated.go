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

// stand counts the session where it belongs now: for its user, among the unauthenticated, or for
// neither while the default user needs no password. It is called at the start, whenever the
// session's user changes, and before each read, since the users may have changed. It reports
// whether the client must authenticate. Past the limit, the oldest connection of the host with the
// most unauthenticated ones ends.
func (s *session) stand() (unauthenticated bool) {
	must := s.mustAuthenticate()
	switch {
	case must == s.counted:
	case must:
		s.counted = true
		now := time.Now()
		s.unauthenticatedSince.Store(&now)
		if evicted := s.srv.unauthenticated.Add(s.conn); evicted != nil {
			s.srv.stats.unauthenticatedClosed.Add(1)
			_ = socket(evicted).Close()
		}
	default:
		s.counted, s.early = false, 0
		s.unauthenticatedSince.Store(nil)
		s.srv.unauthenticated.Remove(s.conn)
	}
	if !must && !s.identified {
		s.identified = true
		s.srv.door.Identified(s.conn)
	}
	return must
}

// tooLate reports whether a client had its time to authenticate, at the start or since RESET.
func (s *Server) tooLate(c *session, now time.Time) bool {
	since := c.unauthenticatedSince.Load()
	switch must := c.mustAuthenticate(); {
	case s.cfg.AuthTimeout == 0:
		return false
	case !must:
		c.unauthenticatedSince.CompareAndSwap(since, nil)
		return false
	case since == nil: // the users have changed while it waits in a command
		c.unauthenticatedSince.CompareAndSwap(nil, &now)
		return false
	}
	return now.Sub(*since) >= s.cfg.AuthTimeout
}
