// Timeouts of requests: a leader whose disk hangs keeps sending heartbeats, so nobody is elected
// and no other event ends the wait.

package cluster

import (
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// entryList holds the proposed entries without an outcome, oldest first. The completer removes them
// in that order.
type entryList struct {
	mu      lockorder.Mutex
	entries []*entry
}

func (w *entryList) add(e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, e)
}

func (w *entryList) removeFirst() {
	w.mu.Lock()
	defer w.mu.Unlock()
	copy(w.entries, w.entries[1:]) // a handful
	w.entries[len(w.entries)-1] = nil
	w.entries = w.entries[:len(w.entries)-1]
}

// empty reports whether no entry is in flight. The completer removes an answered entry before it
// looks for parked reads.
func (w *entryList) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries) == 0
}

// abandon takes the calls of entries that were proposed before limit. The entries stay until Raft
// answers them.
func (w *entryList) abandon(limit time.Time) (calls []*call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.entries {
		if !e.proposed.Before(limit) {
			break
		}
		calls = append(calls, e.unanswered()...)
	}
	return calls
}

// sweep gives up what has been in flight for ReplyWait: writes become unknown, reads are rerouted.
// Calls that have waited in a queue for ReplyWait past their deadline never ran. Entries and frames
// keep their slots until they are answered, so that no more of them pile up at a hanging leader.
// The route loop calls it.
func (n *Node) sweep(now time.Time) {
	if now.Sub(n.lastSweep) < n.cfg.ReplyWait/sweepsPerWait {
		return
	}
	n.lastSweep = now
	limit := now.Add(-n.cfg.ReplyWait)
	finishAll(n.pendingEntries.abandon(limit), errNoAnswer)
	n.linksMu.Lock()
	links := make([]*link, 0, len(n.links))
	for _, l := range n.links {
		links = append(links, l)
	}
	n.linksMu.Unlock()
	for _, l := range links {
		writes, reads := l.abandon(limit)
		finishAll(writes, errNoAnswer)
		if len(reads) > 0 {
			n.reads.requeue(reads, true)
		}
	}
	n.unpark(limit)
	for _, q := range []*queue{n.writes, n.reads} {
		n.failOverdue(q.overdue(limit))
		n.returnLate(q, now.Add(n.cfg.LeaderWait-n.cfg.ReplyWait/2))
	}
}

// failOverdue refuses calls that have waited too long in a queue.
func (n *Node) failOverdue(calls []*call) {
	if len(calls) == 0 {
		return
	}
	why := n.noProgressError()
	for _, c := range calls {
		if c.heavy {
			c.finish(nil, errOverloaded)
		} else {
			c.finish(nil, why)
		}
	}
}

// returnLate returns heavy frames whose senders are about to give them up.
func (n *Node) returnLate(q *queue, limit time.Time) {
	late := func(c *call) bool { return c.heavy && c.from != nil && c.deadline.Before(limit) }
	if !q.hasForwarded() || !q.hasHeavy() {
		return
	}
	dropped, _ := q.remove(late)
	finishAll(dropped, errOverloaded)
}

// reroute requeues calls that were taken from q and did not run. It refuses those that have been
// rerouted for ReplyWait, as the sweep could miss them between two rounds.
func (n *Node) reroute(q *queue, calls []*call) {
	q.requeue(calls, true)
	n.failOverdue(q.overdue(time.Now().Add(-n.cfg.ReplyWait)))
}

// sweepsPerWait is how many sweeps run in ReplyWait: it bounds how late an overdue call is found.
const sweepsPerWait = 10

// abandon takes the calls of frames that were sent before limit.
func (l *link) abandon(limit time.Time) (writes, reads []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.frames {
		if !f.sent.Before(limit) {
			continue
		}
		if f.kind == frameWrite {
			writes = append(writes, f.calls...)
		} else {
			reads = append(reads, f.calls...)
		}
		f.calls = nil
	}
	return writes, reads
}
