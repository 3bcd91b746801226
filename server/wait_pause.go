// CLIENT PAUSE holds back commands of this node's clients until it times out or CLIENT UNPAUSE
// ends it. Clients of other nodes are not affected: nodes do not know each other's connections.

package server

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

type pause struct {
	on atomic.Bool // a pause may be active; checked by every command

	mu      lockorder.Mutex
	until   time.Time
	all     bool // holds all commands, not only writes
	waiting map[*session]struct{}
}

// begin starts a pause. It can only extend a pause, in time or from writes to all commands.
func (p *pause) begin(d time.Duration, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.all = all || p.all && now.Before(p.until)
	if until := now.Add(d); until.After(p.until) {
		p.until = until
	}
	p.on.Store(true)
	p.wakeAll()
}

func (p *pause) lift() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish()
	p.wakeAll()
}

func (p *pause) finish() {
	p.until, p.all = time.Time{}, false
	p.on.Store(false)
}

// wakeAll makes waiting sessions check the pause again.
func (p *pause) wakeAll() {
	for s := range p.waiting {
		_ = s.conn.SetReadDeadline(past)
	}
}

// hold returns the time until which a session's command must wait, and prepares the wait; zero: it
// may run.
func (p *pause) hold(s *session, write bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !time.Now().Before(p.until):
		p.finish()
		return time.Time{}
	case !p.all && !write:
		return time.Time{}
	}
	if p.waiting == nil {
		p.waiting = map[*session]struct{}{}
	}
	p.waiting[s] = struct{}{}
	_ = s.conn.SetReadDeadline(p.until)
	return p.until
}

// holds reports whether a write must wait. It prepares no wait.
func (p *pause) holds() bool {
	if !p.on.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.until)
}

// size returns the number of waiting sessions.
func (p *pause) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// release removes a session from the waiting ones.
func (p *pause) release(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, s)
	_ = s.conn.SetReadDeadline(time.Time{})
}

// waitPaused blocks the next command during a pause. It returns false if the client has
// disconnected.
func (s *session) waitPaused(spec *commands.Spec, args [][]byte) bool {
	p := &s.srv.pause
	if !p.on.Load() {
		return true
	}
	spec, args = spec.Carried(args)
	write := s.heldAsWrite(spec, args)
	if write && (spec.Script != nil || spec.Has(commands.RunsQueue)) {
		// A script that was loaded before is perhaps not known here yet.
		ctx, cancel := context.WithTimeout(context.Background(), ownDelay)
		_ = s.srv.backend.Barrier(ctx)
		cancel()
		write = s.heldAsWrite(spec, args)
	}
	if p.hold(s, write).IsZero() {
		return true
	}
	defer p.release(s)
	s.flush()
	if s.send() != nil {
		return false
	}
	s.blocked = true
	s.show(0)
	defer func() {
		s.blocked = false
		s.lap() // waiting does not count as the command's time
	}()
	for {
		until := p.hold(s, write)
		if until.IsZero() || s.srv.closing.Load() { // a stopping server answers received commands
			return true
		}
		if s.killed.Load() || !s.watchClient(time.Until(until)) {
			return false
		}
	}
}

// heldAsWrite reports whether CLIENT PAUSE WRITE holds a call, whose number of arguments is right.
func (s *session) heldAsWrite(spec *commands.Spec, args [][]byte) bool {
	spec, args = spec.Carried(args)
	switch {
	case spec.Has(commands.RunsQueue):
		return slices.ContainsFunc(s.tx.queue, func(q queued) bool {
			return s.heldAsWrite(q.spec, q.args)
		})
	case spec.Script != nil:
		if flags, declared := s.srv.backend.ScriptFlags(spec.Script(args)); declared {
			return flags&commands.NoWrites == 0
		}
		return spec.Kind == commands.Write
	}
	return spec.Writes() || spec.Has(commands.MayReplicate)
}

func clientPause(s *session, _ *commands.Spec, args [][]byte) {
	ms, ok := commands.ParseInt(args[2])
	all := len(args) == 3 || is(args[3], "all")
	switch {
	case len(args) > 4:
		s.fail(subcommandSyntax(args))
		return
	case !all && !is(args[3], "write"):
		s.fail(commands.Error("ERR CLIENT PAUSE mode must be WRITE or ALL"))
		return
	case !ok || ms > int64(1<<63-1)-time.Now().UnixMilli():
		s.fail(commands.Error("ERR timeout is not an integer or out of range"))
		return
	case ms < 0:
		s.fail(commands.Error("ERR timeout is negative"))
		return
	}
	s.srv.pause.begin(time.Duration(min(ms, 1<<43))*time.Millisecond, all)
	s.w.Status("OK")
}

func clientUnpause(s *session, _ *commands.Spec, _ [][]byte) {
	s.srv.pause.lift()
	s.w.Status("OK")
}
