// Package metrics is what the rooms of coordd measure with, and how Prometheus reads it
// (docs/adr/0025-metrics.md).
//
// A room counts where things happen, in atomics that INFO and other commands read as well. It
// declares its metrics in a Set, and gives their values when Prometheus asks: there are no two
// counts of one thing, and no work for a scrape that does not come.
package metrics
