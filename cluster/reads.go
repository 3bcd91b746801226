// This file holds the read loop.
package cluster

import (
	"context"
	"encoding/binary"
	"time"
)

// Barrier returns when this node has applied everything that was acknowledged, on any node, before the call: what ReadLocal sees then
// is no older. The error is ErrNotRun's, also when ctx ends the wait.
func (n *Node) Barrier(ctx context.Context) error {
	seen, err := n.Holders(ctx)
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

// Holders is what the leader knows of who holds the log.
type Holders struct {
	// Index: everything that was acknowledged before the question lies at or below it.
	Index uint64
	// Others are the indexes up to which the voters that do not lead are known to have stored and applied the log, in no order. A voter
	// that is missing, or behind, may hold more than the leader has heard of yet.
	Others []uint64
}

// Holders asks the leader, whichever node that is, and has it confirm that it leads. The error is ErrNotRun's, also when ctx ends the wait.
//
// It is a read of an empty group. A leader of an older version answers with the index alone.
func (n *Node) Holders(ctx context.Context) (Holders, error) {
	reply, err := n.Read(ctx, nil)
	if err != nil {
		return Holders{}, err
	}
	c := cursor{rest: reply}
	h := Holders{Index: c.uvarint()}
	if c.bad {
		return h, notRun("the leader does not tell how far it has applied: it may run an older version")
	}
	for len(c.rest) > 0 {
		h.Others = append(h.Others, c.uvarint())
	}
	return h, nil
}

// holders is the answer to Holders.
func (n *Node) holders(index uint64) []byte {
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

// serveReads is the read loop: all reads that wait share one confirmation.
func (n *Node) serveReads() {
	n.consume(n.reads, func(r *route) bool { return n.readOnce(r.lead) }, frameRead)
}

// readOnce serves the reads that wait now; false when there are none.
func (n *Node) readOnce(lead *leadership) bool {
	var units []*unit
	for {
		more := n.reads.take(units, 1)
		if len(more) == len(units) {
			break
		}
		units = more
	}
	if len(units) == 0 {
		return false
	}
	// The order matters: the commit index first, then the question. See confirm.go.
	index := n.logs.audible(n.raft.CommitIndex())
	if !n.confirm(lead) || !n.awaitApplied(index) {
		n.retract(n.reads, units)
		return true
	}
	now := lead.now()
	for _, u := range units {
		if !n.runReads(lead, u, now, index) {
			n.park(lead, u)
		}
	}
	return true
}

// runReads runs the groups of a unit and answers them; false, and nothing was answered, when one of them named an instant that there is not yet, or
// that may be a later leader's.
func (n *Node) runReads(lead *leadership, u *unit, now reading, index uint64) bool {
	named, late := false, false
	next := func(lastUs, stampUs int64) (us int64, ok bool) {
		us, ok = lead.instant(lastUs, stampUs)
		named, late = true, late || !ok
		return us, ok
	}
	replies, size := make([][]byte, len(u.groups)), 0
	for i, g := range u.groups {
		if size > n.cfg.readReplies {
			break // the follower sends the others again
		}
		if len(g) == 0 {
			replies[i] = n.holders(index)
			continue
		}
		late = false
		replies[i] = n.machine.machine.Read([]byte{}, g, now.clockMs(), now.wallUs(), next)
		if late && len(replies[i]) == 0 {
			return false
		}
		size += len(replies[i])
	}
	if named && n.raft.CurrentTerm() != lead.term {
		return false // else nothing of a later term was applied: the state that was read knows of no other leader's instants
	}
	u.finish(replies, nil)
	return true
}

// awaitApplied sleeps until the machine has applied everything up to index; false when the node stops.
func (n *Node) awaitApplied(index uint64) bool {
	a := n.machine
	if a.appliedIndex.Load() >= index {
		return true
	}
	a.awaited.Store(index)
	defer a.awaited.Store(0)
	for a.appliedIndex.Load() < index {
		select {
		case <-a.wake:
		case <-n.stop:
			return false
		}
	}
	return true
}
