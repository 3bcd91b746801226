package server

// This file holds what a server does now and then: it closes idle clients, has those that have become quiet give their buffers back, and
// closes clients where all together take too much memory. Connections have no deadlines of their own for that: what CONFIG SET changes holds
// for all of them at once.

import (
	"strings"
	"time"
)

const (
	cronPeriod = time.Second      // as Redis looks at each client
	cronLeast  = time.Millisecond // the period where timeouts are short
	// trimAfter is how long a connection is quiet before it gives buffers back, as on Redis.
	trimAfter = 2 * time.Second
	// trimBytes may stay.
	trimBytes = 24 << 10
)

// What a session waits for.
const (
	works          int32 = iota // or sleeps within a command: nobody closes it for that
	waitsForInput               // the client's next command
	waitsForOutput              // the client to take replies
)

// attention is what cron alone knows of a session.
type attention struct {
	beats   uint32    // when it last looked
	quiet   time.Time // since when they have been the same
	trimmed bool      // it was told to give buffers back since then
}

// cron runs until the server ends.
func (s *Server) cron() {
	defer s.background.Done()
	timer := time.NewTimer(s.period())
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.clientMemory.over:
			s.evict()
			continue
		case <-s.nudge: // a setting changed
		case <-timer.C:
			now := time.Now()
			for _, c := range s.all() {
				s.lookAt(c, now)
			}
			s.intake.closeSlow(now)
			s.replies.closeSlow(now)
		}
		timer.Reset(s.period())
	}
}

// period is the time between two looks, a quarter of the timeout at most.
func (s *Server) period() time.Duration {
	period := s.cfg.cronPeriod
	if idle := time.Duration(s.config.idleTimeout.Load()); idle > 0 {
		period = min(period, max(idle/4, cronLeast))
	}
	return period
}

// look has cron look soon.
func (s *Server) look() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// lookAt closes a client that has been idle for too long: that neither sends a command nor takes its replies, as Redis does. Those may be silent
// that wait in a command, have subscribed or said MONITOR.
func (s *Server) lookAt(c *session, now time.Time) {
	if c.tooMuchWaits(now) {
		s.warnings.Warn("closed a client: soft client-output-buffer-limit exceeded for too long", "client", c.addr)
		c.kill()
		return
	}
	w := &c.attention
	state, beats := c.state.Load(), c.beats.Load()
	if beats != w.beats || w.quiet.IsZero() || state == works {
		*w = attention{beats: beats, quiet: now}
		return
	}
	quiet := now.Sub(w.quiet)
	idle := time.Duration(s.config.idleTimeout.Load())
	switch {
	case idle > 0 && quiet >= idle && !c.mayBeSilent():
		s.log.Debug("closed an idle client", "client", c.addr)
		c.kill()
	case state == waitsForInput && quiet >= s.cfg.trimAfter && !w.trimmed && c.memory.parts[memorySession].Load()+c.memory.parts[memoryOutput].Load() > trimBytes:
		w.trimmed = true
		c.trims.Store(true)
		c.interrupt()
	}
}

// mayBeSilent reports whether the client has subscribed or said MONITOR.
func (s *session) mayBeSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscriptions.Load() > 0 || strings.Contains(s.view.flags, "O")
}
