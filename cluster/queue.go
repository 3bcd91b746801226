// The calls that wait for the proposer or the read loop: light ones in order of arrival, heavy ones
// until the fair queue picks them.

package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/internal/lockorder"
)

// Limits of what is gathered into one entry or one frame.
const (
	// MaxBatchBytes is the largest batch that Write and Read take. A raft-wal record ends at 64
	// MiB.
	MaxBatchBytes = 32 << 20
	// MaxBatchRequests limits the requests in one batch and in one entry.
	MaxBatchRequests = 4096
	// maxEntryBatches limits the batches in one entry or frame.
	maxEntryBatches = 4096
	// maxEntryBytes limits the bytes of one entry or frame, unless a single batch is larger.
	maxEntryBytes = 1 << 20
	// maxQueueBytes limits the bytes that wait in one queue: about a minute of work for a slow
	// disk.
	maxQueueBytes = 256 << 20
)

type callState uint8

const (
	callQueued callState = iota
	callTaken
	callWithdrawn
)

// call is an element of a queue: one batch of a local caller, or all batches of a follower's frame,
// which stay together in one entry.
type call struct {
	batches  [][]byte
	count    int       // requests in batches
	size     int       // bytes in batches
	deadline time.Time // a call that finds no leader by then is refused
	dryRun   bool      // local: the batch may write, see Node.DryRun
	state    callState // guarded by the queue's lock

	workload    fair.Workload // local
	fair.Place                // seq: among all calls; the rest is of heavy ones
	cost        uint64        // predicted units of work
	unpredicted bool          // the cost is a guess
	heavy       bool          // waits until the fair queue picks it

	done    chan struct{} // local: gets one token when replies and err are set
	replies [][]byte
	work    []uint64 // units of each batch that ran
	err     error

	from    *inbound // set for a follower's frame; done is unused then
	frameID uint64
	write   bool // the frame came to the write queue

	lead    *leadership // set for a read: the leadership that tried it last
	askedUs int64       // and the time of day then
	late    bool        // a read that ran without finding an instant

	oneBatch [1][]byte
}

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// newLocalCall returns a call for one local batch, from the pool.
func newLocalCall(batch []byte, count int, deadline time.Time) *call {
	c := callPool.Get().(*call)
	c.oneBatch[0] = batch
	c.batches = c.oneBatch[:]
	c.count, c.size, c.deadline = count, len(batch), deadline
	c.state, c.dryRun, c.late = callQueued, false, false
	c.workload, c.Flow, c.heavy = fair.Workload{}, fair.Flow{}, false
	return c
}

// withWorkload notes the workload of a local call.
func (c *call) withWorkload(load fair.Workload) *call {
	c.workload, c.Flow = load, fair.Flow{ID: load.Conn}
	return c
}

// release returns a finished local call to the pool. A call that its caller abandoned is never
// released: the loops may still hold it.
func (c *call) release() {
	c.batches, c.oneBatch[0], c.replies, c.work, c.err, c.lead = nil, nil, nil, nil, nil, nil
	callPool.Put(c)
}

// result returns the outcome of a finished local call and releases it.
func (c *call) result() ([]byte, error) {
	err := c.err
	var reply []byte
	if err == nil {
		reply = c.replies[0]
	}
	c.release()
	return reply, err
}

// finish hands the call its outcome. Unless err is set, replies holds one reply per batch. For a
// frame, batches at the end may lack one: they did not run.
func (c *call) finish(replies [][]byte, err error) {
	if c.from != nil {
		c.from.answer(c, replies, err)
		return
	}
	c.replies, c.err = replies, err
	c.done <- struct{}{}
}

// queue holds calls for one consumer. Its producers bound its length (a local caller waits for its
// reply, a follower has few frames in flight); maxQueueBytes bounds its bytes.
type queue struct {
	costs *fair.Costs

	mu            lockorder.Mutex
	light         []*call // light
	head          int     // where light begins
	heavy         []*call // unordered
	fair          fair.Queue
	cautiousUntil time.Time // until then, calls of unpredicted cost count as heavy
	lightBatches  int       // batches in light calls that wait
	bytes         int       // bytes in all calls that wait
	forwarded     int       // calls among them that came in a frame
	nextSeq       uint64
	// the consumer sleeps until this many batches wait; 0: it is not waiting for calls
	wakeAt    int
	closed    error     // why pushes are refused; nil: they are not
	restUntil time.Time // nothing is taken before: a refused call is not retried at once
	wake      chan struct{}
}

func newQueue(c *fair.Costs) *queue { return &queue{costs: c, wake: make(chan struct{}, 1)} }

// count adds c to the totals, or with -1 takes it off.
func (q *queue) count(c *call, sign int) {
	if !c.heavy {
		q.lightBatches += sign * len(c.batches)
	}
	q.bytes += sign * c.size
	if c.from != nil {
		q.forwarded += sign
	}
}

