package server

// This file holds the way of messages from who applies the log to the subscribers' queues: one goroutine finds out who wants
// which, so that neither patterns nor many subscribers hold up the log.

import (
	"sync"

	"github.com/coordd/coordd/commands"
)

// Limits of what waits for the goroutine. Beyond them who applies waits: messages are not lost, and memory is bounded.
const (
	maxDeliveries    = 16 << 10
	maxDeliveryBytes = 16 << 20
)

// parcel is a message for the subscribers of its channel, the news StateReplaced, which ends all subscribers, or, with invalid.to, a message
// about keys for the clients that are named there.
type parcel struct {
	commands.Event
	invalid invalidation
}

func (p *parcel) bytes() int { return len(p.Channel) + len(p.Payload) + p.invalid.bytes() }

// delivery is a queue of messages in the order of the log, and the goroutine that empties it.
type delivery struct {
	mu      sync.Mutex
	filled  sync.Cond // queue is not empty, or closed
	drained sync.Cond // done grew, or closed
	queue   []parcel
	bytes   int
	handed  uint64 // messages that were ever queued; the n-th has number n
	done    uint64 // messages that lie in their subscribers' queues
	ended   chan struct{}
	closed  bool
}

func (d *delivery) init() { d.filled.L, d.drained.L = &d.mu, &d.mu }

// put queues a message.
func (d *delivery) put(p parcel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	size := p.bytes()
	for !d.closed && d.handed > d.done && (d.handed-d.done >= maxDeliveries || d.bytes+size > maxDeliveryBytes) {
		d.drained.Wait()
	}
	if d.closed {
		return
	}
	d.handed++
	d.bytes += size
	d.queue = append(d.queue, p)
	d.filled.Signal()
}

// join starts the goroutine, which calls deliver, unless it runs. It returns the number of the newest message: who
// subscribes now gets later ones.
func (d *delivery) join(deliver func(p *parcel, number uint64)) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil && !d.closed {
		d.ended = make(chan struct{})
		go d.run(deliver)
	}
	return d.handed
}

func (d *delivery) run(deliver func(p *parcel, number uint64)) {
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
		batch, number := d.queue, d.done
		d.queue = spare[:0]
		d.mu.Unlock()
		size := 0
		for i := range batch {
			size += batch[i].bytes()
			deliver(&batch[i], number+uint64(i)+1)
		}
		d.mu.Lock()
		d.done += uint64(len(batch))
		d.bytes -= size
		d.drained.Broadcast()
		clear(batch)
		if spare = batch; cap(batch) > 1024 {
			spare = nil
		}
	}
}

// settle waits until the messages that were queued before it lie in their subscribers' queues.
func (d *delivery) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for upTo := d.handed; d.done < upTo && !d.closed; {
		d.drained.Wait()
	}
}

// close ends the goroutine. What waits is dropped: the subscribers are gone.
func (d *delivery) close() {
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
