// What follows a change of users: the sessions of removed users end, and so do those of changed
// users that receive what they may not.

package server

import (
	"context"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
)

// revoke ends the sessions that the newest users do not allow to go on. The delivery goroutine
// calls it, so messages of later entries do not reach them.
func (s *Server) revoke() {
	users := s.users()
	if users == nil {
		return
	}
	for c, why := range s.revoked(s.revokedBy, users) {
		s.log.Info("closed a client: "+why, "client", c.addr, "user", c.userName())
		c.dismiss()
	}
	s.revokedBy = users
}

// receiver is what a session may receive.
type receiver struct {
	user *acl.User // nil: nothing
	all  bool
}

// awaitRevoked waits, once the session has changed users, until this node knows and has ended whom
// that ends. A node that lags long does not hold up its client.
func (s *session) awaitRevoked() {
	if !s.newUsers {
		return
	}
	s.newUsers = false
	ctx, cancel := context.WithTimeout(context.Background(), ownDelay)
	defer cancel()
	_ = s.srv.backend.Barrier(ctx)
	s.srv.pubsub.delivery.settle()
}

// revoked returns the sessions to end after a change of users, and why. Those whose user has not
// changed go on, as in Redis: others do not pay for their subscriptions. before may be nil.
func (s *Server) revoked(before, users *Users) map[*session]string {
	ended, may := map[*session]string{}, map[*session]receiver{}
	for _, c := range s.all() {
		id := c.user.Load()
		u, err := users.of(id)
		if before != nil {
			if was, errBefore := before.of(id); was == u && errBefore == err {
				continue
			}
		}
		if id == nil {
			c.interrupt() // it stands elsewhere, perhaps
		}
		may[c] = receiver{u, err == nil && u.Full()}
		switch {
		case err != nil && id != nil:
			ended[c] = "its user was removed"
		case err != nil && c.track.Load() != nil:
			ended[c] = "the default user cannot be used without a password any more"
		}
	}
	if len(may) == 0 {
		return ended
	}
	monitor := s.table.Get([]byte("monitor"))
	for _, c := range s.monitors.list() {
		if r, ok := may[c]; ok && !r.mayRun(monitor) {
			ended[c] = "its user may not use MONITOR any more"
		}
	}
	lost := func(name string, pattern bool, to subscribers) {
		for c := range to {
			r, ok := may[c]
			if ok && !r.all && (r.user == nil || !r.user.MayReceive([]byte(name), pattern)) {
				ended[c] = "its user may not receive these messages any more"
			}
		}
	}
	ps := s.pubsub
	ps.channels.each(func(name string, to subscribers) { lost(name, false, to) })
	ps.shards.each(func(name string, to subscribers) { lost(name, false, to) })
	ps.patterns.each(func(name string, to subscribers) { lost(name, true, to) })
	return ended
}

// mayRun reports whether the session may call a command without arguments.
func (r receiver) mayRun(spec *commands.Spec) bool {
	if r.all || r.user == nil {
		return r.all
	}
	_, denied, _ := spec.Check(r.user, [][]byte{[]byte(spec.Name)})
	return !denied
}
