// Per-command counters, shown by INFO commandstats. A session sums up repeated commands of a
// pipeline before it updates the shared counters.

package server

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/metrics"
)

// commandStats counts one command.
type commandStats struct {
	calls, rejected, failed atomic.Uint64
	took                    atomic.Int64 // ns
	times                   metrics.Histogram
}

// newCommandStats returns counters for every command.
func newCommandStats(table *commands.Table) map[*commands.Spec]*commandStats {
	all := map[*commands.Spec]*commandStats{}
	for _, c := range table.All() {
		all[c] = &commandStats{}
		for i := range c.Subcommands {
			all[&c.Subcommands[i]] = &commandStats{}
		}
	}
	return all
}

// tally holds a session's unreported counts of one command.
type tally struct {
	spec          *commands.Spec
	to            *commandStats // of spec
	calls, failed uint64
	took          time.Duration
}

// count counts a call that ran. took is its own time, or its share of the batch's.
func (s *session) count(spec *commands.Spec, args [][]byte, failed bool, took time.Duration) {
	if s.tally.spec != spec {
		s.flushTally()
		s.tally.spec, s.tally.to = spec, s.srv.stats.byCommand[spec]
	}
	s.tally.calls++
	s.tally.took += took
	if failed {
		s.tally.failed++
	}
	// tests have commands that are not in the table
	if s.tally.to != nil && s.srv.config.trackLatency.Load() {
		s.tally.to.times.Time(took)
	}
	s.srv.slowlog.note(s, spec, args, took)
	s.srv.latency.note(spec, took)
	if s.srv.cfg.Audit != nil && spec.Audit != nil {
		s.audit(spec, args, failed)
	}
}

// lap returns the time since the last lap, or since the current commands were read.
func (s *session) lap() time.Duration {
	last := s.clock
	s.clock = time.Now()
	return s.clock.Sub(last)
}

// flushTally adds the tally to the shared counters.
func (s *session) flushTally() {
	t := &s.tally
	if t.to == nil || t.calls == 0 {
		return
	}
	t.to.calls.Add(t.calls)
	t.to.took.Add(int64(t.took))
	if t.failed > 0 {
		t.to.failed.Add(t.failed)
	}
	t.calls, t.failed, t.took = 0, 0, 0
}

// countRejected counts a call that was rejected before it ran.
func (s *session) countRejected(spec *commands.Spec) {
	if c := s.srv.stats.byCommand[spec]; c != nil {
		c.rejected.Add(1)
	}
}

func infoCommands(t *infoText) {
	var lines []string
	for spec, c := range t.srv.stats.byCommand {
		calls, rejected, failed := c.calls.Load(), c.rejected.Load(), c.failed.Load()
		if calls == 0 && rejected == 0 && failed == 0 {
			continue
		}
		took := float64(c.took.Load()) / 1e3
		lines = append(lines,
			fmt.Sprintf(
				"cmdstat_%s:calls=%d,usec=%.0f,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d\r\n",
				spec.FullName(), calls, took, took/float64(max(calls, 1)), rejected, failed))
	}
	slices.Sort(lines)
	for _, l := range lines {
		t.WriteString(l)
	}
}

// infoLatency shows latency percentiles of each command that was called.
func infoLatency(t *infoText) {
	list := *t.srv.config.percentiles.Load()
	var lines []string
	for spec, c := range t.srv.stats.byCommand {
		times := c.times.Read()
		if times.Count == 0 {
			continue
		}
		values := make([]string, len(list))
		for i, p := range list {
			values[i] = fmt.Sprintf("p%s=%.3f", formatPercent(p),
				float64(times.Percentile(p))/1e3)
		}
		lines = append(lines, fmt.Sprintf("latency_percentiles_usec_%s:%s\r\n", spec.FullName(),
			strings.Join(values, ",")))
	}
	slices.Sort(lines)
	for _, l := range lines {
		t.WriteString(l)
	}
}
