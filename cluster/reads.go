// This file holds the read loop.
package cluster

import (
	"context"
	"encoding/binary"
	"time"
)

// Barrier returns when this node has applied everything that was acknowledged, on any node, before the call: what ReadLocal sees then
// is no older. The error is ErrNotRun's, also when ctx ends the wait.
//
// It is a read of an empty group, which the leader answers with the index up to which it had to be applied.
func (n *Node) Barrier(ctx context.Context) error {
	reply, err := n.Read(ctx, nil)
	if err != nil {
		return err
	}
	index, size := binary.Uvarint(reply)
	if size <= 0 {
		return notRun("the leader does not tell how far it has applied: it may run an older version")
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n.machine.appliedIndex.Load() < index {
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
		n.retractReads(units)
		return true
	}
	clockMs := lead.nowMs()
	for _, u := range units {
		replies, size := make([][]byte, len(u.groups)), 0
		for i, g := range u.groups {
			if size > n.cfg.readReplies {
				break // the follower sends the others again
			}
			if len(g) == 0 { // Barrier
				replies[i] = binary.AppendUvarint(nil, index)
				continue
			}
			replies[i] = n.runRead(g, clockMs)
			size += len(replies[i])
		}
		u.finish(replies, nil)
	}
	return true
}

// retractReads routes reads again; frames are given back.
func (n *Node) retractReads(units []*unit) {
	local := units[:0]
	for _, u := range units {
		if u.from != nil {
			u.finish(nil, errNoLeader)
		} else {
			local = append(local, u)
		}
	}
	n.reads.pushBack(local, true)
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
