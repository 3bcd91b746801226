// Measurements on large values: the time per element, the charged work, and the time per unit of
// work.

package commands

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/keyspace"
	"golang.org/x/sys/unix"
)

// measured runs a call that may do that much work, and returns its reply and its charged work.
func (r *testRun) measured(args [][]byte, may uint64) (reply []byte, work uint64, err error) {
	r.index++
	out := &RESP{Proto: r.proto}
	r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
	defer r.ks.End()
	env := &Env{Keyspace: r.ks, ClockMs: 1, Level: LevelSecond, Seed: r.index}
	r.table.Run(&Call{Env: env, Tx: &Tx{Proto: r.proto}, Args: args, Out: out, Stop: may,
		Room: math.MaxInt >> 1})
	if strings.HasPrefix(string(out.Buf), "-") {
		return out.Buf, env.Work, fmt.Errorf("%.80q", out.Buf)
	}
	return out.Buf, env.Work, nil
}

// threadNs returns the processor time of this thread, which other work on the machine does not
// affect.
func threadNs(tb testing.TB) int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		tb.Fatal(err)
	}
	return at.Nano()
}

func BenchmarkLarge(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		filled := map[string]*testRun{}
		for _, c := range largeCalls {
			b.Run(fmt.Sprintf("%d/%s", n, strings.ReplaceAll(c.call, " ", "_")),
				func(b *testing.B) {
					work, spent := uint64(0), int64(0)
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					for range b.N {
						r := filled[c.keys]
						delete(filled, c.keys)
						if r == nil {
							r = newTestRun()
							for _, key := range strings.Fields(c.keys) {
								r.fill(key, n)
							}
						}
						before, args := r.ks.Sum(), largeCall(c.call, n)
						runtime.GC()
						spent -= threadNs(b)
						_, did, err := r.measured(args, math.MaxInt64)
						spent += threadNs(b)
						if err != nil {
							b.Fatal(err)
						}
						if work += did; r.ks.Sum() == before {
							filled[c.keys] = r
						}
					}
					b.ReportMetric(float64(spent)/float64(b.N)/float64(n), "ns/element")
					b.ReportMetric(float64(work)/float64(b.N)/float64(n), "units/element")
					b.ReportMetric(float64(spent)/float64(max(work, 1)), "ns/unit")
					b.ReportMetric(0, "ns/op")
				})
		}
	}
}
