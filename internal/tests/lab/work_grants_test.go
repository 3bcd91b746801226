//go:build linux

// Locks that clients wait for with LOCK.ACQUIRE: alone, beside others, several at once. A client
// knows that it holds one from the reply on, and until it sends the release, or for PX after it
// sent the request: what it knows is judged, never what it does not.

package lab

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// grantLong is the usual term, longer than any wait and any pause with a lock.
	grantLong, grantShort = 3 * time.Second, 300 * time.Millisecond

	// grantRounding bounds how exactly two instants of the cluster clock compare.
	grantRounding = 5 * time.Millisecond

	// settleLimit is how long after the clients a lock may be wanted and not free.
	settleLimit = 15 * time.Second
)

// grants is a workload of clients that wait for locks.
type grants struct {
	keys []string
	room int // how much of a lock there is
	// enters: a holder takes the lock again, and releases it as often as it has.
	enters bool
	ranks  int // priorities, if clients have any

	// want draws what a client asks for: how much, the words for it, and of which keys.
	want func(a *actor, keys []string) (weight int, words []any, of []string)
}

func mutexes(*work) player {
	return &grants{keys: []string{"{mutex}"}, room: 1,
		want: func(_ *actor, keys []string) (int, []any, []string) { return 1, nil, keys }}
}

// reentrants hold a lock once or several times.
func reentrants(*work) player {
	return &grants{keys: []string{"{reentrant}"}, room: 1, enters: true,
		want: func(_ *actor, keys []string) (int, []any, []string) {
			return 1, []any{"REENTRANT"}, keys
		}}
}

// ranked clients have priorities.
func ranked(*work) player {
	return &grants{keys: []string{"{ranked}"}, room: 1, ranks: 3,
		want: func(_ *actor, keys []string) (int, []any, []string) { return 1, nil, keys }}
}

func permits(*work) player {
	const most = 3
	return &grants{keys: []string{"{permits}"}, room: most,
		want: func(a *actor, keys []string) (int, []any, []string) {
			n := 1 + a.rnd.IntN(2)
			return n, []any{"PERMITS", n, "OF", most}, keys
		}}
}

func readersWriters(*work) player {
	const all = 1000 // so many readers are never there
	return &grants{keys: []string{"{shared}"}, room: all,
		want: func(a *actor, keys []string) (int, []any, []string) {
			if a.rnd.IntN(3) == 0 {
				return all, nil, keys
			}
			return 1, []any{"SHARED"}, keys
		}}
}

// severalLocks are taken one, two or three at once, in any order.
func severalLocks(*work) player {
	return &grants{keys: []string{"{several}:a", "{several}:b", "{several}:c"}, room: 1,
		want: func(a *actor, keys []string) (int, []any, []string) {
			some := slices.Clone(keys)
			a.rnd.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			return 1, nil, some[:1+a.rnd.IntN(len(some))]
		}}
}

// asked is what an event of a client that takes a lock was about. It is in the event's arguments,
// which failures show.
type asked struct {
	owner        string
	weight, rank int
	px, wait     time.Duration
	keys         []string
}

func (q asked) args() []string {
	return append([]string{q.owner, strconv.Itoa(q.weight), strconv.Itoa(q.rank), q.px.String(),
		q.wait.String()}, q.keys...)
}

func askedOf(e *event) (q asked) {
	q.owner, q.keys = e.Args[0], e.Args[5:]
	q.weight, _ = strconv.Atoi(e.Args[1])
	q.rank, _ = strconv.Atoi(e.Args[2])
	q.px, _ = time.ParseDuration(e.Args[3])
	q.wait, _ = time.ParseDuration(e.Args[4])
	return q
}

