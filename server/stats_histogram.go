package server

// This file holds how often calls took how long: a histogram whose buckets grow with the time, so that each time is known to less
// than a hundredth of itself, after HdrHistogram's idea (https://hdrhistogram.org).

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	histogramHalf  = 128 // buckets for each power of two
	histogramPower = 36  // times from 2^36 ns, about a minute, on count as that
	histogramSize  = (histogramPower - 7 + 1) * histogramHalf
)

// histogram counts times. It is made at the first: most commands are never called.
type histogram struct {
	counts atomic.Pointer[[histogramSize]atomic.Uint64]
}

// bucketOf is the place of a time of ns: below 256 each has its own, then 128 share a power of two.
func bucketOf(ns uint64) int {
	shift := max(bits.Len64(ns)-8, 0)
	return min(shift*histogramHalf+int(ns>>shift), histogramSize-1)
}

// bucketTop is the longest time that a bucket counts, ns.
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

// read copies the counts, with their sum; nil where nothing was counted.
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

// percentile is the time, µs, that so many percent of the calls did not pass.
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

// latencyStep says how many calls took at most so long.
type latencyStep struct{ us, calls uint64 }

// steps are the numbers of calls up to each power of two, where it grows, as LATENCY HISTOGRAM shows them. The times are those that
// Redis shows: tops of buckets.
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
