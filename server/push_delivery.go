// The path of messages and invalidations from the goroutine that applies the log to the clients'
// queues. A separate goroutine finds the receivers, so that neither patterns nor many subscribers
// delay the log.

package server

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// maxDeliveryBytes bounds the queued parcels. Beyond it all receivers lose their connections
	// or caches: applying the log waits for nobody.
	maxDeliveryBytes = 128 << 20
	// parcelCost and eventCost are the overhead of a parcel and of each of its events, bytes.
	parcelCost = 256
	eventCost  = 160
	// yieldParcels, or those of yieldBytes, are delivered before they are written and other
	// goroutines may run: more could exceed the limit of a client that reads.
	yieldParcels = 64
	yieldBytes   = 1 << 20
	// yieldReceivers are written to before other clients are served, or more so that this happens
	// yields times: a busy node serves many requests then.
	yieldReceivers = 16
	yields         = 16
	// keptParcels is the capacity that the queue keeps.
	keptParcels = 1024
	// keptReceivers is the capacity that the list of receivers keeps.
	keptReceivers = 1024
)

// audience limits the receivers of a message.
type audience uint8

const (
	everyone audience = iota
	withTLS
	withoutTLS
)

func (a audience) includes(s *session) bool {
	return a == everyone || (a == withTLS) == s.seesTLS
}

// parcel is one item to deliver. Exactly one of its parts is set.
type parcel struct {
	number uint64    // in log order
	since  time.Time // when it was queued
	audience
	events  []commands.Event // from one entry: Message, ScriptCall, StateReplaced or UsersChanged
	changes []keyChange      // from one entry, for tracking
	evicted invalidation     // keys that are not in the tracking table
	locks   bool             // holders of lockHolds.lost lost their locks
	overdue bool             // those of tracking.overdue drop all that they cache
	line    []byte           // for monitors
	hidden  bool             // monitors miss a line here
	lost    bool             // parcels were dropped here
}

func (p *parcel) bytes() int {
	n := parcelCost + len(p.line) + p.evicted.bytes()
	for i := range p.changes {
		n += len(p.changes[i].key) + keyChangeCost
	}
	for i := range p.events {
		e := &p.events[i]
		n += eventCost + len(e.Channel) + len(e.Payload)
		for _, a := range e.Args {
			n += len(a) + argCost
		}
	}
	return n
}

// delivery is a queue of parcels in log order, and the goroutine that empties it.
type delivery struct {
	deliver func(p *parcel)
	flush   func()        // writes what deliver has queued
	limit   int           // bytes
	skipTo  atomic.Uint64 // parcels up to this number are dropped
	ending  atomic.Bool
	sockets *socketYield // the goroutine's own; nil: no file descriptors are left
	clock   func() time.Time
	oldest  time.Time // since when the current parcel was queued; the goroutine's own

	mu        lockorder.Mutex
	filled    sync.Cond // queue is not empty, or closed
	drained   sync.Cond // delivered has grown, or closed
	queue     []parcel
	bytes     int    // what queue and the current batch hold
	begun     int    // bytes of the batch whose delivery has begun; the goroutine's own
	enqueued  uint64 // parcels ever queued; the n-th has number n
	delivered uint64 // parcels handed to their receivers' queues
	ended     chan struct{}
	closed    bool
}

func (d *delivery) init(deliver func(p *parcel), flush func()) {
	d.deliver, d.flush, d.limit, d.clock = deliver, flush, maxDeliveryBytes, time.Now
	d.filled.L, d.drained.L = &d.mu, &d.mu
}

// cost is what a parcel takes of the room: half of it at most, so that what one entry causes always
// fits, and others do beside it.
func (d *delivery) cost(p *parcel) int { return min(p.bytes(), d.limit/2) }

// put queues parcels. It never waits: without room it drops the queue and records the loss in its
// place.
func (d *delivery) put(parcels ...parcel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range parcels {
		d.add(&parcels[i])
	}
	d.filled.Signal()
}

