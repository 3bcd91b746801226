package main

// This file holds raw calls of coordd's own commands, as any client can send them.

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// ownCommands are checks of raw calls.
var ownCommands = []check{
	{"LOCK.ACQUIRE with WAIT: six callers on three nodes hold it one at a time, tokens rise",
		ownLocks},
	{"LEASE: a lock and a key live while it is renewed; its end serves who waits", ownLeases},
	{"ID: what is sent again through another node has the first reply", ownRepeats},
	{"WINDOW.HIT: of 40 calls at once on three nodes exactly 10 are allowed", ownWindow},
}

// patientClient has a time-out that is longer than any WAIT below.
func patientClient(i int) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: addr(i), ReadTimeout: checkLimit})
}

// ints sends a call that replies integers.
func ints(ctx context.Context, c *goredis.Client, call ...any) ([]int64, error) {
	return c.Do(ctx, call...).Int64Slice()
}

func ownLocks(ctx context.Context) error {
	key := unique("lock")
	var inside room
	var mu sync.Mutex
	var tokens []int64
	err := together(6, func(i int) error {
		c := patientClient(i)
		defer c.Close()
		for range 4 {
			me := unique("owner")
			got, err := ints(ctx, c, "LOCK.ACQUIRE", key, me, "PX", 10_000, "WAIT", 30_000,
				"ID", me)
			if err != nil {
				return err
			}
			mu.Lock()
			tokens = append(tokens, got[0])
			mu.Unlock()
			inside.visit()
			n, err := c.Do(ctx, "LOCK.RELEASE", key, me, "TOKEN", got[0]).Int()
			if err != nil {
				return err
			}
			if err := want(n, 1, "the release"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !slices.IsSorted(tokens) || tokens[0] == 0 || len(slices.Compact(tokens)) != 24 {
		return fmt.Errorf("the tokens do not rise: %v", tokens)
	}
	return inside.saw(1, 24)
}

func ownLeases(ctx context.Context) error {
	lock, key := unique("lock"), unique("key")
	c, other := patientClient(0), patientClient(1)
	defer c.Close()
	defer other.Close()
	id, err := c.Do(ctx, "LEASE", "GRANT", 1000, "CONNECTION").Int64()
	if err != nil {
		return err
	}
	first, err := ints(ctx, c, "LOCK.ACQUIRE", lock, "a", "LEASE", id)
	if err != nil {
		return err
	}
	if err := c.Do(ctx, "SET", key, "v", "LEASE", id).Err(); err != nil {
		return err
	}
	second := make(chan error, 1)
	go func() {
		got, err := ints(ctx, other, "LOCK.ACQUIRE", lock, "b", "PX", 10_000, "WAIT", 20_000)
		if err == nil && got[0] <= first[0] {
			err = fmt.Errorf("tokens %d, then %d", first[0], got[0])
		}
		second <- err
	}()
	for range 15 { // longer than the lease
		time.Sleep(100 * time.Millisecond)
		left, err := ints(ctx, c, "LEASE", "KEEPALIVE", id)
		if err != nil {
			return err
		}
		if err := want(left[0], 1000, "what is left"); err != nil {
			return err
		}
	}
	if err := want(c.Exists(ctx, lock, key).Val(), 2, "what lives"); err != nil {
		return err
	}
	if err := want(c.Get(ctx, lock).Val(), "a", "the holder"); err != nil {
		return err
	}
	if err := want(c.Do(ctx, "LEASE", "REVOKE", id).Val(), any(int64(1)), "the end"); err != nil {
		return err
	}
	if err := <-second; err != nil {
		return err
	}
	return want(c.Exists(ctx, key).Val(), 0, "what lives after the end")
}

func ownRepeats(ctx context.Context) error {
	lock, counter, id := unique("lock"), unique("counter"), unique("id")
	var grants, counts []string
	for i := range 3 {
		c := patientClient(i)
		defer c.Close()
		grant, err := ints(ctx, c, "LOCK.ACQUIRE", lock, "me", "PX", 10_000, "WAIT", 1000,
			"ID", id+":l")
		if err != nil {
			return err
		}
		count, err := ints(ctx, c, "INCREX", counter, "EX", 60, "ID", id+":c")
		if err != nil {
			return err
		}
		grants, counts = append(grants, fmt.Sprint(grant)), append(counts, fmt.Sprint(count))
	}
	if n := len(slices.Compact(grants)) + len(slices.Compact(counts)); n != 2 {
		return fmt.Errorf("repeats have other replies: %v, %v", grants, counts)
	}
	c := patientClient(0)
	defer c.Close()
	return want(c.Get(ctx, counter).Val(), "1", "the counter")
}

func ownWindow(ctx context.Context) error {
	key := unique("window")
	var mu sync.Mutex
	allowed := int64(0)
	err := together(40, func(i int) error {
		c := patientClient(i)
		defer c.Close()
		got, err := ints(ctx, c, "WINDOW.HIT", key, 10, "PX", 60_000)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		allowed += got[0]
		return nil
	})
	if err != nil {
		return err
	}
	return want(allowed, 10, "calls that were allowed")
}
