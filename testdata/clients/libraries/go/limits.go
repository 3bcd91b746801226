package main

// This file holds the checks of limiter libraries.

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/gomodule/redigo/redis"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/redigostore"
	"github.com/ulule/limiter/v3"
	ulustore "github.com/ulule/limiter/v3/drivers/store/redis"
)

const (
	requests = 40
	limit    = 10
)

// admits makes many requests at once on three nodes and fails unless exactly the limit passes.
func admits(ask func(i int) (pass bool, err error)) error {
	var passed atomic.Int64
	err := together(requests, func(i int) error {
		ok, err := ask(i)
		if ok {
			passed.Add(1)
		}
		return err
	})
	return errors.Join(err, want(passed.Load(), limit, "requests that passed"))
}

var redisRate = library{"github.com/go-redis/redis_rate/v10", []check{
	{"of 40 requests at once on three nodes exactly 10 pass", func(ctx context.Context) error {
		key := unique("rate")
		return admits(func(i int) (bool, error) {
			c := goRedisClient(i)
			defer c.Close()
			r, err := redis_rate.NewLimiter(c).Allow(ctx, key, redis_rate.PerHour(limit))
			return err == nil && r.Allowed == 1, err
		})
	}},
	{"what was refused passes after RetryAfter", func(ctx context.Context) error {
		c := goRedisClient(1)
		defer c.Close()
		l, key := redis_rate.NewLimiter(c), unique("rate")
		for range 5 {
			if r, err := l.Allow(ctx, key, redis_rate.PerSecond(5)); err != nil || r.Allowed != 1 {
				return errors.Join(errors.New("one of the first five was refused"), err)
			}
		}
		r, err := l.Allow(ctx, key, redis_rate.PerSecond(5))
		if err != nil || r.Allowed != 0 || r.RetryAfter <= 0 ||
			r.RetryAfter > 250*time.Millisecond {
			return errors.Join(errors.New("the sixth should be refused for up to 200 ms"), err)
		}
		time.Sleep(r.RetryAfter + 20*time.Millisecond)
		r, err = l.Allow(ctx, key, redis_rate.PerSecond(5))
		return errors.Join(err, want(r.Allowed, 1, "allowed after RetryAfter"))
	}},
}}

var uluLimiter = library{"github.com/ulule/limiter/v3", []check{
	{"of 40 requests at once on three nodes exactly 10 pass", func(ctx context.Context) error {
		prefix := unique("ulule")
		return admits(func(i int) (bool, error) {
			c := goRedisClient(i)
			defer c.Close()
			store, err := ulustore.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: prefix})
			if err != nil {
				return false, err
			}
			r, err := limiter.New(store, limiter.Rate{Period: time.Hour, Limit: limit}).Get(ctx,
				"user")
			return err == nil && !r.Reached, err
		})
	}},
}}

var throttledLimiter = library{"github.com/throttled/throttled/v2", []check{
	{"of 40 requests at once on three nodes exactly 10 pass", func(ctx context.Context) error {
		prefix := unique("throttled")
		return admits(func(i int) (bool, error) {
			pool := &redis.Pool{Dial: func() (redis.Conn, error) {
				return redis.Dial("tcp", addr(i))
			}}
			defer pool.Close()
			store, err := redigostore.NewCtx(pool, prefix, 0)
			if err != nil {
				return false, err
			}
			l, err := throttled.NewGCRARateLimiterCtx(store,
				throttled.RateQuota{MaxRate: throttled.PerHour(1), MaxBurst: limit - 1})
			if err != nil {
				return false, err
			}
			l.SetMaxCASAttemptsLimit(1000)
			limited, _, err := l.RateLimitCtx(ctx, "user", 1)
			return err == nil && !limited, err
		})
	}},
}}
