// LATENCY: histograms of call durations, and, if latency-monitor-threshold is set, slow calls per
// second.

package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/metrics"
	"github.com/coordd/coordd/internal/resp"
)

// latencySamples are kept per event, as in Redis.
const latencySamples = 160

// LATENCY events: those that this server can distinguish.
const (
	slowCommand     = "command"
	slowFastCommand = "fast-command" // a command with the flag fast
)

// latency records the seconds with slow events.
type latency struct {
	threshold atomic.Int64 // ms; 0: off

	mu     lockorder.Mutex
	events map[string]*latencyEvent
}

type latencyEvent struct {
	samples []latencySample // oldest first
	highest int64           // the longest ever, ms
}

// latencySample is the longest duration within a second.
type latencySample struct{ at, ms int64 }

var latencySpecs = []commands.Spec{{
	Name: "latency", Kind: commands.Session, Arity: -2, Group: "server", Since: "2.8.13",
	Summary: "Reports how long commands take on this node.", Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		shows(latencySub("latest", 2, "2.8.13", "",
			"Returns the latest latency spike of each event.", latencyLatest)),
		shows(latencySub("history", 3, "2.8.13", "event", "Returns the latency spikes of an event.",
			latencyHistory)),
		audited(commands.AuditArgs, latencySub("reset", -2, "2.8.13", "[event [event ...]]",
			"Deletes the latency spikes of events, or of all of them.", latencyReset)),
		shows(latencySub("graph", 3, "2.8.13", "event", "Draws the latency spikes of an event.",
			latencyGraph)),
		shows(latencySub("doctor", 2, "2.8.13", "", "Explains the latency spikes in words.",
			latencyDoctor)),
		shows(latencySub("histogram", -2, "7.0.0", "[command [command ...]]",
			"Returns the distribution of command durations.", latencyHistogram)),
		helpSpec("LATENCY", "2.8.13", "server",
			"DOCTOR", "    Return a human readable latency analysis report.",
			"GRAPH <event>", "    Return an ASCII latency graph for the <event> class.",
			"HISTORY <event>", "    Return time-latency samples for the <event> class.",
			"LATEST", "    Return the latest latency samples for all events.",
			"RESET [<event> ...]", "    Reset latency data of one or more <event> classes.",
			"    (default: reset all data for all event classes)",
			"HISTOGRAM [COMMAND ...]",
			"    Return a cumulative distribution of latencies in the format of a histogram for "+
				"the specified command names.",
			"    If no commands are specified then all histograms are replied."),
	},
}}

func latencySub(name string, arity int, since, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Group: "server", Since: since,
		Flags:  commands.NoScript | commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of samples",
		Local: &commands.Local{Run: serve(run), Works: true},
	}
}

// note records a call that took at least the threshold.
func (l *latency) note(spec *commands.Spec, took time.Duration) {
	threshold := l.threshold.Load()
	if threshold == 0 || took.Milliseconds() < threshold {
		return
	}
	name := slowCommand
	if spec.Has(commands.Fast) {
		name = slowFastCommand
	}
	at, ms := time.Now().Unix(), took.Milliseconds()
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		e = &latencyEvent{}
		if l.events == nil {
			l.events = map[string]*latencyEvent{}
		}
		l.events[name] = e
	}
	e.highest = max(e.highest, ms)
	if n := len(e.samples); n > 0 && e.samples[n-1].at == at {
		e.samples[n-1].ms = max(e.samples[n-1].ms, ms)
		return
	}
	if len(e.samples) == latencySamples {
		e.samples = append(e.samples[:0], e.samples[1:]...)
	}
	e.samples = append(e.samples, latencySample{at, ms})
}

// event returns a copy of an event's records; zero if there are none.
func (l *latency) event(name string) latencyEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		return latencyEvent{}
	}
	return latencyEvent{slices.Clone(e.samples), e.highest}
}

func (l *latency) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.events))
}

// reset forgets the named events, or all, and returns how many there were.
func (l *latency) reset(names [][]byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.events)
	if len(names) == 0 {
		clear(l.events)
	}
	for _, name := range names {
		delete(l.events, string(name))
	}
	return before - len(l.events)
}

func latencyLatest(s *session, _ *commands.Spec, _ [][]byte) {
	names := s.srv.latency.names()
	s.w.Array(len(names))
	for _, name := range names {
		e := s.srv.latency.event(name)
		last := latencySample{}
		if n := len(e.samples); n > 0 {
			last = e.samples[n-1]
		}
		s.w.Array(4)
		s.w.BulkString(name)
		s.w.Int(last.at)
		s.w.Int(last.ms)
		s.w.Int(e.highest)
	}
}

func latencyHistory(s *session, _ *commands.Spec, args [][]byte) {
	e := s.srv.latency.event(string(args[2]))
	s.w.Array(len(e.samples))
	for _, sample := range e.samples {
		s.w.Array(2)
		s.w.Int(sample.at)
		s.w.Int(sample.ms)
	}
}

