package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Kind is a type of metric, in Prometheus's word.
type Kind string

// The types of metrics.
const (
	Counter Kind = "counter"
	Gauge   Kind = "gauge"
	Buckets Kind = "histogram"
)

// Def declares a metric: a sample for each combination of its labels.
type Def struct {
	Name   string
	Kind   Kind
	Help   string
	Labels []string

	desc  *prometheus.Desc
	scale float64 // what the values of a histogram are multiplied with
	// upper bounds of the classic buckets of a histogram, in the metric's unit
	bounds []float64
}

// Set is the metrics of a room. Its methods are for package variables.
type Set struct{ defs []*Def }

// Defs returns the metrics in the order of their declaration.
func (s *Set) Defs() []*Def { return s.defs }

// Counter declares a metric that only grows, until the process restarts or CONFIG RESETSTAT.
func (s *Set) Counter(name, help string, labels ...string) *Def {
	return s.add(&Def{Name: name, Kind: Counter, Help: help, Labels: labels})
}

// Gauge declares a metric that rises and falls.
func (s *Set) Gauge(name, help string, labels ...string) *Def {
	return s.add(&Def{Name: name, Kind: Gauge, Help: help, Labels: labels})
}

// Seconds declares a Histogram of durations.
func (s *Set) Seconds(name, help string, labels ...string) *Def {
	return s.add(&Def{Name: name, Kind: Buckets, Help: help, Labels: labels, scale: 1e-9,
		bounds: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
			0.25, 0.5, 1, 2.5, 5, 10}})
}

// Sizes declares a Histogram of numbers from 1 to most, with buckets at powers of four.
func (s *Set) Sizes(name, help string, most uint64, labels ...string) *Def {
	d := &Def{Name: name, Kind: Buckets, Help: help, Labels: labels, scale: 1}
	for bound := uint64(1); bound <= most; bound *= 4 {
		d.bounds = append(d.bounds, float64(bound))
	}
	return s.add(d)
}

// Histogram declares a histogram that its room counts in buckets of its own, see Out.Counted.
func (s *Set) Histogram(name, help string, labels ...string) *Def {
	return s.add(&Def{Name: name, Kind: Buckets, Help: help, Labels: labels})
}

func (s *Set) add(d *Def) *Def {
	d.desc = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
	s.defs = append(s.defs, d)
	return d
}

// Collector returns a collector of the set, whose values give writes.
func (s *Set) Collector(give func(Out)) prometheus.Collector { return collector{s, give} }

type collector struct {
	set  *Set
	give func(Out)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.set.Defs() {
		to <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c.give(Out{to}) }

// Out takes the values of one scrape. The labels are those of the Def, in its order.
type Out struct{ to chan<- prometheus.Metric }

// Value writes a sample of a counter or gauge.
func (o Out) Value(d *Def, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if d.Kind == Counter {
		kind = prometheus.CounterValue
	}
	o.to <- prometheus.MustNewConstMetric(d.desc, kind, value, labels...)
}

// Flag writes a gauge that is 1 or 0.
func (o Out) Flag(d *Def, yes bool, labels ...string) {
	value := 0.0
	if yes {
		value = 1
	}
	o.Value(d, value, labels...)
}

// Histogram writes what Seconds or Sizes declared.
func (o Out) Histogram(d *Def, r Reading, labels ...string) {
	o.to <- sample{prometheus.MustNewConstHistogram(d.desc, 0, 0, nil, labels...), d, r}
}

// Counted writes what Set.Histogram declared: counts has the values up to each bound, not
// cumulated, and in its last element those above all.
func (o Out) Counted(d *Def, bounds []float64, counts []uint64, sum float64, labels ...string) {
	cumulated, total := make(map[float64]uint64, len(bounds)), uint64(0)
	for i, n := range counts {
		if total += n; i < len(bounds) {
			cumulated[bounds[i]] = total
		}
	}
	o.to <- prometheus.MustNewConstHistogram(d.desc, total, sum, cumulated, labels...)
}
