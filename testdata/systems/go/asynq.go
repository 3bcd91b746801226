package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// asynqAdd sends a request that failed again with the same id. The library refuses an id that it
// has, and a finished task keeps its id for the time of retention: no task is taken twice.
func asynqAdd(addr, queue string) (func(id string) error, error) {
	c := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	return func(id string) error {
		_, err := c.Enqueue(asynq.NewTask("count", []byte(id)), asynq.Queue(queue),
			asynq.TaskID(id), asynq.Retention(time.Hour))
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			return nil
		}
		return err
	}, nil
}

func asynqWork(addr, queue string) error {
	return asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{
		Concurrency: 1, Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel,
	}).Run(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		job(string(t.Payload()))
		return nil
	}))
}
