package main

// This file holds the checks of a job queue.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// asynqServer runs workers on a node until stop is called.
func asynqServer(i int, queue string, handle asynq.HandlerFunc) (stop func(), err error) {
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: addr(i)}, asynq.Config{
		Concurrency: 3, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration {
			return 100 * time.Millisecond
		},
	})
	return s.Shutdown, s.Start(handle)
}

var asynqQueue = library{"github.com/hibiken/asynq", []check{
	{"40 tasks, workers on three nodes: each runs once", func(ctx context.Context) error {
		queue := unique("queue")
		var mu sync.Mutex
		ran := map[string]int{}
		for i := range 3 {
			stop, err := asynqServer(i, queue, func(_ context.Context, t *asynq.Task) error {
				mu.Lock()
				defer mu.Unlock()
				ran[string(t.Payload())]++
				return nil
			})
			if err != nil {
				return err
			}
			defer stop()
		}
		c := asynq.NewClient(asynq.RedisClientOpt{Addr: addr(1)})
		defer c.Close()
		for i := range 40 {
			if _, err := c.Enqueue(asynq.NewTask("count", []byte(strconv.Itoa(i))),
				asynq.Queue(queue)); err != nil {
				return err
			}
		}
		err := until(ctx, "40 tasks", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(ran) == 40
		})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for task, times := range ran {
			if times != 1 {
				return fmt.Errorf("task %s ran %d times", task, times)
			}
		}
		return nil
	}},
	{"a task is unique, one waits for its time, one that fails is tried again",
		func(ctx context.Context) error {
			queue := unique("queue")
			c := asynq.NewClient(asynq.RedisClientOpt{Addr: addr(0)})
			defer c.Close()
			once := asynq.NewTask("once", nil)
			if _, err := c.Enqueue(once, asynq.Queue(queue),
				asynq.Unique(time.Minute)); err != nil {
				return err
			}
			if _, err := c.Enqueue(once, asynq.Queue(queue),
				asynq.Unique(time.Minute)); !errors.Is(err,
				asynq.ErrDuplicateTask) {
				return fmt.Errorf("the same task again: %v", err)
			}
			begun := time.Now()
			if _, err := c.Enqueue(asynq.NewTask("later", nil), asynq.Queue(queue),
				asynq.ProcessIn(2*time.Second)); err != nil {
				return err
			}
			if _, err := c.Enqueue(asynq.NewTask("flaky", nil), asynq.Queue(queue),
				asynq.MaxRetry(5)); err != nil {
				return err
			}
			var onces, tries atomic.Int64
			var waited atomic.Int64
			stop, err := asynqServer(2, queue, func(_ context.Context, t *asynq.Task) error {
				switch t.Type() {
				case "once":
					onces.Add(1)
				case "later":
					waited.Store(int64(time.Since(begun)))
				case "flaky":
					if tries.Add(1) < 3 {
						return errors.New("not yet")
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			defer stop()
			if err := until(ctx, "all tasks", func() bool {
				return waited.Load() > 0 && tries.Load() == 3
			}); err != nil {
				return err
			}
			// asynq keeps times in whole seconds, rounded down.
			if d := time.Duration(waited.Load()); d < time.Second {
				return fmt.Errorf("the later task ran after %v", d)
			}
			return want(onces.Load(), 1, "runs of the unique task")
		}},
}}
