// What the leader observes of the members while it leads, and what follows from it: members that
// have been unreachable for long are removed, and leadership goes to the voter that is to have it.
// See docs/adr/0028.

package cluster

import (
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// watchGap: after a longer pause between two looks this node, not the members, was away.
	watchGap = time.Second
	// longestWork is what a transfer, a removal and its registration take at most.
	longestWork = 3*changeWait + storeWait
	// wantedLately is how recently a node must have asked for the address of a member to count as
	// its replacement. A node that waits asks every few seconds.
	wantedLately = 30 * time.Second
	// preferAfter is how long a voter must have been fit before leadership goes to it. It doubles
	// each time that the voter got it within grantsCount, up to maxPreferAfter: one that cannot
	// keep it would get it every few seconds.
	preferAfter    = 5 * time.Second
	maxPreferAfter = 5 * time.Minute
	grantsCount    = 10 * time.Minute
	// watchRetry is the pause after a removal or transfer that failed.
	watchRetry = 5 * time.Second
)

// memberWatch is what this node has observed since it leads. Its goroutine is maintain.
type memberWatch struct {
	mu     lockorder.Mutex
	lead   *leadership
	looked time.Time
	// when each other member was last reachable, at the earliest when the watch began
	reached map[string]time.Time
	wanted  map[string]time.Time // when a node last asked for a member's address
	held    map[string]bool      // logged: due, but its removal would not help
	// the voter that is to lead, and since when it is fit for it, or that this node is slow
	preferred string
	fitSince  time.Time
	slow      bool      // since this node is slow
	notBefore time.Time // when the next removal or transfer may come
	granted   map[string]grants
}

// grants is how often this node gave leadership to a voter, each time within grantsCount of the
// time before.
type grants struct {
	times int
	last  time.Time
}

// grant records that leadership goes to a voter. The caller holds mu.
func (w *memberWatch) grant(id string, now time.Time) {
	if w.granted == nil {
		w.granted = map[string]grants{}
	}
	maps.DeleteFunc(w.granted, func(_ string, g grants) bool {
		return now.Sub(g.last) > grantsCount
	})
	w.granted[id] = grants{w.granted[id].times + 1, now}
}

// prefers returns the voter to which leadership goes now, empty for none. after is how long a voter
// must be fit that has not got it lately. The caller holds mu.
func (w *memberWatch) prefers(after time.Duration, now time.Time) string {
	if g := w.granted[w.preferred]; now.Sub(g.last) <= grantsCount {
		after = min(after<<min(g.times, 16), maxPreferAfter)
	} else if w.slow {
		after = 0 // pace has waited
	}
	if now.Sub(w.fitSince) < after {
		return ""
	}
	return w.preferred
}

// look notes who is reachable now. It restarts with each leadership, and after a pause.
func (n *Node) look(lead *leadership, now time.Time) {
	w := &n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lead != lead || now.Sub(w.looked) > watchGap {
		w.lead, w.notBefore = lead, time.Time{}
		w.reached, w.wanted = map[string]time.Time{}, map[string]time.Time{}
		w.held, w.preferred, w.slow = map[string]bool{}, "", false
	}
	w.looked = now
	for _, s := range n.configuration().Servers {
		id := string(s.ID)
		if w.reached[id].IsZero() || id == n.cfg.ID || n.hears(id) ||
			n.heardInbound(id, now) {
			w.reached[id] = now
			delete(w.held, id)
		}
	}
	if id, slow := n.fittest(lead); id != w.preferred || slow != w.slow {
		w.preferred, w.fitSince, w.slow = id, now, slow
	}
}

// worked notes that the watch itself took the time since the newest look, which was no pause. What
// took longer than a change may take was one.
func (n *Node) worked(since time.Time) {
	took := time.Since(since)
	n.watch.mu.Lock()
	defer n.watch.mu.Unlock()
	if took <= longestWork {
		n.watch.looked = n.watch.looked.Add(took)
	}
}

