package server

// This file holds the counters of single commands that INFO commandstats shows. A session adds up what a pipeline repeats before
// it touches what all sessions share.

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
)

// commandStats counts one command.
type commandStats struct {
	calls, rejected, failed atomic.Uint64
	took                    atomic.Int64 // ns
	times                   histogram
}

// newCommandStats makes the counters of every command that can be called.
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

// tally is what a session has counted of one command and not told yet.
type tally struct {
	spec          *commands.Spec
	to            *commandStats // of spec
	calls, failed uint64
	took          time.Duration
}

// count counts a call that ran. took is its own time, or its part of its run's.
func (s *session) count(spec *commands.Spec, args [][]byte, failed bool, took time.Duration) {
	if s.tally.spec != spec {
		s.tellTally()
		s.tally.spec, s.tally.to = spec, s.srv.stats.byCommand[spec]
	}
	s.tally.calls++
	s.tally.took += took
	if failed {
		s.tally.failed++
	}
	if s.tally.to != nil && s.srv.config.trackLatency.Load() { // tests have commands that the table has not
		s.tally.to.times.add(took)
	}
	s.srv.slowlog.note(s, spec, args, took)
	s.srv.latency.note(spec, took)
}

// lap is the time since the last lap, or since the commands under way were read.
func (s *session) lap() time.Duration {
	last := s.clock
	s.clock = time.Now()
	return s.clock.Sub(last)
}

// tellTally adds what was counted to what all see.
func (s *session) tellTally() {
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

// countRejected counts a call that was refused before it ran.
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
		lines = append(lines, fmt.Sprintf("cmdstat_%s:calls=%d,usec=%.0f,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d\r\n",
			spec.FullName(), calls, took, took/float64(max(calls, 1)), rejected, failed))
	}
	slices.Sort(lines)
	for _, l := range lines {
		t.WriteString(l)
	}
}

// infoLatency shows, of each command that was called, the times that given parts of its calls did not pass.
func infoLatency(t *infoText) {
	list := *t.srv.config.percentiles.Load()
	var lines []string
	for spec, c := range t.srv.stats.byCommand {
		counts, calls := c.times.read()
		if calls == 0 {
			continue
		}
		values := make([]string, len(list))
		for i, p := range list {
			values[i] = fmt.Sprintf("p%s=%.3f", formatPercent(p), percentile(counts, calls, p))
		}
		lines = append(lines, fmt.Sprintf("latency_percentiles_usec_%s:%s\r\n", spec.FullName(), strings.Join(values, ",")))
	}
	slices.Sort(lines)
	for _, l := range lines {
		t.WriteString(l)
	}
}
