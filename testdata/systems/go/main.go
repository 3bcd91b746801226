// Command go is a producer or a worker of an asynq queue: go run . produce|work NAME JOBS. It
// prints `put N` for a task that the library took and `ran N` for one that a worker began.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: queue produce|work NAME JOBS")
	}
	redis := asynq.RedisClientOpt{Addr: os.Getenv("COORDD_ADDR")}
	jobs, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if args[0] == "produce" {
		return produce(redis, args[1], jobs)
	}
	return asynq.NewServer(redis, asynq.Config{
		Concurrency: 1, Queues: map[string]int{args[1]: 1}, LogLevel: asynq.FatalLevel,
	}).Run(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		fmt.Println("ran", string(t.Payload()))
		time.Sleep(20 * time.Millisecond)
		return nil
	}))
}

// produce sends a request that failed again with the same id. The library refuses an id that it
// has, and a finished task keeps its id for the time of retention: no task is taken twice.
func produce(redis asynq.RedisClientOpt, queue string, jobs int) error {
	c := asynq.NewClient(redis)
	defer c.Close()
	for n := 0; n < jobs; {
		id := strconv.Itoa(n)
		_, err := c.Enqueue(asynq.NewTask("count", []byte(id)), asynq.Queue(queue),
			asynq.TaskID(id), asynq.Retention(time.Hour))
		if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			fmt.Fprintln(os.Stderr, "enqueue:", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		fmt.Println("put", id)
		n++
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
