// Clients that count and take a lock while the procedures are done.

package operations

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	lease = 3 * time.Second
	// valid is how long a holder believes in its lease, from before it asked.
	valid = 2 * time.Second
)

var giveBack = redis.NewScript(`return redis.call('get', KEYS[1]) == ARGV[1] and
	redis.call('del', KEYS[1])`)

// load is clients, each of one node. They take no part in procedures that lose writes by design.
type load struct {
	addrs  []string
	end    context.CancelFunc
	done   sync.WaitGroup
	holder atomic.Int64 // of the lock, from 1
	counts []count      // of each client, its own
	wrong  atomic.Pointer[string]
}

// count is what a client knows of its counter.
type count struct{ acknowledged, unknown atomic.Int64 }

// quiet takes what go-redis would print of nodes that are stopped.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func startLoad(t *testing.T, addrs ...string) *load {
	t.Helper()
	redis.SetLogger(quiet{})
	ctx, end := context.WithCancel(t.Context())
	l := &load{addrs: addrs, end: end, counts: make([]count, 2*len(addrs))}
	for i := range l.counts {
		l.done.Add(1)
		go func() {
			defer l.done.Done()
			l.run(ctx, i)
		}()
	}
	t.Cleanup(func() {
		end()
		l.done.Wait()
	})
	return l
}

func (l *load) run(ctx context.Context, i int) {
	// a repeated INCR would count twice
	c := redis.NewClient(&redis.Options{Addr: l.addrs[i%len(l.addrs)], MaxRetries: -1,
		Protocol: 2, ReadTimeout: 5 * time.Second})
	defer func() { _ = c.Close() }()
	owner := fmt.Sprint("client-", i)
	for ctx.Err() == nil {
		switch err := c.Incr(context.Background(), fmt.Sprint("load:counter:", i)).Err(); {
		case err == nil:
			l.counts[i].acknowledged.Add(1)
		case !didNotRun(err):
			l.counts[i].unknown.Add(1)
		}
		asked := time.Now()
		got, err := c.SetNX(context.Background(), "load:lock", owner, lease).Result()
		if got && err == nil && time.Since(asked) < valid {
			if other := l.holder.Swap(int64(i + 1)); other != 0 {
				text := fmt.Sprintf("the lock of client-%d was given to %s", other-1, owner)
				l.wrong.CompareAndSwap(nil, &text)
			}
			time.Sleep(time.Millisecond) // the work that the lock is for
			l.holder.Store(0)
		}
		_ = giveBack.Run(context.Background(), c, []string{"load:lock"}, owner).Err()
		time.Sleep(20 * time.Millisecond) // the machine has other work, too
	}
}

func didNotRun(err error) bool {
	for _, word := range []string{"CLUSTERDOWN", "LOADING", "TRYAGAIN", "connection refused",
		"no route"} {
		if strings.Contains(err.Error(), word) {
			return true
		}
	}
	return false
}

// stop ends the clients and checks what they were told.
func (l *load) stop(t *testing.T, addr string) {
	t.Helper()
	l.end()
	l.done.Wait()
	if wrong := l.wrong.Load(); wrong != nil {
		t.Error(*wrong)
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	total := int64(0)
	for i := range l.counts {
		n, err := c.Get(context.Background(), fmt.Sprint("load:counter:", i)).Int64()
		told, maybe := l.counts[i].acknowledged.Load(), l.counts[i].unknown.Load()
		if err != nil || n < told || n > told+maybe {
			t.Errorf("counter %d is %d, %v: %d acknowledged, %d unknown", i, n, err, told, maybe)
		}
		total += told
	}
	t.Logf("%d acknowledged increments, none is missing", total)
}
