// The leader's work on the members: changes that an operator or a new node asks for, promotion of
// members that have caught up, and addresses that have changed.

package cluster

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/pulse"
)

const (
	askAloneEvery = time.Second // without a leader, members are asked as often as one would
	maintainEvery = 50 * time.Millisecond
	// changeWait bounds the wait for another change, and for Raft to begin one.
	changeWait = 5 * time.Second
	// promoteLag is how many entries a member may lag when it gets its vote. Commits may have to
	// wait until it catches up.
	promoteLag = 256
	// heardLately is how recently a connected member must have been heard from; the leader asks
	// every second.
	heardLately = 3 * time.Second
	// storeWait is how long the voters have to store an entry before a change that needs them.
	storeWait = 3 * time.Second
)

// errElsewhere says that the next leader must make the change.
var errElsewhere = notRun("another node leads now")

// errCatchingUp: the member lags too far to get its vote.
var errCatchingUp = errors.New("it has not caught up")

// makeChange makes a change on the leader and returns when it is committed. Errors: ErrRefused,
// ErrNotRun (ask the current leader), ErrUnknown.
func (n *Node) makeChange(lead *leadership, c membership.Change) error {
	if c.Kind == membership.Add {
		// before this act holds up others, the leader's own too: who is there may answer nothing
		if done, err := n.mayAdd(c.ID, c.PeerAddr); done || err != nil {
			return err
		}
		if err := n.checkJoiner(c.ID, c.PeerAddr); err != nil {
			return err
		}
	}
	late := time.NewTimer(changeWait)
	defer late.Stop()
	select {
	case n.changing <- struct{}{}:
	case <-late.C:
		return errChanging
	case <-n.stop:
		return errStopping
	}
	defer func() { <-n.changing }()
	if c.Kind != membership.Transfer {
		if err := n.awaitCommitted(lead, late.C); err != nil {
			return err
		}
	}
	switch c.Kind {
	case membership.Add:
		return n.addMember(c.ID, c.PeerAddr)
	case membership.Remove:
		return n.removeMember(c.ID)
	case membership.Promote:
		return n.promoteMember(lead, c.ID)
	case membership.Transfer:
		if c.ID == n.cfg.ID {
			return refused(fmt.Sprintf("%s leads already", c.ID))
		}
		return n.TransferLeadership(c.ID)
	}
	return refused(
		fmt.Sprintf(
			"unknown membership change %q: the leader may run another version",
			c.Kind))
}

// errChanging is no refusal: a retry may succeed.
var errChanging = notRun("another membership change is in progress")

// awaitCommitted waits until the newest configuration in the log is committed, and so is what this
// node decides and answers by. A leader that is cut off has changes in its log that the next one
// does not: nothing is so already, or refused for ever, because of them.
func (n *Node) awaitCommitted(lead *leadership, late <-chan time.Time) error {
	ticker := time.NewTicker(drainCheck)
	defer ticker.Stop()
	for {
		known := n.machine.members.Load().configuration
		switch {
		case !n.leadsIn(lead.term):
			return errElsewhere
		case slices.Equal(n.view().source, known.Servers):
			return nil
		}
		select {
		case <-ticker.C:
		case <-late:
			return errChanging
		case <-n.stop:
			return errStopping
		}
	}
}

// configured returns the outcome of a configuration change.
func configured(f raft.IndexFuture) error {
	switch err := f.Error(); {
	case err == nil:
		return nil
	case neverLogged(err):
		return errElsewhere
	default:
		return unknown(fmt.Sprintf("the change was in flight: %v", err))
	}
}

func (n *Node) addMember(id, addr string) error {
	if done, err := n.mayAdd(id, addr); done || err != nil {
		return err
	}
	n.logger.Info("node added", "member", id, "address", addr)
	return n.moveNonvoter(raft.ServerID(id), raft.ServerAddress(addr))
}

