// MEMORY: the size of keys, by an estimate that is equal on every node, and the memory of this
// process.

package server

import (
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"strings"

	"github.com/coordd/coordd/commands"
)

var memorySpecs = []commands.Spec{{
	Name: "memory", Kind: commands.Session, Arity: -2, Group: "server", Since: "4.0.0",
	Summary:    "Reports the memory use of keys and of the process.",
	Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		{
			Name: "usage", Kind: commands.Read, Arity: -3, Group: "server", Since: "4.0.0",
			Keys:       commands.KeySpec{First: 2, Last: 2, Step: 1, Flags: commands.KeyRO},
			Syntax:     "key [SAMPLES count:integer]",
			Summary:    "Estimates the memory use of a key in bytes.",
			Complexity: "O(1)", Handler: memoryUsage,
		},
		memorySub("stats", "Returns the memory statistics of the process.", memoryStats),
		memorySub("doctor", "Explains the memory use of the process in words.", memoryDoctor),
		memorySub("malloc-stats", "Returns the memory statistics of the Go runtime.",
			memoryRuntime),
		// it collects garbage, which all pay for
		audited(commands.AuditName, categorized("admin dangerous", memorySub("purge",
			"Returns free memory to the operating system.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				debug.FreeOSMemory()
				s.w.Status("OK")
			}))),
		helpSpec("MEMORY", "4.0.0", "server",
			"DOCTOR", "    Return memory problems reports.",
			"MALLOC-STATS", "    Return internal statistics report from the memory allocator.",
			"PURGE", "    Attempt to purge dirty pages for reclamation by the allocator.",
			"STATS", "    Return information about the memory usage of the server.",
			"USAGE <key> [SAMPLES <count>]",
			"    Return memory in bytes used by <key> and its value. Nested values are",
			"    sampled up to <count> times (default: 5, 0 means sample all)."),
	},
}}

func memorySub(name, summary string, run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Session, Arity: 2, Group: "server", Since: "4.0.0",
		Summary: summary, Complexity: "O(N) where N is the number of connections",
		Local: &commands.Local{Run: serve(run), Works: true},
	}
}

// defaultSamples is how many elements of a collection MEMORY USAGE examines by default, below
// LevelSecond. From then on it has the count of all.
const defaultSamples = 5

func memoryUsage(x *commands.Call) error {
	samples := int64(defaultSamples)
	for i := 3; i < len(x.Args); i += 2 {
		if !is(x.Args[i], "samples") || i+1 == len(x.Args) {
			return commands.ErrSyntax
		}
		n, ok := commands.ParseInt(x.Args[i+1])
		if !ok {
			return commands.ErrNotInteger
		}
		if n < 0 {
			return commands.ErrSyntax
		}
		samples = n
	}
	e := x.DB().Find(x.Args[2])
	if e == nil {
		x.Out.Null()
		return nil
	}
	if x.Level >= commands.LevelSecond {
		x.Out.Int(e.Size())
		return nil
	}
	if c := e.Collection(); c != nil {
		if n := int64(c.Len()); samples == 0 || samples > n {
			samples = n
		}
		x.Spend(int(samples))
	}
	x.Out.Int(int64(e.Memory(int(samples))))
	return nil
}

// memoryNow is the memory of the process, bytes.
type memoryNow struct {
	objects  uint64 // what objects take, in use or not collected yet
	live     uint64 // what the latest collection left of them
	held     uint64 // by the runtime, from the system
	resident uint64 // what the process has in RAM
	peak     uint64 // the most that was ever resident
}

func readMemory() memoryNow {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	n := func(i int) uint64 { return samples[i].Value.Uint64() }
	m := memoryNow{objects: n(0), held: n(1) - n(2), live: n(3)}
	m.resident, m.peak = residentBytes(m.held)
	return m
}

// availableMemory returns how much memory the process may use: GOMEMLIMIT, which follows the
// container's limit, otherwise the machine's memory, or 1 GiB if unknown.
func availableMemory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < maxInt64 {
		return limit
	}
	if total := systemMemory(); total > 0 {
		return int64(total)
	}
	return 1 << 30
}

// percent returns part as a percentage of whole.
func percent(part, whole uint64) float64 { return 100 * float64(part) / float64(max(whole, 1)) }

