package models

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coordd/coordd/cluster/trace"
)

// Trace checks what nodes have recorded against the rules of the models: what the models show to be
// right while all keep the rules is so of the nodes while they keep them. It needs the events of a
// node in their order, and those of several nodes in about their order.
type Trace struct {
	nodes map[string]*traced
	// by index: the term of what was applied there, and the smallest term in which anybody was then
	decided map[uint64]decision
	newest  uint64 // the largest index of decided
	leaders map[uint64]string
	epoch   uint64 // of the terms, see epochBits
	events  int
}

// Who restores a cluster from a backup, or recovers one, begins a history of its own: its terms
// begin with an epoch.
const epochBits = 32

type decision struct{ term, in uint64 }

// traced is what is known of a node.
type traced struct {
	term, voted uint64            // on its disk
	granted     map[uint64]string // by term
	terms       map[uint64]uint64 // of the entries in its log, by index, as far as known
	last        uint64            // the newest entry in its log
	durable     uint64            // as much of it is on its disk, or in its snapshot
	owes        uint64            // what it confirmed and its disk has lost
	epoch       uint64
	led         uint64
	reads       map[uint64]*tracedRead
	answers     []answer // since the oldest of reads
}

// tracedRead is a read that has begun.
type tracedRead struct {
	term      uint64
	decided   uint64 // Trace.newest as it began
	confirmed bool
	answers   int // how many there were as it began
}

type answer struct {
	peer     string
	question uint64
	term     uint64
}

// NewTrace returns a check of a cluster's events from its founding on.
func NewTrace() *Trace {
	return &Trace{nodes: map[string]*traced{}, decided: map[uint64]decision{},
		leaders: map[uint64]string{}}
}

// Step checks the next event. The error names the rule that it breaks.
func (t *Trace) Step(e trace.Event) error {
	t.events++
	n := t.nodes[e.Node]
	if epoch := e.Term >> epochBits; epoch > t.epoch {
		*t = Trace{nodes: map[string]*traced{}, decided: map[uint64]decision{},
			leaders: map[uint64]string{}, epoch: epoch, events: t.events}
		n = nil
	}
	if n == nil || e.Kind == trace.Starts && e.Term == 0 { // it has a new disk
		n = &traced{granted: map[uint64]string{}, terms: map[uint64]uint64{},
			reads: map[uint64]*tracedRead{}}
		t.nodes[e.Node] = n
	}
	if e.Kind == trace.Starts {
		n.epoch = e.Term >> epochBits
	}
	if n.epoch < t.epoch {
		return nil // what it has is no part of this history
	}
	if err := t.step(n, e); err != nil {
		return fmt.Errorf("event %d, %+v: %w", t.events, e, err)
	}
	return nil
}

func broken(r Rule, format string, args ...any) error {
	return fmt.Errorf("it breaks the rule %q: %s", r, fmt.Sprintf(format, args...))
}

func (t *Trace) step(n *traced, e trace.Event) error {
	switch e.Kind {
	case trace.Starts:
		return n.start(e)
	case trace.Enters:
		// A founding that was interrupted is undone, and its term, in which nobody votes.
		undone := e.Term == 0 && n.term == 1 && n.voted == 0 && n.durable == 0
		if e.Term < n.term && !undone {
			return broken(TermBeforeVote, "its term was %d", n.term)
		}
		n.term = e.Term
	case trace.Votes:
		if e.Term > n.term || e.Term < n.voted {
			return broken(TermBeforeVote, "its term is %d, its newest vote in %d", n.term, n.voted)
		}
		n.voted = e.Term
	case trace.Grants:
		return n.grant(e)
	case trace.Logs:
		return n.log(e, false)
	case trace.Stores:
		return n.log(e, true)
	case trace.Cuts:
		n.cut(e.Index)
	case trace.Restores:
		n.restore(e)
		return t.apply(n, trace.Event{Index: e.Index, Term: e.Term, Now: n.term})
	case trace.Confirms:
		if e.Index > n.durable {
			return broken(FollowersWriteFirst, "its disk ends with %d", n.durable)
		}
	case trace.Tells:
		if e.Index > n.durable {
			return broken(TellsWhatIsDurable, "its disk ends with %d", n.durable)
		}
	case trace.Applies:
		return t.apply(n, e)
	case trace.Leads:
		return t.lead(n, e)
	case trace.Asks:
		n.reads[e.Question] = &tracedRead{term: e.Term, decided: t.newest, answers: len(n.answers)}
	case trace.Answered:
		if e.Question > 0 {
			n.answers = append(n.answers, answer{e.Peer, e.Question, e.Term})
		}
	case trace.Confirmed:
		return n.confirm(e)
	case trace.Reads:
		return n.read(e)
	default:
		return fmt.Errorf("no model knows this kind")
	}
	return nil
}

// start has a node begin with what its disk has.
func (n *traced) start(e trace.Event) error {
	switch {
	case e.Term < n.term:
		return broken(TermBeforeVote, "its term was %d", n.term)
	case e.Now < n.voted:
		return broken(TermBeforeVote, "its newest vote was in %d", n.voted)
	case n.durable >= n.owes: // it has made up for what it had lost
		n.owes = 0
	}
	if e.Index < n.durable {
		n.owes = max(n.owes, n.durable)
	}
	n.term, n.voted, n.led = e.Term, e.Now, 0
	n.cut(e.Index)
	n.durable, n.last = e.Index, e.Index
	clear(n.reads)
	n.answers = nil
	return nil
}

