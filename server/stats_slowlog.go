// SLOWLOG, and COMMANDLOG of Valkey: calls of this node's clients that were slow, or whose requests
// or replies were large. A call's duration is its share of its batch's, including the log; waiting
// for a key or for the end of a pause does not count.

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

// Default thresholds, µs and bytes, and length, as in Redis and Valkey.
const (
	slowlogUs       = 10_000
	largeBytes      = 1 << 20
	commandLogCalls = 128
)

// logKind is what a command log is about.
type logKind uint8

const (
	slowCalls logKind = iota
	largeRequests
	largeReplies
	logKinds
)

// logKindNames are the kinds as COMMANDLOG names them.
var logKindNames = [logKinds]string{"slow", "large-request", "large-reply"}

// commandLog keeps the newest calls of a kind.
type commandLog struct {
	threshold atomic.Int64 // µs or bytes; negative: off
	maxLen    atomic.Int64

	mu      lockorder.Mutex
	entries []logEntry // oldest first
	nextID  int64
}

type logEntry struct {
	id, at     int64 // at: Unix seconds
	value      int64 // µs or bytes
	args       [][]byte
	addr, name string
}

// commandLogs are those of a node.
type commandLogs [logKinds]commandLog

func (l *commandLogs) init() {
	for kind := range l {
		l[kind].threshold.Store(largeBytes)
		l[kind].maxLen.Store(commandLogCalls)
	}
	l[slowCalls].threshold.Store(slowlogUs)
}

var slowlogSpecs = []commands.Spec{{
	Name: "slowlog", Kind: commands.Session, Arity: -2, Group: "server", Since: "2.2.12",
	Summary: "Reports the slow commands of this node.", Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		shows(logSub("get", -2, "2.2.12", "[count:integer]",
			"Returns the newest entries of the slow log.",
			"O(N) where N is the number of entries given", slowlogGet)),
		shows(logSub("len", 2, "2.2.12", "", "Returns the number of entries of the slow log.",
			"O(1)", func(s *session, _ *commands.Spec, _ [][]byte) { logLen(s, slowCalls) })),
		audited(commands.AuditName, logSub("reset", 2, "2.2.12", "", "Clears the slow log.",
			"O(N) where N is the number of entries",
			func(s *session, _ *commands.Spec, _ [][]byte) { logReset(s, slowCalls) })),
		helpSpec("SLOWLOG", "6.2.0", "server",
			"GET [<count>]",
			"    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
			"    Entries are made of:",
			"    id, timestamp, time in microseconds, arguments array, client IP and port,",
			"    client name",
			"LEN", "    Return the length of the slowlog.",
			"RESET", "    Reset the slowlog."),
	},
}, {
	Name: "commandlog", Kind: commands.Session, Arity: -2, Group: "server", Since: "8.1.0",
	Summary:    "Reports the slow and the large commands of this node.",
	Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		shows(logSub("get", 4, "8.1.0", "count:integer "+logKindSyntax,
			"Returns the newest entries of a command log.",
			"O(N) where N is the number of entries given", ofLog(3, commandlogGet))),
		shows(logSub("len", 3, "8.1.0", logKindSyntax,
			"Returns the number of entries of a command log.", "O(1)", ofLog(2, commandlogLen))),
		audited(commands.AuditArgs, logSub("reset", 3, "8.1.0", logKindSyntax,
			"Clears a command log.", "O(N) where N is the number of entries",
			ofLog(2, commandlogReset))),
		helpSpec("COMMANDLOG", "8.1.0", "server",
			"GET <count> <type>",
			"    Return the newest <count> entries of a log, -1: all of them.",
			"    An entry has an id, a timestamp, µs or bytes, the arguments, and the client's",
			"    address and name.",
			"LEN <type>", "    Return the number of entries of a log.",
			"RESET <type>", "    Clear a log.",
			"Types:", "    slow: commands by their time in microseconds.",
			"    large-request, large-reply: commands by their bytes."),
	},
}}

const logKindSyntax = "<SLOW | LARGE-REQUEST | LARGE-REPLY>"

func logSub(name string, arity int, since, syntax, summary, complexity string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Admin, Arity: arity, Group: "server", Since: since,
		Flags:  commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: complexity,
		Local: &commands.Local{Run: serve(run), Works: true},
	}
}

