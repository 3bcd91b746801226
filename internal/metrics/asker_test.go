package metrics

import (
	"testing"
	"time"
)

// An answer that came too late for one call and long before the next one is asked for again.
func TestAskerForgets(t *testing.T) {
	var a Asker[int]
	a.under = &question[int]{done: make(chan struct{}), answer: 1, at: time.Now().Add(-time.Hour)}
	close(a.under.done)
	if got, ok := a.Ask(func() int { return 2 }); !ok || got != 2 {
		t.Errorf("%d %v: an hour old", got, ok)
	}
}
