// The write path: the proposer turns waiting calls into log entries or frames, the completer hands
// out replies.

package cluster

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/internal/lockorder"
)

// maxInFlight is how many entries the leader has in flight: while the followers write one, the
// leader writes the next.
const maxInFlight = 3

// joinBatches is how many batches must wait before another entry or frame is sent while one is in
// flight. An entry costs as much as some thirty batches, in fsyncs and in wakeups of three
// processes. Fewer callers than this are served by one entry after the other, each with everything
// that arrived meanwhile; more keep disks and network of all nodes busy at once.
const joinBatches = 64

// A run of fewEntries entries of at most fewBatches tells that few callers are there. A batch that
// comes while such an entry is in flight gets one of its own, and does not wait for two: that of a
// lock that passes from hand to hand would meet who queues for it again.
const (
	fewBatches = 4
	fewEntries = 16
)

// entry is one proposed log entry.
type entry struct {
	future   raft.ApplyFuture
	lead     *leadership
	stamp    clock.Stamp
	batches  int
	heavy    bool // its batches came from the fair queue
	raises   bool // it raises the level
	proposed time.Time

	mu    lockorder.Mutex
	calls []*call // nil once they have an outcome
}

// unanswered returns the calls without an outcome, to whoever gives them one.
func (e *entry) unanswered() []*call {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.calls
	e.calls = nil
	return calls
}

// propose is the proposer loop.
func (n *Node) propose() {
	var scratch [][]byte
	n.consume(n.writes, func(r *route) bool {
		n.pause.mu.Lock()
		defer n.pause.mu.Unlock()
		if n.pause.on {
			return false // whoever ends a pause wakes the loop
		}
		if n.inFlight.Load() > 0 && n.machine.appliesLong() {
			return false // its end wakes the loop
		}
		least, ready := n.roomForLight() // while it waited for the lock a first batch may come
		turn := n.hasWriteTurn()
		did := false
		if ready {
			if n.proposeRaise(r.lead) {
				return true
			}
			scratch, did = n.proposeOnce(r.lead, scratch, least)
		}
		if turn { // after the light batches, whose entry is applied first
			var heavy bool
			scratch, heavy = n.proposeHeavy(r.lead, scratch)
			did = did || heavy
		}
		return did
	}, frameWrite)
}

// longApply is when the leader stops proposing until an entry is applied. What it proposed would
// wait all the same, and could not be refused any more if it is what takes so long.
const longApply = 250 * time.Millisecond

// roomForLight reports whether another entry of light batches may be proposed, and how many batches
// it needs.
func (n *Node) roomForLight() (least int, ready bool) {
	if n.writes.hasFirst() {
		return 1, true // before the heavy batches, which it may refuse
	}
	flying, most := int(n.inFlight.Load()), n.cfg.inFlight
	if n.heavyWrite.Load() {
		flying--
	}
	if flying > 0 && n.writes.isCautious() {
		most = 1 // heavy work must not fill three entries ahead of the next batch
	}
	switch {
	case flying == 0, flying == 1 && n.few >= fewEntries && most > 1:
		return 1, true
	}
	return joinBatches, flying < most
}

// consume is the loop of a queue's single consumer. On the leader, lead does one step of work and
// reports whether there was any; on a follower, frames of that kind go to the leader; without a
// leader, calls are refused at their deadline.
func (n *Node) consume(q *queue, lead func(*route) bool, kind frameKind) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		pause := q.restFor()
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

// step does one piece of work. If there is none, it returns how long to sleep at most.
func (n *Node) step(q *queue, r *route, lead func(*route) bool,
	kind frameKind) (did bool, pause time.Duration) {
	if r.lead != nil {
		return lead(r), idlePause
	}
	if kind == frameWrite {
		n.endWriteTurn() // it led when it asked for one
	}
	if !r.self {
		n.refuseForwarded(q)
	}
	if r.link != nil && r.link.up() {
		if least, ready := r.link.room(kind); ready {
			did = n.forward(q, r.link, kind, q.dequeue(nil, least))
		}
		if r.link.roomForHeavy(kind) {
			did = n.forward(q, r.link, kind, q.takeHeavy(nil, 1)) || did
		}
		return did, idlePause // the link's next reply wakes the loop
	}
	return false, n.expire(q)
}

// forward sends calls that were taken from q to the leader in one frame. It reports whether there
// were any.
func (n *Node) forward(q *queue, l *link, kind frameKind, taken []*call) bool {
	calls := taken[:0]
	for _, c := range taken {
		switch {
		case c.from != nil: // it arrived while this node still led
			c.finish(nil, errNoLeader)
		case c.dryRun && !l.able(abilityDryRun):
			c.finish([][]byte{{}}, nil)
		default:
			calls = append(calls, c)
		}
	}
	if len(calls) > 0 && !l.forward(kind, calls) {
		q.requeue(calls, false)
	}
	return len(taken) > 0
}

