// How many connections a user may have to this node: coordd-max-user-clients. Administrators have
// no limit. Those that have not authenticated have limits of their own.

package server

import (
	"sync/atomic"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// userClients counts the connections that have authenticated, by user.
type userClients struct {
	most    atomic.Int64 // how many a user may have; 0: any number
	refused atomic.Uint64

	mu    lockorder.Mutex
	count map[string]int64
}

// setUser changes the session's user, and returns how many connections that one has now.
func (s *session) setUser(id *identity) int64 {
	u := &s.srv.userClients
	u.mu.Lock()
	defer u.mu.Unlock()
	if old := s.user.Swap(id); old != nil {
		if u.count[string(old.name)]--; u.count[string(old.name)] == 0 {
			delete(u.count, string(old.name))
		}
	}
	if id == nil {
		return 0
	}
	u.count[string(id.name)]++
	return u.count[string(id.name)]
}

// welcome lets a session whose user has just been set, in place of a former one, go on, or returns
// the error that ends it. clients is how many connections the user has.
func (s *session) welcome(former *identity, clients int64) error {
	s.awaitUser()
	u := &s.srv.userClients
	var err error
	switch most := u.most.Load(); {
	case !s.mayStay():
		s.srv.stats.rejected.Add(1)
		err = errMaxClients
	case most > 0 && clients > most && !s.administers():
		u.refused.Add(1)
		err = commands.Errorf("ERR max number of clients of user '%s' reached, which is %d",
			s.userName(), most)
	case s.user.Load().is(former): // what it receives was judged when it began to, and since
		return nil
	default:
		var why string
		if why, err = s.exceeds(); why == "" && err == nil {
			return nil
		}
		if err == nil {
			s.srv.log.Info("closed a client: "+why, "client", s.addr, "user", s.userName())
			err = errFormer
		}
	}
	s.setUser(nil) // others need not wait until it has ended
	s.quit = true
	return err
}
