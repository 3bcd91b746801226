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
	held   []held
	count  map[string]int // of each host
	closed bool
}

// held is a connection with the address of its peer, without the port.
type held struct {
	conn net.Conn
	host string
}

// New returns a set that holds most connections.
func New(most int) *Set { return &Set{most: most, count: map[string]int{}} }

// Add adds a connection. It returns the one to close for it, or nil. A closed set returns conn.
func (s *Set) Add(conn net.Conn) (evicted net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return conn
	}
	if len(s.held) >= s.most {
		evicted = s.oldestOfMost()
		s.remove(evicted)
	}
	h := held{conn, remoteHost(conn)}
	s.held = append(s.held, h)
	s.count[h.host]++
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
	return len(s.held)
}

// Close empties the set and returns what it held, for the caller to close. Later connections are
// refused.
func (s *Set) Close() (conns []net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.held {
		conns = append(conns, h.conn)
	}
	s.held, s.closed = nil, true
	clear(s.count)
	return conns
}

// remove is Remove for a caller that holds mu.
func (s *Set) remove(conn net.Conn) bool {
	i := slices.IndexFunc(s.held, func(h held) bool { return h.conn == conn })
	if i < 0 {
		return false
	}
	host := s.held[i].host
	s.held = slices.Delete(s.held, i, i+1)
	if s.count[host]--; s.count[host] == 0 {
		delete(s.count, host)
	}
	return true
}

// oldestOfMost returns the oldest connection of the address with the most. The caller holds mu.
func (s *Set) oldestOfMost() net.Conn {
	most := 0
	for _, n := range s.count {
		most = max(most, n)
	}
	i := slices.IndexFunc(s.held, func(h held) bool { return s.count[h.host] == most })
	return s.held[i].conn
}

// remoteHost returns the peer's address without the port.
func remoteHost(c net.Conn) string {
	text := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}
