// The read path: Barrier, Replication and the read loop.

package cluster

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/wire"
)

// Barrier waits until this node has applied every write acknowledged, on any node, before the call;
// ReadLocal then sees them. The error is ErrNotRun, also when ctx ends the wait.
func (n *Node) Barrier(ctx context.Context) error {
	seen, err := n.Replication(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n.machine.appliedIndex.Load() < seen.Index {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errWithdrawn
		case <-n.closing:
			return errStopping
		}
	}
	return nil
}

// Replication asks the leader, whichever node that is, and has it confirm its leadership. The error
// is ErrNotRun, also when ctx ends the wait.
//
// On the wire it is a read of an empty batch. A leader of an older version answers with the index
// alone.
func (n *Node) Replication(ctx context.Context) (membership.Replication, error) {
	reply, err := n.Read(ctx, fair.Workload{}, nil)
	if err != nil {
		return membership.Replication{}, err
	}
	c := wire.NewCursor(reply)
	h := membership.Replication{Index: c.Uvarint()}
	if c.Failed() {
		return h, notRun(
			"the leader does not report what it has applied: it may run an older version")
	}
	for c.Len() > 0 {
		h.Others = append(h.Others, c.Uvarint())
	}
	return h, nil
}

// asksReplication reports whether a read call contains one of Replication, which reports what all
// voters have: asking a majority would not do.
func (c *call) asksReplication() bool {
	return slices.ContainsFunc(c.batches, func(b []byte) bool { return len(b) == 0 })
}

// appendReplication encodes the answer to Replication.
func (n *Node) appendReplication(index uint64) []byte {
	b := binary.AppendUvarint(nil, index)
	others, _ := n.quorum()
	for _, l := range others {
		l.mu.Lock()
		applied := l.report.applied
		l.mu.Unlock()
		b = binary.AppendUvarint(b, applied)
	}
	return b
}

// serveReads is the read loop: all waiting reads share one confirmation.
func (n *Node) serveReads() {
	n.consume(n.reads, func(r *route) bool { return n.readOnce(r.lead) }, frameRead)
}

// readOnce serves the light reads that wait now, and starts one heavy read beside the loop. It
// returns false when there are none.
func (n *Node) readOnce(lead *leadership) bool {
	var light, heavy []*call
	for {
		more := n.reads.dequeue(light, 1)
		if len(more) == len(light) {
			break
		}
		light = more
	}
	if !n.heavyRead.Load() { // the end of a heavy read wakes the loop
		heavy = n.reads.takeHeavy(nil, 1)
	}
	if len(light)+len(heavy) == 0 {
		return false
	}
	// The order matters: first the commit index and the clock, then the question. See
	// read_confirm.go. A later reading of the clock could be of a time at which another node leads,
	// and a key that has been given more time there would have none left.
	now := lead.Now()
	asked := n.nonce + 1
	n.trace.Record(trace.Event{Kind: trace.Asks, Question: asked, Term: lead.term})
	committed := n.committed()
	index := n.logs.lastVisible(committed)
	calls := append(light, heavy...)
	all := slices.ContainsFunc(calls, (*call).asksReplication)
	if !n.confirm(lead, all) || !n.awaitApplied(index, calls) || n.failure.Load() {
		n.retract(n.reads, calls)
		return true
	}
	n.trace.Record(trace.Event{Kind: trace.Reads, Question: asked, Term: lead.term,
		Index: committed})
	p := readPass{n: n, lead: lead, index: index, now: now}
	if len(heavy) > 0 {
		n.heavyRead.Store(true)
		n.loops.Add(1)
		go n.readHeavy(p, heavy[0])
	}
	for _, c := range light {
		p.run(c)
	}
	if p.work > fair.Quantum/2 {
		n.reads.beCautious()
	}
	if len(p.again) > 0 {
		n.reads.requeue(p.again, false)
	}
	return true
}

// readHeavy runs one heavy read when the gate admits it.
func (n *Node) readHeavy(p readPass, c *call) {
	defer n.loops.Done()
	if w := n.gate.Acquire(c.Flow, n.cfg.ReplyWait, n.closing); w != nil {
		p.run(c)
		n.gate.Release(w, p.work)
	} else {
		c.finish(nil, errOverloaded)
	}
	n.heavyRead.Store(false)
	kick(n.reads.wake)
}

// readPass runs read calls that share one confirmation.
type readPass struct {
	n     *Node
	lead  *leadership
	index uint64 // that the machine has applied
	now   clock.Reading
	work  uint64  // done so far
	again []*call // local calls left for the next pass
}

// run runs the batches of a call and answers it. When the pass has done a quantum, the rest waits
// for the next pass. If a batch names an instant that does not exist yet, or that may belong to a
// later leader, the call is parked without an answer.
func (p *readPass) run(c *call) {
	if p.work >= fair.Quantum && c.from == nil {
		p.again = append(p.again, c)
		return
	}
	replies, ok := p.replies(c)
	if !ok {
		p.n.park(p.lead, c)
		return
	}
	p.n.settleCall(p.n.reads, c, replies)
}

func (p *readPass) replies(c *call) (replies [][]byte, ok bool) {
	if c.lead != p.lead {
		c.lead, c.askedUs = p.lead, p.now.WallUs()
	}
	named, late := false, false
	next := func(lastUs, stampUs int64) (us int64, ok bool) {
		us, ok = p.lead.Instant(lastUs, stampUs, c.askedUs)
		named, late = true, late || !ok
		return us, ok
	}
	size := 0
	c.work = nil
	for i, g := range c.batches {
		if i > 0 && (size > p.n.cfg.readReplies || p.work >= fair.Quantum) {
			break // the follower sends the rest again
		}
		var reply []byte
		var work uint64
		if len(g) == 0 {
			reply = p.n.appendReplication(p.index)
		} else {
			late = false
			reply, work = p.n.runRead(g, p.now, next, i == 0 && c.late)
			if late && len(reply) == 0 && i > 0 {
				break // otherwise a frame would wait until all of its batches have an instant
			}
			if late && len(reply) == 0 {
				c.late = true // it ran in vain, which it will not again
				p.work += work
				return nil, false
			}
		}
		replies, c.work = append(replies, reply), append(c.work, work)
		size += len(reply)
		p.work += work + uint64(len(reply))/fair.BytesPerUnit
	}
	// If the term is the same, nothing of a later leader was applied, so the state knows of no
	// other leader's instants.
	return replies, !named || p.n.raft.CurrentTerm() == p.lead.term
}

// overdueAt returns when the first of calls that were taken out of the queue is refused, which
// sweep would do there. Frames have no deadline: their senders give them up after ReplyWait.
func (n *Node) overdueAt(calls []*call) time.Time {
	first := time.Now()
	for _, c := range calls {
		if c.from == nil && c.deadline.Before(first) {
			first = c.deadline
		}
	}
	return first.Add(n.cfg.ReplyWait)
}

// awaitApplied waits until the machine has applied everything up to index. It returns false when
// the first of calls is overdue, or the node stops.
func (n *Node) awaitApplied(index uint64, calls []*call) bool {
	a := n.machine
	if a.appliedIndex.Load() >= index {
		return true
	}
	a.awaited.Store(index)
	defer a.awaited.Store(0)
	timer := time.NewTimer(time.Until(n.overdueAt(calls)) + 1) // late is after that, not at it
	defer timer.Stop()
	for a.appliedIndex.Load() < index {
		select {
		case <-a.wake:
		case <-timer.C:
			return false
		case <-n.stop:
			return false
		}
	}
	return true
}
