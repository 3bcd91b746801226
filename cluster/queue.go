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

	by     Asker  // local
	source source // who is charged; the zero source: nobody
	start  uint64 // the source's virtual time when the unit was queued
	cost   uint64 // units of work that it is expected to do
	fresh  bool   // the source owes nothing
	strict bool   // nothing like it is known: it is no light one while the queue is strained
	heavy  bool   // it waits for its turn

	done    chan struct{} // local: one token when replies and err are set
	replies [][]byte
	work    []uint64 // of the groups that ran; of a unit that came in a frame, for the answer
	err     error

	from    *inbound // set when the unit came in a frame: done is not used
	frameID uint64
	write   bool // of those: it came to the write queue

	lead    *leadership // of a read: that it came to last
	askedUs int64       // and the time of day then

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
	u.by, u.source, u.heavy = Asker{}, source{}, false
	return u
}

// askedBy notes whose the group of a local unit is.
func (u *unit) askedBy(by Asker) *unit {
	u.by, u.source = by, source{id: by.Source}
	return u
}

// release gives a finished local unit back. A unit that its caller abandoned is never released: the loops may hold it.
func (u *unit) release() {
	u.groups, u.oneGroup[0], u.replies, u.work, u.err, u.lead = nil, nil, nil, nil, nil, nil
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

// finish hands the unit its outcome. replies holds one reply a group unless err is set; in a unit that came in a frame the last groups may
// be without: they did not run.
func (u *unit) finish(replies [][]byte, err error) {
	if u.from != nil {
		u.from.answer(u, replies, err)
		return
	}
	u.replies, u.err = replies, err
	u.done <- struct{}{}
}

// queue holds units for one consumer: light ones in the order in which they came, heavy ones until it is their turn. Its length is bounded by
// its producers (a local caller waits for its reply before it returns, a follower has a bounded number of frames in flight), its bytes by
// maxQueueBytes.
type queue struct {
	costs *costs

	mu       sync.Mutex
	units    []*unit // light
	head     int     // where they begin
	heavy    []*unit // in no order
	shares   shares
	strained time.Time // until when units of which nothing is known are not taken for light
	groups   int       // groups in light units that wait
	bytes    int       // bytes in all that wait
	foreign  int       // units among them that came in a frame
	nextSeq  uint64
	wanted   int       // the consumer sleeps until so many groups wait; 0 when it does not sleep for want of units
	closed   error     // why nothing is taken any more; nil: it is
	hold     time.Time // nothing is to be taken before: what was refused is not tried again at once
	wake     chan struct{}
}

func newQueue(c *costs) *queue { return &queue{costs: c, wake: make(chan struct{}, 1)} }

// count adds u to what waits, or with -1 takes it off.
func (q *queue) count(u *unit, sign int) {
	if !u.heavy {
		q.groups += sign * len(u.groups)
	}
	q.bytes += sign * u.size
	if u.from != nil {
		q.foreign += sign
	}
}

// weigh finds out what a local unit is expected to do.
func (q *queue) weigh(u *unit) {
	if u.from == nil {
		units, known := q.costs.expect(u.by)
		u.cost, u.strict = units+uint64(u.size)/bytesPerUnit, !known
	}
}

// classLocked decides whether u waits for its turn.
func (q *queue) classLocked(u *unit) {
	u.start, u.fresh = q.shares.start(u.source)
	u.heavy = u.cost >= heavyWork || u.start > q.shares.now || u.strict && !q.strained.IsZero() && time.Now().Before(q.strained)
}

// charge books what a unit's group did: on its source, and for what is expected of others like it.
func (q *queue) charge(u *unit, work uint64, reply int) {
	work += uint64(reply) / bytesPerUnit
	if u.from == nil {
		q.costs.note(u.by, work)
	}
	if work += uint64(u.size) / bytesPerUnit; !u.heavy && work < heavyWork {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shares.charge(u.source, u.start, work)
}

// strain notes that units did much that were taken for light ones.
func (q *queue) strain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.strained = time.Now().Add(strainTime)
}

// isStrained reports whether that was lately.
func (q *queue) isStrained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.strained.IsZero() {
		return false
	}
	if time.Now().After(q.strained) {
		q.strained = time.Time{}
	}
	return !q.strained.IsZero()
}

// push adds u. It returns the reason when the queue is closed, and ErrBusy when it is full.
func (q *queue) push(u *unit) error {
	q.weigh(u)
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
	q.classLocked(u)
	q.count(u, 1)
	wake := u.heavy
	if u.heavy {
		q.heavy = append(q.heavy, u)
	} else {
		q.appendLocked(u)
		wake = q.wanted > 0 && q.groups >= q.wanted
	}
	if wake {
		q.wanted = 0
	}
	q.mu.Unlock()
	if wake {
		kick(q.wake)
	}
	return nil
}

