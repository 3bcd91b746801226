// This file holds the write path: the proposer, which turns what waits into log entries or frames, and the completer,
// which hands the replies out.
package cluster

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// maxInFlight is how many entries the leader has proposed and not yet answered: while one is being written on the followers, the next
// is being written here.
const maxInFlight = 3

// joinGroups is how many groups have to wait before an entry is proposed behind others that are in flight, or a frame is sent behind others
// that the leader has not answered. An entry costs as much as some thirty groups, in fsyncs and in wakes of three processes, and what comes in
// several frames comes in several entries. Fewer callers than this are served by one entry after
// the other, each with all that came meanwhile; more keep the disks and the network of all nodes busy at a time.
const joinGroups = 64

// entry is one proposed log entry.
type entry struct {
	future   raft.ApplyFuture
	lead     *leadership
	stamp    stamp
	groups   int
	proposed time.Time

	mu    sync.Mutex
	units []*unit // nil once they have their outcome
}

// take returns the units that have no outcome yet, to whoever gives them one.
func (e *entry) take() []*unit {
	e.mu.Lock()
	defer e.mu.Unlock()
	units := e.units
	e.units = nil
	return units
}

// propose is the proposer's loop.
func (n *Node) propose() {
	var scratch [][]byte
	n.consume(n.writes, func(r *route) bool {
		flying, least := int(n.inFlight.Load()), 1
		if flying >= n.cfg.inFlight {
			return false
		}
		if flying > 0 {
			least = joinGroups
		}
		n.quiet.mu.Lock()
		defer n.quiet.mu.Unlock()
		if n.quiet.wishes > 0 {
			return false // the end of each wakes the loop
		}
		if n.proposeRaise(r.lead) {
			return true
		}
		var did bool
		scratch, did = n.proposeOnce(r.lead, scratch, least)
		return did
	}, frameWrite)
}

// consume is the loop of a queue's one consumer. lead does one step of work on the leader and reports whether there
// was any; on a follower frames of that kind go to the leader; with no way to a leader, what waits too long is refused.
func (n *Node) consume(q *queue, lead func(*route) bool, kind frameKind) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		pause := q.heldFor()
		if pause == 0 {
			r := n.route.Load()
			var did bool
			if did, pause = n.step(q, r, lead, kind); did {
				continue
			}
		}
		timer.Reset(pause)
		select {
		case <-q.wake:
		case <-timer.C:
		case <-n.stop:
			return
		}
	}
}

const idlePause = time.Hour

// step does one piece of work, or returns how long to sleep at most when there is none to do now.
func (n *Node) step(q *queue, r *route, lead func(*route) bool, kind frameKind) (did bool, pause time.Duration) {
	if r.lead != nil {
		return lead(r), idlePause
	}
	if !r.self {
		n.refuseForwarded(q)
	}
	if r.link != nil && r.link.up() {
		least, ready := r.link.room(kind)
		if !ready {
			return false, idlePause // its next reply wakes the loop
		}
		taken := q.take(nil, least)
		if len(taken) == 0 {
			return false, idlePause
		}
		units := taken[:0]
		for _, u := range taken {
			switch {
			case u.from != nil: // it came when this node still led
				u.finish(nil, errNoLeader)
			case u.trial && !r.link.able(abilityTry):
				u.finish([][]byte{{}}, nil)
			default:
				units = append(units, u)
			}
		}
		if len(units) == 0 {
			return true, 0
		}
		if !r.link.forward(kind, units) {
			q.pushBack(units, false)
		}
		return true, 0
	}
	return false, n.expire(q)
}

// refuseForwarded gives the frames of followers back: this node does not lead, and a frame is passed on only once.
func (n *Node) refuseForwarded(q *queue) {
	if !q.hasForeign() {
		return // the queue is not walked for nothing
	}
	dropped, _ := q.remove(func(u *unit) bool { return u.from != nil })
	for _, u := range dropped {
		u.finish(nil, errNoLeader)
	}
}

// expire refuses what has waited for a leader until its deadline, and returns the time until the next one is due.
func (n *Node) expire(q *queue) time.Duration {
	now := time.Now()
	dropped, next := q.remove(func(u *unit) bool { return !u.deadline.After(now) })
	finishAll(dropped, errNoLeader)
	if next.IsZero() {
		return idlePause
	}
	return next.Sub(now)
}

// proposeOnce makes one entry of what waits, if that is at least so many groups, and hands it to Raft. With nothing
// waiting it proposes a tick when one is due. scratch is reused for the groups.
func (n *Node) proposeOnce(lead *leadership, scratch [][]byte, least int) ([][]byte, bool) {
	flying := n.inFlight.Add(1) // before anything is taken: drain must not find the queue empty and nothing in flight
	units := n.writes.take(nil, least)
	tick := n.tickDue.Swap(false)
	if len(units) == 0 && !(tick && flying == 1) {
		n.inFlight.Add(-1)
		return scratch, false
	}
	groups, size := scratch[:0], 0
	for _, u := range units {
		groups, size = append(groups, u.groups...), size+u.size
	}
	data := make([]byte, 0, size+8*len(groups)+64)
	at := lead.stamp()
	data = n.machine.machine.AppendEntry(data, at.clockMs, at.wallUs, groups)
	n.hand(lead, data, &entry{stamp: at, units: units, groups: len(groups), proposed: time.Now()})
	clear(groups)
	return groups, true
}

// hand hands an entry, which the caller has counted in inFlight, to Raft, and then to the completer.
func (n *Node) hand(lead *leadership, data []byte, e *entry) {
	e.lead = lead
	n.underWay.add(e)
	e.future = n.raft.ApplyLog(raft.Log{Data: data, Extensions: lead.mark}, 0)
	n.flying <- e
}

// complete is the completer's loop: entries are answered in the order in which they were proposed.
func (n *Node) complete() {
	for e := range n.flying {
		err := e.future.Error()
		n.underWay.removeFirst()
		e.lead.landed(e.stamp)
		units := e.take() // none when the sweep gave them up
		switch replies := e.replies(); {
		case err != nil && neverLogged(err), err == nil && replies.void:
			n.retract(n.writes, units)
		case err != nil:
			finishAll(units, unknown(fmt.Sprintf("the write was under way when this happened: %v", err)))
		case replies.groups == nil && e.groups > 0:
			finishAll(units, errNoReply)
		default:
			rest := replies.groups
			for _, u := range units {
				k := len(u.groups)
				u.finish(rest[:k:k], nil)
				rest = rest[k:]
			}
		}
		n.inFlight.Add(-1)
		n.unpark(time.Time{})
		kick(n.writes.wake)
	}
}

type entryReplies struct {
	groups [][]byte
	void   bool
}

// replies reads the result of applying; call it after the future's Error has returned.
func (e *entry) replies() entryReplies {
	switch r := e.future.Response().(type) {
	case voided:
		return entryReplies{void: true}
	case [][]byte:
		if len(r) == e.groups {
			return entryReplies{groups: r}
		}
	}
	return entryReplies{}
}

func finishAll(units []*unit, err error) {
	for _, u := range units {
		u.finish(nil, err)
	}
}

// retract takes units of q that did not run: local ones are routed again, frames are given back.
func (n *Node) retract(q *queue, units []*unit) {
	local := units[:0]
	for _, u := range units {
		if u.from != nil {
			u.finish(nil, errNoLeader)
		} else {
			local = append(local, u)
		}
	}
	n.routeAgain(q, local)
}
