// The bound on connections to the peer port that have not identified themselves yet.

package cluster

import (
	"net"
	"sync"
)

// maxUnidentified bounds the connections that have not identified themselves as a member's.
const maxUnidentified = 256

// unidentified holds such connections, oldest first. A member identifies itself within a round
// trip. At the bound, the oldest connection of the address with the most goes, so that a host that
// opens connections and says nothing cannot lock members out.
type unidentified struct {
	mu    sync.Mutex
	conns []net.Conn
}

// add adds a connection. It returns the one to close for it, or nil.
func (s *unidentified) add(conn net.Conn) (evicted net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= maxUnidentified {
		evicted = s.oldestOfMostLocked()
		s.removeLocked(evicted)
	}
	s.conns = append(s.conns, conn)
	return evicted
}

// remove removes a connection that was identified or has ended. It may be gone already.
func (s *unidentified) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(conn)
}

func (s *unidentified) removeLocked(conn net.Conn) {
	for i, c := range s.conns {
		if c == conn {
			s.conns = append(s.conns[:i], s.conns[i+1:]...)
			return
		}
	}
}

func (s *unidentified) oldestOfMostLocked() net.Conn {
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
