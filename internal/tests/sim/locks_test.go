// Clients that wait for locks, and that send requests again which run once.

package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// lockers are how many more clients there are.
const lockers = 3

// locks adds clients that wait for a lock one behind the other, and retry requests.
func (g *generator) locks() {
	pause := []time.Duration{20, 100, 400}[g.IntN(3)] * time.Millisecond
	for i := range lockers {
		c := g.sc.clients + len(watchers) + i
		at := 500*time.Millisecond + time.Duration(g.Int64N(int64(time.Second)))
		next := func() time.Duration {
			at += time.Duration(g.ExpFloat64() * float64(pause))
			return at
		}
		for n := 0; at < lengthOf; n++ {
			owner := fmt.Sprintf("c%d-%d", c, n)
			if g.IntN(3) == 0 {
				key := fmt.Sprintf("once%d", g.IntN(2))
				g.add(next(), c, "once", key, owner)
				g.add(next(), c, "once", key, owner)
				continue
			}
			key, term := fmt.Sprintf("mutex%d", g.IntN(2)), 3000
			if g.IntN(4) == 0 {
				term = 100 + g.IntN(400)
			}
			g.add(next(), c, "acquire", key, owner, term, 1+g.IntN(2000))
			if term == 3000 || g.IntN(2) == 0 {
				g.add(next(), c, "release", key, owner)
			}
		}
	}
}

// held is what a client knows of a lock that it was granted.
type held struct {
	operation
	token    int64
	from, to time.Duration
}

// checkMutex checks that no two clients know to hold a lock at once, that tokens rise, and that
// nobody waits for less than was asked for.
func (s *simulation) checkMutex(key string, ops []operation) {
	released := map[string]time.Duration{}
	for _, o := range ops {
		if at, known := released[o.args[1]]; o.kind == "release" && (!known || o.beginAt < at) {
			released[o.args[1]] = o.beginAt
		}
	}
	var all []held
	for _, o := range ops {
		words := strings.Fields(o.reply)
		if o.kind != "acquire" || o.unknown {
			continue
		}
		token, err := strconv.ParseInt(words[0], 10, 64)
		switch wait := milliseconds(o.args[3]); {
		case err != nil || len(words) != 4:
			s.violation("%s: %q", key, o.reply)
		case token == 0 && o.endAt < o.beginAt+wait-time.Millisecond:
			s.violation("%s: %s waited for too short a time:%s", key, o.args[1], show(ops))
		case token != 0:
			h := held{o, token, o.endAt, o.beginAt + milliseconds(o.args[2])}
			if at, known := released[o.args[1]]; known {
				h.to = min(h.to, at)
			}
			all = append(all, h)
		}
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			switch {
			case a.token == b.token, a.end < b.begin && a.token > b.token,
				b.end < a.begin && b.token > a.token:
				s.violation("%s: %s has the token %d, and %s %d:%s", key, a.args[1], a.token,
					b.args[1], b.token, show(ops))
				return
			case max(a.from, b.from) < min(a.to, b.to):
				s.violation("%s: %s and %s held it together:%s", key, a.args[1], b.args[1],
					show(ops))
				return
			}
		}
	}
}

// checkOnce checks that each request has counted once: repeats have the reply of the first, others
// a larger one.
func (s *simulation) checkOnce(key string, ops []operation) {
	first, reply := map[string]int64{}, map[string]int{} // by request
	owner := map[int]string{}
	for _, o := range ops {
		if at, known := first[o.args[1]]; !known || o.begin < at {
			first[o.args[1]] = o.begin
		}
	}
	for _, o := range ops {
		if o.unknown {
			continue
		}
		n, err := strconv.Atoi(o.reply)
		id := o.args[1]
		if before, known := reply[id]; err != nil || known && before != n ||
			owner[n] != "" && owner[n] != id || n > len(first) {
			s.violation("%s: %s has counted to %q, %d before; %q had that:%s", key, id, o.reply,
				before, owner[n], show(ops))
			return
		}
		reply[id], owner[n] = n, id
	}
	for _, a := range ops {
		for id, n := range reply {
			if !a.unknown && a.end < first[id] && reply[a.args[1]] > n {
				s.violation("%s: %s came behind %s, and counted to less:%s", key, id, a.args[1],
					show(ops))
				return
			}
		}
	}
}