// appendLocked appends a light unit. The array does not grow as long as half of it is free: a queue that never drains would keep all that it ever held.
func (q *queue) appendLocked(u *unit) {
	if len(q.units) == cap(q.units) && q.head > len(q.units)/2 {
		n := copy(q.units, q.units[q.head:])
		clear(q.units[n:])
		q.units, q.head = q.units[:n], 0
	}
	q.units = append(q.units, u)
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
	for _, u := range units {
		q.weigh(u)
		q.classLocked(u)
		u.state = unitQueued
		q.count(u, 1)
		if u.heavy {
			q.heavy = append(q.heavy, u)
		} else {
			merged = append(merged, u)
		}
	}
	merged = append(merged, rest...)
	slices.SortStableFunc(merged, func(a, b *unit) int { return int(int64(a.seq - b.seq)) })
	q.units, q.head, q.wanted = merged, 0, 0
	if pause {
		q.hold = time.Now().Add(rejectPause)
	}
	q.mu.Unlock()
	kick(q.wake)
}

// batch adds up units that go into one entry or frame.
type batch struct{ units, groups, count, size int }

// fits adds u, unless others are there and there is no room for it behind them.
func (b *batch) fits(u *unit) bool {
	if b.units > 0 && (b.groups+len(u.groups) > maxBatchGroups || b.count+u.count > MaxGroupRequests || b.size+u.size > maxBatchBytes) {
		return false
	}
	b.units, b.groups, b.count, b.size = b.units+1, b.groups+len(u.groups), b.count+u.count, b.size+u.size
	return true
}

// take appends to dst the light units at the head that fit into one entry or frame. When fewer than least groups (at least
// one) wait it takes nothing and marks the consumer as sleeping, so that the push that makes them enough wakes it.
func (q *queue) take(dst []*unit, least int) []*unit {
	q.mu.Lock()
	defer q.mu.Unlock()
	if least = max(least, 1); q.groups < least {
		q.wanted = least
		return dst
	}
	q.wanted = 0
	var b batch
	for q.head < len(q.units) {
		u := q.units[q.head]
		if u.state == unitQueued {
			if !b.fits(u) {
				break
			}
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

// takeHeavy appends to dst, up to most units, those whose turn it is: the one that starts first, and behind it others as long as they are expected
// to do no more than turnWork together.
func (q *queue) takeHeavy(dst []*unit, most int) []*unit {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heavy = slices.DeleteFunc(q.heavy, func(u *unit) bool { return u.state != unitQueued })
	if len(q.heavy) == 0 {
		return dst
	}
	if most == 1 {
		first := 0
		for i, u := range q.heavy {
			if u.before(q.heavy[first]) {
				first = i
			}
		}
		q.heavy[0], q.heavy[first] = q.heavy[first], q.heavy[0]
	} else { // thousands may wait, and as many go together where their sources had much and ask for little now
		slices.SortFunc(q.heavy, (*unit).compare)
	}
	var b batch
	cost, taken := uint64(0), 0
	for _, u := range q.heavy[:min(most, len(q.heavy))] {
		if b.units > 0 && cost+u.cost > turnWork || !b.fits(u) {
			break
		}
		q.count(u, -1)
		u.state = unitTaken
		dst = append(dst, u)
		cost += u.cost
		taken++
	}
	q.shares.advance(q.heavy[taken-1].start) // the first one always fits
	q.heavy = slices.Delete(q.heavy, 0, taken)
	return dst
}

// before reports whether u has its turn before o. Who owes nothing may ask for little: it does not wait for a round of those who begin at the same time.
func (u *unit) before(o *unit) bool { return u.compare(o) < 0 }

func (u *unit) compare(o *unit) int {
	switch {
	case u.start != o.start:
		return cmp.Compare(u.start, o.start)
	case u.fresh != o.fresh && u.fresh:
		return -1
	case u.fresh != o.fresh:
		return 1
	}
	return cmp.Compare(u.seq, o.seq)
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
	sift := func(units []*unit) []*unit {
		kept := units[:0]
		for _, u := range units {
			switch {
			case u == nil || u.state != unitQueued:
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
		clear(units[len(kept):])
		return kept
	}
	clear(q.units[:q.head])
	q.units, q.head = sift(q.units), 0
	q.heavy = sift(q.heavy)
	q.wanted = 1
	return dropped, next
}

// overdue takes out all units whose deadline is before limit. Light units stand in the order in which they came, give or take
// what was pushed back, so a look at the first one mostly tells that there are none.
func (q *queue) overdue(limit time.Time) []*unit {
	q.mu.Lock()
	late := q.head < len(q.units) && q.units[q.head].deadline.Before(limit) ||
		slices.ContainsFunc(q.heavy, func(u *unit) bool { return u.deadline.Before(limit) })
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

// hasHeavy reports whether a unit waits for its turn.
func (q *queue) hasHeavy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heavy) > 0
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
	return q.head == len(q.units) && len(q.heavy) == 0
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
