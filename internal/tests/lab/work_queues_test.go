//go:build linux

// Queues: lists with blocking pops, and streams with a consumer group. Every element is taken once.

package lab

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	jobsList, mailList, workList = "{queue}:jobs", "{queue}:mail", "{queue}:work"
	streamKey, streamGroup       = "{stream}", "group"
)

// takeTimeouts are in seconds. Elements arrive about as often as the shorter one ends.
var takeTimeouts = []string{"0.01", "0.5"}

// waiting is what the clients of the queues know: the first adds jobs and mail, the second moves
// jobs to a list of its own and removes them when they are done, the third takes mail away.
type waiting struct {
	mu    sync.Mutex
	added map[string]outcome // elements, never those refused
	taken map[string]int     // elements that clients have got, and how often
	done  map[string]outcome // jobs that were removed
	lost  int                // pops of mail that may have taken something
}

func queues(*work) player {
	return &waiting{added: map[string]outcome{}, taken: map[string]int{},
		done: map[string]outcome{}}
}

func (q *waiting) turn(a *actor) {
	switch a.seat {
	case 0:
		to := []string{jobsList, mailList}[a.turn%2]
		element := fmt.Sprint(to, ":", a.turn)
		e := a.do(call{key: to, op: "rpush", args: []string{element},
			ask: command("RPUSH", to, element)})
		q.mu.Lock()
		defer q.mu.Unlock()
		if e.What != refused {
			q.added[element] = e.What
		}
	case 1:
		q.work(a)
	default:
		e := a.do(call{key: mailList, op: "blpop",
			ask: command("BLPOP", mailList, takeTimeouts[a.turn%2])})
		_, element, _ := strings.Cut(strings.Trim(e.Reply, "[]"), " ")
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case e.What == unknown:
			q.lost++
		case element != "":
			q.taken[element]++
		}
	}
}

func (q *waiting) work(a *actor) {
	e := a.do(call{key: jobsList, op: "blmove", ask: command("BLMOVE", jobsList, workList, "LEFT",
		"RIGHT", takeTimeouts[a.turn%2])})
	job := e.Reply
	if e.What != acked || job == "nil" {
		return
	}
	r := a.do(call{key: workList, op: "lrem", args: []string{job},
		ask: command("LREM", workList, 1, job)})
	if r.What == acked && r.Reply != "1" {
		a.problem("%s is %s times in the list of its worker", job, r.Reply)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken[job]++
	if r.What != refused {
		q.done[job] = r.What
	}
}

// judge: what was added is in one list, done, or taken, but for what a pop without a reply took.
func (q *waiting) judge(w *work) {
	there := map[string]int{}
	for _, list := range []string{jobsList, mailList, workList} {
		all, err := w.admin.LRange(context.Background(), list, 0, -1).Result()
		if err != nil {
			w.problem("%s: %v", list, err)
		}
		for _, element := range all {
			if _, known := q.added[element]; !known {
				w.problem("%s has %s, which nobody added", list, element)
			}
			there[element]++
		}
	}
	missing := 0
	for element, added := range q.added {
		done, removed := q.done[element]
		job := strings.HasPrefix(element, jobsList)
		gone := !job && q.taken[element] > 0 || removed && done == acked
		switch {
		case there[element] > 1 || q.taken[element] > 1 || gone && there[element] > 0:
			w.problem("%s is %d times in lists, and was taken %d times", element, there[element],
				q.taken[element])
		case there[element] == 1 || gone || removed || added == unknown:
		case job:
			w.problem("%s is lost", element)
		default:
			missing++
		}
	}
	if missing > q.lost {
		w.problem("%d elements are lost, and only %d pops had no reply", missing, q.lost)
	}
}

// grouped is what the clients of the stream know: the first adds, the others read and acknowledge.
type grouped struct {
	mu        sync.Mutex
	added     map[string]outcome // values
	delivered map[string]int     // ids, and how often
	done      map[string]outcome // ids that were acknowledged
}

func streams(*work) player {
	return &grouped{added: map[string]outcome{}, delivered: map[string]int{},
		done: map[string]outcome{}}
}

func (g *grouped) turn(a *actor) {
	if a.seat == 0 {
		value := fmt.Sprint("v", a.turn)
		e := a.do(call{key: streamKey, op: "xadd", args: []string{value},
			ask: command("XADD", streamKey, "*", "v", value)})
		g.mu.Lock()
		defer g.mu.Unlock()
		if e.What != refused {
			g.added[value] = e.What
		}
		return
	}
	if a.mem == nil {
		e := a.do(call{key: streamKey, op: "xgroup", ask: createGroup})
		if e.What != acked {
			return
		}
		a.mem = true
	}
	e := a.do(call{key: streamKey, op: "xreadgroup", ask: readGroup(fmt.Sprint("c", a.seat))})
	if e.What != acked || e.Reply == "nil" {
		return
	}
	for id := range strings.FieldsSeq(e.Reply) {
		r := a.do(call{key: streamKey, op: "xack", args: []string{id},
			ask: command("XACK", streamKey, streamGroup, id)})
		if r.What == acked && r.Reply != "1" {
			a.problem("XACK of %s, which this client has read: %s", id, r.Reply)
		}
		g.mu.Lock()
		g.delivered[id]++
		if r.What != refused {
			g.done[id] = r.What
		}
		g.mu.Unlock()
	}
}

// createGroup creates the group; who comes later finds it there.
func createGroup(ctx context.Context, c redis.UniversalClient) (any, error) {
	v, err := c.Do(ctx, "XGROUP", "CREATE", streamKey, streamGroup, "0", "MKSTREAM").Result()
	if errorWord(err) == "BUSYGROUP" {
		return "OK", nil
	}
	return v, err
}

// readGroup reads new entries and returns their ids.
func readGroup(consumer string) func(context.Context, redis.UniversalClient) (any, error) {
	return func(ctx context.Context, c redis.UniversalClient) (any, error) {
		v, err := c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: streamGroup, Consumer: consumer,
			Streams: []string{streamKey, ">"}, Count: 4, Block: 20e6}).Result()
		if err != nil {
			return nil, err
		}
		var ids []string
		for _, m := range v[0].Messages {
			ids = append(ids, m.ID)
		}
		return strings.Join(ids, " "), nil
	}
}

