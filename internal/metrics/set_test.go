package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// gather returns the only family that a collector gives.
func gather(t *testing.T, s *Set, give func(Out)) *dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(s.Collector(give))
	families, err := r.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v: %v", families, err)
	}
	return families[0]
}

func TestNativeBesideClassic(t *testing.T) {
	var s Set
	d := s.Seconds("test_seconds", "Help.", "name")
	var h Histogram
	times := []time.Duration{0, 50 * time.Microsecond, 60 * time.Microsecond,
		990 * time.Microsecond, 1100 * time.Microsecond, 3 * time.Second, 30 * time.Second}
	sum := 0.0
	for _, took := range times {
		h.Time(took)
		sum += took.Seconds()
	}
	got := gather(t, &s, func(o Out) { o.Histogram(d, h.Read(), "x") }).Metric[0]
	if got.Label[0].GetValue() != "x" {
		t.Error(got.Label)
	}
	m := got.Histogram
	if m.GetSampleCount() != 7 || math.Abs(m.GetSampleSum()-sum) > sum/100 {
		t.Errorf("%d values, sum %g, want %g", m.GetSampleCount(), m.GetSampleSum(), sum)
	}
	for _, b := range m.Bucket {
		want := uint64(0)
		for _, took := range times {
			if took.Seconds() <= b.GetUpperBound() {
				want++
			}
		}
		if b.GetCumulativeCount() != want {
			t.Errorf("%d values up to %g, want %d", b.GetCumulativeCount(), b.GetUpperBound(), want)
		}
	}
	// Each value is in the native bucket whose bounds are around it.
	if m.GetZeroCount() != 1 || m.GetSchema() != nativeSchema {
		t.Errorf("%d zeros, schema %d", m.GetZeroCount(), m.GetSchema())
	}
	index, count, at, total := int32(0), int64(0), 0, int64(0)
	for _, span := range m.PositiveSpan {
		index += span.GetOffset()
		for range span.GetLength() {
			count += m.PositiveDelta[at]
			total += count
			at++
			top := math.Exp2(float64(index) / (1 << nativeSchema))
			low := math.Exp2(float64(index-1) / (1 << nativeSchema))
			want := int64(0)
			for _, took := range times {
				if took.Seconds() > low && took.Seconds() <= top {
					want++
				}
			}
			if count != want {
				t.Errorf("%d values from %g to %g s, want %d", count, low, top, want)
			}
			index++
		}
	}
	if total != 6 {
		t.Errorf("%d values in native buckets, want 6", total)
	}
}

func TestCounted(t *testing.T) {
	var s Set
	d := s.Histogram("test_seconds", "Help.")
	m := gather(t, &s, func(o Out) { o.Counted(d, []float64{1, 2}, []uint64{3, 4, 5}, 50) }).
		Metric[0].Histogram
	if m.GetSampleCount() != 12 || m.GetSampleSum() != 50 || len(m.Bucket) != 2 ||
		m.Bucket[0].GetCumulativeCount() != 3 || m.Bucket[1].GetCumulativeCount() != 7 {
		t.Error(m)
	}
}

func TestAsker(t *testing.T) {
	var a Asker[int]
	hold := make(chan struct{})
	slow := func() int { <-hold; return 1 }
	for range 2 {
		if _, ok := a.Ask(slow); ok {
			t.Fatal("there was an answer before there was one")
		}
	}
	close(hold) // of the first question: the second did not ask again
	if got, ok := a.Ask(func() int { return 2 }); !ok || got != 1 {
		t.Error(got, ok)
	}
	if got, ok := a.Ask(func() int { return 3 }); !ok || got != 3 {
		t.Error(got, ok)
	}
}
