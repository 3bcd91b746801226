package metrics

import (
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// askWait is how long a scrape waits for an answer.
const askWait = 300 * time.Millisecond

// Asker asks what may not answer in time, such as a hung disk, in one goroutine at most.
type Asker[T any] struct {
	mu    lockorder.Mutex
	under *question[T] // under way; nil: none
}

// question is one call. Its results are set before done is closed.
type question[T any] struct {
	done   chan struct{}
	answer T
	at     time.Time // when answer came
}

// Ask returns what f returns. ok is false if there is no answer in time; one that comes soon after
// that is for the next call.
func (a *Asker[T]) Ask(f func() T) (answer T, ok bool) {
	a.mu.Lock()
	q := a.under
	if q == nil || q.isOld() {
		q = &question[T]{done: make(chan struct{})}
		a.under = q
		go func() {
			q.answer = f()
			q.at = time.Now()
			close(q.done)
		}()
	}
	a.mu.Unlock()
	timer := time.NewTimer(askWait)
	defer timer.Stop()
	select {
	case <-q.done:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.under == q {
			a.under = nil
		}
		return q.answer, true
	case <-timer.C:
		return answer, false
	}
}

// isOld reports whether the answer has been there for so long that it may not be true any more.
func (q *question[T]) isOld() bool {
	select {
	case <-q.done:
		return time.Since(q.at) > askWait
	default:
		return false
	}
}
