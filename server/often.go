package server

// This file holds the log lines that strangers can cause: they come once a second at most.

import (
	"sync"
	"time"
)

// oftenLogged remembers when each such line was last written.
type oftenLogged struct {
	mu    sync.Mutex
	lines map[string]*oftenLine
}

type oftenLine struct {
	at   time.Time
	left int // how often it was not written since
}

// logOften writes a warning, unless it was written within a second. The next one that is written tells how many were not.
func (s *Server) logOften(message string, args ...any) {
	o := &s.oftenLogged
	o.mu.Lock()
	line := o.lines[message]
	if line == nil {
		if o.lines == nil {
			o.lines = map[string]*oftenLine{}
		}
		line = &oftenLine{}
		o.lines[message] = line
	}
	now := time.Now()
	if now.Sub(line.at) < time.Second {
		line.left++
		o.mu.Unlock()
		return
	}
	left := line.left
	line.at, line.left = now, 0
	o.mu.Unlock()
	if left > 0 {
		args = append(args, "more_like_it", left)
	}
	s.log.Warn(message, args...)
}
