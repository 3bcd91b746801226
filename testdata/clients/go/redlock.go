package main

// Redlock's algorithm (redis.io, "Distributed Locks with Redis"), as client
// libraries build it: over one address of a cluster, over three independent
// servers, and over the three nodes of one cluster, where it must not work:
// they are one server, and the second SET NX is rightly refused.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// redlock is the algorithm over some servers.
type redlock struct {
	e       *env
	servers []*redis.Client
	key     string
}

// try makes one attempt: it returns the owner's token and for how long the
// lock is good, 0 if there was no quorum; then nothing stays taken.
func (r redlock) try(ctx context.Context, lease time.Duration) (string, time.Duration, error) {
	owner, start := token(), time.Now()
	won, err := r.everywhere(func(c *redis.Client) (bool, error) {
		return take(ctx, c, r.key, owner, lease)
	})
	drift := lease/100 + 2*time.Millisecond
	good := lease - time.Since(start) - drift
	if won > len(r.servers)/2 && good > 0 {
		return owner, good, nil
	}
	_, releaseErr := r.unlock(ctx, owner)
	return "", 0, errors.Join(err, releaseErr)
}

// everywhere asks all servers at once, and counts those that said yes.
func (r redlock) everywhere(ask func(*redis.Client) (bool, error)) (int, error) {
	var mu sync.Mutex
	yes := 0
	err := together(len(r.servers), func(i int) error {
		ok, err := ask(r.servers[i])
		mu.Lock()
		defer mu.Unlock()
		if ok {
			yes++
		}
		return err
	})
	return yes, err
}

// unlock releases on every server, and counts those where it was the owner's.
func (r redlock) unlock(ctx context.Context, owner string) (int, error) {
	return r.everywhere(func(c *redis.Client) (bool, error) {
		return r.e.release(ctx, c, r.key, owner)
	})
}

// contend has callers raise a counter under the lock, each through its own
// view of the servers; the counter lies on server c.
func (r redlock) contend(ctx context.Context, c *redis.Client, counter string,
	view func(i int) redlock) error {
	const callers, rounds = 4, 4
	err := together(callers, func(i int) error {
		mine := view(i)
		for range rounds {
			var owner string
			for attempt := 0; ; attempt++ {
				var err error
				if owner, _, err = mine.try(ctx, 10*time.Second); err != nil {
					return err
				}
				if owner != "" {
					break
				}
				if err := backOff(ctx, attempt); err != nil {
					return err
				}
			}
			raiseErr := raise(ctx, c, counter)
			n, err := mine.unlock(ctx, owner)
			if err == nil && n <= len(mine.servers)/2 {
				err = fmt.Errorf("only %d servers still had the owner's lock", n)
			}
			if err := errors.Join(raiseErr, err); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n, err := c.Get(ctx, counter).Int64(); err != nil || n != callers*rounds {
		return fmt.Errorf("the counter is %d (%v), want exactly %d", n, err, callers*rounds)
	}
	return nil
}

// excludes checks that of two holders one is refused, until the other unlocks.
func (r redlock) excludes(ctx context.Context, second redlock) error {
	const lease = 20 * time.Second
	owner, good, err := r.try(ctx, lease)
	if err != nil || owner == "" || good <= 0 || good >= lease {
		return fmt.Errorf("the free lock was not given: %q, good for %v (%v)", owner, good, err)
	}
	if other, _, err := second.try(ctx, lease); err != nil || other != "" {
		return fmt.Errorf("a second holder reached the quorum: %q %v", other, err)
	}
	if n, err := r.unlock(ctx, owner); err != nil || n != len(r.servers) {
		return fmt.Errorf("%d of %d servers still had the first holder's lock (%v)", n,
			len(r.servers), err)
	}
	other, _, err := second.try(ctx, lease)
	if err != nil || other == "" {
		return fmt.Errorf("the lock was not free after its unlock: %q %v", other, err)
	}
	_, err = second.unlock(ctx, other)
	return err
}

// redlockOneAddress: each holder uses one address of the cluster; any will do.
func redlockOneAddress(ctx context.Context, e *env) error {
	key := e.key("lock")
	view := func(i int) redlock { return redlock{e, []*redis.Client{e.node(i)}, key} }
	if err := view(0).excludes(ctx, view(1)); err != nil {
		return err
	}
	counter := e.key("counter")
	if err := view(0).contend(ctx, e.node(0), counter, view); err != nil {
		return err
	}
	return e.wantCount(ctx, counter, 16)
}

// redlockSingles: three independent servers, of which a majority decides.
func redlockSingles(ctx context.Context, e *env) error {
	if len(e.singles) != 3 {
		return fmt.Errorf("COORDD_SINGLES names %d servers, want 3", len(e.singles))
	}
	r := redlock{e, e.singles, e.key("lock")}
	if err := r.excludes(ctx, r); err != nil {
		return err
	}
	// One server lost to a stranger leaves a quorum; two do not.
	for lost := 1; lost <= 2; lost++ {
		c := e.singles[lost]
		if got, err := take(ctx, c, r.key, "stranger", 20*time.Second); err != nil || !got {
			return fmt.Errorf("single %d is not independent: its free lock was refused (%v)", lost,
				err)
		}
		owner, _, err := r.try(ctx, 10*time.Second)
		if err != nil || (owner != "") != (lost == 1) {
			return fmt.Errorf("with %d of 3 servers lost the lock was given: %t (%v)", lost,
				owner != "", err)
		}
		if _, err := r.unlock(ctx, owner); err != nil {
			return err
		}
		if n, err := e.singles[0].Exists(ctx, r.key).Result(); err != nil || n != 0 {
			return fmt.Errorf("an attempt was not taken back on single 0: %d %v", n, err)
		}
	}
	if n, err := r.unlock(ctx, "stranger"); err != nil || n != 2 {
		return fmt.Errorf("the stranger's locks: %d released (%v), want 2", n, err)
	}
	return r.contend(ctx, e.singles[0], e.key("counter"), func(int) redlock { return r })
}

// redlockClusterRefused: three addresses of one cluster are one server, so one
// of three SET NX is granted, no quorum is reached, and nothing stays taken.
func redlockClusterRefused(ctx context.Context, e *env) error {
	r := redlock{e, e.nodes, e.key("lock")}
	if len(r.servers) != 3 {
		return fmt.Errorf("COORDD_ADDRS names %d nodes, want 3", len(r.servers))
	}
	owner := token()
	for i, c := range r.servers {
		got, err := take(ctx, c, r.key, owner, 20*time.Second)
		if err != nil || got != (i == 0) {
			return fmt.Errorf("SET NX number %d was granted: %t (%v); the first alone may be", i+1,
				got, err)
		}
	}
	if n, err := r.unlock(ctx, owner); err != nil || n != 1 {
		return fmt.Errorf("the lock was released %d times (%v), want once", n, err)
	}
	for range 3 {
		if owner, _, err := r.try(ctx, 20*time.Second); err != nil || owner != "" {
			return fmt.Errorf("three nodes of one cluster gave a quorum: %q %v", owner, err)
		}
		for i, c := range r.servers {
			if n, err := c.Exists(ctx, r.key).Result(); err != nil || n != 0 {
				return fmt.Errorf("node %d still has the lock of an attempt that failed (%d, %v)",
					i, n, err)
			}
		}
	}
	return nil
}
