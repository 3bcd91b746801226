// client-output-buffer-limit: how much output may wait for a client before it is closed.

package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
)

// Client classes, in Redis's order.
const (
	classNormal  = iota
	classReplica // unused: limits are stored and shown
	classPubsub
	outputClasses
)

// outputLimit bounds the output that waits for a client of a class: hard always, soft for the
// given seconds. 0 means no limit.
type outputLimit struct{ hard, soft, seconds int64 }

type outputLimits [outputClasses]outputLimit

// defaultOutputLimits returns Redis's defaults, with another hard limit for subscribers.
func defaultOutputLimits(subscriber int) outputLimits {
	return outputLimits{
		classReplica: {256 << 20, 64 << 20, 60},
		classPubsub:  {int64(subscriber), int64(subscriber / 4), 60},
	}
}

// String returns the value as CONFIG GET shows it.
func (l outputLimits) String() string {
	var b strings.Builder
	for class, name := range []string{"normal", "slave", "pubsub"} {
		fmt.Fprintf(&b, " %s %d %d %d", name, l[class].hard, l[class].soft, l[class].seconds)
	}
	return b.String()[1:]
}

// OutputLimits is a value of client-output-buffer-limit: the limits of some classes of clients.
type OutputLimits struct {
	set    [outputClasses]bool
	limits outputLimits
}

// ParseOutputLimits parses any number of classes, each with a hard limit, a soft limit and its
// seconds, such as "pubsub 32mb 8mb 60".
func ParseOutputLimits(text string) (o OutputLimits, err error) {
	var words []string
	if text != "" { // no change, as in Redis
		words = strings.Split(text, " ")
	}
	if len(words)%4 != 0 {
		return o, commands.Error("Wrong number of arguments in buffer limit configuration.")
	}
	for ; len(words) > 0; words = words[4:] {
		class := -1
		switch ascii.Lower(words[0]) {
		case "normal":
			class = classNormal
		case "slave", "replica":
			class = classReplica
		case "pubsub":
			class = classPubsub
		default:
			return o, commands.Error(
				"Invalid client class specified in buffer limit configuration.")
		}
		hard, ok1 := parseMemory(words[1])
		soft, ok2 := parseMemory(words[2])
		seconds, ok3 := commands.ParseInt([]byte(words[3]))
		if !ok1 || !ok2 || !ok3 || seconds < 0 {
			return o, commands.Error(
				"Error in hard, soft or soft_seconds setting in buffer limit configuration.")
		}
		o.set[class], o.limits[class] = true, outputLimit{hard, soft, seconds}
	}
	return o, nil
}

// Text returns the limits of all classes as CONFIG SET takes them.
func (o OutputLimits) Text(maxSubscriberBytes int) string {
	return o.in(defaultOutputLimits(maxSubscriberBytes)).String()
}

// in returns limits with those of o; the other classes stay.
func (o OutputLimits) in(limits outputLimits) outputLimits {
	for class := range limits {
		if o.set[class] {
			limits[class] = o.limits[class]
		}
	}
	return limits
}

func chooseOutputLimits(text string) (func(*Server), error) {
	o, err := ParseOutputLimits(text)
	return func(s *Server) {
		limits := o.in(*s.config.output.Load())
		s.config.output.Store(&limits)
		s.wakeCron()
	}, err
}

// outputLimit returns the session's current limit.
func (s *session) outputLimit() outputLimit {
	limits := s.srv.config.output.Load()
	if s.subscriptions.Load() > 0 {
		return limits[classPubsub]
	}
	return limits[classNormal]
}

// pushLimit returns how many bytes of messages may wait for the session. A tracking or monitoring
// client without a limit of its own gets that of subscribers: it does not cause its output itself.
func (s *session) pushLimit() int {
	limits := s.srv.config.output.Load()
	if hard := s.outputLimit().hard; hard > 0 {
		return int(hard)
	}
	if s.subscriptions.Load() > 0 {
		return maxInt
	}
	if hard := limits[classPubsub].hard; hard > 0 {
		return int(hard)
	}
	return maxInt
}

const maxInt = int(^uint(0) >> 1)

// outputWaits returns how many bytes wait for the client.
func (s *session) outputWaits() int64 { return int64(s.out.waiting()) + s.sending.Load() }

// tooMuchWaits reports whether output has exceeded the soft limit for too long. Cron calls it.
func (s *session) tooMuchWaits(now time.Time) bool {
	w, limit := &s.swollen, s.outputLimit()
	if limit.soft == 0 || s.outputWaits() <= limit.soft {
		*w = time.Time{}
		return false
	}
	if w.IsZero() {
		*w = now
	}
	return now.Sub(*w) > time.Duration(limit.seconds)*time.Second
}