// mayAdd returns why a node cannot be added, by what is committed; done: it is a member there.
func (n *Node) mayAdd(id, addr string) (done bool, err error) {
	if err := CheckID(id); err != nil {
		return false, refused(err.Error())
	}
	host, err := peerHost(addr)
	if err != nil {
		return false, refused(err.Error())
	}
	known := n.machine.members.Load()
	if known.retired[id] {
		return false, refused(
			fmt.Sprintf(
				"node %s was removed from this cluster; ids are never reused, choose another", id))
	}
	if own, _, _ := net.SplitHostPort(n.mux.Addr().String()); IsWildcard(own) || isLoopback(own) &&
		!isLoopback(host) {
		return false, refused(
			fmt.Sprintf(
				"%s cannot reach the leader's peer address %s: set --peer-listen or "+
					"--peer-advertise on the leader", addr, n.mux.Addr()))
	}
	for _, s := range known.configuration.Servers {
		switch runs := n.runsAt(id); {
		case string(s.ID) == id && s.Suffrage == raft.Voter && runs != "":
			return false, refused(fmt.Sprintf("node %s is already a voter, and runs at %s: %s", id,
				runs, actOfATwin))
		case string(s.ID) == id && s.Suffrage == raft.Voter:
			return false, refused(
				fmt.Sprintf(
					"node %s is already a voter; if it lost its data, remove it and add it under "+
						"a new id", id))
		case string(s.ID) == id && string(s.Address) == addr:
			return true, nil // a new node asks until it is added
		case string(s.ID) != id && string(s.Address) == addr:
			return false, n.addressTaken(s)
		}
	}
	return false, checkRoom(n.view().source,
		raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(addr)})
}

// actOfATwin is the act of who starts a node with the id of one that runs, as with a copied file.
const actOfATwin = "give the new node an --id of its own"

// runsAt returns the address of a member that this node hears from; empty: of none.
func (n *Node) runsAt(id string) string {
	switch addr, ok := n.peerAddr(id); {
	case id == n.cfg.ID:
		return n.mux.Addr().String()
	case ok && n.hears(id):
		return addr
	}
	return ""
}

// isAt reports whether the data directory that is linked as a member has an incarnation.
func (n *Node) isAt(id, incarnation string) bool {
	l := n.link(id)
	return l != nil && l.incarnation() == incarnation
}

// checkJoiner refuses to add a node that does not know the machine's level, or to which the leader
// cannot talk: it would be a member that gets nothing. Where nobody answers yet nothing is checked:
// the node refuses unknown levels itself.
func (n *Node) checkJoiner(id, addr string) error {
	h, err := n.probe(addr)
	runs := n.runsAt(id)
	switch {
	case errors.As(err, new(noAnswer)) && runs != "" && runs != addr:
		return notRun(fmt.Sprintf("node %s runs at %s, and nobody answers at %s", id, runs, addr))
	case errors.As(err, new(noAnswer)):
		return nil
	case errors.Is(err, net.ErrClosed):
		return errStopping
	case err != nil:
		return notRun(fmt.Sprintf("the leader cannot talk to node %s at %s: %v; is that its own "+
			"peer port, and do both have the same --peer-tls?", id, addr, err))
	case h.id != id:
		return notRun(fmt.Sprintf("at %s is node %s, and not %s", addr, h.id, id))
	case n.isOtherCluster(h.cluster):
		return refused(fmt.Sprintf("node %s belongs to cluster %s, this one is %s: give it an "+
			"empty data directory", id, h.cluster, n.clusterID()))
	case runs != "" && !n.isAt(id, h.incarnation): // the learner would be moved to and fro
		return refused(fmt.Sprintf("node %s is already a learner, and runs at %s: %s", id, runs,
			actOfATwin))
	case h.level >= n.levels.Level():
		return nil
	}
	return refused(fmt.Sprintf(
		"node %s knows feature levels up to %d, this cluster has level %d: upgrade coordd there",
		id, h.level, n.levels.Level()))
}

