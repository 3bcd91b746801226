// Periodic work: close idle clients, have quiet ones free their buffers, and close clients when
// all together use too much memory. Connections have no deadlines of their own for this, so CONFIG
// SET applies to all of them immediately.

package server

import (
	"strings"
	"time"
)

const (
	cronPeriod    = time.Second      // as Redis checks each client
	minCronPeriod = time.Millisecond // with short timeouts
	// trimAfter is how long a connection is quiet before it frees buffers, as in Redis.
	trimAfter = 2 * time.Second
	// trimBytes may stay allocated.
	trimBytes = 24 << 10
)

// What a session waits for.
const (
	works          int32 = iota // or sleeps in a command: never closed as idle
	waitsForInput               // the client's next command
	waitsForOutput              // the client to read replies
)

// attention is cron's own state of a session.
type attention struct {
	beats   uint32    // at the last check
	quiet   time.Time // since when beats has not changed
	trimmed bool      // asked to free buffers since then
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
				s.checkIdle(c, now)
			}
			s.intake.closeSlow(now)
			s.replies.closeSlow(now)
		}
		timer.Reset(s.period())
	}
}

// period returns the time between checks, at most a quarter of each timeout.
func (s *Server) period() time.Duration {
	period := s.cfg.cronPeriod
	idle := time.Duration(s.config.idleTimeout.Load())
	for _, timeout := range [...]time.Duration{idle, s.cfg.AuthTimeout} {
		if timeout > 0 {
			period = min(period, max(timeout/4, minCronPeriod))
		}
	}
	return period
}

// wakeCron makes cron check soon.
func (s *Server) wakeCron() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// checkIdle closes a client that neither sends a command nor reads replies for too long, as Redis
// does. Blocked, subscribed and monitoring clients may be silent.
func (s *Server) checkIdle(c *session, now time.Time) {
	if c.tooMuchWaits(now) {
		s.warnings.Warn("closed a client: soft client-output-buffer-limit exceeded for too long",
			"client", c.addr)
		c.kill()
		return
	}
	if s.tooLate(c, now) {
		s.stats.unauthenticatedClosed.Add(1)
		s.log.Debug("closed a client that did not authenticate", "client", c.addr)
		c.kill()
		return
	}
	if c.at(placeTried) && now.Sub(*c.triedSince.Load()) >= reserveTime && !c.mayStay() {
		s.turnAwayLater(c.conn)
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
	case state == waitsForInput && quiet >= s.cfg.trimAfter && !w.trimmed &&
		c.memory.parts[memorySession].Load()+c.memory.parts[memoryOutput].Load() > trimBytes:
		w.trimmed = true
		c.trims.Store(true)
		c.interrupt()
	}
}

// mayBeSilent reports whether the client has subscribed or uses MONITOR.
func (s *session) mayBeSilent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscriptions.Load() > 0 || strings.Contains(s.view.flags, "O")
}
