package main

// This file holds the checks of lock libraries.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const (
	lockers = 6
	rounds  = 4
)

var rueidisLock = library{"github.com/redis/rueidis/rueidislock", []check{
	{"six callers on three nodes hold the lock one at a time", func(ctx context.Context) error {
		name, prefix := unique("lock"), unique("rueidislock")
		var r room
		err := together(lockers, func(i int) error {
			l, err := newRueidisLocker(i, prefix, false)
			if err != nil {
				return err
			}
			defer l.Close()
			for range rounds {
				_, release, err := l.WithContext(ctx, name)
				if err != nil {
					return err
				}
				r.visit()
				release()
			}
			return nil
		})
		return errors.Join(err, r.saw(1, lockers*rounds))
	}},
	{"without SET … GET too, and the holder's context ends when the lock is taken away",
		func(ctx context.Context) error {
			name, prefix := unique("lock"), unique("rueidislock")
			l, err := newRueidisLocker(0, prefix, true)
			if err != nil {
				return err
			}
			defer l.Close()
			held, release, err := l.WithContext(ctx, name)
			if err != nil {
				return err
			}
			defer release()
			c := goRedisClient(1)
			defer c.Close()
			keys := c.Keys(ctx, prefix+"*").Val()
			if len(keys) == 0 {
				return errors.New("the lock has no key")
			}
			if err := c.Del(ctx, keys...).Err(); err != nil {
				return err
			}
			select {
			case <-held.Done():
				return nil
			case <-ctx.Done():
				return errors.New("the holder was not told")
			}
		}},
}}

// newRueidisLocker gives a try 5 s in place of 20 ms: a try that is late is undone by the locker
// itself, NOLOOP keeps quiet about that, and nobody is left who would wake a last waiter. On a
// Redis that is stopped for 30 ms now and then this check hangs with 20 ms too.
func newRueidisLocker(i int, prefix string, fallback bool) (rueidislock.Locker, error) {
	return rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr(i)}, ForceSingleClient: true},
		KeyPrefix:    prefix, KeyMajority: 1, KeyValidity: 5 * time.Second, NoLoopTracking: true,
		FallbackSETPX: fallback,
		TryNextAfter:  5 * time.Second,
	})
}

var redSync = library{"github.com/go-redsync/redsync/v4", []check{
	{"six callers on three nodes hold the mutex one at a time", func(ctx context.Context) error {
		name := unique("mutex")
		var r room
		err := together(lockers, func(i int) error {
			c := goRedisClient(i)
			defer c.Close()
			m := redsync.New(goredis.NewPool(c)).NewMutex(name, redsync.WithExpiry(5*time.Second),
				redsync.WithTries(1000), redsync.WithRetryDelay(10*time.Millisecond))
			for range rounds {
				if err := m.LockContext(ctx); err != nil {
					return err
				}
				r.visit()
				if ok, err := m.UnlockContext(ctx); err != nil || !ok {
					return fmt.Errorf("unlocking: %v, %v", ok, err)
				}
			}
			return nil
		})
		return errors.Join(err, r.saw(1, lockers*rounds))
	}},
	{"an extended mutex outlives its first lease; one that is over cannot be extended",
		func(ctx context.Context) error {
			a, b := goRedisClient(0), goRedisClient(1)
			defer a.Close()
			defer b.Close()
			name := unique("mutex")
			first := redsync.New(goredis.NewPool(a)).NewMutex(name,
				redsync.WithExpiry(400*time.Millisecond))
			second := redsync.New(goredis.NewPool(b)).NewMutex(name,
				redsync.WithExpiry(400*time.Millisecond), redsync.WithTries(1))
			if err := first.LockContext(ctx); err != nil {
				return err
			}
			for range 4 {
				time.Sleep(200 * time.Millisecond)
				if ok, err := first.ExtendContext(ctx); err != nil || !ok {
					return fmt.Errorf("extending: %v, %v", ok, err)
				}
				if err := second.LockContext(ctx); err == nil {
					return errors.New("a second holder")
				}
			}
			if err := until(ctx, "the lease's end", func() bool {
				return second.LockContext(ctx) == nil
			}); err != nil {
				return err
			}
			if ok, _ := first.ExtendContext(ctx); ok {
				return errors.New("a lock that is over was extended")
			}
			return nil
		}},
}}

var bsmLock = library{"github.com/bsm/redislock", []check{
	{"six callers on three nodes hold the lock one at a time", func(ctx context.Context) error {
		name := unique("lock")
		var r room
		err := together(lockers, func(i int) error {
			c := goRedisClient(i)
			defer c.Close()
			locker := redislock.New(c)
			for range rounds {
				l, err := locker.Obtain(ctx, name, 5*time.Second,
					&redislock.Options{RetryStrategy: redislock.LinearBackoff(
						10 * time.Millisecond)})
				if err != nil {
					return err
				}
				r.visit()
				if err := l.Release(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		return errors.Join(err, r.saw(1, lockers*rounds))
	}},
	{"a lock's TTL, its refresh, and the refusal of a release after its end",
		func(ctx context.Context) error {
			c := goRedisClient(2)
			defer c.Close()
			l, err := redislock.New(c).Obtain(ctx, unique("lock"), 300*time.Millisecond, nil)
			if err != nil {
				return err
			}
			if err := l.Refresh(ctx, time.Second, nil); err != nil {
				return err
			}
			if ttl, err := l.TTL(ctx); err != nil || ttl <= 300*time.Millisecond ||
				ttl > time.Second {
				return fmt.Errorf("TTL %v, %v", ttl, err)
			}
			err = until(ctx, "the lease's end", func() bool {
				ttl, err := l.TTL(ctx)
				return err == nil && ttl == 0
			})
			if err != nil {
				return err
			}
			if err := l.Release(ctx); !errors.Is(err, redislock.ErrLockNotHeld) {
				return fmt.Errorf("the release after the end: %v", err)
			}
			return nil
		}},
}}