// refuseForwarded returns followers' frames: this node does not lead, and a frame is forwarded only
// once.
func (n *Node) refuseForwarded(q *queue) {
	if !q.hasForwarded() {
		return // do not walk the queue for nothing
	}
	dropped, _ := q.remove(func(c *call) bool { return c.from != nil })
	for _, c := range dropped {
		c.finish(nil, errNoLeader)
	}
}

// expire refuses calls past their deadline and returns the time until the next one is due.
func (n *Node) expire(q *queue) time.Duration {
	now := time.Now()
	dropped, next := q.remove(func(c *call) bool { return !c.deadline.After(now) })
	finishAll(dropped, errNoLeader)
	if next.IsZero() {
		return idlePause
	}
	return next.Sub(now)
}

// proposeOnce proposes one entry of the waiting light batches if there are at least that many. If
// nothing is in flight, it proposes a due tick. It reuses scratch for the batches.
func (n *Node) proposeOnce(lead *leadership, scratch [][]byte, least int) ([][]byte, bool) {
	// before anything is taken: drain must not find the queue empty and nothing in flight
	flying := n.inFlight.Add(1)
	calls := n.writes.dequeue(nil, least)
	tick := n.tickDue.Swap(false)
	if len(calls) == 0 && !(tick && flying == 1) {
		n.inFlight.Add(-1)
		return scratch, false
	}
	return n.proposeCalls(lead, scratch, calls, false), true
}

// writeTurn is the turn of heavy batches at the gate: they exclude reads from the machine, and
// reads them. A light entry that comes meanwhile waits for one turn.
type writeTurn struct {
	asked atomic.Bool
	has   atomic.Pointer[fair.Ticket]
}

// longCommit is how long heavy batches keep their turn while the machine applies nothing: the log
// may hang, and what needs only this node goes on.
const longCommit = 250 * time.Millisecond

// hasWriteTurn reports whether heavy batches may be proposed. If some wait, it asks for the next
// turn, which wakes the proposer.
func (n *Node) hasWriteTurn() bool {
	switch {
	case n.heavyWrite.Load():
		return false
	case !n.writes.hasHeavy():
		n.endWriteTurn()
		return false
	case n.writeTurn.has.Load() != nil:
		return true
	case n.writeTurn.asked.CompareAndSwap(false, true):
		n.loops.Add(1)
		go func() {
			defer n.loops.Done()
			w := n.gate.Acquire(fair.Flow{}, n.cfg.ReplyWait, n.closing)
			n.writeTurn.has.Store(w)
			if w != nil {
				n.endIdleTurn(w)
			}
			n.writeTurn.asked.Store(false)
			kick(n.writes.wake)
		}()
	}
	return false
}

func (n *Node) endWriteTurn() {
	if w := n.writeTurn.has.Swap(nil); w != nil {
		n.gate.Release(w, 0)
	}
}

// endIdleTurn ends a turn that still lasts when the machine is found idle.
func (n *Node) endIdleTurn(w *fair.Ticket) {
	time.AfterFunc(longCommit, func() {
		switch {
		case n.writeTurn.has.Load() != w:
		case n.machine.applying.Load() != 0:
			n.endIdleTurn(w)
		case n.writeTurn.has.CompareAndSwap(w, nil):
			n.gate.Release(w, 0)
		}
	})
}

// proposeHeavy proposes one entry of the heavy batches that the fair queue picks.
func (n *Node) proposeHeavy(lead *leadership, scratch [][]byte) ([][]byte, bool) {
	n.inFlight.Add(1)
	calls := n.writes.takeHeavy(nil, maxEntryBatches)
	if len(calls) == 0 {
		n.inFlight.Add(-1)
		n.endWriteTurn() // nobody waits any more
		return scratch, false
	}
	n.heavyWrite.Store(true)
	return n.proposeCalls(lead, scratch, calls, true), true
}

// proposeCalls proposes one entry of calls, which the caller has counted in inFlight, and returns
// scratch.
func (n *Node) proposeCalls(lead *leadership, scratch [][]byte, calls []*call,
	heavy bool) [][]byte {
	n.endRest()
	batches, size := scratch[:0], 0
	for _, c := range calls {
		batches, size = append(batches, c.batches...), size+c.size
	}
	data := make([]byte, 0, size+8*len(batches)+64)
	at := lead.Stamp()
	data = n.machine.machine.AppendEntry(data, at.ClockMs, at.WallUs, batches)
	n.meters.proposal(calls, len(batches), len(data))
	n.submitEntry(lead, data, &entry{stamp: at, calls: calls, batches: len(batches), heavy: heavy,
		proposed: time.Now()})
	if n.few++; len(batches) > fewBatches || heavy {
		n.few = 0
	}
	clear(batches)
	return batches
}

