package main

import (
	"fmt"
	"os"
	"time"

	"github.com/adjust/rmq/v5"
)

func rmqAdd(addr, queue string) (func(id string) error, error) {
	c, err := rmq.OpenConnection("producer", "tcp", addr, 0, nil)
	if err != nil {
		return nil, err
	}
	q, err := c.OpenQueue(queue)
	return func(id string) error { return q.Publish(id) }, err
}

// rmqWork ends when taking jobs failed: what the lost reply held is unacknowledged, and returns to
// the queue when the heartbeat of its connection is over, which takes a minute.
func rmqWork(addr, queue string) error {
	failed := make(chan error, 10)
	c, err := rmq.OpenConnection("worker", "tcp", addr, 0, failed)
	if err != nil {
		return err
	}
	q, err := c.OpenQueue(queue)
	if err != nil {
		return err
	}
	if err := q.StartConsuming(1, 20*time.Millisecond); err != nil {
		return err
	}
	if _, err := q.AddConsumerFunc("worker", func(d rmq.Delivery) {
		job(d.Payload())
		if err := d.Ack(); err != nil {
			fmt.Fprintln(os.Stderr, "rmq ack:", err)
		}
	}); err != nil {
		return err
	}
	cleaner, clean := rmq.NewCleaner(c), time.NewTicker(5*time.Second)
	for {
		select {
		case err := <-failed:
			return err
		case <-clean.C:
			if _, err := cleaner.Clean(); err != nil {
				return err
			}
		}
	}
}
