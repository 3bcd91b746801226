//go:build linux

// Limits of rates: sliding windows and token buckets in scripts that ask for TIME, and CL.THROTTLE.
// How late a limit lets calls through is not promised, but never more than it allows in the time
// that has passed.

package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// slack is by how much the time of day may run fast, of the time that passes, when it is slewed
	// towards a wall clock; see docs/adr/0016.
	slack = 0.0006
	// rounding is that of times to milliseconds, twice.
	rounding = 2 * time.Millisecond

	slideLimit = 8
	slideTime  = 300 * time.Millisecond

	// slideScript returns the count and the member of a call that is let through, 0 otherwise.
	slideScript = `
local t = redis.call("time")
local now = t[1] * 1000000 + t[2]
redis.call("zremrangebyscore", KEYS[1], "-inf", string.format("%.0f", now - ARGV[1] * 1000))
local n = redis.call("zcard", KEYS[1])
if n >= tonumber(ARGV[2]) then return {0, string.format("%.0f", now)} end
redis.call("zadd", KEYS[1], string.format("%.0f", now), string.format("%.0f", now))
redis.call("pexpire", KEYS[1], ARGV[1])
return {redis.call("zcard", KEYS[1]), string.format("%.0f", now)}`

	bucketSize = 5
	bucketRate = 20 // tokens a second

	// bucketScript takes a token; it returns 1 if there was one.
	bucketScript = `
local t = redis.call("time")
local now = t[1] * 1000000 + t[2]
local had = redis.call("hmget", KEYS[1], "tokens", "at")
local tokens, at = tonumber(had[1] or ARGV[1]), tonumber(had[2] or now)
tokens = math.min(tonumber(ARGV[1]), tokens + (now - at) * ARGV[2] / 1000000)
local taken = 0
if tokens >= 1 then tokens, taken = tokens - 1, 1 end
redis.call("hset", KEYS[1], "tokens", string.format("%.9f", tokens), "at",
  string.format("%.0f", now))
return taken`
)

// rate is a workload of calls that a limit lets through or not.
type rate struct {
	ask func(key string) []any
	// through reports whether a call was let through.
	through func(reply string) bool
	// most is how many may be let through in this time.
	most func(d time.Duration) int
}

func (r rate) turn(a *actor) {
	key := fmt.Sprintf("{%s}:%d", a.name, a.turn%2)
	a.do(call{key: key, op: "ask", ask: command(r.ask(key)...)})
}

// judge looks at all calls between the beginning of one that was let through and the end of
// another.
func (r rate) judge(w *work) {
	by := map[string][]*event{}
	for _, e := range w.events {
		if e.What == acked && r.through(e.Reply) {
			by[e.Key] = append(by[e.Key], e)
		}
	}
	for key, all := range by {
		if first, last, n := excess(all, r.most); n > 0 {
			w.problem("%s let %d calls through, from %v to %v", key, n, first, last)
		}
	}
}

// excess returns calls between which there are too many, and how many, 0 if there are none.
func excess(all []*event, most func(time.Duration) int) (first, last *event, n int) {
	ended := slices.SortedFunc(slices.Values(all), func(a, b *event) int {
		return int(a.Return - b.Return)
	})
	for _, first := range all {
		n := 0
		for _, last := range ended {
			if last.Call < first.Call {
				continue
			}
			d := last.Return - first.Call
			if n++; n > most(d+time.Duration(float64(d)*slack)+rounding) {
				return first, last, n
			}
		}
	}
	return nil, nil, 0
}

// slides are sliding windows whose members are instants. Besides the limit, no two calls have the
// same instant, and instants rise.
type slides struct{ rate }

func windows(*work) player {
	return slides{rate{
		ask: func(key string) []any {
			return []any{"EVAL", slideScript, 1, key, slideTime.Milliseconds(), slideLimit}
		},
		through: func(reply string) bool { return !strings.HasPrefix(reply, "[0 ") },
		most: func(d time.Duration) int {
			return int(d/slideTime+1) * slideLimit
		},
	}}
}

func (s slides) judge(w *work) {
	s.rate.judge(w)
	var all []granted
	for _, e := range w.events {
		_, member, _ := strings.Cut(strings.Trim(e.Reply, "[]"), " ")
		if e.What != acked {
			continue
		}
		n, err := strconv.ParseInt(member, 10, 64)
		if err != nil {
			w.problem("no instant: %v", e)
			continue
		}
		all = append(all, granted{e, true, n})
	}
	judgeTokens(w.problem, all) // an instant is like a token: none twice, and they rise
}

func buckets(*work) player {
	return rate{
		ask: func(key string) []any {
			return []any{"EVAL", bucketScript, 1, key, bucketSize, bucketRate}
		},
		through: func(reply string) bool { return reply == "1" },
		most: func(d time.Duration) int {
			return bucketSize + int(d.Seconds()*bucketRate+1e-6)
		},
	}
}

func throttle(*work) player {
	return rate{
		ask: func(key string) []any {
			return []any{"CL.THROTTLE", key, bucketSize - 1, bucketRate, 1}
		},
		through: func(reply string) bool { return strings.HasPrefix(reply, "[0 ") },
		most: func(d time.Duration) int {
			return bucketSize + int(d.Seconds()*bucketRate+1e-6)
		},
	}
}
