// The end of a node: leadership transfer, draining, and stopping what Open started.

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// drainWait bounds how long Close waits for entries in flight. A leader that loses its majority
	// steps down within its lease, which answers them; only a hanging disk or machine reaches the
	// bound.
	drainWait  = 5 * time.Second
	flightWait = time.Second // for frames in flight to the leader
	drainCheck = 2 * time.Millisecond
	// unfitWait is how long a leader that stops waits beside voters that are not fit to lead and do
	// not replay their logs: for their answers, and for one that has just done that to notice.
	unfitWait = 5 * followerTick
)

// TransferLeadership transfers leadership to a member, a connected voter, or to the best of those
// that are fit to lead if member is empty. It returns nil once this node no longer leads. Errors:
// ErrRefused, also if the member lags, or it or nobody is fit to lead; ErrNotRun if this node is
// not the leader, another transfer is in progress, or the best one lags; ErrUnknown if the member
// was asked to take over and has not done so: it still may.
//
// Raft's own transfer could end such that Raft refuses everything for ever (ADR 0045).
func (n *Node) TransferLeadership(member string) error {
	term := n.raft.CurrentTerm()
	if !n.leadsIn(term) {
		return notRun("this node is not the leader")
	}
	next, err := n.successor(member)
	if err != nil {
		return err
	}
	id := string(next.ID)
	select {
	case n.transferring <- struct{}{}:
	default:
		return notRun("leadership transfer: another one is in progress")
	}
	var asked chan error // nil: the member was not asked to take over
	over := make(chan struct{})
	defer func() { // when proposals go on: one transfer pauses them at a time
		close(over)
		if asked == nil {
			<-n.transferring
		}
	}()
	defer n.pauseProposals()()
	late := time.NewTimer(n.cfg.HeartbeatTimeout)
	defer late.Stop()
	if !n.awaitLog(id, term, late.C) {
		lags := fmt.Sprintf("leadership transfer: %s does not catch up", id)
		switch {
		case !n.leadsIn(term):
			return nil
		case member != "":
			return refused(lags)
		}
		return notRun(lags)
	}
	asked = make(chan error, 1)
	go func() {
		asked <- n.askToStand(next.ID, next.Address)
		<-over
		<-n.transferring // not before: a member that hangs would find many questions later
	}()
	return n.awaitSuccessor(id, term, asked, late.C)
}

// awaitLog waits until a member is known to have and have applied the log of this leader, and to
// vote. It returns false if that does not happen in time, or this node no longer leads.
func (n *Node) awaitLog(id string, term uint64, late <-chan time.Time) bool {
	ticker := time.NewTicker(drainCheck)
	defer ticker.Stop()
	for n.leadsIn(term) {
		s, ok := n.member(id)
		if l := n.link(id); l != nil && ok && s.Suffrage == raft.Voter {
			l.ask(0)
			if l.holds(term, n.raft.LastIndex(), n.applied()) {
				return true
			}
		}
		select {
		case <-ticker.C:
		case <-late:
			return false
		}
	}
	return false
}

// awaitSuccessor waits until this node no longer leads, after another was asked to.
func (n *Node) awaitSuccessor(id string, term uint64, asked <-chan error,
	late <-chan time.Time) error {
	ticker := time.NewTicker(drainCheck)
	defer ticker.Stop()
	for n.leadsIn(term) {
		select {
		case err := <-asked:
			if err != nil && err.Error() == errUnfit.Error() { // that is all that Raft transports
				n.link(id).noteUnfit()
				return refused("leadership transfer: the member declines: " + err.Error())
			}
			if err != nil && err.Error() == errElected.Error() {
				return refused("leadership transfer: the member declines: " + err.Error())
			}
			if err != nil && n.leadsIn(term) {
				return unknown(fmt.Sprintf("the leadership transfer was in flight: %v", err))
			}
			asked = nil
		case <-ticker.C:
		case <-late:
			if n.leadsIn(term) {
				return unknown("the leadership transfer was in flight: it timed out")
			}
		}
	}
	return nil
}

// askToStand asks a voter to stand for election at once. Voters that have heard from a leader
// lately do not refuse it for that.
func (n *Node) askToStand(id raft.ServerID, addr raft.ServerAddress) error {
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.cfg.ID)}
	return n.transport.TimeoutNow(id, addr, &raft.TimeoutNowRequest{RPCHeader: header},
		&raft.TimeoutNowResponse{})
}

// proposalPause keeps the proposer from proposing.
type proposalPause struct {
	mu lockorder.Mutex // the proposer holds it over each step
	on bool
}

// pauseProposals stops the proposer and waits, for drainWait at most, until entries in flight are
// answered: a change of leader would make their outcome unknown, while calls still in the queue go
// to the next leader. The caller calls end, before it pauses again.
func (n *Node) pauseProposals() (end func()) {
	set := func(on bool) {
		n.pause.mu.Lock()
		defer n.pause.mu.Unlock()
		n.pause.on = on
	}
	set(true)
	for began := time.Now(); n.inFlight.Load() > 0 && time.Since(began) < drainWait; {
		time.Sleep(drainCheck)
	}
	return func() {
		set(false)
		kick(n.writes.wake)
	}
}

// candidate is a connected voter that leadership may be transferred to, as far as is known.
type candidate struct {
	server             raft.Server
	lastIndex, applied uint64
	priority           uint64
	unfit              bool
	pace               time.Duration // how long its newest writes took; 0: unknown
	silent             bool          // it has not answered lately
}

