// SLOWLOG: slow calls of this node's clients. A call's duration is its share of its batch's,
// including the log; waiting for a key or for the end of a pause does not count.

package server

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// What an entry keeps of a call, as in Redis.
const (
	slowArgs     = 32
	slowArgBytes = 128
)

// Default threshold, µs, and length, as in Redis.
const (
	slowlogUs  = 10_000
	slowlogLen = 128
)

// slowlog keeps the newest slow calls.
type slowlog struct {
	threshold atomic.Int64 // µs; negative: off
	maxLen    atomic.Int64

	mu      lockorder.Mutex
	entries []slowEntry // oldest first
	nextID  int64
}

type slowEntry struct {
	id, at     int64 // at: Unix seconds
	took       time.Duration
	args       [][]byte
	addr, name string
}

var slowlogSpecs = []commands.Spec{{
	Name: "slowlog", Kind: commands.Session, Arity: -2, Group: "server", Since: "2.2.12",
	Summary: "Reports the slow commands of this node.", Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		shows(slowlogSub("get", -2, "[count:integer]",
			"Returns the newest entries of the slow log.",
			"O(N) where N is the number of entries given", slowlogGet)),
		shows(slowlogSub("len", 2, "", "Returns the number of entries of the slow log.", "O(1)",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.Int(int64(len(s.srv.slowlog.newest(-1))))
			})),
		audited(commands.AuditName, slowlogSub("reset", 2, "", "Clears the slow log.",
			"O(N) where N is the number of entries",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.srv.slowlog.reset()
				s.w.Status("OK")
			})),
		helpSpec("SLOWLOG", "6.2.0", "server",
			"GET [<count>]",
			"    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
			"    Entries are made of:",
			"    id, timestamp, time in microseconds, arguments array, client IP and port,",
			"    client name",
			"LEN", "    Return the length of the slowlog.",
			"RESET", "    Reset the slowlog."),
	},
}}

func slowlogSub(name string, arity int, syntax, summary, complexity string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Group: "server", Since: "2.2.12",
		Flags:  commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: complexity,
		Local: &commands.Local{Run: serve(run), Works: true},
	}
}

// note records a call that took longer than the threshold.
func (l *slowlog) note(s *session, spec *commands.Spec, args [][]byte, took time.Duration) {
	threshold := l.threshold.Load()
	if threshold < 0 || took.Microseconds() < threshold || spec.Has(commands.SkipSlowlog) {
		return
	}
	l.add(slowEntry{took: took, args: slowCall(redact(s.srv.table, spec, args)), addr: s.addr,
		name: beginning(s.name)})
}

// NoteSlowScript adds a script to the SLOWLOG that took far longer than its work should, whoever
// called it on whichever node: SCRIPT, its id, and its source.
func (s *Server) NoteSlowScript(x commands.SlowScript) {
	if s.slowlog.threshold.Load() < 0 {
		return
	}
	s.slowlog.add(slowEntry{took: time.Duration(x.TookMs) * time.Millisecond,
		args: slowCall([][]byte{[]byte("SCRIPT"), []byte(x.ID), []byte(x.Source)})})
}

func (l *slowlog) add(e slowEntry) {
	e.at = time.Now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.nextID
	l.nextID++
	l.entries = append(l.entries, e)
	if tooMany := len(l.entries) - int(l.maxLen.Load()); tooMany > 0 {
		l.entries = append(l.entries[:0], l.entries[tooMany:]...)
	}
}

// slowCall copies the part of a call's arguments to keep.
func slowCall(args [][]byte) [][]byte {
	kept := make([][]byte, 0, min(len(args), slowArgs))
	for i, a := range args {
		switch {
		case i == slowArgs-1 && len(args) > slowArgs:
			return append(kept, fmt.Appendf(nil, "... (%d more arguments)", len(args)-slowArgs+1))
		case len(a) > slowArgBytes:
			kept = append(kept, fmt.Appendf(nil, "%s... (%d more bytes)", a[:slowArgBytes],
				len(a)-slowArgBytes))
		default:
			kept = append(kept, bytes.Clone(a))
		}
	}
	return kept
}

// newest returns n entries, the newest first; negative n: all.
func (l *slowlog) newest(n int64) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	found := make([]slowEntry, n)
	for i := range found {
		found[i] = l.entries[len(l.entries)-1-i]
	}
	return found
}

// noted returns how many calls there were.
func (l *slowlog) noted() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nextID
}

func (l *slowlog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

func slowlogGet(s *session, _ *commands.Spec, args [][]byte) {
	count := int64(10)
	switch len(args) {
	case 2:
	case 3:
		n, ok := commands.ParseInt(args[2])
		if !ok || n < -1 {
			s.fail(commands.Error("ERR count should be greater than or equal to -1"))
			return
		}
		count = n
	default:
		s.fail(subcommandSyntax(args))
		return
	}
	entries := s.srv.slowlog.newest(count)
	s.w.Array(len(entries))
	for i := range entries {
		e := &entries[i]
		s.w.Array(6)
		s.w.Int(e.id)
		s.w.Int(e.at)
		s.w.Int(e.took.Microseconds())
		s.w.Array(len(e.args))
		for _, a := range e.args {
			s.w.Bulk(a)
		}
		s.w.BulkString(e.addr)
		s.w.BulkString(e.name)
	}
}