// predict sets the expected cost of a local call.
func (q *queue) predict(c *call) {
	if c.from == nil {
		units, known := q.costs.Estimate(c.workload)
		c.cost, c.unpredicted = units+uint64(c.size)/fair.BytesPerUnit, !known
	}
}

// classLocked decides whether c is heavy. One whose cost is a guess is not trusted to be light in a
// cautious queue, nor from a flow in debt. But a debt does not delay what is known to be light.
func (q *queue) classLocked(c *call) {
	c.heavy = c.cost >= fair.HeavyWork || c.unpredicted && (q.fair.InDebt(c.Flow) ||
		!q.cautiousUntil.IsZero() && time.Now().Before(q.cautiousUntil))
	if c.heavy {
		c.Place = q.fair.Place(c.Flow, c.Seq)
	}
}

// charge bills a call's work to its flow and records it for later predictions.
func (q *queue) charge(c *call, work uint64, reply int) {
	work += uint64(reply) / fair.BytesPerUnit
	if c.from == nil {
		q.costs.Record(c.workload, work)
	}
	if work += uint64(c.size) / fair.BytesPerUnit; !c.heavy && work < fair.HeavyWork {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !c.heavy { // it took no turn
		c.Place = q.fair.Place(c.Flow, c.Seq)
	}
	q.fair.Charge(c.Place, work)
}

// cautionTime is how long a queue stays cautious after light calls turned out heavy.
const cautionTime = time.Second

// beCautious makes the queue cautious for cautionTime: calls that counted as light did much work.
func (q *queue) beCautious() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cautiousUntil = time.Now().Add(cautionTime)
}

// isCautious reports whether the queue is cautious.
func (q *queue) isCautious() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cautiousUntil.IsZero() {
		return false
	}
	if time.Now().After(q.cautiousUntil) {
		q.cautiousUntil = time.Time{}
	}
	return !q.cautiousUntil.IsZero()
}

// push adds c. It returns the reason when the queue is closed, and ErrBusy when it is full.
func (q *queue) push(c *call) error {
	q.predict(c)
	q.mu.Lock()
	if q.closed != nil || q.bytes+c.size > maxQueueBytes {
		defer q.mu.Unlock()
		if q.closed != nil {
			return q.closed
		}
		return ErrBusy
	}
	q.nextSeq++
	c.Seq = q.nextSeq
	q.classLocked(c)
	q.count(c, 1)
	wake := c.heavy
	if c.heavy {
		q.heavy = append(q.heavy, c)
	} else {
		q.appendLocked(c)
		wake = q.wakeAt > 0 && q.lightBatches >= q.wakeAt
	}
	if wake {
		q.wakeAt = 0
	}
	q.mu.Unlock()
	if wake {
		kick(q.wake)
	}
	return nil
}

// pushFirst adds c before all light calls. It is counted as work of nobody.
func (q *queue) pushFirst(c *call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return q.closed
	}
	c.Seq = 0
	q.count(c, 1)
	q.light = slices.Insert(q.light, q.head, c)
	q.wakeAt = 0
	kick(q.wake)
	return nil
}

// hasFirst reports whether a call of pushFirst waits.
func (q *queue) hasFirst() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head < len(q.light) && q.light[q.head] != nil && q.light[q.head].Seq == 0
}

// appendLocked appends a light call. It reuses the array while half of it is free: a queue that
// never drains would otherwise keep everything it ever held.
func (q *queue) appendLocked(c *call) {
	if len(q.light) == cap(q.light) && q.head > len(q.light)/2 {
		n := copy(q.light, q.light[q.head:])
		clear(q.light[n:])
		q.light, q.head = q.light[:n], 0
	}
	q.light = append(q.light, c)
}

// rejectPause is how long a queue rests after a refusal: a leadership transfer or an election is in
// progress.
const rejectPause = 5 * time.Millisecond

// requeue returns calls that were taken but did not run to their positions. With pause the queue
// rests first.
func (q *queue) requeue(calls []*call, pause bool) {
	q.mu.Lock()
	if why := q.closed; why != nil {
		q.mu.Unlock()
		finishAll(calls, why)
		return
	}
	rest := q.light[q.head:]
	merged := make([]*call, 0, len(calls)+len(rest))
	for _, c := range calls {
		q.predict(c)
		q.classLocked(c)
		c.state = callQueued
		q.count(c, 1)
		if c.heavy {
			q.heavy = append(q.heavy, c)
		} else {
			merged = append(merged, c)
		}
	}
	merged = append(merged, rest...)
	slices.SortStableFunc(merged, func(a, b *call) int { return int(int64(a.Seq - b.Seq)) })
	q.light, q.head, q.wakeAt = merged, 0, 0
	if pause {
		q.restUntil = time.Now().Add(rejectPause)
	}
	q.mu.Unlock()
	kick(q.wake)
}

// packer adds up the calls of one entry or frame.
type packer struct{ calls, batches, count, size int }

