// Members compare their states: each tells the others what its state hashes to after the same
// entries, beside the log, and one that differs from a majority ends. See docs/adr/0054.

package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/invariant"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/pulse"
	"github.com/coordd/coordd/internal/wire"
)

const (
	// markEvery is how many entries there are about between two marks: sums that all members tell,
	// so that busy ones, of which each has applied another entry last, have some in common.
	markEvery = 64
	// marksKept is how many marks a node remembers, of itself and of each member. A member that
	// lags further is compared when it has caught up.
	marksKept  = 64
	recentSums = markEvery * marksKept
	// sumsEvery is how often a node tells what is new.
	sumsEvery = 100 * time.Millisecond
	// fewestToEnd others must agree to end a node: no single one can, whatever it says.
	fewestToEnd = 2

	maxSumsFrame = 4 << 10
)

// statesEqual holds of members: what each applied gives the same state.
var statesEqual = invariant.New("states-equal",
	"members that applied the same entries have the same state",
	"a member whose state differs from a majority's ends; a leader hands over first")

// Summer is an optional interface of a Machine whose state can be compared with that of others.
type Summer interface {
	// Sum returns the index of the newest applied entry, 0 before the first, and a hash of the
	// state after it: equal on machines that applied the same entries, and on one that loaded a
	// snapshot of such a machine. The goroutine that applies calls it after each entry.
	Sum() (index, sum uint64)
}

// stateSum is the hash of a state after the entry at index.
type stateSum struct{ index, sum uint64 }

// ownSums are the sums of this node's state.
type ownSums struct {
	mu lockorder.Mutex
	// history rises when a snapshot replaces the state: what was before says nothing about it.
	history uint64
	newest  stateSum
	recent  [recentSums]stateSum // by index modulo their number
	marks   []stateSum           // oldest first
}

// note adds the sum after an entry. The first entry of each markEvery is a mark, on every node the
// same one.
func (s *ownSums) note(index, sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := stateSum{index, sum}
	if index/markEvery != s.newest.index/markEvery {
		s.marks = appendMarks(s.marks, at)
	}
	s.recent[index%recentSums] = at
	s.newest = at
}

// restart begins with a state that was loaded.
func (s *ownSums) restart(index, sum uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history++
	clear(s.recent[:])
	s.marks = nil
	s.newest = stateSum{index, sum}
	s.recent[index%recentSums] = s.newest
}

// appendMarks appends marks and drops the oldest beyond marksKept.
func appendMarks(marks []stateSum, more ...stateSum) []stateSum {
	marks = append(marks, more...)
	return slices.Delete(marks, 0, max(0, len(marks)-marksKept))
}

// toldSums is what a member was told on the current connection.
type toldSums struct {
	any     bool
	history uint64
	mark    uint64 // index of the newest mark
	newest  stateSum
}

// sumsReport is what a node tells another: its newest sum, and the marks since the report before.
type sumsReport struct {
	history uint64
	newest  stateSum
	marks   []stateSum
}

// since returns what a member was not told yet; ok is false if that is nothing.
func (s *ownSums) since(told *toldSums) (r sumsReport, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest.index == 0 || told.any && told.history == s.history && told.newest == s.newest {
		return r, false
	}
	if told.history != s.history {
		told.mark = 0
	}
	r = sumsReport{history: s.history, newest: s.newest}
	for _, m := range s.marks {
		if m.index > told.mark {
			r.marks = append(r.marks, m)
		}
	}
	if len(r.marks) > 0 {
		told.mark = r.marks[len(r.marks)-1].index
	}
	told.any, told.history, told.newest = true, s.history, s.newest
	return r, true
}

// appendSums appends the payload of a sums frame.
func appendSums(dst []byte, r sumsReport) []byte {
	dst = binary.AppendUvarint(dst, r.history)
	dst = binary.AppendUvarint(dst, uint64(len(r.marks)))
	for _, s := range append(r.marks, r.newest) {
		dst = binary.LittleEndian.AppendUint64(binary.AppendUvarint(dst, s.index), s.sum)
	}
	return dst
}

// decodeSums reads the payload of a sums frame. It ignores a later version's additions.
func decodeSums(payload []byte) (sumsReport, error) {
	c := wire.NewCursor(payload)
	r := sumsReport{history: c.Uvarint()}
	marks := c.Uvarint()
	if marks > marksKept {
		return sumsReport{}, fmt.Errorf("a sums frame with %d marks", marks)
	}
	for range marks {
		r.marks = append(r.marks, stateSum{c.Uvarint(), c.Uint64()})
	}
	r.newest = stateSum{c.Uvarint(), c.Uint64()}
	if c.Failed() {
		return sumsReport{}, errors.New("a malformed sums frame")
	}
	return r, nil
}

// memberSums is what a member tells of its state.
type memberSums struct {
	from    uint64 // number of the connection
	history uint64
	newest  stateSum
	marks   []stateSum // oldest first

	compared uint64 // the newest index at which both states are known; 0: none
	differs  bool   // there
	reported bool   // that it differs
}

// heardSums is what the members tell.
type heardSums struct {
	wake chan struct{} // kicked when one has told something

	mu    lockorder.Mutex
	of    map[string]*memberSums
	equal uint64 // see equalTo
}

// note notes a report of a member, unless it is of an older connection than what is known: that
// may be of an earlier process, with another state.
func (h *heardSums) note(member string, from uint64, r sumsReport) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.of[member]
	switch {
	case m != nil && from < m.from:
		return
	case m == nil || from > m.from || r.history != m.history:
		m = &memberSums{from: from, history: r.history}
		h.of[member] = m
	}
	m.newest = r.newest
	m.marks = appendMarks(m.marks, r.marks...)
	kick(h.wake)
}

