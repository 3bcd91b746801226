package main

// The plain lock, SET NX PX with a script that releases it: across nodes, under
// contention, past its lease, and with a watchdog that renews it.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// take tries once to take a lock.
func take(ctx context.Context, c *redis.Client, key, owner string,
	lease time.Duration) (bool, error) {
	return c.SetNX(ctx, key, owner, lease).Result()
}

// release gives a lock back; false says that it was not the owner's.
func (e *env) release(ctx context.Context, c *redis.Client, key, owner string) (bool, error) {
	n, _, err := e.runInt(ctx, c, "lock_release", []string{key}, owner)
	return n == 1, err
}

// locked runs work while it holds the lock, which it waits for with backoff.
func (e *env) locked(ctx context.Context, c *redis.Client, key string, lease time.Duration,
	work func() error) error {
	owner := token()
	for attempt := 0; ; attempt++ {
		got, err := take(ctx, c, key, owner, lease)
		if err != nil {
			return err
		}
		if got {
			break
		}
		if err := backOff(ctx, attempt); err != nil {
			return err
		}
	}
	workErr := work()
	mine, err := e.release(ctx, c, key, owner)
	if err == nil && !mine {
		err = errors.New("the lock was lost while it was held")
	}
	return errors.Join(workErr, err)
}

// lockAcrossNodes: taken on one node, refused on the others, not given to a
// wrong owner, released through the third; then six callers raise a counter
// non-atomically; then a lease ends by itself, not early.
func lockAcrossNodes(ctx context.Context, e *env) error {
	key, owner := e.key("lock"), token()
	if got, err := take(ctx, e.node(0), key, owner, 30*time.Second); err != nil || !got {
		return fmt.Errorf("the free lock was not given: %t %v", got, err)
	}
	for i, c := range e.nodes {
		if got, err := take(ctx, c, key, token(), 30*time.Second); err != nil || got {
			return fmt.Errorf("node %d gave the held lock to a second owner: %t %v", i, got, err)
		}
		if holder, err := c.Get(ctx, key).Result(); err != nil || holder != owner {
			return fmt.Errorf("node %d names %q as the holder (%v), want %q", i, holder, err, owner)
		}
		left, err := c.PTTL(ctx, key).Result()
		if err != nil || left <= 20*time.Second || left > 30*time.Second {
			return fmt.Errorf("node %d says the lease of 30 s has %v left (%v)", i, left, err)
		}
		if freed, err := e.release(ctx, c, key, token()); err != nil || freed {
			return fmt.Errorf("node %d released the lock for a wrong owner: %t %v", i, freed, err)
		}
	}
	if freed, err := e.release(ctx, e.node(2), key, owner); err != nil || !freed {
		return fmt.Errorf("the owner could not release: %t %v", freed, err)
	}
	if freed, err := e.release(ctx, e.node(1), key, owner); err != nil || freed {
		return fmt.Errorf("a lock was released twice: %t %v", freed, err)
	}
	if n, err := e.node(0).Exists(ctx, key).Result(); err != nil || n != 0 {
		return fmt.Errorf("the lock is still there after its release: %d %v", n, err)
	}

	const callers, rounds = 6, 5
	counter := e.key("counter")
	err := together(callers, func(i int) error {
		for range rounds {
			c := e.node(i)
			err := e.locked(ctx, c, key, 10*time.Second, func() error {
				return raise(ctx, c, counter)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.wantCount(ctx, counter, callers*rounds); err != nil {
		return err
	}
	return e.leaseEnds(ctx, e.key("lease"))
}

// leaseEnds: a holder that vanished blocks others for its lease, not less.
func (e *env) leaseEnds(ctx context.Context, key string) error {
	const lease = 300 * time.Millisecond
	sent := time.Now() // before the lease can have begun
	if got, err := take(ctx, e.node(0), key, token(), lease); err != nil || !got {
		return fmt.Errorf("the free lock was not given: %t %v", got, err)
	}
	for {
		got, err := take(ctx, e.node(1), key, token(), lease)
		if err != nil {
			return err
		}
		waited := time.Since(sent)
		if got && waited < lease-clockSlack {
			return fmt.Errorf("a lease of %v was over after %v", lease, waited)
		}
		if got {
			return nil
		}
		if waited > lease+5*time.Second {
			return fmt.Errorf("a lease of %v was not over after %v", lease, waited)
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// watchdog: a renewal at each third of the lease keeps the lock for as long as
// its holder lives, and no longer; a holder that lost it cannot renew.
func watchdog(ctx context.Context, e *env) error {
	const lease, hold = 1500 * time.Millisecond, 3 * time.Second
	key, owner := e.key("lock"), token()
	if got, err := take(ctx, e.node(0), key, owner, lease); err != nil || !got {
		return fmt.Errorf("the free lock was not given: %t %v", got, err)
	}
	lastRenewal := time.Now()
	dog := make(chan error, 1)
	go func() {
		end := time.Now().Add(hold)
		for i := 1; time.Now().Before(end); i++ {
			if err := pause(ctx, lease/3); err != nil {
				dog <- err
				return
			}
			lastRenewal = time.Now()
			ok, _, err := e.runInt(ctx, e.node(i), "lock_renew", []string{key}, owner,
				lease.Milliseconds())
			if err != nil || ok != 1 {
				dog <- fmt.Errorf("renewal %d was refused: %d %v", i, ok, err)
				return
			}
		}
		dog <- nil // from here on the holder is as good as dead
	}()
	second, alive := token(), true
	for i := 0; ; i++ {
		select {
		case err := <-dog:
			if err != nil {
				return err
			}
			alive = false
		default:
		}
		got, err := take(ctx, e.node(i), key, second, lease)
		if err != nil {
			return err
		}
		if got && alive {
			return errors.New("the lock was given away while its watchdog renewed it")
		}
		if got {
			break
		}
		if !alive && time.Since(lastRenewal) > lease+5*time.Second {
			return errors.New("the lock outlived its dead holder")
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if waited := time.Since(lastRenewal); waited < lease-clockSlack {
		return fmt.Errorf("the lease of %v was over %v after the last renewal", lease, waited)
	}
	return e.strangerCannotRenew(ctx, key, owner, second)
}

// strangerCannotRenew: the first owner's late renewal leaves the second owner alone.
func (e *env) strangerCannotRenew(ctx context.Context, key, first, second string) error {
	n, _, err := e.runInt(ctx, e.node(2), "lock_renew", []string{key}, first, 600_000)
	if err != nil || n != 0 {
		return fmt.Errorf("an owner that lost the lock renewed it: %d %v", n, err)
	}
	if left, err := e.node(0).PTTL(ctx, key).Result(); err != nil || left > 2*time.Second {
		return fmt.Errorf("a stranger's renewal changed the lease: %v left (%v)", left, err)
	}
	if freed, err := e.release(ctx, e.node(1), key, second); err != nil || !freed {
		return fmt.Errorf("the second owner could not release: %t %v", freed, err)
	}
	return nil
}
