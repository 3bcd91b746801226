// The measurements behind the tunables: throughput and CPU time per write, by entries in flight.

package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func cpuTime() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// run calls op from callers goroutines b.N times in all and reports CPU time an operation (of all
// three nodes).
func runCallers(b *testing.B, callers int, op func() error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	cpu := cpuTime()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for left.Add(-1) >= 0 {
				if err := op(); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1000, "cpu-µs/op")
}

func BenchmarkWrite(b *testing.B) {
	batch := []byte(strings.Repeat("x", 60))
	for _, inFlight := range []int{1, 2, 3, 4} {
		for _, callers := range []int{1, 50, 200} {
			b.Run(fmt.Sprintf("inflight=%d/callers=%d", inFlight, callers), func(b *testing.B) {
				c := newRealCluster(b, 3, func(cfg *Config) { cfg.inFlight = inFlight })
				n := c.leader()
				runCallers(b, callers, func() error {
					_, err := n.write(context.Background(), batch, 1)
					return err
				})
				b.ReportMetric(float64(b.N)/float64(len(c.toys[n.cfg.ID].Stamps)), "writes/entry")
			})
		}
	}
}

func BenchmarkForwardedWrite(b *testing.B) {
	batch := []byte(strings.Repeat("x", 60))
	for _, callers := range []int{1, 50, 200} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := newRealCluster(b, 3, nil)
			n := c.followers()[0]
			runCallers(b, callers, func() error {
				_, err := n.write(context.Background(), batch, 1)
				return err
			})
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, where := range []string{"leader", "follower"} {
		for _, callers := range []int{1, 50} {
			b.Run(fmt.Sprintf("%s/callers=%d", where, callers), func(b *testing.B) {
				c := newRealCluster(b, 3, nil)
				n := c.leader()
				if where == "follower" {
					n = c.followers()[0]
				}
				runCallers(b, callers, func() error {
					_, err := n.read(context.Background(), []byte("len"))
					return err
				})
			})
		}
	}
}

// BenchmarkIdle reports what three idle nodes cost.
func BenchmarkIdle(b *testing.B) {
	newRealCluster(b, 3, nil)
	cpu := cpuTime()
	for range b.N {
		<-time.After(time.Second)
	}
	b.ReportMetric(100*float64(cpuTime()-cpu)/float64(b.N)/float64(time.Second), "cpu-%")
}
