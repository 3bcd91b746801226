// The route loop: it follows Raft's state, establishes a leadership after its barrier, chooses the
// route of requests, and has ticks proposed.

package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/pulse"
)

// The route loop wakes on every change of Raft's state, and periodically: often on a leader that
// has entries in flight or deadlines soon.
const (
	leaderTick   = 10 * time.Millisecond
	followerTick = 100 * time.Millisecond
	longestRest  = followerTick + followerTick/4 // as pulse.Until
	// on the leader, so that Status knows the members when nobody reads
	askEvery = 250 * time.Millisecond
)

// route is where requests go now. It is immutable; the loops read it for each step.
type route struct {
	self     bool        // this node is Raft's leader
	lead     *leadership // and its barrier has passed
	leaderID string      // empty: unknown
	link     *link       // to another leader
}

// leadership is one term of this node as leader, after its barrier.
type leadership struct {
	term  uint64
	since uint64 // index of its barrier
	mark  []byte // marks the entries stamped under this leadership
	*clock.Leader
	// wallsOpen: the cluster's clock stood still, and wall clocks of voters that are not known yet
	// may say where the time of day is; the route loop's.
	wallsOpen bool
}

// leaderSeen is what the route loop knew last.
type leaderSeen struct {
	id       string    // the newest known leader, also while none is known
	since    time.Time // when it became known
	lost     time.Time // when it became unknown; zero while known
	lastAsk  time.Time
	founders time.Time // when this node could first have founded a cluster, without some founders
}

// followRaft is the route loop.
func (n *Node) followRaft() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		r := n.observe()
		n.noteProgress(time.Now())
		wait := longestRest
		if r.lead != nil {
			wait = n.checkDeadline(r.lead)
		} else if !r.self {
			wait = n.watchSilence(time.Now())
		}
		n.sweep(time.Now())
		if wait >= followerTick {
			wait = min(wait, pulse.Until(followerTick))
		}
		timer.Reset(wait)
		slept := time.Now()
		select {
		case <-n.routeWake:
		case <-timer.C:
		case <-n.stop:
			return
		}
		n.noteLate(time.Since(slept), wait)
	}
}

// oneLeader holds of what a node hears.
var oneLeader = invariant.New("one-leader", "a term has at most one leader",
	"members whose states differ from a majority's end, as states-equal says")

// termLeader is who leads in the newest term of which this node knows. What hashicorp/raft v1.7.3
// tells does not do: a heartbeat that comes while the term is raised makes its sender the leader of
// the next term for a moment.
type termLeader struct {
	mu   lockorder.Mutex
	id   string
	term uint64
}

// leads notes that a node leads in a term.
func (l *termLeader) leads(id string, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case term > l.term:
		l.id, l.term = id, term
	case term == l.term && id != l.id:
		oneLeader.Broken("term", term, "leader", id, "before", l.id)
	}
}

// observe updates links and route from Raft's state and returns the route.
func (n *Node) observe() *route {
	if n.machine.removed(n.cfg.ID) {
		n.markRemoved()
	}
	n.updateLinks()
	n.notifyRoles()
	old := n.route.Load()
	next := &route{self: n.leadsRaft()}
	if term := n.raft.CurrentTerm(); n.leadsIn(term) {
		n.termLeader.leads(n.cfg.ID, term)
		n.trace.Record(trace.Event{Kind: trace.Leads, Term: term})
	}
	_, leaderID := n.raft.LeaderWithID()
	next.leaderID = string(leaderID)
	switch {
	case next.self:
		next.leaderID = n.cfg.ID
		if old.lead != nil && old.lead.term == n.raft.CurrentTerm() {
			next.lead = old.lead
		}
	case next.leaderID == n.cfg.ID:
		next.leaderID = "" // it stepped down between the two questions, or is stalled
	case next.leaderID != "":
		next.link = n.link(next.leaderID)
	}
	n.setRoute(old, next)
	n.failStaleLinks(next)
	if next.self && next.lead == nil {
		if lead := n.establish(); lead != nil {
			ready := *next
			ready.lead = lead
			n.setRoute(next, &ready)
			return &ready
		}
	}
	return next
}

