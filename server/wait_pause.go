package server

// This file holds CLIENT PAUSE: commands of this node's clients wait until the time is over or CLIENT UNPAUSE ends it. Commands of other
// nodes' clients go on: nodes do not know each other's connections.

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
)

// pause is what holds commands back.
type pause struct {
	on atomic.Bool // there may be one: looked at by every command

	mu      sync.Mutex
	until   time.Time
	all     bool // holds every command, not writes alone
	waiting map[*session]struct{}
}

// begin holds commands back from now on. A pause is only ever made longer, or of writes alone one of everything.
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

func (p *pause) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish()
	p.wakeAll()
}

func (p *pause) finish() {
	p.until, p.all = time.Time{}, false
	p.on.Store(false)
}

// poke makes those who wait look again.
func (p *pause) wakeAll() {
	for s := range p.waiting {
		_ = s.conn.SetReadDeadline(past)
	}
}

// hold says until when a session's command has to wait, and prepares its waiting; zero: it may run.
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

// size is how many sessions wait.
func (p *pause) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// free takes a session out of those who wait.
func (p *pause) release(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, s)
	_ = s.conn.SetReadDeadline(time.Time{})
}

// waitPaused lets the command that comes now wait while there is a pause. It returns false when the client has gone away.
func (s *session) waitPaused(spec *commands.Spec) bool {
	p := &s.srv.pause
	if !p.on.Load() {
		return true
	}
	write := spec.Kind == commands.Write
	if spec.Local != nil && spec.Name == "exec" {
		write = s.tx.writes()
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
		s.lap() // the wait is not the command's time
	}()
	for {
		until := p.hold(s, write)
		if until.IsZero() || s.srv.closing.Load() { // a server that stops answers what came before
			return true
		}
		if s.killed.Load() {
			return false
		}
		if err := s.watchClient(time.Until(until)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			s.gone = true
			return false
		}
	}
}

// writes says whether one of the queued commands is a write.
func (t *transaction) writes() bool {
	for i := range t.queue {
		if t.queue[i].spec.Kind == commands.Write {
			return true
		}
	}
	return false
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
	s.srv.pause.end()
	s.w.Status("OK")
}
