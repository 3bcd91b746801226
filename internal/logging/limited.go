package logging

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/coordd/coordd/internal/lockorder"
)

// Limited logs warnings that clients or strangers can cause at will: a burst of each message, then
// one every few seconds with the number left out since. Its methods may be called from any
// goroutine.
type Limited struct {
	logger *slog.Logger

	mu       lockorder.Mutex
	messages map[string]*message
}

type message struct {
	limiter *rate.Limiter
	dropped int
}

// How many warnings of one message may come at once, and the interval after that.
const (
	burst = 10
	every = 5 * time.Second
)

// NewLimited returns a Limited that logs to logger.
func NewLimited(logger *slog.Logger) *Limited {
	return &Limited{logger: logger, messages: map[string]*message{}}
}

// Warn logs the constant msg with slog's args, or counts it as left out.
func (l *Limited) Warn(msg string, args ...any) {
	dropped, ok := l.admit(msg)
	if !ok {
		return
	}
	if dropped > 0 {
		args = append(args[:len(args):len(args)], "left-out", dropped)
	}
	l.logger.Warn(msg, args...)
}

func (l *Limited) admit(msg string) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.messages[msg]
	if m == nil {
		m = &message{limiter: rate.NewLimiter(rate.Every(every), burst)}
		l.messages[msg] = m
	}
	if !m.limiter.Allow() {
		m.dropped++
		return 0, false
	}
	dropped, m.dropped = m.dropped, 0
	return dropped, true
}
