package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// CONFIG RESETSTAT may come while a command is counted.
func TestResetWhileAdding(t *testing.T) {
	var h Histogram
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				h.Reset()
			}
		}
	}()
	for i := range uint64(100_000) {
		h.Add(i)
	}
	close(stop)
	wait.Receive(t, 30*time.Second, "the end of the observers", done)
}

func TestHistogram(t *testing.T) {
	for _, ns := range []uint64{0, 1, 127, 128, 255, 256, 257, 511, 512, 1000, 1 << 20,
		1<<30 + 12345, 1<<36 - 1} {
		b := bucketOf(ns)
		if top := bucketTop(b); ns > top || top > ns+ns/128 || b > 0 && bucketTop(b-1) >= ns {
			t.Errorf("%d ns is in bucket %d, up to %d", ns, b, top)
		}
	}
	if bucketOf(1<<40) != histogramSize-1 || bucketTop(histogramSize-1) != 1<<36-1 {
		t.Error("what is longer than the longest has no place")
	}
	var h Histogram
	if r := h.Read(); r.Count != 0 || r.Steps() != nil {
		t.Error("an empty histogram holds something")
	}
	for us := 1; us <= 1000; us++ {
		h.Time(time.Duration(us) * time.Microsecond)
	}
	r := h.Read()
	for _, c := range []struct{ percent, us float64 }{{0, 1}, {50, 500}, {99, 990}, {99.9, 999},
		{100, 1000}} {
		if got := float64(r.Percentile(c.percent)) / 1e3; got < c.us || got > c.us*1.01 {
			t.Errorf("p%g = %g µs, want %g", c.percent, got, c.us)
		}
	}
	// The durations are Redis's: 33 for values below 32768 ns plus the width of the bucket.
	want := "[{1 1} {2 2} {4 4} {8 8} {16 16} {33 33} {66 66} {132 132} {264 264} {528 528} " +
		"{1056 1000}]"
	if got := fmt.Sprint(r.Steps()); got != want {
		t.Errorf("steps %s, want %s", got, want)
	}
	if h.Reset(); h.Read().Count != 0 {
		t.Error("a reset histogram holds something")
	}
}
