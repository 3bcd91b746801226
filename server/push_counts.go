// What PUBLISH and PUBSUB count: the subscriptions of all nodes. They are part of the state: each
// node tells it how many subscribers it has of each name (docs/adr/0042). A client gets no reply to
// SUBSCRIBE before its subscription counts. While a node reaches no leader, it accepts
// subscriptions all the same: nobody can publish there either.

package server

import (
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/subscriptions"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// A request tells so many names, or names of so many bytes. Sessions take turns of turnNames.
	roundNames = 1024
	roundBytes = 256 << 10
	turnNames  = 64
	// maxUntold is how many changes may wait to be told. Beyond it, who makes one waits.
	maxUntold = 1 << 20
	// tellLimit is how long a client waits for its subscription to count, beyond the wait for a
	// leader.
	tellLimit = 5 * time.Second
)

var errNodeChannels = commands.Errorf("ERR too many channels: the names on a node may take %d "+
	"bytes, with %d for each", subscriptions.MaxBytes, subscriptions.NameCost)

// counting tells the machine of this node's subscribers.
type counting struct {
	mu      lockorder.Mutex
	era     uint64 // era of this node's counts in the machine
	known   bool   // … is known
	last    uint64 // sequence number of the newest request
	drop    bool   // the machine's counts may be wrong: it must drop them
	all     bool   // all names are to be told
	check   bool   // the machine may have dropped the counts
	turns   []*session
	again   []change      // to be told besides, for nobody
	untold  int           // changes of turns
	most    int           // what untold may reach: then who makes a change waits
	running bool          // countSubscribers runs
	blind   bool          // no leader is reached: all is told later
	failing time.Time     // since when requests fail; zero: they do not
	round   chan struct{} // closed at the end of a round; nil: nobody waits
}

// change is a name of which the machine is to learn how many subscribers it has.
type change struct {
	subscription
	// frees is what of pubsub.bytes the name gives back once the machine knows that nobody is left:
	// until then it has the name, and no room for others in its place.
	frees int64
}

// countTurn is a session's part in counting, guarded by counting.mu.
type countTurn struct {
	untold   []change
	underway int // names of the round that runs
}

// note has the machine learn that a session has or ends a subscription, which frees so many bytes.
// The session's goroutine calls it, behind the change. It waits while too much is untold.
func (s *session) note(kind subKind, name string, frees int64) {
	c := &s.srv.counting
	told := s.srv.backend.Level() >= commands.LevelSecond // else see begins
	c.mu.Lock()
	defer c.mu.Unlock()
	if told && c.untold >= c.most {
		c.await(s, func() bool { return c.untold < c.most || c.blind })
	}
	if !told || c.blind {
		s.srv.pubsub.bytes.Add(-frees)
		return
	}
	if len(s.telling.untold) == 0 {
		c.turns = append(c.turns, s)
	}
	s.telling.untold = append(s.telling.untold, change{subscription{kind, name}, frees})
	c.untold++
	s.uncounted = true
	c.start(s.srv)
}

// forget has nobody wait any more, because the machine drops what it has, and is told all again.
// The caller holds mu.
func (c *counting) forget(srv *Server) {
	for _, s := range c.turns {
		srv.pubsub.free(s.telling.untold)
		s.telling.untold = nil
	}
	c.turns, c.untold = nil, 0
}

// free gives back the bytes of names that the machine does not have any more.
func (ps *pubsub) free(ended []change) {
	for i := range ended {
		ps.bytes.Add(-ended[i].frees)
	}
}

// start tells what is to be told. The caller holds mu.
func (c *counting) start(srv *Server) {
	if !c.running {
		c.running = srv.outlasting(srv.countSubscribers)
	}
}

// awaitCounted waits until the session's subscriptions count.
func (s *session) awaitCounted() {
	if !s.uncounted {
		return
	}
	s.uncounted = false
	c := &s.srv.counting
	c.mu.Lock()
	defer c.mu.Unlock()
	c.await(s, func() bool {
		return len(s.telling.untold)+s.telling.underway == 0 || s.cut.Load()
	})
}

