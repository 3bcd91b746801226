// What the leader decides of nodes that it does not reach, or that were started again: their waits,
// counts of subscribers and connections with leases end.

package server

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/pulse"
)

const (
	// contactLimit is how long the leader waits to hear from a node before it drops the node's
	// waits: nobody knows whether those clients are there.
	contactLimit = time.Second
	// returnLimit is how long those who wait are not served after a change of leader, because not
	// all waits are back.
	returnLimit = 500 * time.Millisecond
	// watchPeriod is the time between two looks at the nodes with waits.
	watchPeriod = 50 * time.Millisecond
	// quietLimit is for how long of contactLimit the leader looks in vain: if it was paused itself,
	// it has heard of nobody meanwhile.
	quietLimit = contactLimit / 2
)

// nodeWatch looks at the nodes that have something in the state.
type nodeWatch struct {
	s     *Server
	term  uint64
	drops bool                 // the term is to drop the waits of earlier ones
	led   time.Time            // when it found that this node leads; zero: not yet
	held  time.Time            // when it found that nobody is served; zero: somebody is
	quiet map[string]time.Time // when it found that a node was quiet for quietLimit; no others
	seen  map[string]time.Time // when those with something in the state were last heard of
}

// watchNodes drops the waits, the counts of subscribers and the connections with leases of nodes
// that this node does not reach, while it leads, and the waits and connections of those that have
// been started again since it looked. When it begins to lead, it has the nodes send their waits
// again, and ends the hold if some do not come.
// Until it began, the waits of an earlier process have not left.
func (s *Server) watchNodes(began bool) {
	defer s.background.Done()
	w := nodeWatch{s: s, term: s.backend.Status().Term, seen: map[string]time.Time{}}
	looked := time.Now()
	tick := pulse.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		slept := time.Now()
		select {
		case <-tick.C:
			tick.Next()
		case <-s.ctx.Done():
			return
		}
		if time.Since(slept) > quietLimit { // this node was paused: connections may have broken
			w.led = time.Time{}
		}
		if !began || time.Since(looked) >= strayPeriod {
			began, looked = s.leaveStrays() || began, time.Now()
		}
		w.look()
	}
}

func (w *nodeWatch) look() {
	s, now, before := w.s, time.Now(), w.quiet
	w.quiet = nil
	nodes, subscribed := s.backend.WaitingNodes(), s.backend.SubscribedNodes()
	holders, caughtUp := s.backend.HolderNodes(), s.users() != nil
	if caughtUp { // until then it sees what was
		s.holders.begins(s, holders)
	}
	listed := slices.Compact(slices.Sorted(slices.Values(
		slices.Concat(nodes, subscribed, holders))))
	// A process of which nothing is left in the state leaves nothing to the next one.
	maps.DeleteFunc(w.seen, func(id string, _ time.Time) bool {
		return !slices.Contains(listed, id)
	})
	if len(listed) == 0 && s.pubsub.size.Load() == 0 {
		return
	}
	st := s.backend.Status()
	if caughtUp {
		s.counting.begins(s, slices.Contains(subscribed, st.ID))
	}
	if st.Role != "leader" {
		return
	}
	if st.Term != w.term || w.led.IsZero() {
		w.led = now
	}
	if st.Term != w.term {
		w.term, w.held, w.drops = st.Term, time.Time{}, true
		clear(w.seen) // nodes that were started again while another led
	}
	// It ends no wait, but as an entry of the term it drops all.
	w.drops = w.drops && len(nodes) > 0 &&
		s.changeNodes(0, commands.SystemLeaveWait, "0") != nil
	switch {
	case !s.backend.WaitsHeld():
		w.held = time.Time{}
	case w.held.IsZero():
		w.held = time.Now()
	case time.Since(w.held) >= returnLimit:
		_ = s.changeNodes(w.term, commands.SystemServeWaits)
	}
	for _, id := range listed {
		if id == st.ID {
			continue
		}
		cut, silent := w.silent(&st, id, before[id])
		w.judge(&st, id, cut, silent, slices.Contains(nodes, id),
			slices.Contains(subscribed, id), slices.Contains(holders, id))
		if time.Since(now) > quietLimit {
			return // what it knows of the others is old
		}
	}
}

// judge decides of a node that waits, counts subscribers, or has connections with leases. Where it
// is only cut off, its waits end, since what they take could be lost: it sends them again. Counts
// and leases are promised until it is silent.
func (w *nodeWatch) judge(st *Status, id string, cut, silent, waits, subscribed, holds bool) {
	s, again := w.s, st.restarted(id, w.seen)
	// A new leader has not heard of all yet. What waits for elements, its term has dropped; who
	// waits for a lock keeps its place; counts and leases are not lost with a term.
	listened := time.Since(w.led) > contactLimit
	cut, silent = cut && listened, silent && listened
	switch {
	case !waits:
	case again || cut:
		_ = s.changeNodes(w.term, commands.SystemDropWaits, id)
	case !st.connected(id) && s.backend.WaitsHeld(): // who is connected may just be sending them
		_ = s.changeNodes(w.term, commands.SystemForgetWaits, id)
	}
	// A process that has just begun drops what is of an earlier one, and may have told its own by
	// now.
	if subscribed && silent {
		_ = s.changeNodes(w.term, commands.SystemDropSubscribers, id)
	}
	if holds && (again || silent) {
		_ = s.changeNodes(w.term, commands.SystemDropHolders, id)
	}
}

// silent reports whether the leader, whose status it is, has not heard from a node for contactLimit
// while it was there itself; cut also if it has no connection to it just now, as when one is made
// again. The node has been quiet since a time; zero: it was not.
func (w *nodeWatch) silent(st *Status, id string, since time.Time) (cut, silent bool) {
	m := st.member(id)
	switch {
	case m == nil || m.LastContact < 0:
		return true, true
	case m.LastContact < quietLimit:
		return !m.Connected, false
	}
	if since.IsZero() {
		since = time.Now()
	}
	if w.quiet == nil {
		w.quiet = map[string]time.Time{}
	}
	w.quiet[id] = since
	silent = m.LastContact >= contactLimit && time.Since(since) >= contactLimit-quietLimit
	return silent || !m.Connected, silent
}

// connected reports whether the leader, whose status it is, has a connection to a node.
func (st *Status) connected(id string) bool {
	m := st.member(id)
	return m != nil && m.Connected
}

// restarted reports whether a member has another process than when it was last asked about: one
// that began since the other was heard of. It notes in seen when the member was heard of. The start
// of a process is no name of it: the clocks of two machines differ more by the hour.
func (st *Status) restarted(id string, seen map[string]time.Time) bool {
	m := st.member(id)
	if m == nil || m.Uptime <= 0 {
		return false
	}
	now, before := time.Now(), seen[id]
	seen[id] = now.Add(-m.LastContact)
	return !before.IsZero() && now.Add(-m.Uptime).After(before)
}

// changeNodes has the machine change what it has of nodes, as the leader of a term decides. Another
// leader may know better: if this one was paused, its requests reach that one. With term 0 the
// change is right under any leader.
func (s *Server) changeNodes(term uint64, words ...string) error {
	if term != 0 {
		words = append([]string{commands.SystemInTerm, strconv.FormatUint(term, 10)}, words...)
	}
	var cmd [][]byte
	for _, w := range words {
		cmd = append(cmd, []byte(w))
	}
	_, err := s.changeState(Workload{LeaderWait: -1}, cmd...)
	if err != nil {
		s.warnings.Warn("what the state has of a node is not changed yet", "change",
			strings.Join(words, " "), "error", err)
	}
	return err
}