// moveNonvoter adds a member without a vote, or gives it another address. Meanwhile its answers
// from the old one are errors: see errMoving. A voter's answers may be what the change waits for.
func (n *Node) moveNonvoter(id raft.ServerID, addr raft.ServerAddress) error {
	n.transport.moving.Store(&raft.Server{ID: id, Address: addr})
	defer n.transport.moving.Store(nil)
	return configured(n.raft.AddNonvoter(id, addr, 0, changeWait))
}

// IsWildcard reports whether a host means all addresses of a machine, and so none at which others
// reach it.
func IsWildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// removeMember demotes a voter, then replaces its address: only the id stays. A leader transfers
// leadership first.
func (n *Node) removeMember(id string) error {
	if n.machine.removed(id) {
		return refused(fmt.Sprintf("node %s was already removed", id))
	}
	s, ok := n.member(id)
	if !ok {
		return refused(fmt.Sprintf("there is no member %s", id))
	}
	if s.Suffrage == raft.Voter {
		if err := n.checkRest(id); err != nil {
			return err
		}
		if id == n.cfg.ID {
			if err := n.TransferLeadership(""); errors.Is(err, ErrUnknown) {
				return notRun(fmt.Sprintf("node %s leads, and the leadership transfer timed out",
					id))
			} else if err != nil {
				return err
			}
			return errElsewhere
		}
		n.logger.Info("member removed", "member", id)
		if err := configured(n.raft.DemoteVoter(s.ID, 0, changeWait)); err != nil {
			return err
		}
	}
	err := n.moveNonvoter(s.ID, raft.ServerAddress(retiredPrefix+id))
	if s.Suffrage == raft.Voter && errors.Is(err, ErrNotRun) {
		return unknown(fmt.Sprintf("node %s lost its vote but is still a member: %v", id, err))
	}
	return err
}

// checkRest refuses to take a vote after which the cluster could not commit.
func (n *Node) checkRest(without string) error {
	rest, connected := slices.DeleteFunc(voters(n.configuration()),
		func(id string) bool { return id == without }), 0
	for _, id := range rest {
		if id == n.cfg.ID || n.hears(id) {
			connected++
		}
	}
	switch {
	case len(rest) == 0:
		return refused(fmt.Sprintf("node %s is the last voter", without))
	case connected < len(rest)/2+1:
		return refused(
			fmt.Sprintf(
				"without node %s there is no majority: only %d of %d voters are connected",
				without, connected, len(rest)))
	}
	return n.checkStore(rest)
}

// checkedEntry is the entry of the newest checkStore. Who changes members guards it.
type checkedEntry struct{ term, index uint64 }

// checkStore refuses a change to voters of which no majority stores a new entry in time. A member
// whose disk is full, or that is far behind, is connected all the same, and a change that needs it
// cannot be undone: that needs it too. While the entry of an earlier check is not committed, that
// one serves again: nobody could drop the others.
func (n *Node) checkStore(voters []string) error {
	term := n.raft.CurrentTerm()
	if n.checked.term != term || n.raft.CommitIndex() >= n.checked.index {
		n.checked = checkedEntry{term, n.raft.LastIndex() + 1}
		n.raft.Barrier(storeWait)
	}
	late := time.NewTimer(storeWait)
	defer late.Stop()
	ticker := time.NewTicker(drainCheck)
	defer ticker.Stop()
	for n.leadsIn(term) {
		var lack []string
		for _, id := range voters {
			if !n.stored(id, term, n.checked.index) {
				lack = append(lack, id)
			}
		}
		if len(voters)-len(lack) > len(voters)/2 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-late.C:
			return refused(fmt.Sprintf("there would be no majority that stores entries: in %v "+
				"these members have not stored a new one: %s", storeWait, strings.Join(lack, ", ")))
		case <-n.stop:
			return errStopping
		}
	}
	return errElsewhere
}