// owes reports whether changes of a session are not told yet.
func (c *counting) owes(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running && len(s.telling.untold)+s.telling.underway > 0
}

// await has a session wait for rounds until it is done, or nothing is told any more. The caller
// holds mu, which is released meanwhile.
func (c *counting) await(s *session, done func() bool) {
	s.mayWait()
	for !done() && c.running && s.srv.ctx.Err() == nil {
		if c.round == nil {
			c.round = make(chan struct{})
		}
		round := c.round
		c.mu.Unlock()
		select {
		case <-round:
		case <-s.srv.ctx.Done():
		}
		c.mu.Lock()
	}
}

// heard acts on an event of the machine. It never blocks.
func (c *counting) heard(srv *Server, e *commands.Event) {
	switch e.Kind {
	case commands.SubscribersDropped, commands.StateReplaced:
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.known: // see begins
		return
	case e.Kind == commands.StateReplaced:
		c.check = true
	case e.Wait > c.era:
		c.era, c.all = e.Wait, true
	default:
		return
	}
	c.start(srv)
}

// begins has the machine drop what it counts of an earlier process of this node, if it does, and
// tells of those who subscribed while nothing was told: before the level rose, or the node knew it.
func (c *counting) begins(srv *Server, old bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known && (old || srv.pubsub.size.Load() > 0) &&
		srv.backend.Level() >= commands.LevelSecond {
		c.drop = c.drop || old
		c.start(srv)
	}
}

// blinded reports whether the node's subscribers do not count.
func (c *counting) blinded(srv *Server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blind || !c.known && srv.pubsub.size.Load() > 0
}

// told is a round: what one request tells.
type told struct {
	drop  bool           // it drops the counts
	check bool           // it asks for the era
	names []subscription // each once
	of    []turnOf
	again []change // changes taken from counting.again
}

// turnOf is the part of a session.
type turnOf struct {
	s     *session
	names []change
}

// free gives back the bytes of the names that it has told.
func (r *told) free(srv *Server) {
	for i := range r.of {
		srv.pubsub.free(r.of[i].names)
	}
}

// countSubscribers tells the machine until nothing is left to tell.
func (s *Server) countSubscribers() {
	c := &s.counting
	for pause := firstPause; ; {
		c.findAll(s)
		r, ok := c.begin(s)
		if !ok {
			return
		}
		era, err := s.tell(&r)
		if c.end(s, &r, era, err); err == nil {
			pause = firstPause
		} else {
			pause = s.rest(pause)
		}
	}
}

// findAll has all names told again, if that is due.
func (c *counting) findAll(srv *Server) {
	c.mu.Lock()
	due := c.all && !c.drop // a drop finds all again
	c.all = false
	c.mu.Unlock()
	if !due {
		return
	}
	names := srv.pubsub.everything() // takes long; who changes one meanwhile tells it
	c.mu.Lock()
	defer c.mu.Unlock()
	c.again = names
}

// begin begins a round. ok is false if there is nothing to tell.
func (c *counting) begin(srv *Server) (r told, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case srv.ctx.Err() != nil || srv.backend.Level() < commands.LevelSecond:
		c.forget(srv)
		c.stop()
		return r, false
	case c.drop, !c.known && (len(c.turns) > 0 || srv.pubsub.size.Load() > 0):
		return told{drop: true}, true
	}
	most, room := roundNames, roundBytes
	if len(c.again) > 0 { // the changes that keep coming leave some for it
		most, room = most-most/4, room-room/4
	}
	seen, bytes := map[subscription]bool{}, 0
	take := func(names []change, most int) (taken []change) {
		for len(taken) < min(len(names), most) && bytes < room {
			name := names[len(taken)].subscription
			if taken = names[:len(taken)+1]; !seen[name] {
				seen[name] = true
				r.names = append(r.names, name)
				bytes += len(name.name) + 16
			}
		}
		return taken
	}
	for len(c.turns) > 0 && len(r.names) < most && bytes < room {
		s := c.turns[0]
		t := &s.telling
		taken := take(t.untold, turnNames)
		r.of = append(r.of, turnOf{s, taken})
		c.untold -= len(taken)
		t.underway += len(taken)
		if t.untold = t.untold[len(taken):]; len(t.untold) > 0 {
			c.turns = append(c.turns, s)
		} else {
			t.untold = nil
		}
		c.turns = c.turns[1:]
	}
	room = roundBytes
	r.again = take(c.again, roundNames)
	c.again = c.again[len(r.again):]
	if len(r.of)+len(r.names) == 0 && !c.check && !c.all {
		c.turns, c.again = nil, nil
		c.stop()
		return r, false
	}
	r.check, c.check = c.check, false
	return r, true
}

