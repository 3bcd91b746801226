//go:build linux

// Requests that run once: clients send them again, through other nodes, until they have a reply.

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
	onceKeys = 2
	onceList = "{repeats}:list"

	// onceLimit is for how long a request is sent again. It is below the time for which the
	// cluster knows a request that has run, by more than a reply may take.
	onceLimit = 40 * time.Second
)

// onces are requests that add to counters and to a list.
type onces struct {
	mu       sync.Mutex
	added    map[string]int64    // acknowledged, by key
	maybe    map[string]int64    // that may have been added besides
	ranges   map[string][][2]int // by key: what each reply has added, from and to
	elements map[string]outcome
}

func repeats(*work) player {
	return &onces{added: map[string]int64{}, maybe: map[string]int64{},
		ranges: map[string][][2]int{}, elements: map[string]outcome{}}
}

// onceClients are those of one actor, each with another node first.
func (a *actor) onceClients() []redis.UniversalClient {
	all, known := a.mem.([]redis.UniversalClient)
	if !known {
		for i := range founding {
			all = append(all, a.run.kind.make(a.run.site, a.seat+i))
		}
		a.mem = all
	}
	return all
}

func (o *onces) turn(a *actor) {
	id, n := fmt.Sprint("{repeats}", a.value()), 1+a.rnd.IntN(9)
	key := fmt.Sprint("{repeats}:", a.rnd.IntN(onceKeys))
	words := []any{"IDEMPOTENT", id, "INCRBY", key, n}
	switch a.rnd.IntN(3) {
	case 0:
		words = []any{"INCREX", key, "BYINT", n, "ID", id}
	case 1:
		key, n = onceList, 0
		words = []any{"IDEMPOTENT", id, "RPUSH", key, id}
	}
	e := o.insist(a, key, words)
	o.note(a, key, id, n, e)
	if e.What != acked || a.rnd.IntN(3) > 0 {
		return
	}
	if again := o.insist(a, key, words); again.What == acked && again.Reply != e.Reply &&
		again.Return-e.Call < onceLimit {
		a.problem("another reply: %v, and before %v", again, e)
	}
}

// note remembers what a request has added.
func (o *onces) note(a *actor, key, id string, n int, e *event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case key == onceList && e.What != refused:
		o.elements[id] = e.What
	case e.What == unknown:
		o.maybe[key] += int64(n)
	case e.What == acked && key != onceList:
		o.added[key] += int64(n)
		first, _, _ := strings.Cut(strings.Trim(e.Reply, "[]"), " ")
		to, err := strconv.Atoi(first)
		if err != nil {
			a.problem("no number: %v", e)
		}
		o.ranges[key] = append(o.ranges[key], [2]int{to - n, to})
	}
}

// insist sends a request until it has a reply, through one node after the other. The event that it
// returns is of all attempts.
func (o *onces) insist(a *actor, key string, words []any) *event {
	all := a.onceClients()
	e := &event{Actor: a.id, Key: key, Op: text(words), Call: a.run.now(), What: refused}
	for i := a.rnd.IntN(len(all)); a.run.now()-e.Call < onceLimit; i++ {
		v, err := all[i%len(all)].Do(context.Background(), words...).Result()
		e.Return = a.run.now()
		switch a.note(err, e.Return) {
		case acked:
			e.What, e.Reply = acked, text(v)
			a.keep(e)
			return e
		case unknown:
			e.What, e.Error = unknown, err.Error()
		default:
			time.Sleep(refusedPause)
		}
		if e.What != unknown && a.run.stopped.Load() {
			break // nothing has run
		}
	}
	if e.What == unknown {
		a.keep(e)
	}
	return e
}

// judgeRanges: no number was counted twice.
func (o *onces) judgeRanges(w *work) {
	for key, ranges := range o.ranges {
		slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
		for i := 1; i < len(ranges); i++ {
			if ranges[i][0] < ranges[i-1][1] {
				w.problem("%s: two requests have added the same: %v and %v", key, ranges[i-1],
					ranges[i])
			}
		}
	}
}

func (o *onces) judge(w *work) {
	if w.admin == nil {
		return // a check of the checks
	}
	w.run.fades = true // requests that ran
	o.judgeRanges(w)
	ctx := context.Background()
	for key := range o.ranges {
		n, err := w.admin.Get(ctx, key).Int64()
		if err != nil || n < o.added[key] || n > o.added[key]+o.maybe[key] {
			w.problem("%s is %d (%v), after %d and perhaps %d were added", key, n, err,
				o.added[key], o.maybe[key])
		}
	}
	there := map[string]int{}
	all, err := w.admin.LRange(ctx, onceList, 0, -1).Result()
	if err != nil {
		w.problem("%s: %v", onceList, err)
	}
	for _, id := range all {
		there[id]++
		if _, known := o.elements[id]; !known {
			w.problem("%s has %s, which nobody added", onceList, id)
		}
	}
	for id, what := range o.elements {
		if n := there[id]; n > 1 || n == 0 && what == acked {
			w.problem("%s is %d times in the list", id, n)
		}
	}
	for _, a := range w.actors {
		if all, _ := a.mem.([]redis.UniversalClient); all != nil {
			for _, c := range all {
				_ = c.Close()
			}
		}
	}
}
