// This file holds the intake: units of work, and the queue in which they wait for the proposer or the read loop.
package cluster

import (
	"slices"
	"sync"
	"time"
)

// Limits of what is gathered into one entry or one frame.
const (
	// MaxGroupBytes is the largest group that Write and Read take. raft-wal's records end at 64 MiB.
	MaxGroupBytes = 32 << 20
	// MaxGroupRequests is the most requests that one group, and one entry, may hold: the encoder counts places.
	MaxGroupRequests = 4096
	// maxBatchGroups bounds the groups of one entry or frame.
	maxBatchGroups = 4096
	// maxBatchBytes bounds the bytes of one entry or frame, unless one group alone is larger.
	maxBatchBytes = 1 << 20
	// maxQueueBytes bounds the bytes of groups in one queue: it is about a minute's work of a slow disk, and a part of
	// what a node that coordinates may be expected to have in memory.
	maxQueueBytes = 256 << 20
)

type unitState uint8

const (
	unitQueued unitState = iota
	unitTaken
	unitWithdrawn
)

// unit is what waits in a queue: one group of a local caller, or all the groups of a frame from a follower, which stay
// together in one entry.
type unit struct {
	groups   [][]byte
	count    int // requests in groups
	size     int // bytes in groups
	seq      uint64
	deadline time.Time // past this, a unit that finds no leader is refused
	trial    bool      // local: a group of reads that may write, see Node.Try
	state    unitState // guarded by the queue's lock

	done    chan struct{} // local: one token when replies and err are set
	replies [][]byte
	err     error

	from    *inbound // set when the unit came in a frame: done is not used
	frameID uint64

	oneGroup [1][]byte
}

var unitPool = sync.Pool{New: func() any { return &unit{done: make(chan struct{}, 1)} }}

// newLocalUnit returns a unit for one caller's group, from the pool.
func newLocalUnit(group []byte, count int, deadline time.Time) *unit {
	u := unitPool.Get().(*unit)
	u.oneGroup[0] = group
	u.groups = u.oneGroup[:]
	u.count, u.size, u.deadline = count, len(group), deadline
	u.state, u.trial = unitQueued, false
	return u
}

// release gives a finished local unit back. A unit that its caller abandoned is never released: the loops may hold it.
func (u *unit) release() {
	u.groups, u.oneGroup[0], u.replies, u.err = nil, nil, nil, nil
	unitPool.Put(u)
}

// take returns the outcome of a local unit that is done, and releases it.
func (u *unit) take() ([]byte, error) {
	err := u.err
	var reply []byte
	if err == nil {
		reply = u.replies[0]
	}
	u.release()
	return reply, err
}

// finish hands the unit its outcome. replies holds one reply a group unless err is set.
func (u *unit) finish(replies [][]byte, err error) {
	if u.from != nil {
		u.from.answer(u, replies, err)
		return
	}
	u.replies, u.err = replies, err
	u.done <- struct{}{}
}

