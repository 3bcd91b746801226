// This file holds the sweep: it ends the wait for a leader whose heartbeats go on while it does nothing else, because
// its disk hangs. Nobody is elected then, so no other event would end it.
package cluster

import (
	"sync"
	"time"
)

// pendingEntries holds the proposed entries that are not answered, oldest first. The completer removes them in that order.
type entryList struct {
	mu      sync.Mutex
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

// empty reports whether no entry is under way. One that was is answered, and has parked reads looked for, behind its removal.
func (w *entryList) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries) == 0
}

// abandon takes the calls of entries that were proposed before limit. The entries stay until Raft answers them.
func (w *entryList) abandon(limit time.Time) (calls []*call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.entries {
		if !e.proposed.Before(limit) {
			break
		}
		calls = append(calls, e.take()...)
	}
	return calls
}

// sweep gives up what has been under way for ReplyWait: a write is unknown, a read is routed again. What has waited in
// a queue for so long behind that (LeaderWait is over by then) never ran. Entries and frames keep their places until
// they are answered, so that no more of them pile up at a leader that hangs. The steering loop calls it.
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

// refuse ends calls that have waited too long in a queue.
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

// returnLate returns heavy frames that came so long ago that their senders are about to take them for lost: they did not have their turn.
func (n *Node) returnLate(q *queue, limit time.Time) {
	late := func(c *call) bool { return c.heavy && c.from != nil && c.deadline.Before(limit) }
	if !q.hasForwarded() || !q.hasHeavy() {
		return
	}
	dropped, _ := q.remove(late)
	finishAll(dropped, errOverloaded)
}

// reroute has calls go round again that were taken from q and did not run, but for those that have done so for ReplyWait: it is not
// left to the sweep to find them in the queue between two rounds.
func (n *Node) reroute(q *queue, calls []*call) {
	q.requeue(calls, true)
	n.failOverdue(q.overdue(time.Now().Add(-n.cfg.ReplyWait)))
}

// sweepsPerWait is how many sweeps there are in ReplyWait; what is late is found late by a part of it at most.
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
