// Clients that must authenticate before they may do anything: the default user needs a password,
// and they have not shown one. They are nearly free. Their requests are small and run one at a
// time, there are few of them, and they have little time.

package server

import "time"

// Limits of a request before AUTH, as in Redis.
const (
	maxArgsBeforeAuth = 10
	maxBulkBeforeAuth = 16 << 10
)

// mustAuthenticate reports whether the session's client may do nothing before it authenticates.
func (s *session) mustAuthenticate() bool {
	if s.user.Load() != nil {
		return false
	}
	users := s.srv.users()
	if users == nil || users == UsersAwaited || users.Open {
		return false
	}
	_, err := users.of(nil)
	return err != nil
}

// countUnauthenticated counts a new session if its client must authenticate. Past the limit, the
// oldest connection of the address with the most of them ends.
func (s *Server) countUnauthenticated(c *session) {
	if !c.mustAuthenticate() {
		return
	}
	c.counted = true
	if evicted := s.unauthenticated.Add(c.conn); evicted != nil {
		s.stats.unauthenticatedClosed.Add(1)
		_ = socket(evicted).Close()
	}
}

// uncount ends what countUnauthenticated began.
func (s *session) uncount() {
	if s.counted {
		s.counted = false
		s.srv.unauthenticated.Remove(s.conn)
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