// cut has its log end with an entry.
func (n *traced) cut(last uint64) {
	maps.DeleteFunc(n.terms, func(index, _ uint64) bool { return index > last })
	n.last, n.durable = min(n.last, last), min(n.durable, last)
}

// restore has its snapshot hold the log up to an entry.
func (n *traced) restore(e trace.Event) {
	n.terms[e.Index] = e.Term
	n.last, n.durable = max(n.last, e.Index), max(n.durable, e.Index)
}

func (n *traced) grant(e trace.Event) error {
	to, again := n.granted[e.Term]
	switch {
	case e.Term > n.term || n.voted < e.Term:
		return broken(TermBeforeVote, "its disk has term %d, and a vote in %d", n.term, n.voted)
	case again && to != e.Peer:
		return broken(VotesOnce, "it has voted for %s", to)
	case n.durable < n.owes && e.Index < n.owes:
		return broken(FollowersWriteFirst, "its disk ended with %d, and ends with %d now", n.owes,
			n.durable)
	}
	n.granted[e.Term] = e.Peer
	return nil
}

// log has a node log entries, in memory or on its disk.
func (n *traced) log(e trace.Event, disk bool) error {
	// A log may begin behind a snapshot that no machine has yet, but not leave out what was logged.
	if _, logged := n.terms[n.durable+1]; disk && logged && e.First > n.durable+1 {
		return broken(FollowersWriteFirst, "its disk ends with %d", n.durable)
	}
	for i := e.First; i <= e.Index; i++ {
		if term, ok := n.terms[i]; ok && i <= n.last && term != e.Term {
			return fmt.Errorf("entry %d is of term %d, it was logged as of %d", i, e.Term, term)
		}
		n.terms[i] = e.Term
	}
	n.last = max(n.last, e.Index)
	if disk {
		n.durable = max(n.durable, e.Index)
	}
	return nil
}

// apply notes what a machine has.
func (t *Trace) apply(n *traced, e trace.Event) error {
	if e.Index > n.durable {
		return broken(AppliesWhatIsDurable, "its disk ends with %d", n.durable)
	}
	d, ok := t.decided[e.Index]
	switch {
	case !ok:
		d = decision{e.Term, e.Now}
	case d.term != e.Term:
		return fmt.Errorf("others have applied entry %d of term %d", e.Index, d.term)
	}
	d.in = min(d.in, e.Now)
	t.decided[e.Index] = d
	t.newest = max(t.newest, e.Index)
	return nil
}

// lead checks that nobody else leads in the term, and that the leader has all that was decided
// before it.
func (t *Trace) lead(n *traced, e trace.Event) error {
	if by, ok := t.leaders[e.Term]; ok && by != e.Node {
		return broken(VotesOnce, "%s leads in that term", by)
	}
	t.leaders[e.Term] = e.Node
	if n.led == e.Term {
		return nil // said again
	}
	n.led = e.Term
	switch to, ok := n.granted[e.Term]; {
	case e.Term > n.term || n.voted < e.Term:
		return broken(TermBeforeVote, "its disk has term %d, and a vote in %d", n.term, n.voted)
	case ok && to != e.Node:
		return broken(VotesOnce, "it has voted for %s", to)
	}
	n.granted[e.Term] = e.Node
	for i := t.newest; i > 0; i-- {
		d, ok := t.decided[i]
		if !ok || d.in >= e.Term {
			continue
		}
		if term, known := n.terms[i]; i > n.last || known && term != d.term {
			return fmt.Errorf("it leads without entry %d of term %d, which was applied", i, d.term)
		}
		break // logs that agree on an entry agree on all before
	}
	return nil
}

func (n *traced) confirm(e trace.Event) error {
	r := n.reads[e.Question]
	if r == nil {
		return nil // a question for something else
	}
	agree := map[string]bool{}
	for _, a := range n.answers[min(r.answers, len(n.answers)):] {
		switch {
		case a.question < e.Question:
		case a.term > r.term:
			delete(agree, a.peer)
		default:
			agree[a.peer] = true
		}
	}
	if len(agree) < e.Need {
		return broken(AnswersToThisQuestion, "%d of %d have answered: %v", len(agree), e.Need,
			slices.Sorted(maps.Keys(agree)))
	}
	r.confirmed = true
	return nil
}

// read ends the oldest read.
func (n *traced) read(e trace.Event) error {
	r := n.reads[e.Question]
	switch term, known := n.terms[e.Index]; {
	case r == nil:
		return fmt.Errorf("it has not asked")
	case !r.confirmed:
		return broken(AsksAMajority, "nobody was asked")
	case known && term != r.term:
		return broken(ReadsAfterBarrier, "it reads up to an entry of term %d", term)
	case e.Index > n.durable:
		return broken(AppliesWhatIsDurable, "its disk ends with %d", n.durable)
	case e.Index < r.decided:
		return fmt.Errorf("entry %d was applied before the read began", r.decided)
	}
	clear(n.reads)
	n.answers = nil
	return nil
}