// heardInbound reports whether a member sent something to this node lately. A connection alone does
// not count: that of a process that hangs stays.
func (n *Node) heardInbound(id string, now time.Time) bool {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	for in := range n.inbounds {
		if in.peer == id && now.UnixNano()-in.heard.Load() < int64(heardLately) {
			return true
		}
	}
	return false
}

// hasInbound reports whether a member is connected to this node, which may be idle.
func (n *Node) hasInbound(id string) bool {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	return n.hasInboundLocked(id)
}

func (n *Node) hasInboundLocked(id string) bool {
	for in := range n.inbounds {
		if in.peer == id {
			return true
		}
	}
	return false
}

// reachedWait is for how long a node that reaches others must not be reached by any to say so.
const reachedWait = 2 * heardLately

// watchReach reports whether this node reaches others and none of them reaches it, and logs it:
// they have a wrong address of it. maintain calls it while this node does not lead.
func (n *Node) watchReach(now time.Time) bool {
	reaches := false
	for _, s := range n.configuration().Servers {
		id := string(s.ID)
		if id == n.cfg.ID {
			continue
		}
		if n.hasInbound(id) {
			if n.unreached.Load() {
				n.logger.Info("members reach this node again", "member", id)
			}
			n.reachedAt = now
			return false
		}
		l := n.link(id)
		reaches = reaches || l != nil && l.up()
	}
	if !reaches || n.reachedAt.IsZero() {
		n.reachedAt = now
	}
	if now.Sub(n.reachedAt) < reachedWait {
		return false
	}
	if !n.unreached.Load() {
		n.logger.Warn("no member reaches this node: if it moved, set --peer-advertise",
			"address", n.mux.Addr().String())
	}
	return true
}

// unreachableFor returns for how long this leader has not reached a member; 0: it does, or this
// node does not lead.
func (n *Node) unreachableFor(id string) time.Duration {
	lead := n.route.Load().lead
	w := &n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if lead == nil || w.lead != lead || w.reached[id].IsZero() {
		return 0
	}
	return w.looked.Sub(w.reached[id])
}

// removeIn returns when a member that is unreachable will be removed; 0: it is not counted down. A
// member that is due has the least duration above 0.
func (n *Node) removeIn(id string) time.Duration {
	silent := n.unreachableFor(id)
	if n.cfg.AutoremoveAfter == 0 || silent < heardLately {
		return 0
	}
	return max(n.cfg.AutoremoveAfter-silent, 1)
}

// overdue returns the member to remove now, empty for none. A learner goes when it is due. A voter
// goes if that helps: with an even number of voters, or two that are due, fewer voters tolerate
// more failures; and a node may wait for its address, or for its vote. Otherwise it stays, for it
// may come back.
func (n *Node) overdue(now time.Time) (id string, silent time.Duration) {
	if n.cfg.AutoremoveAfter == 0 {
		return "", 0
	}
	voters, due := 0, []string{}
	for _, s := range n.configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
		d := n.unreachableFor(string(s.ID))
		switch {
		case d < n.cfg.AutoremoveAfter:
		case s.Suffrage != raft.Voter:
			return string(s.ID), d
		default:
			due = append(due, string(s.ID))
		}
	}
	lead := n.route.Load().lead
	waits := len(due) > 0 && lead != nil && n.waitsForVote(lead)
	w := &n.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range due {
		d := w.looked.Sub(w.reached[id])
		if voters%2 == 0 || len(due) > 1 || waits || now.Sub(w.wanted[id]) < wantedLately {
			return id, d
		}
		if !w.held[id] {
			w.held[id] = true
			n.logger.Warn("member is unreachable, but is kept until another one joins: removing "+
				"it would not make the cluster tolerate more failures", "member", id,
				"unreachable-for", d.Round(time.Second).String())
		}
	}
	return "", 0
}