func (g *grants) turn(a *actor) {
	q := asked{owner: a.value(), px: grantLong, wait: time.Duration(a.rnd.IntN(1200)) * 1e6}
	if a.rnd.IntN(5) == 0 {
		q.px = grantShort
	}
	weight, words, keys := g.want(a, g.keys)
	q.weight, q.keys = weight, keys
	if g.ranks > 0 {
		q.rank = a.rnd.IntN(g.ranks)
		words = append(words, "PRIORITY", q.rank)
	}
	if a.rnd.IntN(2) == 0 {
		a.do(call{key: keys[0], op: "waiters", reads: true, ask: waitersOf(keys[0])})
	}
	ask := []any{"LOCK.ACQUIRE", keys[0], q.owner, "PX", q.px.Milliseconds()}
	ask = append(append(ask, words...), others(keys)...)
	take := ask
	if q.wait > 0 {
		wait := []any{"WAIT", q.wait.Milliseconds()}
		take = slices.Concat(ask[:5], wait, ask[5:])
	}
	e := a.do(call{key: keys[0], op: "take", args: q.args(), ask: command(take...)})
	if e.What != acked || grantOf(e.Reply)[0] == 0 {
		return
	}
	entered := 1
	for g.enters && a.rnd.IntN(2) == 0 {
		e := a.do(call{key: keys[0], op: "enter", args: q.args(), ask: command(ask...)})
		if e.What == acked && grantOf(e.Reply)[0] != 0 {
			entered++
		}
	}
	time.Sleep(time.Duration(a.rnd.IntN(20)) * 1e6)
	if a.rnd.IntN(4) == 0 {
		a.do(call{key: keys[0], op: "extend", args: q.args(),
			ask: command(append([]any{"LOCK.EXTEND", keys[0], q.owner, "PX", q.px.Milliseconds()},
				others(keys)...)...)})
	}
	if q.px == grantShort && a.rnd.IntN(2) == 0 {
		return // it ends by itself
	}
	for range entered {
		for range 3 {
			e := a.do(call{key: keys[0], op: "release", args: q.args(), ask: command(
				append([]any{"LOCK.RELEASE", keys[0], q.owner}, others(keys)...)...)})
			if e.What == acked {
				break
			}
		}
	}
}

// others are the words for further keys.
func others(keys []string) (words []any) {
	if len(keys) > 1 {
		words = append(words, "KEYS", len(keys)-1)
	}
	for _, k := range keys[1:] {
		words = append(words, k)
	}
	return words
}

// waitersOf returns the owners that wait for a lock.
func waitersOf(key string) func(context.Context, redis.UniversalClient) (any, error) {
	return func(ctx context.Context, c redis.UniversalClient) (any, error) {
		all, err := c.Do(ctx, "LOCK.WAITERS", key).Slice()
		var owners []string
		for _, w := range all {
			if fields, ok := w.([]any); ok && len(fields) > 1 {
				owners = append(owners, text(fields[1]))
			}
		}
		return strings.Join(owners, " "), err
	}
}

// grantOf parses a reply of LOCK.ACQUIRE or LOCK.EXTEND: token, end, count and place.
func grantOf(reply string) (numbers [4]int64) {
	for i, word := range strings.Fields(strings.Trim(reply, "[]")) {
		if i < len(numbers) {
			numbers[i], _ = strconv.ParseInt(word, 10, 64)
		}
	}
	return numbers
}

// hold is a lock that a client held.
type hold struct {
	*event
	asked
	token    int64
	from, to time.Duration // it knows that it held it from then, and until then
	begunMs  int64         // when it was granted, by the cluster clock
	endMs    int64         // until when, by the cluster clock
	entered  int64         // how often it knows to have it
	let      time.Duration // when it sent the release that may have been the last; 0: never
}

// holds returns what clients held, and the events of those who did not get the lock in time.
func holdsOf(events []*event) (holds []*hold, late []*event) {
	by := map[string]*hold{}
	for _, e := range events {
		if e.Op != "take" || e.What != acked {
			continue
		}
		g, q := grantOf(e.Reply), askedOf(e)
		if g[0] == 0 {
			late = append(late, e)
			continue
		}
		h := &hold{event: e, asked: q, token: g[0], from: e.Return, to: e.Call + q.px,
			begunMs: g[1] - q.px.Milliseconds(), endMs: g[1], entered: 1}
		holds = append(holds, h)
		by[q.owner] = h
	}
	releases := map[*hold][]time.Duration{}
	for _, e := range events {
		if e.Op != "extend" && e.Op != "enter" && e.Op != "release" {
			continue
		}
		h := by[e.Args[0]]
		switch g := grantOf(e.Reply); {
		case h == nil:
		case e.Op == "release":
			releases[h] = append(releases[h], e.Call)
		case e.What == acked && g[0] != 0:
			h.to, h.endMs = max(h.to, e.Call+h.px), max(h.endMs, g[1])
			if e.Op == "enter" {
				h.entered++
			}
		}
	}
	for h, at := range releases {
		slices.Sort(at)
		if n := int(h.entered); len(at) >= n { // each may have run, also if nobody knows
			h.let = at[n-1]
			h.to = min(h.to, h.let)
		}
	}
	return holds, late
}

// judgeEntries: who enters a lock again, before its term is over, enters the same one, and has it
// once more.
func judgeEntries(w *work, holds []*hold) {
	for _, h := range holds {
		known, ends := int64(1), h.Call+h.px
		for _, e := range w.events {
			if e.Op != "enter" || e.What != acked || e.Args[0] != h.owner {
				continue
			}
			g := grantOf(e.Reply)
			if e.Return < ends && (g[0] != h.token || g[2] <= known) {
				w.problem("it had entered %d times: %v, and then %v", known, h.event, e)
			}
			if g[0] == h.token {
				known, ends = g[2], max(ends, e.Call+h.px)
			}
		}
	}
}