// stateOf returns whether a member's state differs from this node's, and whether that is known.
func (h *heardSums) stateOf(member string) (differs, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.of[member]
	if m == nil {
		return false, false
	}
	return m.differs, m.compared > 0
}

// equalTo returns the newest index up to which this node's state is known to be that of a majority
// of the voters; 0: none.
func (h *heardSums) equalTo() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.equal
}

// difference is a sum of other members that is not this node's.
type difference struct {
	at  stateSum // theirs
	own uint64
	who []string
}

func (d *difference) String() string {
	return fmt.Sprintf("after log entry %d its hash is %016x, that of %s is %016x", d.at.index,
		d.own, strings.Join(d.who, " and "), d.at.sum)
}

// compare compares a member's sums with this node's, and returns those that differ.
func (s *ownSums) compare(m *memberSums) (differ []difference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.compared, m.differs = 0, false
	for _, at := range append(slices.Clone(m.marks), m.newest) {
		own := s.recent[at.index%recentSums]
		if at.index == 0 || own.index != at.index {
			continue
		}
		if at.index >= m.compared {
			m.compared, m.differs = at.index, at.sum != own.sum
		}
		if at.sum != own.sum {
			differ = append(differ, difference{at: at, own: own.sum})
		}
	}
	return differ
}

// compareSums compares this node's state with that of the members. It returns what differs and was
// not reported yet, and what a majority of the voters has in place of this node's; nil: nothing.
func (n *Node) compareSums() (fresh []difference, wrong *difference) {
	h := &n.heard
	h.mu.Lock()
	defer h.mu.Unlock()
	voters, members := 0, map[string]bool{}
	var equal []uint64 // up to where each voter's state is this node's
	votes := map[stateSum]*difference{}
	for _, s := range n.configuration().Servers {
		id, votesToo := string(s.ID), s.Suffrage == raft.Voter
		members[id] = true
		if votesToo {
			voters++
		}
		m := h.of[id]
		switch {
		case id == n.cfg.ID && votesToo:
			equal = append(equal, n.machine.appliedIndex.Load())
			continue
		case id == n.cfg.ID || m == nil:
			continue
		}
		differ := n.machine.sums.compare(m)
		if m.differs && !m.reported && len(differ) > 0 {
			fresh = append(fresh, difference{differ[0].at, differ[0].own, []string{id}})
		}
		m.reported = m.differs
		if !votesToo {
			continue
		}
		if !m.differs {
			equal = append(equal, m.compared)
		}
		for _, d := range differ {
			v := votes[d.at]
			if v == nil {
				v = &difference{at: d.at, own: d.own}
				votes[d.at] = v
			}
			v.who = append(v.who, id)
		}
	}
	for id := range h.of {
		if !members[id] {
			delete(h.of, id)
		}
	}
	majority := voters/2 + 1
	slices.Sort(equal)
	h.equal = 0
	if len(equal) >= majority {
		h.equal = equal[len(equal)-majority]
	}
	for _, v := range votes {
		if len(v.who) >= max(majority, fewestToEnd) && (wrong == nil ||
			v.at.index < wrong.at.index) {
			wrong = v
		}
	}
	return fresh, wrong
}

// watchSums is the loop that tells the members what is new of this node's state, and compares.
func (n *Node) watchSums() {
	if n.machine.summer == nil {
		return
	}
	ticker := pulse.NewTicker(sumsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			ticker.Next()
			n.tellSums()
		case <-n.heard.wake:
		case <-n.stop:
			return
		}
		fresh, wrong := n.compareSums()
		for _, d := range fresh {
			statesEqual.Broken("member", d.who[0], "after-entry", d.at.index)
			n.logger.Error("the states of two members differ; docs/operations.md says what to do",
				"member", d.who[0], "after-entry", d.at.index,
				"own-hash", fmt.Sprintf("%016x", d.own), "its-hash",
				fmt.Sprintf("%016x", d.at.sum))
		}
		if wrong != nil {
			n.endWrong(wrong)
			return
		}
	}
}

// endWrong ends this node, whose state is wrong. The outcome of what is in flight is decided by the
// others, so its replies here would be as wrong as the state. A leader hands over at once.
func (n *Node) endWrong(d *difference) {
	err := fmt.Errorf("the state of this node differs from that of a majority: %v; start it "+
		"again, and if it ends again, replace it: docs/operations.md", d)
	n.logger.Error("this node ends", "error", err)
	n.fail(err)
	finishAll(n.pendingEntries.abandon(time.Now()), errWrongState)
	n.TransferIfLeader()
}

// errWrongState answers writes in flight on a node whose state is wrong.
var errWrongState = unknown("the write was in flight on a node whose state is wrong")

// tellSums tells all members that are connected what is new.
func (n *Node) tellSums() {
	n.linksMu.Lock()
	links := make([]*link, 0, len(n.links))
	for _, l := range n.links {
		links = append(links, l)
	}
	n.linksMu.Unlock()
	for _, l := range links {
		l.tellSums()
	}
}

// tellSums tells the member what is new, unless it is of an older version or reads nothing.
func (l *link) tellSums() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.takes() || l.peer.abilities&abilitySums == 0 || l.wire.backlog() >= maxAskQueue {
		return
	}
	if r, ok := l.n.machine.sums.since(&l.toldSums); ok {
		l.wire.send(endFrame(appendSums(beginFrame(64), r), frameSums, 0, 0), nil)
	}
}