// removeOverdue removes the member that is due, if there is one, and reports whether there was.
func (n *Node) removeOverdue(now time.Time) bool {
	id, silent := n.overdue(now)
	if id == "" {
		return false
	}
	err := n.removeMember(id)
	if err != nil {
		n.delayWatch(now)
		n.logger.Warn("removing an unreachable member failed", "member", id, "unreachable-for",
			silent.Round(time.Second).String(), "error", err)
	} else {
		n.logger.Warn("an unreachable member was removed", "member", id, "unreachable-for",
			silent.Round(time.Second).String())
	}
	if n.cfg.OnAutoremove != nil {
		n.cfg.OnAutoremove(id, silent, err)
	}
	return true
}

// addressTaken refuses to add a node at the address of a member. If that member is unreachable and
// is removed in time, the node is to try again.
func (n *Node) addressTaken(s raft.Server) error {
	id := string(s.ID)
	if n.cfg.AutoremoveAfter == 0 || id == n.cfg.ID || n.hears(id) {
		return refused(fmt.Sprintf("node %s already has the peer address %s", s.ID, s.Address))
	}
	w := &n.watch
	w.mu.Lock()
	if w.wanted != nil {
		w.wanted[id] = time.Now()
	}
	w.mu.Unlock()
	return notRun(fmt.Sprintf("node %s had the peer address %s; %s %v", s.ID, s.Address,
		removedInTime, n.cfg.AutoremoveAfter))
}

// removedInTime says of a member that who asks to be added has only to wait; the asker looks for it
// in the answer.
const removedInTime = "it is removed when it has been unreachable for"

// priority is this node's priority for leading.
func (n *Node) priority() uint64 {
	if n.cfg.Learner { // it was a voter before
		return 0
	}
	return n.cfg.Priority
}

// fittest returns the voter that is to lead in place of this node: the one with the highest
// priority, above this node's, that has caught up, is fit to lead, not stopping, and not slow. If
// this node is slow beside such voters, it is one of them, whatever its own priority.
func (n *Node) fittest(lead *leadership) (best string, slow bool) {
	own, suspect := n.pace()
	highest := n.priority()
	for _, s := range n.configuration().Servers {
		id := string(s.ID)
		l := n.link(id)
		if l == nil || s.Suffrage != raft.Voter || !n.admitted(id) {
			continue
		}
		l.mu.Lock()
		priority, unfit := l.peer.priority, l.unfit || l.peer.isLearner()
		took := l.report.pace
		l.mu.Unlock()
		if unfit || priority <= highest && !suspect {
			continue
		}
		l.ask(0) // or the report is too old under load
		quicker := suspect && slower(own, took)
		switch {
		case slower(took, own) || n.caughtUp(lead, id) != nil: // it would give leadership back
		case quicker && !slow, quicker == slow && priority > highest:
			best, highest, slow = id, priority, quicker
		}
	}
	return best, slow
}

// giveWay transfers leadership to the preferred voter once it has been fit for a while.
func (n *Node) giveWay(now time.Time) bool {
	w := &n.watch
	w.mu.Lock()
	id := w.prefers(n.cfg.preferAfter, now)
	if id == "" || n.leaving.Load() {
		w.mu.Unlock()
		return false
	}
	why := "a higher priority"
	if w.slow {
		why = "a quicker disk"
	}
	w.grant(id, now)
	w.mu.Unlock()
	took, _ := n.pace()
	n.logger.Info("leadership goes to a voter with "+why, "member", id, "writes-took", took)
	if err := n.TransferLeadership(id); err != nil {
		n.delayWatch(now)
		n.logger.Warn("the leadership transfer failed", "member", id, "error", err)
	}
	return true
}

// delayWatch postpones the next removal and transfer.
func (n *Node) delayWatch(now time.Time) {
	n.watch.mu.Lock()
	n.watch.notBefore = now.Add(watchRetry)
	n.watch.mu.Unlock()
}

// watchDue reports whether the watch has something to do.
func (n *Node) watchDue(now time.Time) bool {
	w := &n.watch
	w.mu.Lock()
	wait := now.Before(w.notBefore)
	preferred := w.prefers(n.cfg.preferAfter, now)
	w.mu.Unlock()
	if wait {
		return false
	}
	id, _ := n.overdue(now)
	return preferred != "" || id != ""
}
