// Waking many goroutines that wait for one change, without polling.

package cluster

import "github.com/coordd/coordd/internal/lockorder"

// broadcast wakes everyone who waits for the next notify. The zero value is ready to use.
type broadcast struct {
	mu lockorder.Mutex
	ch chan struct{} // closed by the next notify; nil: nobody waits
}

// next returns a channel that the next notify closes. Take it before checking the state: then no
// change is missed.
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

// await returns true once ready does, which it calls now and after each notify, and false when stop
// is closed.
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
