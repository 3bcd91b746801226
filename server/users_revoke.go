// A session receives only what its user may: the sessions of removed users end, and so do those of
// changed users that receive what they may not, and those whose user becomes another one that may
// not receive it.

package server

import (
	"context"

	"github.com/cespare/xxhash/v2"

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

// receiver returns what a session of a user may receive.
func (v *Users) receiver(id *identity) receiver {
	if v == nil {
		return receiver{}
	}
	u, err := v.of(id)
	return receiver{u, err == nil && u.Full()}
}

// Why a session ends that receives something.
const (
	whyRemoved  = "its user was removed"
	whyPassword = "the default user cannot be used without a password any more"
	whyMonitor  = "its user may not use MONITOR any more"
	whyTracking = "its user may not use CLIENT TRACKING any more"
	whyMessages = "its user may not receive these messages any more"
	whyWork     = "it takes too much work to find out whether its user may receive its messages"
)

// The calls that begin what a session receives besides messages.
var (
	monitorWords  = [][]byte{[]byte("monitor")}
	trackingWords = [][]byte{[]byte("client"), []byte("tracking"), []byte("on")}
	noEvictWords  = [][]byte{[]byte("client"), []byte("no-evict"), []byte("on")}
)

// errFormer answers who becomes a user that may not receive what the connection does.
const errFormer commands.Error = "NOPERM this user may not receive what the connection does, by " +
	"SUBSCRIBE, MONITOR or CLIENT TRACKING as another user: the connection ends"

// exceeds returns why the session's user, whom it has just become, may not receive what the session
// does; it is empty if it may. A client protected from eviction as another user is so no more.
func (s *session) exceeds() (why string, err error) {
	if !s.subscribed() && !s.monitoring && s.track.Load() == nil && !s.noEvict.Load() {
		return "", nil
	}
	load := sized(receivesLoad, len(s.subs[subChannel])+len(s.subs[subPattern])+
		len(s.subs[subShard]))
	load.Conn = s.id
	err = s.srv.backend.Schedule(load, func() {
		if bounded(func(work *budget) { why = s.exceedsWithin(work) }) != nil {
			why = whyWork
		}
	})
	return why, err
}

// receivesLoad makes exceeds share the processor: a connection may have 100,000 subscriptions, and
// become another user with each request.
var receivesLoad = func() Workload {
	h := xxhash.Sum64String("what a connection receives") | 1
	return Workload{Command: h, Shape: h}
}()

// receivesWork is what a subscription costs besides the user's rules.
const receivesWork = 4

func (s *session) exceedsWithin(work *budget) (why string) {
	noEvict := s.noEvict.Load()
	r := s.srv.users().receiver(s.user.Load())
	if noEvict && !s.srv.mayRun(r, noEvictWords) {
		s.noEvict.Store(false)
	}
	switch {
	case s.monitoring && !s.srv.mayRun(r, monitorWords):
		return whyMonitor
	case s.track.Load() != nil && !s.srv.mayRun(r, trackingWords):
		return whyTracking
	}
	for kind := range s.subs {
		for name := range s.subs[kind] {
			may, units := r.mayReceive(name, subKind(kind) == subPattern)
			if work.spend(receivesWork + units); !may {
				return whyMessages
			}
		}
	}
	return ""
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
	s.awaitDelivery(ctx)
}

// revoked returns the sessions to end after a change of users, and why. Those whose user has not
// changed go on, as in Redis: others do not pay for their subscriptions. Nobody is delivered
// anything meanwhile, so a user's subscriptions may take the work of one request. before may be
// nil.
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
			ended[c] = whyRemoved
		case err != nil && c.track.Load() != nil:
			ended[c] = whyPassword
		case c.track.Load() != nil && !s.mayRun(may[c], trackingWords):
			ended[c] = whyTracking
		}
	}
	if len(may) == 0 {
		return ended
	}
	for _, c := range s.monitors.list() {
		if r, ok := may[c]; ok && !s.mayRun(r, monitorWords) {
			ended[c] = whyMonitor
		}
	}
	work := map[*acl.User]int{} // the units that its subscriptions took
	lost := func(name string, pattern bool, to subscribers) {
		for c := range to {
			r, ok := may[c]
			if !ok || ended[c] != "" {
				continue
			}
			if work[r.user] > commands.MaxRequestWork {
				ended[c] = whyWork
				continue
			}
			receives, units := r.mayReceive(name, pattern)
			if work[r.user] += units; !receives {
				ended[c] = whyMessages
			}
		}
	}
	ps := s.pubsub
	ps.channels.each(func(name string, to subscribers) { lost(name, false, to) })
	ps.shards.each(func(name string, to subscribers) { lost(name, false, to) })
	ps.patterns.each(func(name string, to subscribers) { lost(name, true, to) })
	return ended
}

// mayReceive reports whether it may receive the messages of a channel, or of a pattern. units is
// the work done.
func (r receiver) mayReceive(name string, pattern bool) (ok bool, units int) {
	if r.all || r.user == nil {
		return r.all, 0
	}
	return r.user.MayReceive([]byte(name), pattern)
}

// mayRun reports whether a receiver may make a call.
func (s *Server) mayRun(r receiver, args [][]byte) bool {
	if r.all || r.user == nil {
		return r.all
	}
	spec, _ := s.table.Resolve(args) // exists
	_, denied, _ := spec.Check(r.user, args)
	return !denied
}