// roleSeen is what calls to members wait for a change of: who leads, and who may receive the log.
type roleSeen struct {
	state     raft.RaftState
	term      uint64
	newest    *view
	committed *committed
}

// notifyRoles wakes the calls in the transport when one of these changed.
func (n *Node) notifyRoles() {
	now := roleSeen{n.raft.State(), n.raft.CurrentTerm(), n.view(), n.machine.members.Load()}
	if now != n.lastRoles {
		n.lastRoles = now
		n.roles.notify()
	}
}

// establish waits for this term's barrier, after which the machine has applied all earlier terms.
// It returns nil if the leadership was lost meanwhile (Raft answers the barrier in any case), or if
// the cluster is not founded yet.
func (n *Node) establish() *leadership {
	n.establishing.Store(true)
	defer n.establishing.Store(false)
	term := n.raft.CurrentTerm()
	if !n.foundCluster() {
		return nil
	}
	walls := n.awaitWalls(term)
	barrier := n.raft.Barrier(0)
	if barrier.Error() != nil {
		kick(n.routeWake)
		return nil
	}
	// Terms only grow, and a node leads a term at most once without a break: if it leads this term
	// now, it led it when the barrier was logged.
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		kick(n.routeWake)
		return nil
	}
	var since uint64
	if f, ok := barrier.(raft.IndexFuture); ok {
		since = f.Index()
		n.machine.advance(since)
	}
	leading, live := n.arrivals.Lead(n.appliedStamp())
	n.noteShift(leading)
	if !live && walls.Known {
		leading.CatchUp(walls.AheadMs)
	}
	select {
	case <-time.After(leading.UntilClear()): // nearly always over by now
	case <-n.stop:
		return nil
	}
	lead := &leadership{term: term, since: since, mark: appendMark(nil, term), Leader: leading,
		wallsOpen: !live && !walls.Settled}
	n.raiseFirst(lead)
	return lead
}

// setRoute publishes a route that differs from the old one, wakes the loops and notifies the
// watchers.
func (n *Node) setRoute(old, next *route) {
	if *old == *next {
		return
	}
	n.route.Store(next)
	n.unpark(time.Time{})
	kick(n.writes.wake)
	kick(n.reads.wake)
	kick(n.confirmed)
	if (old.lead == nil) != (next.lead == nil) || old.leaderID != next.leaderID {
		n.logRole(old, next)
		n.watchers.notify()
	}
}

func (n *Node) logRole(old, next *route) {
	switch {
	case next.lead != nil:
		n.logger.Info("this node leads", "term", next.lead.term, "clock-ms", next.lead.NowMs())
	case old.lead != nil:
		n.logger.Info("this node no longer leads", "term", n.raft.CurrentTerm(), "leader",
			next.leaderID)
	case next.leaderID == "" && old.leaderID != "" && !next.self:
		n.logger.Warn("no leader", "last", old.leaderID)
	case next.leaderID != "" && !next.self && next.leaderID != old.leaderID:
		n.logger.Info("following", "leader", next.leaderID, "term", n.raft.CurrentTerm())
	}
}

// How long to wait for answers of a node that no longer leads. One that transferred leadership
// returns what it did not do, which may arrive after the news of its successor, and late from a
// busy machine. One that was silent until another was elected is not waited for.
const (
	lateAnswer = 200 * time.Millisecond
	busyAnswer = 2 * time.Second
)

