//go:build linux

// Locks of several kinds. Those with a lease check that it is never over early: a lease begins
// after its request was sent, so it lasts at least until then plus its length.

package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// leaseTime is short, so that leases end while others want them.
const leaseTime = 250 * time.Millisecond

const (
	releaseScript = `
if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end
return 0`
	extendScript = `
if redis.call("get", KEYS[1]) == ARGV[1] then
  return redis.call("pexpire", KEYS[1], ARGV[2])
end
return 0`
)

// mine returns what the client last took the key with.
func (a *actor) mine() string {
	v, _ := a.mem.(string)
	return v
}

// locks are taken and released, and end by themselves never.
func locks(*work) player {
	return &keyed[string]{
		model: model[string]{first: "nil", step: stepLock},
		next: func(a *actor, key string) call {
			switch a.rnd.IntN(4) {
			case 0, 1:
				v := a.value()
				a.mem = v
				return call{key: key, op: "take", args: []string{v},
					ask: command("SET", key, v, "NX")}
			case 2:
				return call{key: key, op: "release", args: []string{a.mine()},
					ask: command("EVAL", releaseScript, 1, key, a.mine())}
			}
			return call{key: key, op: "get", reads: true, ask: command("GET", key)}
		},
	}
}

func stepLock(s string, e *event) (string, string) {
	switch {
	case e.Op == "take" && s == "nil":
		return e.Args[0], "OK"
	case e.Op == "take":
		return s, "nil"
	case e.Op == "release" && s == e.Args[0]:
		return "nil", "1"
	case e.Op == "release":
		return s, "0"
	}
	return s, s
}

// leased is a lock whose lease ends.
type leased struct {
	owner string // "": nobody
	count int    // how often a reentrant lock was taken
	until time.Duration
}

func (l leased) holder() string {
	if l.owner == "" {
		return "nil"
	}
	return l.owner
}

func (l leased) end() (leased, time.Duration, bool) { return leased{}, l.until, l.owner != "" }

func leases(*work) player {
	return &keyed[leased]{
		model: model[leased]{step: stepLease, lease: leased.end},
		next: func(a *actor, key string) call {
			ms := leaseTime.Milliseconds()
			switch a.rnd.IntN(6) {
			case 0, 1, 2:
				v := a.value()
				a.mem = v
				return call{key: key, op: "take", args: []string{v},
					ask: command("SET", key, v, "NX", "PX", ms)}
			case 3:
				return call{key: key, op: "release", args: []string{a.mine()},
					ask: command("EVAL", releaseScript, 1, key, a.mine())}
			case 4:
				return call{key: key, op: "extend", args: []string{a.mine()},
					ask: command("EVAL", extendScript, 1, key, a.mine(), ms)}
			}
			return call{key: key, op: "get", reads: true, ask: command("GET", key)}
		},
	}
}

func stepLease(s leased, e *event) (leased, string) {
	switch e.Op {
	case "take":
		if s.owner != "" {
			return s, "nil"
		}
		return leased{owner: e.Args[0], until: e.Call + leaseTime}, "OK"
	case "release":
		if s.owner != e.Args[0] || s.owner == "" {
			return s, "0"
		}
		return leased{}, "1"
	case "extend":
		if s.owner != e.Args[0] || s.owner == "" {
			return s, "0"
		}
		s.until = e.Call + leaseTime
		return s, "1"
	}
	return s, s.holder()
}

const (
	// reentrantTake returns how often the owner has the lock now, 0 if somebody else has it.
	reentrantTake = `
if redis.call("exists", KEYS[1]) == 1 and redis.call("hexists", KEYS[1], ARGV[1]) == 0 then
  return 0
end
local n = redis.call("hincrby", KEYS[1], ARGV[1], 1)
redis.call("pexpire", KEYS[1], ARGV[2])
return n`
	// reentrantRelease returns how often the owner still has the lock, -1 if it did not.
	reentrantRelease = `
if redis.call("hexists", KEYS[1], ARGV[1]) == 0 then return -1 end
local n = redis.call("hincrby", KEYS[1], ARGV[1], -1)
if n > 0 then redis.call("pexpire", KEYS[1], ARGV[2]) else redis.call("del", KEYS[1]) end
return n`
)

// reentrant locks are taken by their owners again, as Redisson's are.
func reentrant(*work) player {
	return &keyed[leased]{
		model: model[leased]{step: stepReentrant, lease: leased.end},
		next: func(a *actor, key string) call {
			me, ms := fmt.Sprint("c", a.seat), leaseTime.Milliseconds()
			switch a.rnd.IntN(5) {
			case 0, 1:
				return call{key: key, op: "take", args: []string{me},
					ask: command("EVAL", reentrantTake, 1, key, me, ms)}
			case 2, 3:
				return call{key: key, op: "release", args: []string{me},
					ask: command("EVAL", reentrantRelease, 1, key, me, ms)}
			}
			return call{key: key, op: "get", reads: true, ask: command("HKEYS", key)}
		},
	}
}