// stored reports whether a voter is known to have stored an entry of this leader, and asks it.
func (n *Node) stored(id string, term, index uint64) bool {
	if id == n.cfg.ID {
		return min(n.raft.LastIndex(), n.logs.durableTo()) >= index
	}
	l := n.link(id)
	if l == nil {
		return false
	}
	l.ask(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.term == term && l.report.lastIndex >= index
}

// hears reports whether a member was heard from lately.
func (n *Node) hears(id string) bool {
	l := n.link(id)
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wire != nil && time.Since(l.heard) < heardLately
}

// promoteMember gives a member its vote once it has caught up.
func (n *Node) promoteMember(lead *leadership, id string) error {
	s, ok := n.member(id)
	switch {
	case !ok:
		return refused(fmt.Sprintf("there is no member %s", id))
	case s.Suffrage == raft.Voter:
		return refused(fmt.Sprintf("node %s is already a voter", id))
	case !n.wantsVote(id):
		return refused(fmt.Sprintf("node %s runs with --learner: it never votes", id))
	}
	if err := n.caughtUp(lead, id); err != nil {
		return refused(fmt.Sprintf("node %s cannot be promoted yet: %v", id, err))
	}
	if err := n.checkStore(append(voters(n.configuration()), id)); err != nil {
		return err
	}
	n.logger.Info("member promoted to voter", "member", id)
	return configured(n.raft.AddVoter(s.ID, s.Address, 0, changeWait))
}

// weakens returns a voter that is unreachable, if another voter would not let the cluster lose any
// node more because of it: then there are only more nodes whose loss stops the cluster.
func (n *Node) weakens() (dead string) {
	voters, alive := 0, 0
	for _, s := range n.configuration().Servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if id := string(s.ID); id == n.cfg.ID || n.hears(id) {
			alive++
		} else {
			dead = id
		}
	}
	spare := func(voters, alive int) int { return alive - (voters/2 + 1) }
	if with := spare(voters+1, alive+1); with > 0 || with > spare(voters, alive) {
		return ""
	}
	return dead
}

// waitsForVote reports whether a member has caught up and waits only for the removal of a voter.
func (n *Node) waitsForVote(lead *leadership) bool {
	if n.weakens() == "" {
		return false
	}
	for _, s := range n.configuration().Servers {
		if s.Suffrage != raft.Voter && n.wantsVote(string(s.ID)) &&
			n.caughtUp(lead, string(s.ID)) == nil {
			return true
		}
	}
	return false
}

// caughtUp returns an error unless a member may get its vote. When it reported last, it must have
// applied all but the newest few of the entries that there were, and everything up to the start of
// this leadership and to the configuration that added it: otherwise an empty node could count
// towards a majority. What was committed since says nothing: a busy cluster writes more than a few.
func (n *Node) caughtUp(lead *leadership, id string) error {
	l := n.link(id)
	if l == nil || !n.hears(id) {
		return fmt.Errorf("%w and is not connected", errCatchingUp)
	}
	l.mu.Lock()
	applied, at := l.report.applied, l.reportedAt
	l.mu.Unlock()
	least := max(lead.since, n.machine.members.Load().index)
	if behind := at - min(applied, at); behind > promoteLag {
		return fmt.Errorf("%w: it lags by %d entries", errCatchingUp, behind)
	}
	if applied < least {
		return fmt.Errorf("%w: entry %d is not known to be applied there", errCatchingUp, least)
	}
	return nil
}

// maintain is the loop that maintains the members while this node leads.
func (n *Node) maintain() {
	ticker := pulse.NewTicker(maintainEvery)
	defer ticker.Stop()
	var asked time.Time
	for {
		select {
		case <-ticker.C:
			ticker.Next()
		case <-n.stop:
			return
		}
		now, r := time.Now(), n.route.Load()
		lead := r.lead
		n.unreached.Store(lead == nil && n.watchReach(now))
		if lead == nil {
			if (r.link == nil || !r.link.up()) && now.Sub(asked) >= askAloneEvery {
				asked = now
				n.askAll() // who lives: no leader asks, or it cannot be asked
			}
			continue
		}
		n.look(lead, now)
		due := n.watchDue(now)
		if !due && !n.unsettled() && !n.mayRaise() {
			continue
		}
		select {
		case n.changing <- struct{}{}:
			if !due || !n.removeOverdue(now) && !n.giveWay(now) {
				n.advanceMembership(lead)
			}
			<-n.changing
			n.worked(now)
		default: // a change is under way
		}
	}
}