func (g *grants) judge(w *work) {
	if len(w.actors) > 0 {
		g.settle(w)
	}
	holds, late := holdsOf(w.events)
	for _, e := range late {
		if wait := askedOf(e).wait; e.Return-e.Call < wait-time.Millisecond {
			w.problem("it waited for too short a time: %v", e)
		}
	}
	for _, key := range g.keys {
		var on []*hold
		for _, h := range holds {
			if slices.Contains(h.keys, key) {
				on = append(on, h)
			}
		}
		g.judgeRoom(w, on)
		judgeHolders(w, on, g.room)
		judgeEntries(w, on)
	}
	for _, key := range g.keys {
		judgeTurns(w, key, holds, late)
	}
}

// judgeRoom: at no instant clients know to hold more than there is.
func (g *grants) judgeRoom(w *work, on []*hold) {
	for _, a := range on {
		sum, with := 0, []*event(nil)
		for _, b := range on {
			if b.from <= a.from && a.from < b.to && a.from < a.to {
				sum += b.weight
				with = append(with, b.event)
			}
		}
		if sum > g.room {
			w.problem("%d of %d are held at %v: %v", sum, g.room, a.from, with)
		}
	}
}

// judgeHolders: tokens rise, and whoever excludes the one before is not granted the lock before the
// end of that one's term, by the cluster clock, unless it was released.
func judgeHolders(w *work, on []*hold, room int) {
	var tokens []granted
	for _, h := range on {
		tokens = append(tokens, granted{h.event, true, h.token})
	}
	judgeTokens(w.problem, tokens)
	slices.SortFunc(on, func(a, b *hold) int { return cmp.Compare(a.token, b.token) })
	for i, b := range on {
		if i == 0 {
			continue
		}
		a := on[i-1]
		released := a.let != 0 && a.let < b.Return
		if !released && a.weight+b.weight > room &&
			b.begunMs < a.endMs-grantRounding.Milliseconds() {
			w.problem("a term that was over %d ms early: %v, and %v", a.endMs-b.begunMs, a.event,
				b.event)
		}
		if a.from < a.to && b.from < b.to && a.weight+b.weight > room && b.from < a.from {
			w.problem("a smaller token later: %v, and %v", a.event, b.event)
		}
	}
}

// judgeTurns: nobody who was seen to wait is overtaken by whoever asked later, unless with a higher
// priority, while nothing failed. A node that the leader does not hear loses its places for as
// long.
func judgeTurns(w *work, key string, holds []*hold, late []*event) {
	type waiter struct {
		event *event
		asked
		token int64
	}
	all := map[string]waiter{}
	for _, h := range holds {
		all[h.owner] = waiter{h.event, h.asked, h.token}
	}
	for _, e := range late {
		q := askedOf(e)
		all[q.owner] = waiter{e, q, 0}
	}
	for _, sight := range w.events {
		if sight.Op != "waiters" || sight.What != acked || sight.Key != key {
			continue
		}
		for _, owner := range strings.Fields(sight.Reply) {
			x, known := all[owner]
			if !known {
				continue
			}
			for _, y := range holds {
				overtakes := x.token > y.token ||
					x.token == 0 && y.Return < x.event.Call+x.wait-time.Millisecond
				if y.Call < sight.Return || !slices.Contains(y.keys, key) || !overtakes ||
					y.rank > x.rank {
					continue
				}
				if w.run.quiet(max(y.Return, x.event.Return)) {
					w.problem("%v overtook %v, which was seen by %v", y.event, x.event, sight)
				} else {
					w.run.overtaken.Add(1)
				}
			}
		}
	}
}

// settle: without clients every lock can be had, and nobody waits.
func (g *grants) settle(w *work) {
	w.run.fades = true // what was claimed
	for _, key := range g.keys {
		words := []any{"LOCK.ACQUIRE", key, "judge", "PX", 1000, "WAIT", settleLimit.Milliseconds()}
		v, err := w.admin.Do(context.Background(), words...).Result()
		if grantOf(text(v))[0] == 0 {
			w.problem("nobody can have %s: %s %v", key, text(v), err)
		}
		w.admin.Do(context.Background(), "LOCK.RELEASE", key, "judge")
		if v, err = waitersOf(key)(context.Background(), w.admin); err != nil || v != "" {
			w.problem("there is nobody, and for %s waits %q (%v)", key, v, err)
		}
	}
}
