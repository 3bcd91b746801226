// Package logging has what more than one package of coordd needs to log.
package logging

import (
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Limited logs warnings that clients or strangers can cause as often as they like: some at once, then one every few seconds. Each says how many were
// left out since the one before. Its methods may be called from any goroutine.
type Limited struct {
	logger  *slog.Logger
	limiter *rate.Limiter
	dropped atomic.Int64
}

// How many warnings come at once, and how far apart they come after that.
const (
	burst = 10
	every = 5 * time.Second
)

// NewLimited returns a Limited that logs to logger.
func NewLimited(logger *slog.Logger) *Limited {
	return &Limited{logger: logger, limiter: rate.NewLimiter(rate.Every(every), burst)}
}

// Warn logs msg with args, which are slog's, or counts it as left out.
func (l *Limited) Warn(msg string, args ...any) {
	if !l.limiter.Allow() {
		l.dropped.Add(1)
		return
	}
	if n := l.dropped.Swap(0); n > 0 {
		args = append(args[:len(args):len(args)], "left-out", n)
	}
	l.logger.Warn(msg, args...)
}
