// Queues under make chaos: producers, workers that move jobs to lists of their own and remove them
// when they are done, and readers of mail, which take it away.

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	jobsList, mailList = "queue:jobs", "queue:mail"
	queuePause         = 20 * time.Millisecond
)

// takeTimeouts are in seconds. Elements arrive about as often as the shorter one ends.
var takeTimeouts = []string{"0.01", "0.5"}

// callOutcome is what a client knows of its call.
type callOutcome int

const (
	callRan callOutcome = iota
	callNotRun
	callUnknown
)

// chaosQueues is what the clients of the queues know.
type chaosQueues struct {
	mu      sync.Mutex
	added   map[string]callOutcome // elements of both lists, never callNotRun
	taken   map[string]int         // elements that clients have got, and how many times
	done    map[string]callOutcome // jobs that were removed
	lost    int                    // readers that do not know whether they have got something
	workers []string               // lists
	odd     []error
}

// start starts the clients of one node. Their calls hold the gate.
func (q *chaosQueues) start(ctx context.Context, l *chaosLoad, p *process) {
	every := func(step func(c *redis.Client, n int)) {
		c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1,
			ReadTimeout: clientTimeout, DialTimeout: time.Second, PoolSize: 1})
		l.wg.Go(func() {
			defer c.Close()
			for n := 0; ctx.Err() == nil; n++ {
				l.gate.RLock()
				step(c, n)
				l.gate.RUnlock()
				select {
				case <-time.After(queuePause):
				case <-ctx.Done():
				}
			}
		})
	}
	work := "queue:work:" + p.id
	q.mu.Lock()
	q.workers = append(q.workers, work)
	q.mu.Unlock()
	for _, list := range []string{jobsList, mailList} {
		every(func(c *redis.Client, n int) { q.add(c, list, fmt.Sprint(list, ":", p.id, ":", n)) })
	}
	for range 2 {
		every(func(c *redis.Client, n int) { q.work(c, work, n) })
		every(func(c *redis.Client, n int) { q.read(c, n) })
	}
}

// outcomeOf notes errors that say nothing. The caller holds mu.
func (q *chaosQueues) outcomeOf(err error) callOutcome {
	var dial *net.OpError
	switch word := errorWord(err); {
	case err == nil || errors.Is(err, redis.Nil):
		return callRan
	case word == "CLUSTERDOWN" || word == "TRYAGAIN" || word == "LOADING" ||
		errors.As(err, &dial) && dial.Op == "dial":
		return callNotRun
	case word != "" && word != "UNKNOWN":
		q.odd = append(q.odd, err)
	}
	return callUnknown
}

func (q *chaosQueues) add(c *redis.Client, list, element string) {
	err := c.RPush(context.Background(), list, element).Err()
	q.mu.Lock()
	defer q.mu.Unlock()
	if o := q.outcomeOf(err); o != callNotRun {
		q.added[element] = o
	}
}

// work takes a job and does it.
func (q *chaosQueues) work(c *redis.Client, list string, n int) {
	ctx := context.Background()
	job, err := c.Do(ctx, "BLMOVE", jobsList, list, "LEFT", "RIGHT",
		takeTimeouts[n%len(takeTimeouts)]).Text()
	q.mu.Lock()
	if q.outcomeOf(err) == callRan && job != "" {
		q.taken[job]++
	}
	q.mu.Unlock()
	if job == "" {
		return
	}
	removed, err := c.LRem(ctx, list, 1, job).Result()
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.outcomeOf(err)
	if o == callRan && removed != 1 {
		q.odd = append(q.odd, fmt.Errorf("%s is %d times in %s", job, removed, list))
	}
	if o != callNotRun {
		q.done[job] = o
	}
}

// read takes an element away.
func (q *chaosQueues) read(c *redis.Client, n int) {
	v, err := c.Do(context.Background(), "BLPOP", mailList,
		takeTimeouts[n%len(takeTimeouts)]).StringSlice()
	q.mu.Lock()
	defer q.mu.Unlock()
	switch o := q.outcomeOf(err); {
	case o == callUnknown:
		q.lost++
	case len(v) == 2:
		q.taken[v[1]]++
	}
}

// check is called while the clients pause. What was added is in one place: in a list, done, or
// taken, but for what a call without a reply may have taken. It empties the lists.
func (q *chaosQueues) check(t *testing.T, c *redis.Client) (elements int) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, err := range q.odd {
		t.Errorf("queues: %v", err)
	}
	ctx := context.Background()
	there := map[string]int{}
	for _, list := range append([]string{jobsList, mailList}, q.workers...) {
		all, err := c.LRange(ctx, list, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, element := range all {
			if _, known := q.added[element]; !known {
				t.Errorf("%s has %s, which nobody added", list, element)
			}
			there[element]++
		}
		if err := c.Del(ctx, list).Err(); err != nil {
			t.Fatal(err)
		}
	}
	missing := 0
	for element, added := range q.added {
		done, removed := q.done[element]
		isJob := element[:len(jobsList)] == jobsList
		gone := !isJob && q.taken[element] > 0 || removed && done == callRan
		switch {
		case there[element] > 1 || q.taken[element] > 1 || gone && there[element] > 0:
			t.Errorf("%s is %d times in lists, and was taken %d times", element, there[element],
				q.taken[element])
		case there[element] == 1 || gone || removed || added == callUnknown:
		case isJob:
			t.Errorf("%s is lost", element)
		default:
			missing++
		}
	}
	if missing > q.lost {
		t.Errorf("%d elements are lost, and only %d calls had no reply", missing, q.lost)
	}
	elements = len(q.added)
	q.reset()
	return elements
}

func (q *chaosQueues) reset() {
	q.added, q.taken, q.done = map[string]callOutcome{}, map[string]int{}, map[string]callOutcome{}
	q.lost, q.odd = 0, nil
}
