//go:build linux

// What clients did and what came of it.

package lab

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// outcome is what a client knows of its call.
type outcome string

const (
	acked   outcome = "acknowledged"
	refused outcome = "refused" // it did not run and never will
	unknown outcome = "unknown" // it may have run, once, at any later time, or not
)

// An event is one call of a client. Times are since the run began, by one monotonic clock.
type event struct {
	Actor  int           `json:"actor"` // has one call at a time
	Key    string        `json:"key"`   // events of different keys are judged separately
	Op     string        `json:"op"`
	Args   []string      `json:"args,omitempty"`
	Call   time.Duration `json:"call"` // before the request was sent
	Return time.Duration `json:"return"`
	What   outcome       `json:"what"`
	Reply  string        `json:"reply,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// ret is when the call had certainly run, if it did.
func (e *event) ret() time.Duration {
	if e.What == unknown {
		return math.MaxInt64
	}
	return e.Return
}

func (e *event) String() string {
	reply := e.Reply
	if e.What != acked {
		reply = string(e.What) + ": " + e.Error
	}
	return fmt.Sprintf("%s %s %v -> %s (client %d, %v to %v)", e.Op, e.Key, e.Args, reply, e.Actor,
		e.Call, e.Return)
}

// certain are the code words of errors after which a command has not run and never will. IDONTKNOW
// is a Sentinel's, before a command is sent.
var certain = []string{"CLUSTERDOWN", "TRYAGAIN", "LOADING", "MOVED", "REDIRECT", "EXECABORT",
	"IDONTKNOW"}

// outcomeOf returns what an error says of a call; odd: the error should say more.
func outcomeOf(err error) (what outcome, odd bool) {
	var dial *net.OpError
	var before notRun
	word := errorWord(err)
	switch {
	case err == nil || err == redis.Nil: // a failure to find the leader wraps it, too
		return acked, false
	case slices.Contains(certain, word), errors.As(err, &before),
		errors.As(err, &dial) && dial.Op == "dial",
		strings.Contains(err.Error(), "sentinels specified in configuration are unreachable"):
		return refused, false
	case word != "" && word != "UNKNOWN":
		return unknown, true
	}
	return unknown, false
}

// errorWord returns the code word of an error reply, "" if there is none.
func errorWord(err error) string {
	var re redis.Error
	if !errors.As(err, &re) {
		return ""
	}
	word, _, _ := strings.Cut(re.Error(), " ")
	return word
}

var (
	addresses = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+`)
	numbers   = regexp.MustCompile(`\d+`)
)

// reason is an error without what differs from one to the next.
func reason(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return numbers.ReplaceAllString(addresses.ReplaceAllString(line, "ADDR"), "N")
}

// ledger is what the clients of one workload did.
type ledger struct {
	mu      sync.Mutex
	events  []*event
	count   map[outcome]int
	reasons map[outcome]map[string]int
	odd     []string
	wrong   int           // problems
	longest time.Duration // between two acknowledgements
	last    time.Duration // of them
}

func newLedger() *ledger {
	return &ledger{count: map[outcome]int{},
		reasons: map[outcome]map[string]int{refused: {}, unknown: {}}}
}

// note counts a call and says what is known of it.
func (l *ledger) note(err error, at time.Duration) outcome {
	what, odd := outcomeOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[what]++
	if what == acked {
		l.longest, l.last = max(l.longest, at-l.last), at
	} else {
		l.reasons[what][reason(err)]++
	}
	if odd && len(l.odd) < 10 {
		l.odd = append(l.odd, err.Error())
	}
	return what
}

// keep adds an event to the history.
func (l *ledger) keep(e *event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// acknowledged returns how many calls have had replies.
func (l *ledger) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[acked]
}

// addTo adds the counts to those of other workloads.
func (l *ledger) addTo(count map[outcome]int, reasons map[outcome]map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for what, n := range l.count {
		count[what] += n
	}
	for what, by := range l.reasons {
		if reasons[what] == nil {
			reasons[what] = map[string]int{}
		}
		for why, n := range by {
			reasons[what][why] += n
		}
	}
}

// list writes reasons with their numbers, the most frequent first.
func list(reasons map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		if reasons[a] != reasons[b] {
			return reasons[b] - reasons[a]
		}
		return strings.Compare(a, b)
	})
	var lines []string
	for _, k := range keys {
		lines = append(lines, fmt.Sprintf("\n      %6d %s", reasons[k], k))
	}
	return strings.Join(lines, "")
}

// text writes a reply.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, text(e))
		}
		return "[" + strings.Join(all, " ") + "]"
	case error:
		return "error " + v.Error()
	}
	return fmt.Sprint(v)
}
