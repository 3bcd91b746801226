// How Prometheus gets a Histogram: in classic buckets, and in a native histogram for servers that
// ask for one (they negotiate the format). Both come from the same counts.

package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// nativeSchema: eight buckets for each power of two, each 9 % wider than the one before.
const nativeSchema = 3

// sample is a Reading as a metric. The embedded one has the labels.
type sample struct {
	prometheus.Metric
	def *Def
	r   Reading
}

// Write implements prometheus.Metric.
func (s sample) Write(to *dto.Metric) error {
	if err := s.Metric.Write(to); err != nil {
		return err
	}
	to.Histogram = s.r.export(s.def.scale, s.def.bounds)
	return nil
}

// middle returns the value that stands for those of a bucket: off by half a percent at most.
func middle(bucket int) float64 {
	top, below := bucketTop(bucket), uint64(0)
	if bucket > 0 {
		below = bucketTop(bucket-1) + 1
	}
	return (float64(below) + float64(top)) / 2
}

// export returns the values times scale in buckets.
func (r Reading) export(scale float64, bounds []float64) *dto.Histogram {
	h := &dto.Histogram{SampleCount: &r.Count, Schema: new(int32(nativeSchema)),
		ZeroThreshold: new(0.0), ZeroCount: new(uint64(0))}
	sum, cumulated, at := 0.0, uint64(0), 0
	var n native
	for i, count := range r.counts {
		if count == 0 {
			continue
		}
		value := middle(i) * scale
		for ; at < len(bounds) && value > bounds[at]; at++ {
			h.Bucket = append(h.Bucket, classic(bounds[at], cumulated))
		}
		sum += value * float64(count)
		cumulated += count
		if value == 0 {
			*h.ZeroCount += count
		} else {
			n.add(int32(math.Ceil(math.Log2(value)*(1<<nativeSchema))), count)
		}
	}
	for ; at < len(bounds); at++ {
		h.Bucket = append(h.Bucket, classic(bounds[at], cumulated))
	}
	h.SampleSum, h.PositiveSpan, h.PositiveDelta = &sum, n.spans, n.deltas
	if len(n.spans) == 0 { // tells a native histogram without values from a classic one
		h.PositiveSpan = []*dto.BucketSpan{{Offset: new(int32(0)), Length: new(uint32(0))}}
	}
	return h
}

func classic(bound float64, cumulated uint64) *dto.Bucket {
	return &dto.Bucket{UpperBound: &bound, CumulativeCount: &cumulated}
}

// native builds the buckets of a native histogram: runs of neighbors, each count as the difference
// from the one before.
type native struct {
	spans  []*dto.BucketSpan
	deltas []int64
	index  int32  // index of the newest bucket
	count  uint64 // in it
}

// add adds to the bucket with an index, which is none before the newest one.
func (n *native) add(index int32, count uint64) {
	switch last := len(n.spans) - 1; {
	case last < 0:
		n.spans = append(n.spans, &dto.BucketSpan{Offset: &index, Length: new(uint32(1))})
	case index == n.index:
		n.deltas[len(n.deltas)-1] += int64(count)
		n.count += count
		return
	case index == n.index+1:
		*n.spans[last].Length++
	default:
		n.spans = append(n.spans, &dto.BucketSpan{Offset: new(index - n.index - 1),
			Length: new(uint32(1))})
	}
	n.deltas = append(n.deltas, int64(count)-int64(n.count))
	n.index, n.count = index, count
}
