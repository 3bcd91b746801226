// A latency histogram whose buckets grow with the value, so that each value is known to within one
// percent, after HdrHistogram (https://hdrhistogram.org).

package server

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	histogramHalf  = 128 // buckets for each power of two
	histogramPower = 36  // values from 2^36 ns, about a minute, count as that
	histogramSize  = (histogramPower - 7 + 1) * histogramHalf
)

// histogram counts durations. It is allocated on first use: most commands are never called.
type histogram struct {
	counts atomic.Pointer[[histogramSize]atomic.Uint64]
}

// bucketOf returns the bucket of a duration in ns: below 256 each has its own, above 128 share a
// power of two.
func bucketOf(ns uint64) int {
	shift := max(bits.Len64(ns)-8, 0)
	return min(shift*histogramHalf+int(ns>>shift), histogramSize-1)
}

// bucketTop returns the longest duration of a bucket, ns.
func bucketTop(bucket int) uint64 {
	shift := max(bucket/histogramHalf-1, 0)
	return uint64(bucket-shift*histogramHalf+1)<<shift - 1
}

func (h *histogram) add(took time.Duration) {
	counts := h.counts.Load()
	if counts == nil {
		h.counts.CompareAndSwap(nil, new([histogramSize]atomic.Uint64))
		counts = h.counts.Load()
	}
	counts[bucketOf(uint64(max(took, 0)))].Add(1)
}

func (h *histogram) reset() { h.counts.Store(nil) }

// read returns a copy of the counts and their sum; nil if there are none.
func (h *histogram) read() (counts []uint64, calls uint64) {
	live := h.counts.Load()
	if live == nil {
		return nil, 0
	}
	counts = make([]uint64, histogramSize)
	for i := range live {
		counts[i] = live[i].Load()
		calls += counts[i]
	}
	if calls == 0 {
		return nil, 0
	}
	return counts, calls
}

// percentile returns the duration, µs, that percent of the calls did not exceed.
func percentile(counts []uint64, calls uint64, percent float64) float64 {
	want := max(uint64(percent/100*float64(calls)+0.5), 1)
	for i, n := range counts {
		if n >= want {
			return float64(bucketTop(i)) / 1e3
		}
		want -= n
	}
	return float64(bucketTop(histogramSize-1)) / 1e3
}

// latencyStep is the number of calls that took at most us.
type latencyStep struct{ us, calls uint64 }

// steps returns cumulative counts at powers of two where they grow, as LATENCY HISTOGRAM shows
// them. The durations are bucket tops, as in Redis.
func steps(counts []uint64) []latencyStep {
	var all []latencyStep
	at, sum, shown := 0, uint64(0), uint64(0)
	for power := 10; power <= histogramPower; power++ {
		end := bucketOf(1 << power)
		for ; at <= end; at++ {
			sum += counts[at]
		}
		if sum > shown {
			all = append(all, latencyStep{bucketTop(end) / 1e3, sum})
			shown = sum
		}
	}
	return all
}
