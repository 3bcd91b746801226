// This file holds the intake: units of work, and the queue in which they wait for the proposer or the read loop, heavy ones for their turn.
package cluster

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Limits of what is gathered into one entry or one frame.
const (
	// MaxBatchBytes is the largest batch that Write and Read take. raft-wal's records end at 64 MiB.
	MaxBatchBytes = 32 << 20
	// MaxBatchRequests is the most requests that one batch, and one entry, may hold: the encoder counts places.
	MaxBatchRequests = 4096
	// maxEntryBatches bounds the batches of one entry or frame.
	maxEntryBatches = 4096
	// maxEntryBytes bounds the bytes of one entry or frame, unless one batch alone is larger.
	maxEntryBytes = 1 << 20
	// maxQueueBytes bounds the bytes of batches in one queue: it is about a minute's work of a slow disk, and a part of
	// what a node that coordinates may be expected to have in memory.
	maxQueueBytes = 256 << 20
)

type callState uint8

const (
	callQueued callState = iota
	callTaken
	callWithdrawn
)

// call is what waits in a queue: one batch of a local caller, or all the batches of a frame from a follower, which stay
// together in one entry.
type call struct {
	batches  [][]byte
	count    int // requests in batches
	size     int // bytes in batches
	seq      uint64
	deadline time.Time // past this, a call that finds no leader is refused
	dryRun   bool      // local: a batch of reads that may write, see Node.DryRun
	state    callState // guarded by the queue's lock

	workload    Workload // local
	flow        flow     // who is charged; the zero source: nobody
	startTag    uint64   // the source's virtual time when the call was queued
	cost        uint64   // units of work that it is expected to do
	fresh       bool     // the source owes nothing
	unpredicted bool     // nothing like it is known: it is no light one while the queue is strained
	heavy       bool     // it waits for its turn

	done    chan struct{} // local: one token when replies and err are set
	replies [][]byte
	work    []uint64 // of the batches that ran; of a call that came in a frame, for the answer
	err     error

	from    *inbound // set when the call came in a frame: done is not used
	frameID uint64
	write   bool // of those: it came to the write queue

	lead    *leadership // of a read: that it came to last
	askedUs int64       // and the time of day then

	oneBatch [1][]byte
}

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// newLocalCall returns a call for one caller's batch, from the pool.
func newLocalCall(batch []byte, count int, deadline time.Time) *call {
	c := callPool.Get().(*call)
	c.oneBatch[0] = batch
	c.batches = c.oneBatch[:]
	c.count, c.size, c.deadline = count, len(batch), deadline
	c.state, c.dryRun = callQueued, false
	c.workload, c.flow, c.heavy = Workload{}, flow{}, false
	return c
}

// withWorkload notes whose the batch of a local call is.
func (c *call) withWorkload(load Workload) *call {
	c.workload, c.flow = load, flow{id: load.Source}
	return c
}

// release gives a finished local call back. A call that its caller abandoned is never released: the loops may hold it.
func (c *call) release() {
	c.batches, c.oneBatch[0], c.replies, c.work, c.err, c.lead = nil, nil, nil, nil, nil, nil
	callPool.Put(c)
}

// take returns the outcome of a local call that is done, and releases it.
func (c *call) take() ([]byte, error) {
	err := c.err
	var reply []byte
	if err == nil {
		reply = c.replies[0]
	}
	c.release()
	return reply, err
}

// finish hands the call its outcome. replies holds one reply a batch unless err is set; in a call that came in a frame the last batches may
// be without: they did not run.
func (c *call) finish(replies [][]byte, err error) {
	if c.from != nil {
		c.from.answer(c, replies, err)
		return
	}
	c.replies, c.err = replies, err
	c.done <- struct{}{}
}

// queue holds calls for one consumer: light ones in the order in which they came, heavy ones until it is their turn. Its length is bounded by
// its producers (a local caller waits for its reply before it returns, a follower has a bounded number of frames in flight), its bytes by
// maxQueueBytes.
type queue struct {
	costs *costs

	mu            sync.Mutex
	light         []*call // light
	head          int     // where they begin
	heavy         []*call // in no order
	fair          fairQueue
	cautiousUntil time.Time // until when calls of which nothing is known are not taken for light
	lightBatches  int       // batches in light calls that wait
	bytes         int       // bytes in all that wait
	forwarded     int       // calls among them that came in a frame
	nextSeq       uint64
	wakeAt        int       // the consumer sleeps until so many batches wait; 0 when it does not sleep for want of calls
	closed        error     // why nothing is taken any more; nil: it is
	restUntil     time.Time // nothing is to be taken before: what was refused is not tried again at once
	wake          chan struct{}
}

func newQueue(c *costs) *queue { return &queue{costs: c, wake: make(chan struct{}, 1)} }

// count adds u to what waits, or with -1 takes it off.
func (q *queue) count(c *call, sign int) {
	if !c.heavy {
		q.lightBatches += sign * len(c.batches)
	}
	q.bytes += sign * c.size
	if c.from != nil {
		q.forwarded += sign
	}
}

// weigh finds out what a local call is expected to do.
func (q *queue) predict(c *call) {
	if c.from == nil {
		units, known := q.costs.estimate(c.workload)
		c.cost, c.unpredicted = units+uint64(c.size)/bytesPerUnit, !known
	}
}

