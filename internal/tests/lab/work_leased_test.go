//go:build linux

// Locks that clients wait for and hold by leases: for a time that they renew, or as long as their
// connection. A client knows that it holds a lock from the reply on, as long as its lease lasts,
// and until it sends the release.

package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// leasedShort is so short that leases end while their clients wait.
	leasedShort, leasedLong = 250 * time.Millisecond, 2 * time.Second
	// leasedWait is the longest wait.
	leasedWait = 600 * time.Millisecond
)

// leasedLocks are taken one or two at once, beside a key of the same lease.
type leasedLocks struct {
	grants

	mu     sync.Mutex
	held   []*hold
	late   []*event // their time was over
	leases []string // those that are bound
}

func leasedMutexes(*work) player {
	return &leasedLocks{grants: grants{keys: []string{"{leased}:a", "{leased}:b"}, room: 1}}
}

func (g *leasedLocks) turn(a *actor) {
	q := asked{owner: a.value(), weight: 1, px: leasedLong,
		wait: time.Duration(1+a.rnd.IntN(int(leasedWait.Milliseconds()))) * time.Millisecond,
		keys: slices.Clone(g.keys)}
	if a.rnd.IntN(2) == 0 {
		slices.Reverse(q.keys)
	}
	q.keys = q.keys[:1+a.rnd.IntN(len(q.keys))]
	if a.rnd.IntN(3) == 0 {
		q.px = leasedShort
	}
	l := &attachment{name: "{leased}:" + q.owner, bound: a.rnd.IntN(3) == 0}
	if !l.grantTo(a, q.px) {
		return
	}
	if l.bound {
		g.mu.Lock()
		g.leases = append(g.leases, l.id)
		g.mu.Unlock()
	}
	if e := a.send(l.bound, call{key: l.name, op: "attach"}, "SET", l.name, q.owner, "LEASE",
		l.id); e.What == acked && e.Reply == "OK" {
		g.take(a, l, q)
	} else if l.bound {
		a.disconnect()
	}
}

// take waits for locks and holds them for a while. A lease that is bound ends with its connection.
func (g *leasedLocks) take(a *actor, l *attachment, q asked) {
	if l.bound {
		defer a.disconnect()
	}
	if a.rnd.IntN(2) == 0 {
		a.do(call{key: q.keys[0], op: "waiters", reads: true, ask: waitersOf(q.keys[0])})
	}
	if !g.renew(a, l) {
		return
	}
	words := []any{"LOCK.ACQUIRE", q.keys[0], q.owner, "LEASE", l.id, "WAIT", q.wait.Milliseconds()}
	if a.rnd.IntN(2) == 0 {
		words = append(words, "ID", q.owner)
	}
	e := a.send(l.bound, call{key: q.keys[0], op: "take", args: q.args()},
		append(words, others(q.keys)...)...)
	token := grantOf(e.Reply)[0]
	switch {
	case e.What != acked:
		return
	case e.Reply == noLease:
		if e.Return < l.until {
			a.problem("lease %s has ended before %v: %v", l.id, l.until, e)
		}
		return
	}
	h := &hold{event: e, asked: q, token: token, from: e.Return, to: l.until}
	g.mu.Lock()
	if token == 0 {
		g.late = append(g.late, e)
	} else {
		g.held = append(g.held, h)
	}
	g.mu.Unlock()
	if token == 0 {
		return
	}
	g.look(a, l, h)
	for range a.rnd.IntN(4) {
		time.Sleep(time.Duration(a.rnd.IntN(40)) * time.Millisecond)
		if l.bound && a.conn == nil || !g.renew(a, l) {
			return
		}
		h.to = l.until // it has lasted all the time, and so has the lock
		g.look(a, l, h)
	}
	switch a.rnd.IntN(4) {
	case 0: // it ends with its lease
	case 1:
		h.to = min(h.to, a.run.now())
		a.ask(l.bound && a.conn != nil, "LEASE", "REVOKE", l.id)
	default:
		h.to = min(h.to, a.run.now())
		for range 3 {
			if e := a.do(call{key: q.keys[0], op: "release", args: q.args(), ask: command(
				append([]any{"LOCK.RELEASE", q.keys[0], q.owner, "TOKEN", token},
					others(q.keys)...)...)}); e.What == acked {
				return
			}
		}
	}
}

// renew renews a lease, and reports whether it lasts.
func (g *leasedLocks) renew(a *actor, l *attachment) bool {
	e := a.ask(l.bound, "LEASE", "KEEPALIVE", l.id)
	if e.What != acked {
		return l.until > a.run.now() && (!l.bound || a.conn != nil)
	}
	left, _ := strconv.ParseInt(strings.Trim(e.Reply, "[]"), 10, 64)
	switch {
	case left > 0 && l.gone != 0:
		a.problem("lease %s is renewed, and its keys were gone at %v: %v", l.id, l.gone, e)
	case left > 0:
		l.lasts(e)
	case e.Return < l.until:
		a.problem("lease %s has ended before %v: %v", l.id, l.until, e)
	}
	return left > 0
}

// look reads what a client holds by a lease, and the key beside it.
func (g *leasedLocks) look(a *actor, l *attachment, h *hold) {
	names := append(slices.Clone(h.keys), l.name)
	e := a.do(call{key: l.name, op: "look", reads: true,
		ask: func(ctx context.Context, c redis.UniversalClient) (any, error) {
			values, err := c.MGet(ctx, names...).Result()
			own := 0
			for _, v := range values {
				if v == h.owner {
					own++
				}
			}
			return fmt.Sprint(own), err
		}})
	if e.What == acked {
		g.check(a.work, l, len(names), e)
	}
}

// check: what depends on a lease is there together, not gone early, and never back.
func (g *leasedLocks) check(w *work, l *attachment, all int, e *event) {
	switch own, _ := strconv.Atoi(e.Reply); {
	case own == all && l.gone != 0:
		w.problem("what lease %s had is back, gone at %v: %v", l.id, l.gone, e)
	case own == all:
	case own > 0:
		w.problem("what lease %s has of %d ends one by one: %v", l.id, all, e)
	default:
		if e.Return < l.until {
			w.problem("what lease %s has is gone before %v: %v", l.id, l.until, e)
		}
		l.gone = e.Return
	}
}

// judge is that of the other locks. Besides, leases end with their clients, and what they held is
// free.
func (g *leasedLocks) judge(w *work) {
	if len(w.actors) > 0 {
		for _, a := range w.actors {
			a.disconnect()
		}
		g.settle(w)
		for _, id := range g.leases { // others still have theirs
			if !await(equalLimit, func() bool {
				err := w.admin.Do(context.Background(), "LEASE", "INFO", id).Err()
				return errorWord(err) == noLease
			}) {
				w.problem("lease %s remains", id)
				break
			}
		}
	}
	for _, e := range g.late {
		if wait := askedOf(e).wait; e.Return-e.Call < wait-time.Millisecond {
			w.problem("it waited for too short a time: %v", e)
		}
	}
	for _, key := range g.keys {
		var on []*hold
		var tokens []granted
		for _, h := range g.held {
			if slices.Contains(h.keys, key) {
				on, tokens = append(on, h), append(tokens, granted{h.event, true, h.token})
			}
		}
		g.judgeRoom(w, on)
		judgeTokens(w.problem, tokens)
		judgeTurns(w, key, g.held, g.late)
	}
}
