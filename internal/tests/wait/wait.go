package wait

import (
	"testing"
	"time"
)

// For polls a condition until it holds. After limit it fails the test, and what names the
// condition.
func For(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	over := time.NewTimer(limit)
	defer over.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-over.C:
			t.Fatalf("%s: not within %v", what, limit)
		case <-tick.C:
		}
	}
}
