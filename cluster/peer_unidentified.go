// This file holds the bound on connections to the peer port that have not said yet who they are.
package cluster

import (
	"net"
	"sync"
)

// maxUnidentified bounds the connections that have not shown to be a member's.
const maxUnidentified = 256

// strangers are connections that have not shown to be a member's, the oldest first. A member shows it within a round trip, so where there are too many
// the oldest one goes, of the address that has the most: who opens connections and says nothing cannot keep members out.
type unidentified struct {
	mu    sync.Mutex
	conns []net.Conn
}

// add takes a connection in, and returns the one that has to be closed for it; nil for none.
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

// remove lets go of a connection, which is a member's or has ended. It may be gone already.
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

// remoteHost returns the address of the other end without the port.
func remoteHost(c net.Conn) string {
	text := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}
