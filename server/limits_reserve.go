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
	// reserveTries are further ones that have not authenticated. Past it, one more takes the place
	// of the oldest of the host with the most, or is refused if that host is its own: a crowd of
	// one host keeps nobody else out.
	reserveTries = 24
	reserveTime  = 5 * time.Second // to authenticate
)

// ReserveClients is how many connections there may be besides maxclients.
const ReserveClients = reserveClients + reserveTries

// place is what a session counts as.
type place int32

const (
	placeNone  place = iota // it has not begun, or has ended
	placePlain              // one of maxclients
	placeTried              // it may have to leave
	placeTaken              // an administrator's, above maxclients
	places
)

// reserve counts the sessions by their places.
type reserve struct {
	set   *halfopen.Set // connections that may have to leave
	count [places]int   // guarded by Server.mu
}

// seat changes what the session counts as: nothing else does. The caller holds mu of the server.
func (s *session) seat(p place) {
	r := &s.srv.reserve
	was := place(s.place.Swap(int32(p)))
	r.count[was]--
	r.count[p]++
	if was == placeTried && p != was {
		r.set.Remove(s.conn)
	}
}

// at reports whether the session has a place.
func (s *session) at(p place) bool { return place(s.place.Load()) == p }

func (r *reserve) init() { r.set = halfopen.New(halfopen.Limits{Most: reserveTries}) }

// full reports whether there are maxclients, besides the reserve. The caller holds mu.
func (s *Server) full() bool {
	return int64(s.reserve.count[placePlain]) >= s.config.maxClients.Load()
}

// placeFor returns the place of a new connection, and whether there is one.
func (s *Server) placeFor(conn net.Conn) (p place, ok bool) {
	s.mu.Lock()
	full, left := s.full(), reserveClients-s.reserve.count[placeTaken]
	s.mu.Unlock()
	if !full || left == 0 {
		return placePlain, !full
	}
	evicted := s.reserve.set.Add(conn) // nobody waits there
	return placeTried, s.displace(evicted, conn)
}

// displace turns away whom the set gave up for a connection. It reports whether that has room.
func (s *Server) displace(evicted, conn net.Conn) bool {
	if evicted != nil && evicted != conn {
		s.turnAwayLater(evicted)
	}
	return evicted != conn
}

// turnAwayLater turns away a connection that has a session, which ends.
func (s *Server) turnAwayLater(conn net.Conn) {
	s.inBackground(func() { s.turnAway(conn, errMaxClients, &s.stats.rejected) })
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

// mayStay reports whether the session need not leave to make room. If so, it is asked no more. Cron
// asks too.
func (s *session) mayStay() bool {
	if !s.at(placeTried) {
		return true
	}
	administers := s.user.Load() != nil && s.administers()
	r := &s.srv.reserve
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	switch {
	case !s.at(placeTried): // another one has asked, or the session has ended
	case !s.srv.full():
		s.seat(placePlain)
	case !administers || r.count[placeTaken] == reserveClients:
		return false
	default:
		s.seat(placeTaken)
	}
	return true
}

// tryAgain follows a change of the session's user. A place of an administrator is for one: another
// user has to earn a place, as with a new connection.
func (s *session) tryAgain() {
	if !s.at(placeTaken) || s.user.Load() != nil && s.administers() {
		return
	}
	now := time.Now()
	s.triedSince.Store(&now)
	s.srv.mu.Lock()
	s.seat(placeTried)
	evicted := s.srv.reserve.set.Add(s.conn)
	s.srv.mu.Unlock()
	if !s.srv.displace(evicted, s.conn) {
		s.quit = true
	}
}

var killWords = [][]byte{[]byte("client"), []byte("kill"), []byte("id"), []byte("0")}

// administers reports whether the session's user may end connections.
func (s *session) administers() bool {
	kill, _ := s.srv.table.Resolve(killWords) // exists
	return s.mayRun(kill, killWords)
}