// submitEntry hands an entry, which the caller has counted in inFlight, to Raft and then to the
// completer.
func (n *Node) submitEntry(lead *leadership, data []byte, e *entry) {
	e.lead = lead
	n.pendingEntries.add(e)
	e.future = n.raft.ApplyLog(raft.Log{Data: data, Extensions: lead.mark}, 0)
	n.proposed <- e
}

// complete is the completer loop: it answers entries in order of proposal.
func (n *Node) complete() {
	for e := range n.proposed {
		err := e.future.Error()
		n.pendingEntries.removeFirst()
		e.lead.Settled(e.stamp)
		calls := e.unanswered() // none if the sweep abandoned them
		switch out := e.outcome(); {
		case err != nil && neverLogged(err), err == nil && out.void:
			n.retract(n.writes, calls)
		case n.failure.Load(): // what was made just before, see endWrong
			finishAll(calls, errWrongState)
		case err != nil:
			finishAll(calls, unknown(fmt.Sprintf("the write was in flight: %v", err)))
		case out.replies == nil && e.batches > 0:
			finishAll(calls, errNoReply)
		default:
			n.meters.settled(e, n.machine.beganAt(e.future.Index()))
			n.deliver(e, calls, out)
		}
		if e.heavy {
			n.endWriteTurn()
			n.heavyWrite.Store(false) // before inFlight, from which the proposer subtracts it
		}
		if e.raises {
			n.raiseProposed.Store(false)
		}
		n.inFlight.Add(-1)
		n.unpark(time.Time{})
		kick(n.writes.wake)
		if e.batches == 0 {
			kick(n.routeWake) // a tick sweeps a limited number of keys: the next may be due at once
		}
	}
}

// deliver gives each call of an entry its part of the outcome. Batches without one did not run and
// never will in this entry: local ones are requeued.
func (n *Node) deliver(e *entry, calls []*call, out outcome) {
	var again []*call
	ran, total := len(out.replies), uint64(0)
	at := 0
	for _, c := range calls {
		first, last := min(at, ran), min(at+len(c.batches), ran)
		at += len(c.batches)
		c.work = nil
		if out.work != nil {
			c.work = out.work[first:last:last]
		}
		for _, w := range c.work {
			total += w
		}
		if c.from == nil && first == last {
			again = append(again, c)
			continue
		}
		n.settleCall(n.writes, c, out.replies[first:last:last])
	}
	if !e.heavy && (ran < e.batches || total >= fair.Quantum/2) {
		n.writes.beCautious()
	}
	if len(again) > 0 {
		n.writes.requeue(again, false)
	}
}

// settleCall charges a call of q for its work and finishes it. c.work is set.
func (n *Node) settleCall(q *queue, c *call, replies [][]byte) {
	if len(c.batches) == 1 && len(replies) == 1 {
		work := uint64(0)
		if len(c.work) == 1 {
			work = c.work[0]
		}
		q.charge(c, work, len(replies[0]))
	}
	c.finish(replies, nil)
}

// outcome is the result of applying an entry.
type outcome struct {
	replies [][]byte // one for each batch that ran: all, or the first ones
	work    []uint64 // units of each; nil when the machine does not count them
	void    bool
}

// workOutcome is what Apply may return, see Machine.
type workOutcome interface {
	Outcome() (replies [][]byte, work []uint64)
}

// outcome reads the result of applying. Call it after the future's Error has returned.
func (e *entry) outcome() outcome {
	switch r := e.future.Response().(type) {
	case voided:
		return outcome{void: true}
	case [][]byte:
		if len(r) == e.batches {
			return outcome{replies: r}
		}
	case workOutcome:
		if replies, work := r.Outcome(); len(replies) <= e.batches && len(work) == len(replies) &&
			replies != nil {
			return outcome{replies: replies, work: work}
		}
	}
	return outcome{}
}

func finishAll(calls []*call, err error) {
	for _, c := range calls {
		c.finish(nil, err)
	}
}

// retract handles calls of q that did not run: local ones are rerouted, frames are returned.
func (n *Node) retract(q *queue, calls []*call) {
	local := calls[:0]
	for _, c := range calls {
		if c.from != nil {
			c.finish(nil, errNoLeader)
		} else {
			local = append(local, c)
		}
	}
	n.reroute(q, local)
}