func stepReentrant(s leased, e *event) (leased, string) {
	switch {
	case e.Op == "get" && s.owner == "":
		return s, "[]"
	case e.Op == "get":
		return s, "[" + s.owner + "]"
	case e.Op == "take" && s.owner != "" && s.owner != e.Args[0]:
		return s, "0"
	case e.Op == "take":
		s = leased{e.Args[0], s.count + 1, e.Call + leaseTime}
		return s, fmt.Sprint(s.count)
	case s.owner != e.Args[0]:
		return s, "-1"
	case s.count == 1:
		return leased{}, "0"
	}
	s.count, s.until = s.count-1, e.Call+leaseTime
	return s, fmt.Sprint(s.count)
}

// queued is a fair lock: who waits for it, joined by blanks, and who has it.
type queued struct{ holder, line string }

const (
	fairTake = `
if redis.call("get", KEYS[1]) == ARGV[1] then return 2 end
local first = redis.call("lindex", KEYS[2], 0)
if redis.call("exists", KEYS[1]) == 0 and (not first or first == ARGV[1]) then
  if first then redis.call("lpop", KEYS[2]) end
  redis.call("set", KEYS[1], ARGV[1])
  return 1
end
if not redis.call("lpos", KEYS[2], ARGV[1]) then redis.call("rpush", KEYS[2], ARGV[1]) end
return 0`
	fairRelease = releaseScript
)

// fairLocks go to whoever has waited longest.
func fairLocks(*work) player {
	return &keyed[queued]{
		model: model[queued]{step: stepFair},
		next: func(a *actor, key string) call {
			me := fmt.Sprint("c", a.seat)
			switch a.rnd.IntN(5) {
			case 0, 1, 2:
				return call{key: key, op: "take", args: []string{me},
					ask: command("EVAL", fairTake, 2, key, key+":line", me)}
			case 3:
				return call{key: key, op: "release", args: []string{me},
					ask: command("EVAL", fairRelease, 1, key, me)}
			}
			return call{key: key, op: "line", reads: true,
				ask: command("LRANGE", key+":line", 0, -1)}
		},
	}
}

func stepFair(s queued, e *event) (queued, string) {
	line := strings.Fields(s.line)
	switch {
	case e.Op == "line":
		return s, "[" + s.line + "]"
	case e.Op == "release" && s.holder == e.Args[0]:
		return queued{line: s.line}, "1"
	case e.Op == "release":
		return s, "0"
	case s.holder == e.Args[0]:
		return s, "2"
	case s.holder == "" && len(line) == 0:
		return queued{holder: e.Args[0]}, "1"
	case s.holder == "" && line[0] == e.Args[0]:
		return queued{holder: e.Args[0], line: strings.Join(line[1:], " ")}, "1"
	case !slices.Contains(line, e.Args[0]):
		s.line = strings.Join(append(line, e.Args[0]), " ")
	}
	return s, "0"
}

// fences takes leases and reads their fencing tokens. What is judged are the tokens alone: they
// never fall, and no two holders have the same.
type fences struct{}

func fencing(*work) player { return fences{} }

func (fences) turn(a *actor) {
	key := "{fencing}:" + fmt.Sprint(a.rnd.IntN(2))
	switch a.rnd.IntN(4) {
	case 0:
		a.do(call{key: key, op: "release", args: []string{a.mine()},
			ask: command("EVAL", releaseScript, 1, key, a.mine())})
	default:
		v := a.value()
		a.mem = v
		a.do(call{key: key, op: "take", args: []string{v}, ask: transaction(
			[]any{"SET", key, v, "NX", "PX", leaseTime.Milliseconds()}, []any{"FENCE", key})})
	}
}

// granted is a lease with its token.
type granted struct {
	*event
	won   bool
	token int64
}

func (fences) judge(w *work) {
	by := map[string][]granted{}
	for _, e := range w.events {
		word, token, _ := strings.Cut(strings.Trim(e.Reply, "[]"), " ")
		n, err := strconv.ParseInt(token, 10, 64)
		switch {
		case e.Op != "take" || e.What != acked:
		case err != nil || n <= 0:
			w.problem("no token: %v", e)
		default:
			by[e.Key] = append(by[e.Key], granted{e, word == "OK", n})
		}
	}
	for _, all := range by {
		judgeTokens(w.problem, all)
	}
}

// judgeTokens compares the tokens of one lock.
func judgeTokens(problem func(string, ...any), all []granted) {
	winner := map[int64]*event{}
	for _, g := range all {
		if g.won && winner[g.token] != nil {
			problem("two holders have the token %d: %v, and %v", g.token, winner[g.token], g.event)
		}
		if g.won {
			winner[g.token] = g.event
		}
	}
	// by return: the largest token of what had ended before a call began
	ended := slices.SortedFunc(slices.Values(all), func(a, b granted) int {
		return int(a.Return - b.Return)
	})
	slices.SortFunc(all, func(a, b granted) int { return int(a.Call - b.Call) })
	var largest granted
	for i := 0; len(all) > 0; all = all[1:] {
		g := all[0]
		for ; ended[i].Return < g.Call; i++ {
			if ended[i].token > largest.token {
				largest = ended[i]
			}
		}
		if g.token < largest.token || g.won && g.token == largest.token {
			problem("a token fell: %v, after %v", g.event, largest.event)
		}
	}
}
