package wait

import (
	"fmt"
	"runtime"
	"strings"
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
	const longest = 2 * time.Millisecond
	for pause := longest / 32; !condition(); pause = min(2*pause, longest) {
		select {
		case <-over.C:
			Expired(t, fmt.Sprintf("%s: not within %v", what, limit))
		case <-time.After(pause):
		}
	}
}

// Receive receives from a channel, which may be closed instead, and fails as For does.
func Receive[T any](t testing.TB, limit time.Duration, what string, ch <-chan T) (v T) {
	t.Helper()
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case v = <-ch:
	case <-over.C:
		Expired(t, fmt.Sprintf("%s: not within %v", what, limit))
	}
	return v
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

// explaining has what Explain registered, by the name of the test.
var explaining = struct {
	sync.Mutex
	of map[string][]func()
}{of: map[string][]func(){}}

// Explain has explain called when a wait of the test, or of a subtest, reaches its limit, before
// the test fails: to have other processes show their goroutines.
func Explain(t testing.TB, explain func()) {
	explaining.Lock()
	defer explaining.Unlock()
	name := t.Name()
	if explaining.of[name] == nil {
		t.Cleanup(func() {
			explaining.Lock()
			defer explaining.Unlock()
			delete(explaining.of, name)
		})
	}
	explaining.of[name] = append(explaining.of[name], explain)
}

func explanations(t testing.TB) (all []func()) {
	explaining.Lock()
	defer explaining.Unlock()
	for name, some := range explaining.of {
		if strings.HasPrefix(t.Name()+"/", name+"/") {
			all = append(all, some...)
		}
	}
	return all
}
