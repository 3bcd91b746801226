// Tests of the clock of the machine.

package clock

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestSteadyClock: if one of the two clocks runs 8 % fast, the combined clock does not, also when
// the fast one changes or makes up for a loss.
func TestSteadyClock(t *testing.T) {
	for _, c := range []struct {
		what  string
		rates func(at time.Duration) (a, b float64)
		least float64 // of the true time
	}{
		{"both right", func(time.Duration) (a, b float64) { return 1, 1 }, 0.9999},
		{"the first fast", func(time.Duration) (a, b float64) { return 1.08, 1 }, 0.9999},
		{"the second fast", func(time.Duration) (a, b float64) { return 1, 1.08 }, 0.9999},
		{"the first swings", func(at time.Duration) (a, b float64) {
			if at/time.Second%2 == 0 {
				return 0.92, 1
			}
			return 1.08, 1
		}, 0.95},
	} {
		var truth, a, b time.Duration
		a, b = time.Hour, 5*time.Hour
		clock := steadyClock{read: func() (time.Duration, time.Duration) { return a, b }}
		random := rand.New(rand.NewPCG(3, 4))
		type at struct{ truth, clock time.Duration }
		seen := []at{{0, clock.now()}}
		for truth < time.Minute {
			step := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
			ra, rb := c.rates(truth)
			truth, a, b = truth+step, a+time.Duration(float64(step)*ra),
				b+time.Duration(float64(step)*rb)
			now := at{truth, clock.now()}
			if now.clock < seen[len(seen)-1].clock {
				t.Fatalf("%s: the clock went back", c.what)
			}
			for range 3 { // from any earlier moment on
				then := seen[random.IntN(len(seen))]
				if gained, real := now.clock-then.clock,
					now.truth-then.truth; gained > real+anchorEvery/12+10*time.Microsecond {
					t.Fatalf("%s: the clock gained %v in %v", c.what, gained, real)
				}
			}
			seen = append(seen, now)
		}
		if got := float64(seen[len(seen)-1].clock-seen[0].clock) / float64(truth); got < c.least ||
			got > 1 {
			t.Errorf("%s: the clock ran at %.5f", c.what, got)
		}
	}
}

// TestSystemClockIsSafe reads the clock from several goroutines: it advances for each of them, at
// about the rate of real time.
func TestSystemClockIsSafe(t *testing.T) {
	var wg sync.WaitGroup
	began, real := System{}.Monotonic(), time.Now()
	for range 4 {
		wg.Go(func() {
			last := System{}.Monotonic()
			for range 20_000 {
				now := System{}.Monotonic()
				if now < last {
					t.Errorf("%v after %v", now, last)
					return
				}
				last = now
			}
		})
	}
	wg.Wait()
	gained, went := System{}.Monotonic()-began, time.Since(real)
	if gained > went+time.Millisecond || gained < went/2 {
		t.Errorf("the clock gained %v in %v", gained, went)
	}
}

func BenchmarkSystemClock(b *testing.B) {
	for b.Loop() {
		System{}.Monotonic()
	}
}