// candidates returns all, or the wanted one.
func (n *Node) candidates(wanted string) (all []candidate) {
	for _, s := range n.configuration().Servers {
		l := n.link(string(s.ID))
		if s.Suffrage != raft.Voter || l == nil || !l.up() || !n.admitted(string(s.ID)) ||
			wanted != "" && wanted != string(s.ID) {
			continue
		}
		l.mu.Lock()
		all = append(all, candidate{s, l.report.lastIndex, l.report.applied, l.peer.priority,
			l.unfit, l.report.pace, time.Since(l.heard) > 2*askEvery})
		l.mu.Unlock()
	}
	return all
}

// successor picks the voter to transfer leadership to: the wanted one, or if that is empty, of
// those that are fit to lead, answer, have applied about as much as the longest log has, and whose
// disk is not slow, the one with the highest priority. Raft's own choice may be a member that is
// down.
func (n *Node) successor(wanted string) (raft.Server, error) {
	all := n.candidates(wanted)
	switch {
	case len(all) == 0 && wanted != "":
		return raft.Server{}, refused("leadership transfer: " + wanted +
			" is not a connected voter")
	case len(all) == 0:
		return raft.Server{}, errNoSuccessor
	case wanted != "":
		return all[0].server, nil
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return c.unfit })
	if len(all) == 0 {
		return raft.Server{}, errNoneFit
	}
	var longest uint64
	quickest := all[0].pace
	for _, c := range all {
		longest, quickest = max(longest, c.lastIndex), min(quickest, c.pace)
	}
	return slices.MaxFunc(all, func(a, b candidate) int {
		far := func(c candidate) bool { return c.applied+promoteLag < longest }
		return cmp.Or(compareBool(b.silent, a.silent), compareBool(far(b), far(a)),
			compareBool(slower(b.pace, quickest), slower(a.pace, quickest)),
			cmp.Compare(a.priority, b.priority), cmp.Compare(a.lastIndex, b.lastIndex))
	}).server, nil
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Close transfers leadership if this node leads, refuses new requests, lets requests in flight end,
// and stops everything that Open started. It takes a few seconds at most, unless the disk hangs.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closeErr = n.shutdown() })
	return n.closeErr
}

// TransferIfLeader transfers leadership if this node leads and another voter can take it. Requests
// continue meanwhile, on this node too: they wait for the next leader, or are served while nobody
// is fit to be that. A stopping node calls it first, while its clients are still connected.
func (n *Node) TransferIfLeader() {
	n.leaving.Store(true)
	n.stampLast()
	began := time.Now()
	hope := began
	for n.raft.State() == raft.Leader && time.Since(began) < drainWait {
		n.askMembers()
		err := n.TransferLeadership("")
		switch {
		case err == nil:
			return
		case errors.Is(err, errNoSuccessor):
			n.logger.Debug("leadership was not transferred", "error", err)
			return
		case !errors.Is(err, errNoneFit) || n.othersReplay():
			hope = time.Now()
		case time.Since(hope) > unfitWait:
			n.logger.Warn("leadership was not transferred", "error", err)
			return
		}
		n.logger.Debug("leadership was not transferred", "error", err)
		time.Sleep(drainCheck)
	}
}

// othersReplay reports whether a voter still has to apply entries that it has. Then it may be fit
// soon. No other reason is known to end.
func (n *Node) othersReplay() bool {
	return slices.ContainsFunc(n.candidates(""), func(c candidate) bool {
		return !c.silent && c.applied+nearlyApplied < c.lastIndex
	})
}

// stampLast has the log say what the clock is, if this node leads and there is a deadline: the
// whole cluster may be stopping. It waits for drainWait at most.
func (n *Node) stampLast() {
	r := n.route.Load()
	if _, ok := n.machine.nextDeadline(); r.lead == nil || !ok {
		return
	}
	now := r.lead.NowMs()
	for began := time.Now(); n.machine.clockMs.Load() < now && n.route.Load().lead == r.lead &&
		time.Since(began) < drainWait; time.Sleep(drainCheck) {
		if n.inFlight.Load() == 0 {
			n.tickDue.Store(true)
			kick(n.writes.wake)
		}
	}
}

// Why a leader keeps leading.
var (
	errNoSuccessor = refused("leadership transfer: no other voter is connected")
	errNoneFit     = refused("leadership transfer: no other voter is fit to lead")
)

func (n *Node) shutdown() error {
	close(n.closing)
	n.TransferIfLeader()
	n.writes.close(errStopping)
	n.reads.close(errStopping)
	drained := n.drain()
	if drained {
		n.drainInbounds()
	}

	// The completer may wait for a future that only a running Raft answers, so it ends before Raft.
	close(n.stop)
	n.endLinks()
	n.mux.Close()
	if drained {
		n.loops.Wait()
		close(n.proposed)
		n.completer.Wait()
	}
	n.unpark(time.Time{}) // the closed queue ends them
	err := n.raft.Shutdown().Error()
	n.mux.wait()
	if !drained {
		n.logger.Error("the node stopped with entries in flight")
		go func() { // perhaps never: Raft may leave some without an answer
			n.loops.Wait()
			close(n.proposed)
		}()
	}
	return errors.Join(err, n.logs.flush(), n.stores.close())
}

// drain waits until no entry is in flight and no barrier is awaited: whatever waits for Raft ends
// before Raft does. The proposer still runs, but its queue is closed.
func (n *Node) drain() bool {
	began := time.Now()
	for {
		entries := n.inFlight.Load() != 0 || n.establishing.Load()
		waited := time.Since(began)
		switch {
		case entries && waited > drainWait:
			return false
		case !entries && (!n.linksBusy() || waited > flightWait):
			return true
		}
		time.Sleep(drainCheck)
	}
}

func (n *Node) linksBusy() bool {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for _, l := range n.links {
		if l.busy() {
			return true
		}
	}
	return false
}