// judge: each entry is there once, and acknowledged, pending or not read yet.
func (g *grouped) judge(w *work) {
	ctx := context.Background()
	entries, err := w.admin.XRange(ctx, streamKey, "-", "+").Result()
	if err != nil {
		w.problem("XRANGE: %v", err)
		return
	}
	pending := map[string]bool{}
	groups, err := w.admin.XInfoGroups(ctx, streamKey).Result()
	if err != nil || len(groups) != 1 {
		w.problem("XINFO GROUPS: %v %v", groups, err)
		return
	}
	all, err := w.admin.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: streamKey,
		Group: streamGroup, Start: "-", End: "+", Count: int64(len(entries) + 1)}).Result()
	if err != nil {
		w.problem("XPENDING: %v", err)
	}
	for _, p := range all {
		pending[p.ID] = true
	}
	there := map[string]int{}
	read := int64(0) // entries up to the last one that the group has delivered
	for i, e := range entries {
		if e.ID == groups[0].LastDeliveredID {
			read = int64(i + 1)
		}
	}
	for i, e := range entries {
		value := text(e.Values["v"])
		there[value]++
		if _, known := g.added[value]; !known {
			w.problem("an entry %s that nobody added: %s", e.ID, value)
		}
		n, done := g.delivered[e.ID], g.done[e.ID]
		isRead := int64(i) < read
		switch {
		case n > 1:
			w.problem("%s was delivered %d times", e.ID, n)
		case done == acked && pending[e.ID]:
			w.problem("%s was acknowledged, and is pending", e.ID)
		case !isRead && (n > 0 || pending[e.ID]):
			w.problem("%s was delivered (%d) or is pending (%v), and the group is at %s", e.ID, n,
				pending[e.ID], groups[0].LastDeliveredID)
		case isRead && done == "" && !pending[e.ID]:
			w.problem("%s is neither acknowledged nor pending", e.ID)
		}
	}
	for value, what := range g.added {
		if n := there[value]; n > 1 || n == 0 && what == acked {
			w.problem("%s is %d times in the stream", value, n)
		}
	}
}
