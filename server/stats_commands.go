// Per-command counters, shown by INFO commandstats. A session sums up repeated commands of a
// pipeline before it updates the shared counters.

package server

import (
	"errors"
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
	notRun, unknown         atomic.Uint64 // failed calls that certainly, and possibly, did not run
	took                    atomic.Int64  // ns
	times                   metrics.Histogram
	scripts                 scriptStats
}

// scriptStats counts what scripts call of one command.
type scriptStats struct {
	calls, rejected, failed atomic.Uint64
	work                    atomic.Uint64 // units
}

// workNs is about how long a unit of work takes.
const workNs = 25

// CountScriptCalls counts what scripts have called, and the errors that they caught.
func (s *Server) CountScriptCalls(calls *commands.ScriptCalls) {
	for word, n := range calls.Errors {
		s.stats.error(codeOf(word), max(n, 0)) // a script can make a table that looks counted
	}
	for i := range calls.Counts {
		n := &calls.Counts[i]
		if c := s.stats.byCommand[n.Spec]; c != nil {
			c.scripts.calls.Add(n.Calls)
			c.scripts.rejected.Add(n.Rejected)
			c.scripts.failed.Add(n.Failed)
			c.scripts.work.Add(n.Work)
		}
	}
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
	spec  *commands.Spec
	to    *commandStats       // where spec is counted
	calls [endingKinds]uint64 // by ending
	took  time.Duration
}

// ending says what the reply to a call means.
type ending uint8

const (
	endedOK      ending = iota // it ran
	endedIdle                  // it ran, and says that it changed nothing: 0 or null
	endedError                 // it ran, and its reply is an error of its own
	endedNotRun                // it did not run and never will
	endedUnknown               // it may or may not have run
	endingKinds
)

// failed reports whether the reply is an error.
func (e ending) failed() bool { return e >= endedError }

// endingOf returns the ending of a call that got an error from the backend.
func endingOf(err error) ending {
	var e *Error
	switch {
	case !errors.As(err, &e):
		return endedError
	case e.Outcome == Unknown:
		return endedUnknown
	}
	return endedNotRun
}

// ranEnding returns the ending of a call whose reply is no error.
func ranEnding(reply []byte) ending {
	for _, nothing := range [...]string{":0\r", "$-1\r", "*-1\r", "_\r"} {
		if len(reply) > len(nothing) && string(reply[:len(nothing)]) == nothing {
			return endedIdle
		}
	}
	return endedOK
}

// replyEnding returns the ending of a call from the machine's reply.
func replyEnding(reply []byte) ending {
	switch {
	case reply[0] != '-':
		return ranEnding(reply)
	case string(reply[1:min(len(reply), 1+len(commands.ErrOOM))]) == string(commands.ErrOOM):
		return endedNotRun
	}
	return endedError
}

// count counts a call that was not rejected. took is its own time, or its share of the batch's;
// replied is the size of its reply.
func (s *session) count(spec *commands.Spec, args [][]byte, end ending, took time.Duration,
	replied int) {
	if s.tally.spec != spec {
		s.flushTally()
		s.tally.spec, s.tally.to = spec, s.srv.stats.byCommand[spec]
	}
	s.tally.calls[end]++
	s.tally.took += took
	// tests have commands that are not in the table
	if s.tally.to != nil && s.srv.config.trackLatency.Load() {
		s.tally.to.times.Time(took)
	}
	s.noteCall(spec, args, took, replied)
	s.srv.latency.note(spec, took)
	s.trace(spec, endings[end])
	if s.srv.cfg.Audit != nil && (spec.Audit != nil || spec.Keys.Carried) {
		s.audit(spec, args, end)
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
	failed := t.calls[endedError] + t.calls[endedNotRun] + t.calls[endedUnknown]
	all := t.calls[endedOK] + t.calls[endedIdle] + failed
	if t.to == nil || all == 0 {
		return
	}
	t.to.calls.Add(all)
	t.to.took.Add(int64(t.took))
	if failed > 0 {
		t.to.failed.Add(failed)
		t.to.notRun.Add(t.calls[endedNotRun])
		t.to.unknown.Add(t.calls[endedUnknown])
	}
	t.calls, t.took = [endingKinds]uint64{}, 0
}

// countRejected counts a call that was rejected before it ran.
func (s *session) countRejected(spec *commands.Spec) {
	if c := s.srv.stats.byCommand[spec]; c != nil {
		c.rejected.Add(1)
	} else {
		s.srv.stats.unrecognized.Add(1)
	}
}

func infoCommands(t *infoText) {
	var lines []string
	for spec, c := range t.srv.stats.byCommand {
		calls := c.calls.Load() + c.scripts.calls.Load()
		rejected := c.rejected.Load() + c.scripts.rejected.Load()
		failed := c.failed.Load() + c.scripts.failed.Load()
		if calls == 0 && rejected == 0 && failed == 0 {
			continue
		}
		took := float64(c.took.Load()+int64(c.scripts.work.Load())*workNs) / 1e3
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
