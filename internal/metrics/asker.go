package metrics

import (
	"sync"
	"time"
)

// askWait is how long a scrape waits for an answer.
const askWait = 300 * time.Millisecond

// Asker asks what may not answer in time, such as a hung disk, in one goroutine at most.
type Asker[T any] struct {
	mu     sync.Mutex
	answer chan T // of the question under way; nil: none
}

// Ask returns what f returns. ok is false if there is no answer in time: a later call gets that.
func (a *Asker[T]) Ask(f func() T) (answer T, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answer == nil {
		a.answer = make(chan T, 1)
		go func(to chan<- T) { to <- f() }(a.answer)
	}
	timer := time.NewTimer(askWait)
	defer timer.Stop()
	select {
	case answer = <-a.answer:
		a.answer = nil
		return answer, true
	case <-timer.C:
		return answer, false
	}
}
