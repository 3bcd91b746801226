package server

// This file holds client-output-buffer-limit: how much may wait for a client before it is closed.

import (
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coordd/commands"
)

// Classes of clients, in Redis's order.
const (
	classNormal  = iota
	classReplica // there are none: their limits are kept, and shown
	classPubsub
	outputClasses
)

// outputLimit is how much may wait for a client of a class: hard at most, more than soft for less than a time. 0: no limit.
type outputLimit struct{ hard, soft, seconds int64 }

type outputLimits [outputClasses]outputLimit

// usualOutputLimits are Redis's, with another hard limit for subscribers.
func usualOutputLimits(subscriber int) outputLimits {
	return outputLimits{
		classReplica: {256 << 20, 64 << 20, 60},
		classPubsub:  {int64(subscriber), int64(subscriber / 4), 60},
	}
}

// String is the value as CONFIG GET shows it.
func (l outputLimits) String() string {
	var b strings.Builder
	for class, name := range []string{"normal", "slave", "pubsub"} {
		fmt.Fprintf(&b, " %s %d %d %d", name, l[class].hard, l[class].soft, l[class].seconds)
	}
	return b.String()[1:]
}

// chooseOutputLimits takes limits of some classes; the others stay.
func chooseOutputLimits(text string) (func(*Server), error) {
	var words []string
	if text != "" { // it changes nothing, as on Redis
		words = strings.Split(text, " ")
	}
	if len(words)%4 != 0 {
		return nil, commands.Error("Wrong number of arguments in buffer limit configuration.")
	}
	var set [outputClasses]bool
	var limits outputLimits
	for ; len(words) > 0; words = words[4:] {
		class := -1
		switch strings.ToLower(words[0]) {
		case "normal":
			class = classNormal
		case "slave", "replica":
			class = classReplica
		case "pubsub":
			class = classPubsub
		default:
			return nil, commands.Error("Invalid client class specified in buffer limit configuration.")
		}
		hard, ok1 := parseMemory(words[1])
		soft, ok2 := parseMemory(words[2])
		seconds, ok3 := commands.ParseInt([]byte(words[3]))
		if !ok1 || !ok2 || !ok3 || seconds < 0 {
			return nil, commands.Error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
		}
		set[class], limits[class] = true, outputLimit{hard, soft, seconds}
	}
	return func(s *Server) {
		all := *s.config.output.Load()
		for class := range all {
			if set[class] {
				all[class] = limits[class]
			}
		}
		s.config.output.Store(&all)
		s.look()
	}, nil
}

// outputLimit is what holds for the session now.
func (s *session) outputLimit() outputLimit {
	limits := s.srv.config.output.Load()
	if s.subscriptions.Load() > 0 {
		return limits[classPubsub]
	}
	return limits[classNormal]
}

// pushLimit is how many bytes of messages may wait for the session. Without a limit of its own a client that is told of keys, or said MONITOR, has that
// of subscribers: what is sent to it is not its own doing.
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

// outputWaits is how many bytes wait for the client.
func (s *session) outputWaits() int64 { return int64(s.out.waiting()) + s.sending.Load() }

// tooMuchWaits reports whether more than the soft limit has waited for the client for too long. Cron asks it.
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
