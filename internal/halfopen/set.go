package halfopen

import (
	"net"
	"slices"
	"sync"
)

// Set holds connections that have not identified themselves, oldest first. A peer that means well
// does so within a few round trips. At the bound, the oldest connection of the address with the
// most goes, so that a host that opens connections and says nothing cannot lock others out.
type Set struct {
	most int

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// New returns a set that holds most connections.
func New(most int) *Set { return &Set{most: most} }

// Add adds a connection. It returns the one to close for it, or nil. A closed set returns conn.
func (s *Set) Add(conn net.Conn) (evicted net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return conn
	}
	if len(s.conns) >= s.most {
		evicted = s.oldestOfMost()
		s.remove(evicted)
	}
	s.conns = append(s.conns, conn)
	return evicted
}

// Remove removes a connection that was identified or has ended. It reports whether it was there:
// it may have been evicted.
func (s *Set) Remove(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remove(conn)
}

// Len returns how many connections the set holds.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Close empties the set and returns what it held, for the caller to close. Later connections are
// refused.
func (s *Set) Close() []net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.conns
	s.conns, s.closed = nil, true
	return held
}

// remove is Remove for a caller that holds mu.
func (s *Set) remove(conn net.Conn) bool {
	i := slices.Index(s.conns, conn)
	if i >= 0 {
		s.conns = slices.Delete(s.conns, i, i+1)
	}
	return i >= 0
}

// oldestOfMost returns the oldest connection of the address with the most. The caller holds mu.
func (s *Set) oldestOfMost() net.Conn {
	count, oldest, most := map[string]int{}, map[string]net.Conn{}, ""
	for _, c := range s.conns {
		host := remoteHost(c)
		if count[host]++; count[host] == 1 {
			oldest[host] = c
		}
		if most == "" || count[host] > count[most] {
			most = host
		}
	}
	return oldest[most]
}

// remoteHost returns the peer's address without the port.
func remoteHost(c net.Conn) string {
	text := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}
