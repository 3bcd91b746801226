// The reserve: a few connections above maxclients, for administrators, so that they can end others.
// A connection that comes at maxclients may do nothing but authenticate. It stays if its user may
// call CLIENT KILL, or if there is room by then.

package server

import (
	"net"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/halfopen"
)

const (
	// reserveClients are connections of administrators above maxclients.
	reserveClients = 8
	// reserveTries are further ones that have not authenticated. Past it, the oldest of the host
	// with the most goes, so a crowd of one host keeps nobody else out.
	reserveTries = 24
	reserveTime  = 5 * time.Second // to authenticate
)

// ReserveClients is how many connections there may be besides maxclients.
const ReserveClients = reserveClients + reserveTries

// reserve counts the sessions besides maxclients. The fields are guarded by Server.mu.
type reserve struct {
	set   *halfopen.Set // of the connections that may have to leave
	tried int           // sessions of these
	taken int           // sessions of administrators
}

func (r *reserve) init() { r.set = halfopen.New(halfopen.Limits{Most: reserveTries}) }

// full reports whether there are maxclients, besides the reserve. The caller holds mu.
func (s *Server) full() bool {
	r := &s.reserve
	return int64(len(s.sessions)-r.tried-r.taken) >= s.config.maxClients.Load()
}

// place reports whether a new connection comes in, and whether it may have to leave.
func (s *Server) place(conn net.Conn) (tried, ok bool) {
	s.mu.Lock()
	full, left := s.full(), reserveClients-s.reserve.taken
	s.mu.Unlock()
	if !full || left == 0 {
		return false, !full
	}
	evicted := s.reserve.set.Add(conn) // nobody waits there
	if evicted != nil && evicted != conn {
		s.turnAwayLater(evicted)
	}
	return true, evicted != conn
}

// turnAwayLater turns away a connection that has a session, which ends.
func (s *Server) turnAwayLater(conn net.Conn) {
	s.inBackground(func() { s.turnAway(conn, errMaxClients) })
}

// mayTry reports whether a connection that may have to leave may run a command.
func (s *session) mayTry(spec *commands.Spec, args [][]byte) bool {
	if spec.Name == "hello" {
		for _, option := range helloOptions(args) {
			if option.authenticates() {
				return true
			}
		}
		return false
	}
	return spec.Has(commands.NoAuth)
}

// mayStay reports whether the session need not leave to make room. If so, it is asked no more.
func (s *session) mayStay() bool {
	if !s.tried.Load() {
		return true
	}
	administers := s.user.Load() != nil && s.administers()
	r := &s.srv.reserve
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if s.srv.full() {
		if !administers || r.taken == reserveClients {
			return false
		}
		r.taken++
		s.reserved = true
	}
	s.endTry()
	return true
}

// endTry is called when the session stays, or ends. The caller holds mu of the server.
func (s *session) endTry() {
	if s.tried.Swap(false) {
		s.srv.reserve.tried--
		s.srv.reserve.set.Remove(s.conn)
	}
}

// leaveReserve is called when the session ends. The caller holds mu of the server.
func (s *session) leaveReserve() {
	s.endTry()
	if s.reserved {
		s.srv.reserve.taken--
	}
}

var killWords = [][]byte{[]byte("client"), []byte("kill"), []byte("id"), []byte("0")}

// administers reports whether the session's user may end connections.
func (s *session) administers() bool {
	kill, _ := s.srv.table.Resolve(killWords) // exists
	return s.mayRun(kill, killWords)
}