// offer is put for what can be told in another way: it leaves half of the room to all else. It
// returns false if there is no room for as long as the caller waits.
func (d *delivery) offer(p parcel, wait time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := d.cost(&p)
	full := func() bool { return !d.closed && d.bytes+size > d.limit/2 }
	if full() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		defer context.AfterFunc(ctx, d.wake)()
		for full() {
			if ctx.Err() != nil {
				return false
			}
			d.drained.Wait()
		}
	}
	d.add(&p)
	d.filled.Signal()
	return true
}

// add queues a parcel. The caller holds mu.
func (d *delivery) add(p *parcel) {
	if d.closed || d.ended == nil {
		return // no receivers
	}
	size := d.cost(p)
	d.enqueued++
	if d.bytes+size > d.limit {
		for i := range d.queue {
			d.bytes -= d.cost(&d.queue[i])
		}
		clear(d.queue)
		d.queue = d.queue[:0]
		d.skipTo.Store(d.enqueued - 1)
		*p = parcel{lost: true}
		size = d.cost(p)
	}
	p.number, p.since = d.enqueued, d.clock()
	d.bytes += size
	d.queue = append(d.queue, *p)
}

// join starts the goroutine if needed. It returns the number of the newest parcel: a new receiver
// gets later ones.
func (d *delivery) join() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil && !d.closed {
		d.ended = make(chan struct{})
		go d.run()
	}
	return d.enqueued
}

func (d *delivery) run() {
	defer close(d.ended)
	d.sockets, _ = newSocketYield()
	defer d.sockets.close()
	var spare []parcel
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		for len(d.queue) == 0 && !d.closed {
			d.filled.Wait()
		}
		if d.closed {
			return
		}
		batch := d.queue
		d.queue = spare[:0]
		d.mu.Unlock()
		size, last := d.deliverAll(batch)
		d.mu.Lock()
		d.delivered = last
		d.bytes -= size
		d.begun = 0
		d.drained.Broadcast()
		if spare = batch; cap(batch) > keptParcels {
			spare = nil
		}
	}
}

// deliverAll delivers parcels, and returns their bytes and the last number. It yields between
// parcels, and stops early when closing.
func (d *delivery) deliverAll(batch []parcel) (size int, last uint64) {
	parcels, from := 0, 0 // since the last yield, and size then
	for i := range batch {
		p := &batch[i]
		size, last = size+d.cost(p), p.number
		d.begun, d.oldest = size, p.since
		if !d.dropped(p.number) {
			d.deliver(p)
		}
		if parcels++; parcels >= yieldParcels || size-from >= yieldBytes {
			d.flush()
			runtime.Gosched()
			parcels, from = 0, size
		}
	}
	d.flush()
	clear(batch)
	return size, last
}

// dropped reports whether a parcel need not be delivered any more.
func (d *delivery) dropped(number uint64) bool {
	return number <= d.skipTo.Load() || d.ending.Load()
}

// settleFor waits until all queued parcels are in their receivers' queues, until ctx ends, or for a
// session that is killed.
func (d *delivery) settleFor(ctx context.Context, killed *atomic.Bool) {
	defer context.AfterFunc(ctx, d.wake)()
	d.mu.Lock()
	defer d.mu.Unlock()
	for upTo := d.enqueued; d.delivered < upTo && !d.closed && !killed.Load() && ctx.Err() == nil; {
		d.drained.Wait()
	}
}

// awaitDelivery has what was queued before precede what the session does next. It does not outlast
// the session: its patterns may be what delays the delivery.
func (s *session) awaitDelivery(ctx context.Context) {
	s.srv.pubsub.delivery.settleFor(ctx, &s.killed)
}

// wake has those that wait look again.
func (d *delivery) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drained.Broadcast()
}

// close ends the goroutine and drops the queue: the clients are gone.
func (d *delivery) close() {
	d.ending.Store(true)
	d.mu.Lock()
	d.closed = true
	d.filled.Broadcast()
	d.drained.Broadcast()
	ended := d.ended
	d.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
