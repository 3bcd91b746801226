// This file holds the bell: how many goroutines wait for one change without polling for it.
package cluster

import "sync"

// bell wakes everyone who waits for the next ring. Its zero value is ready.
type bell struct {
	mu   sync.Mutex
	rung chan struct{} // closed by the next ring; nil: nobody waits for it
}

// next returns a channel that the next ring closes. Whoever takes it before a look misses no ring after that look.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// await returns true once ready does, which it asks now and after each ring, and false when stop is closed.
func (b *bell) await(stop <-chan struct{}, ready func() bool) bool {
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
