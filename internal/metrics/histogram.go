// A histogram whose buckets grow with the value, so that each value is known to within one percent,
// after HdrHistogram (https://hdrhistogram.org).

package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	histogramHalf  = 128 // buckets for each power of two
	histogramPower = 36  // values from 2^36, about a minute in ns, count as that
	histogramSize  = (histogramPower - 7 + 1) * histogramHalf
)

// Histogram counts durations, or other numbers. It is allocated on first use: most commands are
// never called. Adding takes no lock.
type Histogram struct {
	counts atomic.Pointer[[histogramSize]atomic.Uint64]
}

// bucketOf returns the bucket of a value: below 256 each has its own, above 128 share a power of
// two.
func bucketOf(value uint64) int {
	shift := max(bits.Len64(value)-8, 0)
	return min(shift*histogramHalf+int(value>>shift), histogramSize-1)
}

// bucketTop returns the largest value of a bucket.
func bucketTop(bucket int) uint64 {
	shift := max(bucket/histogramHalf-1, 0)
	return uint64(bucket-shift*histogramHalf+1)<<shift - 1
}

// Time adds a duration, in ns.
func (h *Histogram) Time(took time.Duration) { h.Add(uint64(max(took, 0))) }

// Add adds a value.
func (h *Histogram) Add(value uint64) {
	counts := h.counts.Load()
	for counts == nil { // Reset may come in between
		if fresh := new([histogramSize]atomic.Uint64); h.counts.CompareAndSwap(nil, fresh) {
			counts = fresh
		} else {
			counts = h.counts.Load()
		}
	}
	counts[bucketOf(value)].Add(1)
}

// Reset forgets all values.
func (h *Histogram) Reset() { h.counts.Store(nil) }

// Reading is a copy of a histogram.
type Reading struct {
	Count  uint64   // how many values it has
	counts []uint64 // by bucket; nil if there are none
}

// Read returns a copy.
func (h *Histogram) Read() (r Reading) {
	h.ReadInto(&r)
	return r
}

// ReadInto makes r a copy. It reuses the memory of an earlier one.
func (h *Histogram) ReadInto(r *Reading) {
	r.Count = 0
	live := h.counts.Load()
	if live == nil {
		clear(r.counts)
		return
	}
	if r.counts == nil {
		r.counts = make([]uint64, histogramSize)
	}
	for i := range live {
		r.counts[i] = live[i].Load()
		r.Count += r.counts[i]
	}
}

// Percentile returns the value that percent of the values do not exceed. There must be values.
func (r Reading) Percentile(percent float64) uint64 {
	want := max(uint64(percent/100*float64(r.Count)+0.5), 1)
	for i, n := range r.counts {
		if n >= want {
			return bucketTop(i)
		}
		want -= n
	}
	return bucketTop(histogramSize - 1)
}

// Step is the number of calls that took at most Us µs.
type Step struct{ Us, Calls uint64 }

// Steps returns cumulative counts of durations at powers of two where they grow, as LATENCY
// HISTOGRAM shows them. The durations are bucket tops, as in Redis.
func (r Reading) Steps() []Step {
	if r.Count == 0 {
		return nil
	}
	var all []Step
	at, sum, shown := 0, uint64(0), uint64(0)
	for power := 10; power <= histogramPower; power++ {
		end := bucketOf(1 << power)
		for ; at <= end; at++ {
			sum += r.counts[at]
		}
		if sum > shown {
			all = append(all, Step{bucketTop(end) / 1e3, sum})
			shown = sum
		}
	}
	return all
}
