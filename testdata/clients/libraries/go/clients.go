package main

// This file holds the checks of plain clients: go-redis, rueidis, redigo.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

func goRedisClient(i int) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: addr(i)})
}

var goRedis = library{"github.com/redis/go-redis/v9", slices.Concat([]check{
	{"a counter raised under WATCH by six clients on three nodes ends exact",
		func(ctx context.Context) error {
			key := unique("counter")
			err := together(6, func(i int) error {
				c := goRedisClient(i)
				defer c.Close()
				raise := func(tx *goredis.Tx) error {
					n, err := tx.Get(ctx, key).Int()
					if err != nil && !errors.Is(err, goredis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(p goredis.Pipeliner) error {
						return p.Set(ctx, key, n+1, 0).Err()
					})
					return err
				}
				for done := 0; done < 10; {
					switch err := c.Watch(ctx, raise, key); {
					case err == nil:
						done++
					case !errors.Is(err, goredis.TxFailedErr):
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			c := goRedisClient(0)
			defer c.Close()
			return want(c.Get(ctx, key).Val(), "60", "the counter")
		}},
	{"a stream is shared by a consumer group on three nodes", func(ctx context.Context) error {
		key, group := unique("stream"), "workers"
		c := goRedisClient(0)
		defer c.Close()
		if err := c.XGroupCreateMkStream(ctx, key, group, "0").Err(); err != nil {
			return err
		}
		for i := range 30 {
			if err := c.XAdd(ctx, &goredis.XAddArgs{Stream: key,
				Values: []any{"job", i}}).Err(); err != nil {
				return err
			}
		}
		var mu sync.Mutex
		var jobs []string
		err := together(3, func(i int) error {
			c := goRedisClient(i)
			defer c.Close()
			for {
				streams, err := c.XReadGroup(ctx,
					&goredis.XReadGroupArgs{Group: group, Consumer: strconv.Itoa(i),
						Streams: []string{key, ">"}, Count: 2,
						Block: 200 * time.Millisecond}).Result()
				if errors.Is(err, goredis.Nil) {
					return nil
				}
				if err != nil {
					return err
				}
				for _, m := range streams[0].Messages {
					mu.Lock()
					jobs = append(jobs, fmt.Sprint(m.Values["job"]))
					mu.Unlock()
					if err := c.XAck(ctx, key, group, m.ID).Err(); err != nil {
						return err
					}
				}
			}
		})
		if err != nil {
			return err
		}
		slices.Sort(jobs)
		if n := len(slices.Compact(slices.Clone(jobs))); n != 30 || len(jobs) != 30 {
			return fmt.Errorf("%d different jobs in %d deliveries", n, len(jobs))
		}
		return want(c.XPending(ctx, key, group).Val().Count, 0, "pending messages")
	}},
	{"BLMOVE on three nodes moves each element once", func(ctx context.Context) error {
		from, to := unique("from"), unique("to")
		working := make(chan error, 3)
		for i := range 3 {
			go func() {
				c := goRedisClient(i)
				defer c.Close()
				for {
					item, err := c.BLMove(ctx, from, to, "LEFT", "RIGHT", 0).Result()
					if err != nil || item == "end" {
						working <- err
						return
					}
				}
			}()
		}
		c := goRedisClient(1)
		defer c.Close()
		for i := range 33 {
			item := strconv.Itoa(i)
			if i >= 30 {
				item = "end"
			}
			if err := c.RPush(ctx, from, item).Err(); err != nil {
				return err
			}
		}
		for range 3 {
			if err := <-working; err != nil {
				return err
			}
		}
		moved := c.LRange(ctx, to, 0, -1).Val()
		slices.Sort(moved)
		return want(len(slices.Compact(moved)), 31, "different elements moved")
	}},
}, ownCommands)}

var rueidisClient = library{"github.com/redis/rueidis", []check{
	{"client-side caching: a change through another node is seen", func(ctx context.Context) error {
		reader, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr(0)},
			ForceSingleClient: true})
		if err != nil {
			return err
		}
		defer reader.Close()
		writer := goRedisClient(1)
		defer writer.Close()
		key := unique("cached")
		for i := range 5 {
			value := strconv.Itoa(i)
			if err := writer.Set(ctx, key, value, 0).Err(); err != nil {
				return err
			}
			err := until(ctx, "the new value", func() bool {
				got, err := reader.DoCache(ctx, reader.B().Get().Key(key).Cache(),
					time.Minute).ToString()
				return err == nil && got == value
			})
			if err != nil {
				return err
			}
			hit := reader.DoCache(ctx, reader.B().Get().Key(key).Cache(), time.Minute)
			if !hit.IsCacheHit() {
				return errors.New("the second read was no cache hit")
			}
		}
		return nil
	}},
	{"replies to pipelined commands reach the goroutines that sent them",
		func(ctx context.Context) error {
			c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr(2)},
				ForceSingleClient: true, DisableCache: true})
			if err != nil {
				return err
			}
			defer c.Close()
			return together(50, func(i int) error {
				text := strconv.Itoa(i)
				for range 20 {
					if got, err := c.Do(ctx,
						c.B().Echo().Message(text).Build()).ToString(); err != nil || got != text {
						return fmt.Errorf("got %q, %v; want %q", got, err, text)
					}
				}
				return nil
			})
		}},
}}

var redigoClient = library{"github.com/gomodule/redigo", []check{
	{"a script that compares and deletes releases only its owner's lock",
		func(ctx context.Context) error {
			release := redis.NewScript(1,
				`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
			key := unique("lock")
			a, err := redis.Dial("tcp", addr(0))
			if err != nil {
				return err
			}
			defer a.Close()
			b, err := redis.Dial("tcp", addr(1))
			if err != nil {
				return err
			}
			defer b.Close()
			if ok, err := redis.String(a.Do("SET", key, "a", "NX", "PX", 10_000)); err != nil ||
				ok != "OK" {
				return fmt.Errorf("the lock is free: %q, %v", ok, err)
			}
			if _, err := redis.String(b.Do("SET", key, "b", "NX", "PX", 10_000)); !errors.Is(err,
				redis.ErrNil) {
				return fmt.Errorf("the lock is held: %v", err)
			}
			if n, err := redis.Int(release.Do(b, key, "b")); err != nil || n != 0 {
				return fmt.Errorf("another's release: %d, %v", n, err)
			}
			n, err := redis.Int(release.Do(a, key, "a"))
			return errors.Join(err, want(n, 1, "the owner's release"))
		}},
	{"a subscription by PSUBSCRIBE gets what another node publishes",
		func(ctx context.Context) error {
			sub, err := redis.Dial("tcp", addr(2))
			if err != nil {
				return err
			}
			defer sub.Close()
			channel := unique("channel")
			ps := redis.PubSubConn{Conn: sub}
			if err := ps.PSubscribe(channel + "*"); err != nil {
				return err
			}
			if _, ok := ps.Receive().(redis.Subscription); !ok {
				return errors.New("the subscription is not confirmed")
			}
			c := goRedisClient(0)
			defer c.Close()
			if err := c.Publish(ctx, channel+":1", "hello").Err(); err != nil {
				return err
			}
			m, ok := ps.ReceiveWithTimeout(5 * time.Second).(redis.Message)
			if !ok {
				return errors.New("no message")
			}
			return want(string(m.Data), "hello", "the message")
		}},
}}
