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
// shows what Explain registered and the goroutines of this process. The limit is for a machine that
// has processors to spare; where pauses of this process are late, what it waits for is so, too.
func For(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	w := waiting{limit: limit, began: time.Now()}
	for !condition() {
		if w.isOver() {
			Expired(t, fmt.Sprintf("%s: not within %v", what, limit))
		}
		time.Sleep(w.begin())
		w.end()
	}
}

// Receive receives from a channel, which may be closed instead, and fails as For does.
func Receive[T any](t testing.TB, limit time.Duration, what string, ch <-chan T) T {
	t.Helper()
	w := waiting{limit: limit, began: time.Now()}
	for !w.isOver() {
		select {
		case v := <-ch:
			return v
		case <-time.After(w.begin()):
			w.end()
		}
	}
	Expired(t, fmt.Sprintf("%s: not within %v", what, limit))
	panic("it goes on behind a failure")
}

const (
	longestPause = 2 * time.Millisecond
	usuallyLate  = time.Millisecond // of a pause, where there are processors to spare
	mostLate     = 5                // how many limits a wait may take
)

// waiting is a wait with a limit, in pauses.
type waiting struct {
	limit        time.Duration
	began        time.Time
	pause        time.Duration
	since        time.Time     // the pause
	asked, taken time.Duration // all pauses
}

// begin begins a pause, and returns how long it shall be.
func (w *waiting) begin() time.Duration {
	w.pause = min(max(2*w.pause, longestPause/32), longestPause)
	w.since = time.Now()
	return w.pause
}

func (w *waiting) end() {
	w.asked += w.pause + usuallyLate
	w.taken += time.Since(w.since)
}

func (w *waiting) isOver() bool {
	late := min(max(float64(w.taken)/float64(max(w.asked, 1)), 1), mostLate)
	return time.Since(w.began) >= time.Duration(late*float64(w.limit))
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