// unsettled reports whether a member is not registered, waits for its vote, or has another address
// than configured.
func (n *Node) unsettled() bool {
	if _, ok := n.unregistered(); ok {
		return true
	}
	for _, s := range n.configuration().Servers {
		votes := s.Suffrage == raft.Voter
		if votes != n.wantsVote(string(s.ID)) && string(s.ID) != n.cfg.ID || n.moved(s) != "" {
			return true
		}
	}
	return false
}

// wantsVote reports whether a member is to be a voter, as far as known: not if it runs with
// --learner.
func (n *Node) wantsVote(id string) bool {
	l := n.link(id)
	if l == nil {
		return id != n.cfg.ID || !n.cfg.Learner
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.peer.isLearner()
}

// moved returns the address that a member announces, if it differs from the configured one.
func (n *Node) moved(s raft.Server) string {
	addr := n.mux.Addr().String()
	if string(s.ID) != n.cfg.ID {
		n.linksMu.Lock()
		addr = n.announced[string(s.ID)]
		n.linksMu.Unlock()
	}
	if addr == string(s.Address) {
		return ""
	}
	return addr
}

func (n *Node) advanceMembership(lead *leadership) {
	if next, ok := n.unregistered(); ok {
		if err := n.register(next); err != nil {
			n.logger.Warn("member registration failed", "error", err)
		}
		return
	}
	n.raiseLevel(lead)
	servers := n.configuration().Servers
	for _, s := range servers {
		addr := n.moved(s)
		taken := false
		for _, other := range servers {
			taken = taken || string(other.Address) == addr
		}
		if addr == "" || taken {
			// if two members swapped addresses, one must move away first; both stay reachable
			continue
		}
		n.logger.Info("member changed its address", "member", s.ID, "address", addr, "before",
			s.Address)
		to := raft.ServerAddress(addr)
		change := func() error { return n.moveNonvoter(s.ID, to) }
		if s.Suffrage == raft.Voter {
			change = func() error { return configured(n.raft.AddVoter(s.ID, to, 0, changeWait)) }
		}
		if err := change(); err != nil {
			n.logger.Warn("member address update failed", "member", s.ID, "error", err)
			return
		}
	}
	for _, s := range servers {
		votes, wants := s.Suffrage == raft.Voter, n.wantsVote(string(s.ID))
		if votes == wants || string(s.ID) == n.cfg.ID {
			continue
		}
		if votes { // it became a voter under an older version, or before it had the flag
			if n.checkRest(string(s.ID)) != nil {
				continue
			}
			n.logger.Info("voter becomes a learner: it runs with --learner", "member", s.ID)
			if err := configured(n.raft.DemoteVoter(s.ID, 0, changeWait)); err != nil {
				n.logger.Warn("taking a member's vote failed", "member", s.ID, "error", err)
			}
			return
		}
		if n.caughtUp(lead, string(s.ID)) != nil {
			if l := n.link(string(s.ID)); l != nil {
				l.ask(0)
			}
			continue
		}
		if dead := n.weakens(); dead != "" {
			n.mux.warnings.Warn("a member waits for its vote, with which the cluster would stop "+
				"if any of its nodes were lost; remove the voter that is unreachable, or bring "+
				"it back", "member", s.ID, "unreachable", dead)
			continue
		}
		if err := n.promoteMember(lead, string(s.ID)); err != nil {
			n.logger.Warn("member promotion failed", "member", s.ID, "error", err)
		}
		return // one at a time
	}
}
