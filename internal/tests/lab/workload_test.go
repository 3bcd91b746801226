//go:build linux

// Workloads, their clients, and how those are judged whose keys have a sequential model.

package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
)

const (
	actorsEach = 3 // clients of a workload
	turnPause  = 2 * time.Millisecond
	// refusedPause keeps clients of a node that is down from being busy with that.
	refusedPause = 10 * time.Millisecond

	// opsAKey and unknownsAKey are after how many calls, and calls without a known outcome, the
	// next key begins: the checker's work grows fast with a key's history.
	opsAKey, unknownsAKey = 250, 6

	judgeLimit = time.Minute // for one key
)

// workload is what some clients do, and what must be true of it.
type workload struct {
	name  string
	newer bool // it uses what release 0.1 does not have
	make  func(w *work) player
}

// player is a workload in one run.
type player interface {
	// turn does something as one of the clients.
	turn(a *actor)

	// judge reports what must not be, when all clients have ended and the cluster serves.
	judge(w *work)
}

// workloads are all of them.
var workloads = []workload{
	{name: "registers", make: registers},
	{name: "counters", make: counters},
	{name: "lists", make: lists},
	{name: "numbers", newer: true, make: computed},
	{name: "locks", make: locks},
	{name: "leases", make: leases},
	{name: "reentrant locks", make: reentrant},
	{name: "fair locks", make: fairLocks},
	{name: "transfers", make: transfers},
	{name: "watch", make: watches},
	{name: "increx", newer: true, make: increx},
	{name: "fencing", make: fencing},
	{name: "mutexes", newer: true, make: mutexes},
	{name: "entered locks", newer: true, make: reentrants},
	{name: "ranked locks", newer: true, make: ranked},
	{name: "permits", newer: true, make: permits},
	{name: "readers and writers", newer: true, make: readersWriters},
	{name: "several locks", newer: true, make: severalLocks},
	{name: "attached keys", newer: true, make: attachedKeys},
	{name: "leased locks", newer: true, make: leasedMutexes},
	{name: "repeats", newer: true, make: repeats},
	{name: "hits", newer: true, make: windowHits},
	{name: "windows", newer: true, make: windows},
	{name: "buckets", newer: true, make: buckets},
	{name: "throttle", make: throttle},
	{name: "queues", make: queues},
	{name: "schedules", newer: true, make: schedules},
	{name: "streams", make: streams},
	{name: "messages", make: messages},
	{name: "subscribers", newer: true, make: subscriberCounts},
	{name: "caches", newer: true, make: caches},
	{name: "stale reads", make: staleReads},
	{name: "idle reads", make: idleReads},
	{name: "kept", make: keptWrites},
}

// work is a workload in a run.
type work struct {
	workload
	run *run
	*ledger
	player player
	actors []*actor
	admin  *redis.Client // while it is judged

	keys struct {
		sync.Mutex
		number, asked, unknowns int
	}
}

// actor is one client of a workload.
type actor struct {
	*work
	id   int // of its events: another one after a call without a known outcome
	seat int // among the clients of the workload, from 0
	rnd  *rand.Rand
	c    redis.UniversalClient
	turn int
	conn *conn // for workloads that need one connection
	mem  any   // what the workload remembers of the client
}

// act takes turns until the context ends.
func (a *actor) act(ctx context.Context) {
	pace := time.NewTicker(turnPause)
	defer pace.Stop()
	for ; ; a.turn++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
			a.player.turn(a)
		}
	}
}

// maxProblems is how many violations of one workload are reported.
const maxProblems = 8

// problem reports a violation.
func (w *work) problem(format string, args ...any) {
	w.mu.Lock()
	w.wrong++
	many := w.wrong > maxProblems
	w.mu.Unlock()
	if many {
		return
	}
	w.run.site.problem("%s: %s", w.name, fmt.Sprintf(format, args...))
}

// key returns the key that the clients of the workload share now.
func (w *work) key() string {
	w.keys.Lock()
	defer w.keys.Unlock()
	if w.keys.asked >= opsAKey || w.keys.unknowns >= unknownsAKey {
		w.keys.number++
		w.keys.asked, w.keys.unknowns = 0, 0
	}
	w.keys.asked++
	return fmt.Sprintf("{%s:%d}", w.name, w.keys.number)
}

// call is a request of a client.
type call struct {
	key, op string
	args    []string
	reads   bool // without a reply it proves nothing
	ask     func(ctx context.Context, c redis.UniversalClient) (any, error)
}

// command is a call's ask for a single command.
func command(words ...any) func(context.Context, redis.UniversalClient) (any, error) {
	return func(ctx context.Context, c redis.UniversalClient) (any, error) {
		return c.Do(ctx, words...).Result()
	}
}

// do makes a call and records it, unless it did not run.
func (a *actor) do(c call) *event {
	e := &event{Actor: a.id, Key: c.key, Op: c.op, Args: c.args, Call: a.run.now()}
	v, err := c.ask(context.Background(), a.c)
	e.Return = a.run.now()
	e.What = a.note(err, e.Return)
	if e.What == acked {
		e.Reply = text(v)
	} else {
		e.Error = err.Error()
	}
	if e.What == refused {
		time.Sleep(refusedPause)
	}
	if e.What == unknown && !c.reads {
		a.id += 1000
		a.keys.Lock()
		a.keys.unknowns++
		a.keys.Unlock()
	}
	if e.What == acked || e.What == unknown && !c.reads {
		a.keep(e)
	}
	return e
}

// keyed is a workload whose keys have a model.
type keyed[S comparable] struct {
	model[S]
	next func(a *actor, key string) call
}

func (k *keyed[S]) turn(a *actor) { a.do(k.next(a, a.key())) }

func (k *keyed[S]) judge(w *work) {
	by := map[string][]*event{}
	for _, e := range w.events {
		by[e.Key] = append(by[e.Key], e)
	}
	for key, events := range by {
		if w.wrong > maxProblems {
			return // they would all have their pictures
		}
		result, info := k.model.judge(events, judgeLimit)
		if result == porcupine.Ok {
			continue
		}
		picture := filepath.Join(w.run.site.dir, strings.Trim(key, "{}")+".html")
		if err := porcupine.VisualizePath(k.porcupine(), info, picture); err != nil {
			picture = fmt.Sprint(err)
		} else if _, err := os.Stat(picture); err != nil {
			picture = fmt.Sprint(err)
		}
		w.problem("the history of %s, %d events, is not linearizable (%v): %s", key, len(events),
			result, picture)
	}
}
