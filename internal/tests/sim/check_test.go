// What clients may have seen.

package sim

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// state is that of one key: the value of a register or a lease's owner, a number, and the time
// before which a lease or window cannot have ended.
type state struct {
	value string
	n     int
	until time.Duration
}

// apply runs an operation on a key, and returns the reply.
func apply(s state, o operation) (state, string) {
	yes := func(b bool) string {
		if b {
			return "1"
		}
		return "0"
	}
	value := func() string {
		if s.value == "" {
			return "(nil)"
		}
		return s.value
	}
	switch a := o.args; o.kind {
	case "set":
		return state{value: a[1]}, "OK"
	case "multi":
		return state{value: a[1]}, "OK OK"
	case "get", "holder":
		return s, value()
	case "both":
		return s, value() + " " + value()
	case "cas":
		if s.value == a[1] {
			return state{value: a[2]}, yes(true)
		}
		return s, yes(false)
	case "incr":
		s.n++
		return s, strconv.Itoa(s.n)
	case "count":
		if s.n == 0 {
			return s, "(nil)"
		}
		return s, strconv.Itoa(s.n)
	case "lease":
		if s.value != "" {
			return s, "(nil)"
		}
		return state{value: a[1], until: o.beginAt + milliseconds(a[2])}, "OK"
	case "free":
		if s.value == a[1] {
			return state{}, yes(true)
		}
		return s, yes(false)
	case "window":
		if s.n == 0 {
			s.until = o.beginAt + milliseconds(a[1])
		}
		s.n++
		return s, strconv.Itoa(s.n)
	}
	panic("no model of " + o.kind)
}

func milliseconds(s string) time.Duration {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return time.Duration(n) * time.Millisecond
}

// expires tells the operations on keys with a TTL.
var expires = map[string]bool{"lease": true, "free": true, "holder": true, "window": true}

// step returns the states in which a key can be after an operation, none if its reply is
// impossible.
func step(s state, o operation) (next []any) {
	states := []state{s}
	// It may have expired, but never early: it began no sooner than its call, and this operation
	// ended no later than its return.
	if expires[o.kind] && s != (state{}) && (o.unknown || o.endAt >= s.until) {
		states = append(states, state{})
	}
	for _, s := range states {
		after, reply := apply(s, o)
		switch {
		case o.unknown:
			next = append(next, s, after)
		case reply == o.reply:
			next = append(next, after)
		}
	}
	return next
}

func keyModel() porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init:  func() []any { return []any{state{}} },
		Step:  func(s, in, _ any) []any { return step(s.(state), in.(operation)) },
		Equal: func(a, b any) bool { return a == b },
	}).ToModel()
}

// checkTimeout bounds the check of one key, in real time: histories with many unknown outcomes
// can take long.
const checkTimeout = 20 * time.Second

// check looks for violations in the history.
func (s *simulation) check() {
	keys := map[string][]operation{}
	for _, o := range s.history {
		keys[o.args[0]] = append(keys[o.args[0]], o)
	}
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		switch ops := keys[k]; {
		case strings.HasPrefix(k, "queue"):
			s.checkQueue(k, ops)
		case strings.HasPrefix(k, "fence"):
			s.checkFences(k, ops)
		case strings.HasPrefix(k, "mutex"):
			s.checkMutex(k, ops)
		case strings.HasPrefix(k, "once"):
			s.checkOnce(k, ops)
		default:
			s.checkKey(k, ops)
		}
	}
}

func (s *simulation) checkKey(key string, ops []operation) {
	var history []porcupine.Operation
	unknown := 1000 // an operation that may run later is of a client of its own
	for _, o := range ops {
		p := porcupine.Operation{ClientId: o.client, Input: o, Call: o.begin, Return: o.end}
		if o.unknown {
			unknown++
			p.ClientId, p.Return = unknown, math.MaxInt64
		}
		history = append(history, p)
	}
	switch porcupine.CheckOperationsTimeout(keyModel(), history, checkTimeout) {
	case porcupine.Illegal:
		s.violation("the history of %s is not linearizable:%s", key, show(ops))
	case porcupine.Unknown:
		s.note("the check of %s took too long", key)
		s.undecided++
	}
}

func show(ops []operation) string {
	var b strings.Builder
	sort.Slice(ops, func(i, j int) bool { return ops[i].begin < ops[j].begin })
	for _, o := range ops {
		reply := strconv.Quote(o.reply)
		if o.unknown {
			reply = "?"
		}
		fmt.Fprintf(&b, "\n    %v..%v [%d..%d] client %d: %s %s: %s", o.beginAt, o.endAt, o.begin,
			o.end, o.client, o.kind, strings.Join(o.args, " "), reply)
	}
	return b.String()
}

// checkQueue checks that each element is taken at most once, and that what was pushed is taken or
// left, except for what clients may have taken without learning of it.
func (s *simulation) checkQueue(key string, ops []operation) {
	pushed, taken := map[string]operation{}, map[string]bool{}
	lost := 0
	for _, o := range ops {
		switch o.kind {
		case "push":
			pushed[o.args[1]] = o
		case "pop":
			lost += map[bool]int{true: 1}[o.unknown]
		}
	}
	take := func(v string, o operation) {
		switch p, ok := pushed[v]; {
		case !ok:
			s.violation("%s: %q was taken and never pushed:%s", key, v, show(ops))
		case taken[v]:
			s.violation("%s: %q was taken twice:%s", key, v, show(ops))
		case p.begin > o.end:
			s.violation("%s: %q was taken before it was pushed:%s", key, v, show(ops))
		}
		taken[v] = true
	}
	for _, o := range ops {
		switch {
		case o.unknown || o.reply == "(nil)":
		case o.kind == "pop":
			take(strings.TrimPrefix(o.reply, key+" "), o)
		case o.kind == "LRANGE":
			for _, v := range strings.Fields(o.reply) {
				take(v, o)
			}
		}
	}
	for v, o := range pushed {
		if !o.unknown && !taken[v] {
			lost--
		}
	}
	if lost < 0 {
		s.violation("%s: %d elements are lost:%s", key, -lost, show(ops))
	}
}

// checkFences checks that each new holder of a lock gets a larger fencing token than all before it.
func (s *simulation) checkFences(key string, ops []operation) {
	var holders []fenced
	for _, o := range ops {
		words := strings.Fields(o.reply)
		if o.unknown || len(words) != 3 {
			continue
		}
		token, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil || (words[0] == "OK") != (words[2] == o.args[1]) {
			s.violation("%s: %q of %s", key, o.reply, o.args[1])
			continue
		}
		holders = append(holders, fenced{words[2], token, o})
	}
	for _, a := range holders {
		for _, b := range holders {
			switch {
			case a.owner == b.owner && a.token != b.token,
				a.owner != b.owner && a.token == b.token,
				a.op.end < b.op.begin && a.token > b.token:
				s.violation("%s: %s has token %d and %s has %d:%s", key, a.owner, a.token, b.owner,
					b.token, show(ops))
				return
			case a.op.reply[0] == 'O' && b.op.reply[0] == 'O' && a.token < b.token &&
				b.op.endAt < a.op.beginAt+milliseconds(a.op.args[2]):
				s.violation("%s: %s and %s held it together:%s", key, a.owner, b.owner, show(ops))
				return
			}
		}
	}
}

// fenced is a holder of a lock that somebody saw.
type fenced struct {
	owner string
	token uint64
	op    operation
}
