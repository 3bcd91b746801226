// MONITOR: a connection that sees every command of this node's clients. A command is shown when it
// is passed on, before its outcome is known; the commands of a transaction after it has run.

package server

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

var monitorSpecs = []commands.Spec{{
	Name: "monitor", Kind: commands.Admin, Arity: 1, Group: "server", Since: "1.0.0",
	Flags:      commands.NoScript | commands.Loading | commands.Stale,
	Summary:    "Streams every command that the clients of this node send.",
	Complexity: "O(1) for every command",
	Audit:      commands.AuditName,
	Local:      &commands.Local{Run: serve(monitor)},
}}

const (
	errMonitorMulti commands.Error = "ERR MONITOR isn't allowed for DENY BLOCKING client"
	errMonitorData  commands.Error = "ERR Replica can't interact with the keyspace"
)

// monitors holds the sessions that MONITOR.
type monitors struct {
	size atomic.Int32 // how many monitors there are
	mu   lockorder.Mutex
	all  map[*session]uint64 // with the newest parcel when they joined
}

func (m *monitors) add(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[*session]uint64{}
	}
	m.all[s] = s.srv.pubsub.delivery.join()
	m.count(s.srv)
}

func (m *monitors) remove(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, s)
	m.count(s.srv)
}

func (m *monitors) count(srv *Server) {
	m.size.Store(int32(len(m.all)))
	srv.backend.Watch(len(m.all) > 0)
}

// list returns the sessions that MONITOR.
func (m *monitors) list() []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all))
}

// show sends a line to all monitors.
func (m *monitors) show(t *parcelDelivery, line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shared := &message{body: line, needsMonitor: true}
	for c, after := range m.all {
		if t.number > after {
			t.push(c, shared)
		}
	}
}

// closeAll closes all monitors: they have missed something.
func (m *monitors) closeAll(t *parcelDelivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c, after := range m.all {
		if t.number > after {
			c.dismiss()
		}
	}
}

// drop closes all monitors at once, and reports whether there were any. The commands of all clients
// wait for them otherwise.
func (m *monitors) drop() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	some := len(m.all) > 0
	for c := range m.all {
		c.dismiss()
		delete(m.all, c)
		m.count(c.srv)
	}
	return some
}

func monitor(s *session, _ *commands.Spec, _ [][]byte) {
	switch {
	case s.inExec:
		s.fail(errMonitorMulti)
		return
	case s.monitoring:
		return // as in Redis, no reply
	case !s.out.hold(&s.srv.wg):
		s.quit = true
		return
	}
	s.monitoring = true
	s.srv.monitors.add(s)
	s.w.Status("OK")
}

// endMonitor ends MONITOR for a session.
func (s *session) endMonitor() {
	if s.monitoring {
		s.monitoring = false
		s.srv.monitors.remove(s)
	}
}

// keptFromMonitor reports whether a monitoring session may not call a command: those that touch
// data.
func keptFromMonitor(spec *commands.Spec) bool {
	return spec.Writes() || spec.Reads() || spec.Has(commands.MayReplicate) || spec.Keys.Numkeys > 0
}

// showMonitors shows a command to the monitors.
func (s *session) showMonitors(spec *commands.Spec, args [][]byte) {
	if s.srv.monitors.size.Load() > 0 {
		s.showCall(spec, s.db, args)
	}
}

// monitorWait is how long a command waits for room to be shown.
const monitorWait = time.Second

func (s *session) showCall(spec *commands.Spec, db int, args [][]byte) {
	if spec.Administers() {
		return // as in Redis: they may hold secrets
	}
	d := &s.srv.pubsub.delivery
	line := monitorLine(db, s.addr, redact(s.srv.table, spec, args), d.limit/2)
	shown := d.offer(parcel{line: line, hidden: line == nil}, monitorWait)
	if !shown && s.srv.monitors.drop() {
		s.srv.warnings.Warn("closed monitors: commands waited for them")
	}
}

// called shows a command that a script of this node's clients calls, when this node applies it: on
// a node that does not lead, that may be after the reply, and after the client has gone.
func (s *Server) called(t *parcelDelivery, e *commands.Event) {
	if s.monitors.size.Load() > 0 && s.numbered(e.Client-s.clientBase) {
		s.monitors.show(t, monitorLine(e.DB, "lua", e.Args, maxInt))
	}
}

// quotedAtOnce is the number of bytes quoted before the length of the line is looked at.
const quotedAtOnce = 64 << 10

// monitorLine formats a command as MONITOR shows it. It returns nil if that is longer than most.
func monitorLine(db int, from string, args [][]byte, most int) []byte {
	now := time.Now()
	b := fmt.Appendf(nil, "+%d.%06d [%d %s]", now.Unix(), now.Nanosecond()/1000, db, from)
	for _, a := range args {
		b = append(b, ` "`...)
		for part := range slices.Chunk(a, quotedAtOnce) {
			if b = appendQuoted(b, part); len(b) > most {
				return nil
			}
		}
		b = append(b, '"')
	}
	return append(b, "\r\n"...)
}

// appendQuoted quotes bytes as redis-cli reads them.
func appendQuoted(dst, arg []byte) []byte {
	for _, c := range arg {
		switch c {
		case '\\', '"':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\a':
			dst = append(dst, '\\', 'a')
		case '\b':
			dst = append(dst, '\\', 'b')
		default:
			if c < ' ' || c > '~' {
				dst = append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
			} else {
				dst = append(dst, c)
			}
		}
	}
	return dst
}

const hexDigits = "0123456789abcdef"

var redactedArg = []byte("(redacted)")

// redact hides names and passwords, also of a call that the arguments carry. It does not change
// args.
func redact(table *commands.Table, spec *commands.Spec, args [][]byte) [][]byte {
	first := 0 // where the arguments of the call begin that spec is
	for spec.Carries > 0 && len(args)-first > spec.Carries {
		first += spec.Carries
		if spec, _ = table.Resolve(args[first:]); spec == nil {
			return args
		}
	}
	if spec.Secret == nil {
		return args
	}
	var shown [][]byte
	spec.Secret(args[first:], func(i int) {
		if shown == nil {
			shown = append(shown, args...)
		}
		shown[first+i] = redactedArg
	})
	if shown == nil {
		return args
	}
	return shown
}

// showBlock shows the commands of a transaction, if it ran, and its EXEC.
func (s *session) showBlock(exec *pending, ran bool) {
	if s.srv.monitors.size.Load() == 0 {
		return
	}
	db := exec.db
	for i := range exec.block {
		q := &exec.block[i]
		if !ran {
			break
		}
		if q.spec.Has(commands.SelectsDB) {
			if n, err := commands.ParseDB(q.args[1]); err == nil {
				db = n
			}
		}
		s.showCall(q.spec, db, q.args)
	}
	s.showCall(exec.spec, db, exec.args)
}
