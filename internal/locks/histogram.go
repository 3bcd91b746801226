package locks

// bounds are the upper bounds of the buckets of hold and wait times, ms.
var bounds = [...]int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000,
	30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000}

// histogram counts durations.
type histogram struct {
	buckets [len(bounds) + 1]uint64 // the last one: longer
	sumMs   uint64
}

func (h *histogram) add(ms int64) {
	i := 0
	for i < len(bounds) && ms > bounds[i] {
		i++
	}
	h.buckets[i]++
	h.sumMs += uint64(max(ms, 0))
}

// Histogram is a snapshot of durations.
type Histogram struct {
	// Bounds are the upper bounds of the buckets in seconds, rising. Counts has one element more,
	// for what is longer; they are not cumulative.
	Bounds []float64
	Counts []uint64
	Count  uint64
	Sum    float64 // seconds
}

func (h *histogram) snapshot() Histogram {
	s := Histogram{Counts: append([]uint64(nil), h.buckets[:]...), Sum: float64(h.sumMs) / 1000}
	for _, ms := range bounds {
		s.Bounds = append(s.Bounds, float64(ms)/1000)
	}
	for _, n := range h.buckets {
		s.Count += n
	}
	return s
}