// failStaleLinks ends what is in flight to a node that is no longer the leader: another one leads,
// or none has been known for so long that no request waits for one. Otherwise a paused leader would
// hold its followers' clients forever.
func (n *Node) failStaleLinks(r *route) {
	seen := &n.lastLeader
	now := time.Now()
	switch {
	case r.leaderID != "":
		if seen.id != r.leaderID {
			seen.since = now
			n.meters.leaders.Add(1)
		}
		seen.id, seen.lost = r.leaderID, time.Time{}
		n.leaderLost.Store(0)
	case seen.lost.IsZero():
		seen.lost = now
		n.leaderLost.Store(max(1, int64(now.Sub(n.opened))))
	case now.Sub(seen.lost) > n.cfg.LeaderWait:
		seen.id = ""
	}
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for id, l := range n.links {
		patience := lateAnswer
		if l.heardSince(seen.since.Add(-n.cfg.HeartbeatTimeout)) {
			patience = busyAnswer
		}
		if id != seen.id && (seen.id == "" || now.Sub(seen.since) > patience) {
			l.fail(errLeaderChanged)
		}
	}
}

// stampEvery bounds how old the newest stamp in the log is while there is a deadline: after a
// restart of all nodes the clock goes on from there, so a key outlives its time by as much.
const stampEvery = 3 * time.Second

// checkDeadline has a tick proposed when a deadline has passed, or the newest stamp is old, and no
// entry is in flight (the next entry serves as a tick). Periodically it also asks the members
// what they have, for Status. It returns after which time to check again, if no entry is proposed.
func (n *Node) checkDeadline(lead *leadership) (wait time.Duration) {
	n.noteShift(lead.Leader)
	lead.Now() // the time of day follows the wall clock even if nobody asks
	wait = leaderTick
	n.resting.Store(true) // first: an entry that is proposed from now on ends the rest
	if n.inFlight.Load() == 0 && !n.machine.busy.Load() {
		now := lead.NowMs()
		deadlineMs, ok := n.machine.nextDeadline()
		left := time.Duration(min(deadlineMs-now+1, longestRest.Milliseconds())) * time.Millisecond
		switch {
		case !ok:
			wait = longestRest
		case left <= 0 || now-n.machine.clockMs.Load() >= stampEvery.Milliseconds():
			n.tickDue.Store(true)
			kick(n.writes.wake)
		default:
			wait = max(left, leaderTick)
		}
	}
	if now := time.Now(); now.Sub(n.lastLeader.lastAsk) >= askEvery {
		n.lastLeader.lastAsk = now
		n.settleWalls(lead)
		n.askMembers()
	}
	if wait <= leaderTick {
		n.resting.Store(false) // else each entry under load would wake the route loop
	}
	return wait
}

// endRest has the leader look for deadlines again soon: an entry may bring an earlier one.
func (n *Node) endRest() {
	if n.resting.Load() && n.resting.Swap(false) {
		kick(n.routeWake)
	}
}

// askMembers asks all members that are connected for their indexes and wall clocks.
func (n *Node) askMembers() {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for _, l := range n.links {
		l.ask(0) // an answer to nonce 0 confirms nothing
	}
}

// linkUp is linkChanged for a member that connected. The tick gives a member that just started a
// stamp to continue from, should it lead next.
func (n *Node) linkUp() {
	if n.route.Load().lead != nil {
		n.tickDue.Store(true)
	}
	n.linkChanged()
}

// linkChanged wakes whoever may use, or must stop using, a link.
func (n *Node) linkChanged() {
	kick(n.writes.wake)
	kick(n.reads.wake)
	kick(n.routeWake)
}

// leads reports whether this node is Raft's leader, before or after its barrier.
func (n *Node) leads() bool { return n.route.Load().self }

// watchers are the channels that learn of leader changes.
type watchers struct {
	mu  lockorder.Mutex
	chs map[chan struct{}]struct{}
}

func (w *watchers) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.chs {
		kick(ch)
	}
}

// WatchLeader returns a channel that receives a token after each change of the leader or of this
// node's readiness to lead (changes may coalesce), and a function that ends the watch. Status has
// the state.
func (n *Node) WatchLeader() (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	w := &n.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.chs == nil {
		w.chs = map[chan struct{}]struct{}{}
	}
	w.chs[ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.chs, ch)
	}
}
