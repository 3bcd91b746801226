// This file holds the bell: how many goroutines wait for one change without polling for it.
package cluster

import "sync"

// bell wakes everyone who waits for the next ring. Its zero value is ready.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{} // closed by the next ring; nil: nobody waits for it
}

// next returns a channel that the next ring closes. Whoever takes it before a look misses no ring after that look.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// await returns true once ready does, which it asks now and after each ring, and false when stop is closed.
func (b *broadcast) await(stop <-chan struct{}, ready func() bool) bool {
	for {
		rung := b.next()
		if ready() {
			return true
		}
		select {
		case <-rung:
		case <-stop:
			return false
		}
	}
}