// noteCall notes a call in the logs whose thresholds it reaches. replied is the size of its reply.
func (s *session) noteCall(spec *commands.Spec, args [][]byte, took time.Duration, replied int) {
	if spec.Has(commands.SkipSlowlog) {
		return
	}
	values := [logKinds]int64{took.Microseconds(), int64(requestBytes(args)), int64(replied)}
	for kind, value := range values {
		l := &s.srv.commandLogs[kind]
		if threshold := l.threshold.Load(); threshold < 0 || value < threshold {
			continue
		}
		l.add(logEntry{value: value, args: slowCall(redact(s.srv.table, spec, args)), addr: s.addr,
			name: beginning(s.name)})
	}
}

// requestBytes returns the size of a call as clients send it.
func requestBytes(args [][]byte) int {
	size := headBytes(len(args))
	for _, a := range args {
		size += headBytes(len(a)) + len(a) + len("\r\n")
	}
	return size
}

// headBytes returns the size of the line before n arguments, or before one of n bytes.
func headBytes(n int) int {
	size := len("$0\r\n")
	for ; n >= 10; n /= 10 {
		size++
	}
	return size
}

// NoteSlowScript adds a script to the SLOWLOG that took far longer than its work should, whoever
// called it on whichever node: SCRIPT, its id, and its source.
func (s *Server) NoteSlowScript(x commands.SlowScript) {
	l := &s.commandLogs[slowCalls]
	if l.threshold.Load() < 0 {
		return
	}
	l.add(logEntry{value: (time.Duration(x.TookMs) * time.Millisecond).Microseconds(),
		args: slowCall([][]byte{[]byte("SCRIPT"), []byte(x.ID), []byte(x.Source)})})
}

func (l *commandLog) add(e logEntry) {
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
func (l *commandLog) newest(n int64) []logEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	found := make([]logEntry, n)
	for i := range found {
		found[i] = l.entries[len(l.entries)-1-i]
	}
	return found
}

// noted returns how many calls there were.
func (l *commandLog) noted() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nextID
}

func (l *commandLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

func slowlogGet(s *session, _ *commands.Spec, args [][]byte) {
	switch len(args) {
	case 2:
		logGet(s, slowCalls, []byte("10"))
	case 3:
		logGet(s, slowCalls, args[2])
	default:
		s.fail(subcommandSyntax(args))
	}
}

// ofLog makes f answer a subcommand for the log that the argument at names.
func ofLog(at int, f func(*session, logKind, [][]byte)) func(*session, *commands.Spec, [][]byte) {
	return func(s *session, _ *commands.Spec, args [][]byte) {
		for kind, name := range logKindNames {
			if is(args[at], name) {
				f(s, logKind(kind), args)
				return
			}
		}
		s.fail(commands.Error(
			"ERR type should be one of the following: slow, large-request, large-reply"))
	}
}

func commandlogGet(s *session, kind logKind, args [][]byte) { logGet(s, kind, args[2]) }
func commandlogLen(s *session, kind logKind, _ [][]byte)    { logLen(s, kind) }
func commandlogReset(s *session, kind logKind, _ [][]byte)  { logReset(s, kind) }

func logLen(s *session, kind logKind) {
	s.w.Int(int64(len(s.srv.commandLogs[kind].newest(-1))))
}

func logReset(s *session, kind logKind) {
	s.srv.commandLogs[kind].reset()
	s.w.Status("OK")
}

func logGet(s *session, kind logKind, text []byte) {
	count, ok := commands.ParseInt(text)
	if !ok || count < -1 {
		s.fail(commands.Error("ERR count should be greater than or equal to -1"))
		return
	}
	entries := s.srv.commandLogs[kind].newest(count)
	s.w.Array(len(entries))
	for i := range entries {
		e := &entries[i]
		s.w.Array(6)
		s.w.Int(e.id)
		s.w.Int(e.at)
		s.w.Int(e.value)
		s.w.Array(len(e.args))
		for _, a := range e.args {
			s.w.Bulk(a)
		}
		s.w.BulkString(e.addr)
		s.w.BulkString(e.name)
	}
}