// queue is a FIFO of units with one consumer. Its length is bounded by its producers (a local caller waits for its
// reply before it returns, a follower has a bounded number of frames in flight), its bytes by maxQueueBytes.
type queue struct {
	mu      sync.Mutex
	units   []*unit
	head    int
	groups  int // groups in units that wait
	bytes   int // and bytes in those
	foreign int // units among them that came in a frame
	nextSeq uint64
	wanted  int       // the consumer sleeps until so many groups wait; 0 when it does not sleep for want of units
	closed  error     // why nothing is taken any more; nil: it is
	hold    time.Time // nothing is to be taken before: what was refused is not tried again at once
	wake    chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// count adds u to what waits, or with -1 takes it off.
func (q *queue) count(u *unit, sign int) {
	q.groups += sign * len(u.groups)
	q.bytes += sign * u.size
	if u.from != nil {
		q.foreign += sign
	}
}

// push appends u. It returns the reason when the queue is closed, and ErrBusy when it is full.
func (q *queue) push(u *unit) error {
	q.mu.Lock()
	if q.closed != nil || q.bytes+u.size > maxQueueBytes {
		defer q.mu.Unlock()
		if q.closed != nil {
			return q.closed
		}
		return ErrBusy
	}
	q.nextSeq++
	u.seq = q.nextSeq
	q.units = append(q.units, u)
	q.count(u, 1)
	wake := q.wanted > 0 && q.groups >= q.wanted
	if wake {
		q.wanted = 0
	}
	q.mu.Unlock()
	if wake {
		kick(q.wake)
	}
	return nil
}

// rejectPause is how long a queue rests after a refusal: a leadership transfer or an election is under way.
const rejectPause = 5 * time.Millisecond

// pushBack returns units that were taken but did not run, to the places that they had. pause says to rest first.
func (q *queue) pushBack(units []*unit, pause bool) {
	q.mu.Lock()
	if why := q.closed; why != nil {
		q.mu.Unlock()
		finishAll(units, why)
		return
	}
	rest := q.units[q.head:]
	merged := make([]*unit, 0, len(units)+len(rest))
	merged = append(append(merged, units...), rest...)
	slices.SortStableFunc(merged, func(a, b *unit) int { return int(int64(a.seq - b.seq)) })
	for _, u := range units {
		u.state = unitQueued
		q.count(u, 1)
	}
	q.units, q.head, q.wanted = merged, 0, 0
	if pause {
		q.hold = time.Now().Add(rejectPause)
	}
	q.mu.Unlock()
	kick(q.wake)
}

// take appends to dst the units at the head that fit into one entry or frame. When fewer than least groups (at least
// one) wait it takes nothing and marks the consumer as sleeping, so that the push that makes them enough wakes it.
func (q *queue) take(dst []*unit, least int) []*unit {
	q.mu.Lock()
	defer q.mu.Unlock()
	if least = max(least, 1); q.groups < least {
		q.wanted = least
		return dst
	}
	q.wanted = 0
	groups, count, size := 0, 0, 0
	for q.head < len(q.units) {
		u := q.units[q.head]
		if u.state == unitQueued {
			if groups > 0 && (groups+len(u.groups) > maxBatchGroups || count+u.count > MaxGroupRequests || size+u.size > maxBatchBytes) {
				break
			}
			groups, count, size = groups+len(u.groups), count+u.count, size+u.size
			q.count(u, -1)
			u.state = unitTaken
			dst = append(dst, u)
		}
		q.units[q.head] = nil
		q.head++
	}
	if q.head == len(q.units) {
		q.units, q.head = q.units[:0], 0
	}
	return dst
}

// withdraw takes u out again for a caller that gives up; false when it is already under way.
func (q *queue) withdraw(u *unit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if u.state != unitQueued {
		return false
	}
	u.state = unitWithdrawn // take and remove skip it
	q.count(u, -1)
	return true
}

// remove takes out all units for which drop says so and returns them, with the earliest deadline of the rest (zero
// when none is left). It marks the consumer as sleeping.
func (q *queue) remove(drop func(*unit) bool) (dropped []*unit, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.units[:0]
	for _, u := range q.units[q.head:] {
		switch {
		case u.state != unitQueued:
		case drop(u):
			u.state = unitTaken
			q.count(u, -1)
			dropped = append(dropped, u)
		default:
			kept = append(kept, u)
			if next.IsZero() || u.deadline.Before(next) {
				next = u.deadline
			}
		}
	}
	clear(q.units[len(kept):])
	q.units, q.head, q.wanted = kept, 0, 1
	return dropped, next
}

// overdue takes out all units whose deadline is before limit. Units stand in the order in which they came, give or take
// what was pushed back, so a look at the first one mostly tells that there are none.
func (q *queue) overdue(limit time.Time) []*unit {
	q.mu.Lock()
	late := q.head < len(q.units) && q.units[q.head].deadline.Before(limit)
	q.mu.Unlock()
	if !late {
		return nil
	}
	dropped, _ := q.remove(func(u *unit) bool { return u.deadline.Before(limit) })
	return dropped
}

// hasForeign reports whether a unit waits that came in a frame.
func (q *queue) hasForeign() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.foreign > 0
}

// heldFor returns how long the queue has to rest yet.
func (q *queue) heldFor() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hold.IsZero() {
		return 0
	}
	d := time.Until(q.hold)
	if d <= 0 {
		q.hold = time.Time{}
	}
	return max(d, 0)
}

// empty reports whether nothing waits.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == len(q.units)
}

// close refuses later pushes and ends what waits with the reason, unless there was one before.
func (q *queue) close(why error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = why
	}
	q.mu.Unlock()
	dropped, _ := q.remove(func(*unit) bool { return true })
	finishAll(dropped, why)
}
