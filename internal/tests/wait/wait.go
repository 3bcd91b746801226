package wait

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// For polls a condition until it holds. After limit it fails the test: it names the condition, and
// shows what Explain registered and the goroutines of this process.
func For(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	over := time.NewTimer(limit)
	defer over.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-over.C:
			Expired(t, fmt.Sprintf("%s: not within %v", what, limit))
		case <-tick.C:
		}
	}
}

// Expired fails a test whose wait has reached its limit, and shows what For shows.
func Expired(t testing.TB, what string) {
	t.Helper()
	for _, explain := range explanations(t) {
		explain()
	}
	t.Fatalf("%s\n%s", what, Stacks())
}

// Stacks returns the goroutines of this process.
func Stacks() string {
	buf := make([]byte, 4<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// explaining has what Explain registered, by test.
var explaining struct {
	sync.Mutex
	of map[testing.TB][]func()
}

// Explain has explain called when a wait of the test reaches its limit, before the test fails: to
// have other processes show their goroutines.
func Explain(t testing.TB, explain func()) {
	explaining.Lock()
	defer explaining.Unlock()
	if explaining.of == nil {
		explaining.of = map[testing.TB][]func(){}
	}
	if explaining.of[t] == nil {
		t.Cleanup(func() {
			explaining.Lock()
			defer explaining.Unlock()
			delete(explaining.of, t)
		})
	}
	explaining.of[t] = append(explaining.of[t], explain)
}

func explanations(t testing.TB) []func() {
	explaining.Lock()
	defer explaining.Unlock()
	return explaining.of[t]
}
