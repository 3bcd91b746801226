// This file calibrates charged work: how long a unit takes, for every call on large data. Run
//
//	go test ./commands -run '^$' -bench Work -benchtime 3x
//
// A unit should take at most 25 ns. SIZE=1000000 in the environment sets the number of elements.

package commands

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processorTime returns the processor time that this thread has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(1, &u) // RUSAGE_THREAD
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkWork(b *testing.B) {
	n := 100_000
	if s := os.Getenv("SIZE"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	table := testTable()
	for _, c := range bigCalls {
		b.Run(strings.ReplaceAll(c.words, " ", "_"), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			args := c.args(n)
			best, units := time.Duration(1<<62), uint64(0)
			for range b.N {
				b.StopTimer()
				r := newBigRun(b, table, c, n)
				runtime.GC()
				b.StartTimer()
				start := processorTime()
				got := r.run(args, 2, bigMay{work: 1 << 62}, true)
				best, units = min(best, processorTime()-start), got.work
			}
			b.ReportMetric(float64(best.Microseconds()), "µs")
			b.ReportMetric(float64(best)/float64(units), "ns/unit")
			b.ReportMetric(float64(units), "units")
			b.ReportMetric(0, "ns/op")
		})
	}
}