func latencyReset(s *session, _ *commands.Spec, args [][]byte) {
	s.w.Int(int64(s.srv.latency.reset(args[2:])))
}

// latencyGraph draws a column for each sample, four rows high, and its age below.
func latencyGraph(s *session, _ *commands.Spec, args [][]byte) {
	name := string(args[2])
	e := s.srv.latency.event(name)
	if len(e.samples) == 0 {
		s.fail(commands.Errorf("ERR No samples available for event '%s'", resp.Shown(name)))
		return
	}
	s.w.Verbatim("txt", drawLatency(name, e, time.Now().Unix()))
}

const graphRows = 4

func drawLatency(name string, e latencyEvent, now int64) string {
	low, high := e.samples[0].ms, e.samples[0].ms
	for _, sample := range e.samples {
		low, high = min(low, sample.ms), max(high, sample.ms)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n", name, high, low,
		e.highest, strings.Repeat("-", 80))
	for row := graphRows - 1; row >= 0; row-- {
		for _, sample := range e.samples {
			level := int64(graphRows - 1)
			if high > low {
				level = (sample.ms - low) * (graphRows - 1) / (high - low)
			}
			switch {
			case level > int64(row):
				b.WriteByte('|')
			case level == int64(row):
				b.WriteByte('_')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	labels := make([]string, len(e.samples))
	for i, sample := range e.samples {
		labels[i] = shortAge(now - sample.at)
	}
	for row := range 3 {
		b.WriteByte('\n')
		for _, label := range labels {
			if row < len(label) {
				b.WriteByte(label[row])
			} else {
				b.WriteByte(' ')
			}
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// shortAge formats seconds in up to three characters: 7s, 12m, 3h, 99d.
func shortAge(seconds int64) string {
	for _, unit := range []struct {
		seconds int64
		letter  string
	}{{86400, "d"}, {3600, "h"}, {60, "m"}} {
		if seconds >= unit.seconds {
			return formatInt(min(seconds/unit.seconds, 99)) + unit.letter
		}
	}
	return formatInt(max(seconds, 0)) + "s"
}

func latencyDoctor(s *session, _ *commands.Spec, _ [][]byte) {
	l := &s.srv.latency
	threshold := l.threshold.Load()
	if threshold == 0 {
		s.w.Verbatim("txt",
			"Latency monitoring is off. Enable it with CONFIG SET latency-monitor-threshold "+
				"<milliseconds>.\n")
		return
	}
	names := l.names()
	if len(names) == 0 {
		s.w.Verbatim("txt", fmt.Sprintf("No call has taken %d ms or more since monitoring began.\n",
			threshold))
		return
	}
	var b strings.Builder
	for _, name := range names {
		e := l.event(name)
		sum := int64(0)
		for _, sample := range e.samples {
			sum += sample.ms
		}
		n := max(int64(len(e.samples)), 1)
		fmt.Fprintf(&b, "%s: %d slow seconds, on average %d ms, at most %d ms.\n", name,
			len(e.samples), sum/n, e.highest)
	}
	b.WriteString(
		"A write takes as long as a majority of disks needs to sync it: check the disks and the " +
			"network between the nodes first,\n" +
			"then SLOWLOG GET for expensive calls.\n")
	s.w.Verbatim("txt", b.String())
}

// histogramWork is the cost of reading a histogram, in units of 25 ns.
const histogramWork = 400

// latencyHistogram replies for the commands that were called; a container stands for its
// subcommands.
func latencyHistogram(s *session, _ *commands.Spec, args [][]byte) {
	s.flushTally()
	type row struct {
		name  string
		calls uint64
		steps []metrics.Step
	}
	var rows []row
	var times metrics.Reading
	seen := map[*commands.Spec]bool{} // a name may be repeated
	var add func(c *commands.Spec)
	add = func(c *commands.Spec) {
		if seen[c] {
			return
		}
		seen[c] = true
		if s.srv.stats.byCommand[c].times.ReadInto(&times); times.Count > 0 {
			s.work.spend(histogramWork)
			rows = append(rows, row{c.FullName(), times.Count, times.Steps()})
		}
		for i := range c.Subcommands {
			add(&c.Subcommands[i])
		}
	}
	if len(args) == 2 {
		for _, c := range s.srv.table.All() {
			add(c)
		}
	}
	for _, name := range args[2:] {
		if c := s.byName(name); c != nil {
			add(c)
		}
	}
	s.w.Map(len(rows))
	for _, r := range rows {
		s.w.BulkString(r.name)
		s.w.Map(2)
		s.w.BulkString("calls")
		s.w.Int(int64(r.calls))
		s.w.BulkString("histogram_usec")
		s.w.Map(len(r.steps))
		for _, step := range r.steps {
			s.w.Int(int64(step.Us))
			s.w.Int(int64(step.Calls))
		}
	}
}