// stop ends the rounds. The caller holds mu.
func (c *counting) stop() {
	c.running = false
	c.wake()
}

// wake ends the wait of sessions for a round. The caller holds mu.
func (c *counting) wake() {
	if c.round != nil {
		close(c.round)
		c.round = nil
	}
}

// tell sends the request of a round. era is the one that the machine names, 0 if it took the
// counts.
func (s *Server) tell(r *told) (era uint64, err error) {
	c := &s.counting
	id := []byte(s.backend.Status().ID)
	words := [][]byte{[]byte(commands.SystemDropSubscribers), id}
	c.mu.Lock()
	if !r.drop {
		c.last++
		words = [][]byte{[]byte(commands.SystemSubscribers), id,
			[]byte(formatInt(int64(c.era))), []byte(formatInt(int64(c.last)))}
	}
	load := Workload{}
	if c.blind {
		load.LeaderWait = -1
	}
	c.mu.Unlock()
	for _, a := range r.names {
		n := s.pubsub.count(a.kind, []byte(a.name))
		words = append(words, append([]byte{subscriptions.Letters[a.kind]}, a.name...),
			[]byte(formatInt(int64(n))))
	}
	return s.askState(load, words...)
}

// end ends a round.
func (c *counting) end(srv *Server, r *told, era uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.wake()
	for i := range r.of {
		r.of[i].s.telling.underway -= len(r.of[i].names)
	}
	switch {
	case err == nil && era == 0:
		r.free(srv)
	case err == nil && r.drop:
		c.era, c.known, c.all, c.drop = era, true, true, false
	case err == nil && era != 0: // nothing was taken
		// In an era of which the machine has not told, there may be counts of an earlier process.
		c.drop = c.drop || era != c.era
		c.putBack(r)
	case err != nil && (outcomeOf(err) == NoLeader || outcomeOf(err) == Refused ||
		!c.failing.IsZero() && time.Since(c.failing) > tellLimit):
		r.free(srv)
		c.forget(srv)
		c.drop = true
		if !c.blind {
			c.blind = true
			srv.warnings.Warn("subscribers of this node are not counted: PUBLISH and PUBSUB "+
				"answer without them", "error", err)
		}
	case err != nil:
		if c.failing.IsZero() {
			c.failing = time.Now()
		}
		c.putBack(r)
	}
	if err == nil {
		c.failing = time.Time{}
		if c.blind {
			c.blind = false // before all names are looked up: later changes are told besides
			srv.log.Info("subscribers of this node are counted again")
		}
	}
}

// putBack has a round told again. The caller holds mu.
func (c *counting) putBack(r *told) {
	c.check = c.check || r.check
	for i := range r.of {
		t := &r.of[i].s.telling
		if c.untold += len(r.of[i].names); len(t.untold) == 0 {
			c.turns = append(c.turns, r.of[i].s)
		}
		t.untold = append(r.of[i].names[:len(r.of[i].names):len(r.of[i].names)], t.untold...)
	}
	c.again = append(r.again[:len(r.again):len(r.again)], c.again...)
}