func ratio(a, b uint64) float64 { return float64(a) / float64(max(b, 1)) }

// biggestClient returns the size of the largest connection.
func (s *Server) biggestClient() int64 {
	biggest := int64(0)
	for _, c := range s.all() {
		biggest = max(biggest, c.memory.bytes())
	}
	return biggest
}

func memoryStats(s *session, _ *commands.Spec, _ [][]byte) {
	m := readMemory()
	clients := uint64(max(s.srv.clientMemory.total.Load(), 0))
	has, keys := s.srv.backend.Stats(), uint64(0)
	for _, db := range has.Databases {
		keys += uint64(db.Keys)
	}
	overhead := min(s.srv.startBytes+clients, m.objects)
	dataset := uint64(has.Memory)
	numbers := []struct {
		name  string
		value any // uint64 or float64
	}{
		{"peak.allocated", m.peak}, {"total.allocated", m.objects},
		{"startup.allocated", s.srv.startBytes},
		{"replication.backlog", uint64(s.srv.backend.Status().LogCache)},
		{"clients.slaves", uint64(0)},
		{"clients.normal", clients},
		{"cluster.links", uint64(0)}, {"aof.buffer", uint64(0)}, {"overhead.total", overhead},
		{"keys.count", keys}, {"keys.bytes-per-key", dataset / max(keys, 1)},
		{"dataset.bytes", dataset}, {"dataset.percentage", percent(dataset, m.objects)},
		{"peak.percentage", percent(m.objects, m.peak)},
		{"allocator.allocated", m.objects}, {"allocator.active", m.held},
		{"allocator.resident", m.held},
		{"allocator-fragmentation.ratio", ratio(m.held, m.objects)},
		{"allocator-fragmentation.bytes", m.held - min(m.held, m.objects)},
		{"rss-overhead.ratio", ratio(m.resident, m.held)},
		{"rss-overhead.bytes", m.resident - min(m.resident, m.held)},
		{"fragmentation", ratio(m.resident, m.objects)},
		{"fragmentation.bytes", m.resident - min(m.resident, m.objects)},
	}
	s.w.Map(len(numbers))
	for _, n := range numbers {
		s.w.BulkString(n.name)
		switch v := n.value.(type) {
		case uint64:
			s.w.Int(int64(v))
		case float64:
			s.w.Double(v)
		}
	}
}

// Thresholds of MEMORY DOCTOR.
const (
	littleMemory = 64 << 20
	bigClient    = 8 << 20
)

func memoryDoctor(s *session, _ *commands.Spec, _ [][]byte) {
	m := readMemory()
	var b strings.Builder
	if m.objects < littleMemory {
		b.WriteString("Little memory is in use: nothing to report.\n")
	}
	if m.objects >= littleMemory && m.peak > 3*m.objects {
		fmt.Fprintf(&b,
			"The process peaked at %s; objects use %s now. The Go runtime returns free memory "+
				"gradually; MEMORY PURGE does so immediately.\n",
			human(m.peak), human(m.objects))
	}
	if biggest := s.srv.biggestClient(); biggest > bigClient {
		fmt.Fprintf(&b,
			"A connection uses %s, shown by CLIENT LIST as tot-mem: it sends or receives large "+
				"data, or does not read.\n", human(uint64(biggest)))
	}
	if b.Len() == 0 {
		b.WriteString("No problems found.\n")
	}
	s.w.Verbatim("txt", b.String())
}

// memoryRuntime lists the Go runtime's metrics of memory and garbage collection.
func memoryRuntime(s *session, _ *commands.Spec, _ [][]byte) {
	var samples []metrics.Sample
	for _, d := range metrics.All() {
		if strings.HasPrefix(d.Name, "/memory/") || strings.HasPrefix(d.Name, "/gc/") {
			samples = append(samples, metrics.Sample{Name: d.Name})
		}
	}
	metrics.Read(samples)
	var b strings.Builder
	for _, sample := range samples {
		switch sample.Value.Kind() {
		case metrics.KindUint64:
			fmt.Fprintf(&b, "%s %d\n", sample.Name, sample.Value.Uint64())
		case metrics.KindFloat64:
			fmt.Fprintf(&b, "%s %g\n", sample.Name, sample.Value.Float64())
		}
	}
	s.w.Verbatim("txt", b.String())
}
