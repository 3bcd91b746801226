package server

// This file holds the way of news from who applies the log to the clients' queues: one goroutine finds out who wants which, so that neither
// patterns nor many subscribers hold up the log.

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/coordd/coordd/commands"
)

const (
	// maxDeliveryBytes of parcels may wait for the goroutine. Beyond them all who would have been told lose their connections, or their caches: who applies
	// the log waits for nobody.
	maxDeliveryBytes = 128 << 20
	// parcelCost is what keeping a parcel takes besides its bytes.
	parcelCost = 256
	// yieldParcels are delivered before others may run.
	yieldParcels = 64
	// keptParcels is for how many parcels the queue keeps its room.
	keptParcels = 1024
)

// parcel is one piece of news. Exactly one of its parts is set.
type parcel struct {
	number  uint64          // in the order of the log
	event   *commands.Event // a Message, ScriptCall, or StateReplaced
	changes []keyChange     // of one entry, for caches
	evicted invalidation    // of keys that the table had no room for
	line    []byte          // for monitors
	lost    bool            // parcels were lost here
}

func (p *parcel) bytes() int {
	n := parcelCost + len(p.line) + p.evicted.bytes()
	for i := range p.changes {
		n += len(p.changes[i].key) + keyChangeCost
	}
	if e := p.event; e != nil {
		n += len(e.Channel) + len(e.Payload)
		for _, a := range e.Args {
			n += len(a) + argCost
		}
	}
	return n
}

// delivery is a queue of parcels in the order of the log, and the goroutine that empties it.
type delivery struct {
	deliver func(p *parcel)
	limit   int           // bytes
	skipTo  atomic.Uint64 // parcels up to this number are not to be delivered
	ending  atomic.Bool

	mu        sync.Mutex
	filled    sync.Cond // queue is not empty, or closed
	drained   sync.Cond // done grew, or closed
	queue     []parcel
	bytes     int    // of queue and of what is being delivered
	enqueued  uint64 // parcels that were ever queued; the n-th has number n
	delivered uint64 // parcels that lie in their receivers' queues
	ended     chan struct{}
	closed    bool
}

func (d *delivery) init(deliver func(p *parcel)) {
	d.deliver, d.limit = deliver, maxDeliveryBytes
	d.filled.L, d.drained.L = &d.mu, &d.mu
}

// put queues parcels. It never waits: where there is no room all that waits is dropped, and the news that it was lost stands in its place.
func (d *delivery) put(parcels ...parcel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range parcels {
		d.add(&parcels[i])
	}
	d.filled.Signal()
}

// offer is put for those who may wait: it leaves half of the room to those who may not.
func (d *delivery) offer(p parcel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for size := p.bytes(); !d.closed && d.bytes > 0 && d.bytes+size > d.limit/2; {
		d.drained.Wait()
	}
	d.add(&p)
	d.filled.Signal()
}

// add queues a parcel. The caller holds mu.
func (d *delivery) add(p *parcel) {
	if d.closed || d.ended == nil {
		return // nobody is there to be told
	}
	size := p.bytes()
	d.enqueued++
	if d.bytes+size > d.limit {
		for i := range d.queue {
			d.bytes -= d.queue[i].bytes()
		}
		clear(d.queue)
		d.queue = d.queue[:0]
		d.skipTo.Store(d.enqueued - 1)
		*p = parcel{lost: true}
		size = p.bytes()
	}
	p.number = d.enqueued
	d.bytes += size
	d.queue = append(d.queue, *p)
}

// join starts the goroutine unless it runs. It returns the number of the newest parcel: who comes now gets later ones.
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
		d.drained.Broadcast()
		if spare = batch; cap(batch) > keptParcels {
			spare = nil
		}
	}
}

// hand delivers a batch, and returns its bytes and its last number. Between two parcels it ends where it is to, and lets others run.
func (d *delivery) deliverAll(batch []parcel) (size int, last uint64) {
	for i := range batch {
		p := &batch[i]
		size, last = size+p.bytes(), p.number
		if p.number > d.skipTo.Load() && !d.ending.Load() {
			d.deliver(p)
		}
		if i%yieldParcels == yieldParcels-1 {
			runtime.Gosched()
		}
	}
	clear(batch)
	return size, last
}

// settle waits until the parcels that were queued before it lie in their receivers' queues.
func (d *delivery) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for upTo := d.enqueued; d.delivered < upTo && !d.closed; {
		d.drained.Wait()
	}
}

// close ends the goroutine. What waits is dropped: the clients are gone.
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