// classLocked decides whether u waits for its turn.
func (q *queue) classLocked(c *call) {
	c.startTag, c.fresh = q.fair.startTag(c.flow)
	c.heavy = c.cost >= heavyWork || c.startTag > q.fair.virtualTime || c.unpredicted && !q.cautiousUntil.IsZero() && time.Now().Before(q.cautiousUntil)
}

// charge books what a call's batch did: on its source, and for what is expected of others like it.
func (q *queue) charge(c *call, work uint64, reply int) {
	work += uint64(reply) / bytesPerUnit
	if c.from == nil {
		q.costs.record(c.workload, work)
	}
	if work += uint64(c.size) / bytesPerUnit; !c.heavy && work < heavyWork {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fair.charge(c.flow, c.startTag, work)
}

// strain notes that calls did much that were taken for light ones.
func (q *queue) beCautious() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cautiousUntil = time.Now().Add(cautionTime)
}

// isCautious reports whether that was lately.
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

// push adds u. It returns the reason when the queue is closed, and ErrBusy when it is full.
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
	c.seq = q.nextSeq
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

// appendLocked appends a light call. The array does not grow as long as half of it is free: a queue that never drains would keep all that it ever held.
func (q *queue) appendLocked(c *call) {
	if len(q.light) == cap(q.light) && q.head > len(q.light)/2 {
		n := copy(q.light, q.light[q.head:])
		clear(q.light[n:])
		q.light, q.head = q.light[:n], 0
	}
	q.light = append(q.light, c)
}

// rejectPause is how long a queue rests after a refusal: a leadership transfer or an election is under way.
const rejectPause = 5 * time.Millisecond

// requeue returns calls that were taken but did not run, to the places that they had. pause says to rest first.
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
	slices.SortStableFunc(merged, func(a, b *call) int { return int(int64(a.seq - b.seq)) })
	q.light, q.head, q.wakeAt = merged, 0, 0
	if pause {
		q.restUntil = time.Now().Add(rejectPause)
	}
	q.mu.Unlock()
	kick(q.wake)
}

// batch adds up calls that go into one entry or frame.
type packer struct{ calls, batches, count, size int }

// fits adds u, unless others are there and there is no room for it behind them.
func (b *packer) fits(c *call) bool {
	if b.calls > 0 && (b.batches+len(c.batches) > maxEntryBatches || b.count+c.count > MaxBatchRequests || b.size+c.size > maxEntryBytes) {
		return false
	}
	b.calls, b.batches, b.count, b.size = b.calls+1, b.batches+len(c.batches), b.count+c.count, b.size+c.size
	return true
}

// take appends to dst the light calls at the head that fit into one entry or frame. When fewer than least batches (at least
// one) wait it takes nothing and marks the consumer as sleeping, so that the push that makes them enough wakes it.
func (q *queue) take(dst []*call, least int) []*call {
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

// takeHeavy appends to dst, up to most calls, those whose turn it is: the one that starts first, and behind it others as long as they are expected
// to do no more than quantum together.
func (q *queue) takeHeavy(dst []*call, most int) []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heavy = slices.DeleteFunc(q.heavy, func(c *call) bool { return c.state != callQueued })
	if len(q.heavy) == 0 {
		return dst
	}
	if most == 1 {
		first := 0
		for i, c := range q.heavy {
			if c.before(q.heavy[first]) {
				first = i
			}
		}
		q.heavy[0], q.heavy[first] = q.heavy[first], q.heavy[0]
	} else { // thousands may wait, and as many go together where their sources had much and ask for little now
		slices.SortFunc(q.heavy, (*call).compare)
	}
	var b packer
	cost, taken := uint64(0), 0
	for _, c := range q.heavy[:min(most, len(q.heavy))] {
		if b.calls > 0 && cost+c.cost > quantum || !b.fits(c) {
			break
		}
		q.count(c, -1)
		c.state = callTaken
		dst = append(dst, c)
		cost += c.cost
		taken++
	}
	q.fair.advance(q.heavy[taken-1].startTag) // the first one always fits
	q.heavy = slices.Delete(q.heavy, 0, taken)
	return dst
}

// before reports whether u has its turn before o. Who owes nothing may ask for little: it does not wait for a round of those who begin at the same time.
func (c *call) before(o *call) bool { return c.compare(o) < 0 }

func (c *call) compare(o *call) int {
	switch {
	case c.startTag != o.startTag:
		return cmp.Compare(c.startTag, o.startTag)
	case c.fresh != o.fresh && c.fresh:
		return -1
	case c.fresh != o.fresh:
		return 1
	}
	return cmp.Compare(c.seq, o.seq)
}

// withdraw takes u out again for a caller that gives up; false when it is already under way.
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

// remove takes out all calls for which drop says so and returns them, with the earliest deadline of the rest (zero
// when none is left). It marks the consumer as sleeping.
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

// overdue takes out all calls whose deadline is before limit. Light calls stand in the order in which they came, give or take
// what was pushed back, so a look at the first one mostly tells that there are none.
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

// hasForwarded reports whether a call waits that came in a frame.
func (q *queue) hasForwarded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.forwarded > 0
}

// hasHeavy reports whether a call waits for its turn.
func (q *queue) hasHeavy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heavy) > 0
}

// restFor returns how long the queue has to rest yet.
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

// empty reports whether nothing waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == len(q.light) && len(q.heavy) == 0
}

// close refuses later pushes and ends what waits with the reason, unless there was one before.
func (q *queue) close(why error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = why
	}
	q.mu.Unlock()
	dropped, _ := q.remove(func(*call) bool { return true })
	finishAll(dropped, why)
}
