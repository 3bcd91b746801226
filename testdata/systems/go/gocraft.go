package main

import (
	"errors"
	"strings"
	"time"

	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

func gocraftAdd(addr, queue string) (func(id string) error, error) {
	enqueuer := work.NewEnqueuer(queue, &redis.Pool{MaxActive: 2, Wait: true,
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }})
	return func(id string) error {
		_, err := enqueuer.EnqueueUnique("count", work.Q{"id": id})
		return err
	}, nil
}

// gocraftWork ends at the first error of a connection. A job whose reply was lost stays in progress
// as long as its pool has a heartbeat, and a pool looks for dead ones ten seconds after its start.
func gocraftWork(addr, queue string) error {
	failed := make(chan error, 1)
	pool := work.NewWorkerPool(struct{}{}, 1, queue, &redis.Pool{MaxActive: 5, MaxIdle: 5,
		Wait: true, Dial: func() (redis.Conn, error) {
			conn, err := redis.Dial("tcp", addr)
			if err != nil {
				report(failed, err)
				return nil, err
			}
			return watched{conn, failed}, nil
		}})
	pool.Job("count", func(j *work.Job) error {
		job(j.ArgString("id"))
		return nil
	})
	pool.Start()
	return <-failed
}

// watched reports the errors of a connection: the library logs them and goes on.
type watched struct {
	redis.Conn
	failed chan error
}

func (w watched) Do(command string, args ...any) (any, error) {
	reply, err := w.Conn.Do(command, args...)
	if err != nil && !errors.Is(err, redis.ErrNil) && !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		report(w.failed, err)
	}
	return reply, err
}

func report(failed chan error, err error) {
	select {
	case failed <- err:
		time.Sleep(time.Second) // the process ends
	default:
	}
}