// fits adds c and returns true, unless the entry is not empty and c would exceed its limits.
func (b *packer) fits(c *call) bool {
	if b.calls > 0 && (b.batches+len(c.batches) > maxEntryBatches ||
		b.count+c.count > MaxBatchRequests || b.size+c.size > maxEntryBytes) {
		return false
	}
	b.calls, b.batches, b.count, b.size = b.calls+1, b.batches+len(c.batches), b.count+c.count,
		b.size+c.size
	return true
}

// dequeue appends to dst the first light calls that fit into one entry or frame. If fewer than
// least batches (at least one) wait, it takes nothing and marks the consumer as sleeping, so that
// the push that makes them enough wakes it.
func (q *queue) dequeue(dst []*call, least int) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if least = max(least, 1); q.lightBatches < least {
		q.wakeAt = least
		return dst
	}
	q.wakeAt = 0
	var b packer
	for q.head < len(q.light) {
		c := q.light[q.head]
		if c.state == callQueued {
			if !b.fits(c) {
				break
			}
			q.count(c, -1)
			c.state = callTaken
			dst = append(dst, c)
		}
		q.light[q.head] = nil
		q.head++
	}
	if q.head == len(q.light) {
		q.light, q.head = q.light[:0], 0
	}
	return dst
}

// takeHeavy appends to dst, up to most calls, the heavy call that has the next turn and those after
// it, as long as their predicted cost stays within quantum.
func (q *queue) takeHeavy(dst []*call, most int) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heavy = slices.DeleteFunc(q.heavy, func(c *call) bool { return c.state != callQueued })
	if len(q.heavy) == 0 {
		return dst
	}
	if most > 1 { // thousands may wait, and go together when each asks for little
		slices.SortFunc(q.heavy, func(a, b *call) int { return a.Compare(&b.Place) })
	}
	next := fair.NextTurn(&q.fair, q.heavy)
	first := q.heavy[next]
	q.heavy = slices.Insert(slices.Delete(q.heavy, next, next+1), 0, first)
	var b packer
	cost, taken := uint64(0), 0
	for _, c := range q.heavy[:min(most, len(q.heavy))] {
		if b.calls > 0 && cost+c.cost > fair.Quantum || !b.fits(c) {
			break
		}
		q.count(c, -1)
		c.state = callTaken
		q.fair.Serve(c.Place)
		dst = append(dst, c)
		cost += c.cost
		taken++
	}
	q.heavy = slices.Delete(q.heavy, 0, taken) // the first one always fits
	return dst
}

// withdraw removes c for a caller that gives up. It returns false when c was already taken.
func (q *queue) withdraw(c *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.state != callQueued {
		return false
	}
	c.state = callWithdrawn // take and remove skip it
	q.count(c, -1)
	return true
}

// remove takes out all calls for which drop returns true. It returns them, with the earliest
// deadline of the rest (zero if none is left), and marks the consumer as sleeping.
func (q *queue) remove(drop func(*call) bool) (dropped []*call, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	sift := func(calls []*call) []*call {
		kept := calls[:0]
		for _, c := range calls {
			switch {
			case c == nil || c.state != callQueued:
			case drop(c):
				c.state = callTaken
				q.count(c, -1)
				dropped = append(dropped, c)
			default:
				kept = append(kept, c)
				if next.IsZero() || c.deadline.Before(next) {
					next = c.deadline
				}
			}
		}
		clear(calls[len(kept):])
		return kept
	}
	clear(q.light[:q.head])
	q.light, q.head = sift(q.light), 0
	q.heavy = sift(q.heavy)
	q.wakeAt = 1
	return dropped, next
}

// overdue takes out all calls whose deadline is before limit. Light calls are nearly in order of
// arrival, so a look at the first usually suffices.
func (q *queue) overdue(limit time.Time) []*call {
	q.mu.Lock()
	late := q.head < len(q.light) && q.light[q.head].deadline.Before(limit) ||
		slices.ContainsFunc(q.heavy, func(c *call) bool { return c.deadline.Before(limit) })
	q.mu.Unlock()
	if !late {
		return nil
	}
	dropped, _ := q.remove(func(c *call) bool { return c.deadline.Before(limit) })
	return dropped
}

// hasForwarded reports whether a call from a frame waits.
func (q *queue) hasForwarded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.forwarded > 0
}

// hasHeavy reports whether a heavy call waits.
func (q *queue) hasHeavy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.heavy, func(c *call) bool { return c.state == callQueued })
}

// restFor returns how long the queue still has to rest.
func (q *queue) restFor() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.restUntil.IsZero() {
		return 0
	}
	d := time.Until(q.restUntil)
	if d <= 0 {
		q.restUntil = time.Time{}
	}
	return max(d, 0)
}

// close refuses later pushes and ends all waiting calls with why. The first reason stays.
func (q *queue) close(why error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = why
	}
	q.mu.Unlock()
	dropped, _ := q.remove(func(*call) bool { return true })
	finishAll(dropped, why)
}
