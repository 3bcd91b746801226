package main

// A scheduled job that must run once, and a stock that must not be oversold.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// scheduledJob: at each tick all workers wake together and one of them runs the
// job, by SET NX with EX on the tick's mark; a worker that comes late finds it done.
func scheduledJob(ctx context.Context, e *env) error {
	const workers, ticks = 6, 5
	runs := e.key("runs")
	for tick := range ticks {
		mark := e.key(fmt.Sprintf("job:%d", tick))
		ran := make([]bool, workers)
		err := together(workers, func(i int) error {
			c := e.node(i + tick)
			got, err := take(ctx, c, mark, fmt.Sprint("worker ", i), time.Minute)
			if err != nil || !got {
				return err
			}
			ran[i] = true
			return raise(ctx, c, runs) // the job: safe without a lock if it runs once
		})
		if err != nil {
			return err
		}
		winner := -1
		for i, r := range ran {
			if r && winner >= 0 {
				return fmt.Errorf("tick %d: workers %d and %d both ran the job", tick, winner, i)
			}
			if r {
				winner = i
			}
		}
		if winner < 0 {
			return fmt.Errorf("tick %d: nobody ran the job", tick)
		}
		for i, c := range e.nodes {
			got, err := take(ctx, c, mark, "late", time.Minute)
			if err != nil || got {
				return fmt.Errorf("tick %d: a late worker on node %d ran it again: %t %v", tick, i,
					got, err)
			}
			who, err := c.Get(ctx, mark).Result()
			if err != nil || who != fmt.Sprint("worker ", winner) {
				return fmt.Errorf("tick %d: node %d says %q ran it (%v), want worker %d", tick, i,
					who, err, winner)
			}
		}
	}
	if err := e.wantCount(ctx, runs, ticks); err != nil {
		return err
	}
	return e.claimTellsWho(ctx, e.key("claim"))
}

// claimTellsWho: the same by a script that answers who has the run.
func (e *env) claimTellsWho(ctx context.Context, mark string) error {
	const workers = 5
	claims := make([][]any, workers)
	err := together(workers, func(i int) (err error) {
		claims[i], err = e.run(ctx, e.node(i), "job_claim", []string{mark},
			fmt.Sprint("worker ", i), 60_000).Slice()
		return err
	})
	if err != nil {
		return err
	}
	winners, holder := 0, claims[0][1]
	for i, claim := range claims {
		if len(claim) != 2 || claim[1] != holder {
			return fmt.Errorf("worker %d was told %v, worker 0 that %v has the run", i, claim,
				holder)
		}
		if mine := holder == fmt.Sprint("worker ", i); mine != (claim[0] == int64(1)) {
			return fmt.Errorf("worker %d was told %v, the holder is %v", i, claim, holder)
		}
		if claim[0] == int64(1) {
			winners++
		}
	}
	if winners != 1 {
		return fmt.Errorf("%d workers claimed the run, want 1", winners)
	}
	return nil
}

// stock: buyers want more than there is; exactly what there is gets sold, by
// the script and by WATCH and MULTI, and nobody ever sees less than nothing.
func stock(ctx context.Context, e *env) error {
	if err := e.sellOut(ctx, "script", e.sellByScript); err != nil {
		return fmt.Errorf("by script: %w", err)
	}
	if err := e.sellOut(ctx, "watch", e.sellByWatch); err != nil {
		return fmt.Errorf("by WATCH: %w", err)
	}
	return nil
}

// sellOut runs six buyers, some of one piece and some of two, until each has
// been refused, while a watcher looks at the stock.
func (e *env) sellOut(ctx context.Context, name string,
	sell func(ctx context.Context, c *redis.Client, stock, sales, sale string, n int64) (bool,
		error)) error {
	const buyers, pieces = 6, 21
	stock, sales := e.key(name+":stock"), e.key(name+":sales")
	if err := e.node(0).Set(ctx, stock, pieces, 0).Err(); err != nil {
		return err
	}
	watchCtx, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- e.watchStock(watchCtx, stock) }()
	sold, times := make([]int64, buyers), make([]int64, buyers)
	err := together(buyers, func(i int) error {
		n := int64(1 + i%2)
		for j := 0; ; j++ {
			ok, err := sell(ctx, e.node(i+j), stock, sales, fmt.Sprintf("%d:%d", i, j), n)
			if err != nil || !ok {
				return err
			}
			sold[i] += n
			times[i]++
			if sold[i] > pieces {
				return errors.New("a single buyer got more than there was")
			}
		}
	})
	stop()
	if err := errors.Join(err, <-watched); err != nil {
		return err
	}
	var sumSold, sumTimes int64
	for i := range buyers {
		sumSold += sold[i]
		sumTimes += times[i]
	}
	if sumSold != pieces {
		return fmt.Errorf("%d pieces were sold, there were %d", sumSold, pieces)
	}
	if n, err := e.node(1).HLen(ctx, sales).Result(); err != nil || n != sumTimes {
		return fmt.Errorf("%d sales are written down (%v), the buyers made %d", n, err, sumTimes)
	}
	return e.wantCount(ctx, stock, 0)
}

// watchStock reads the stock from every node in turn until it is stopped: it
// only falls, and not below zero.
func (e *env) watchStock(ctx context.Context, stock string) error {
	last := int64(1 << 62)
	for i := 0; ; i++ {
		n, err := e.node(i).Get(ctx, stock).Int64()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if n < 0 || n > last {
			return fmt.Errorf("the stock was seen at %d after %d", n, last)
		}
		last = n
		if pause(ctx, 2*time.Millisecond) != nil {
			return nil
		}
	}
}

func (e *env) sellByScript(ctx context.Context, c *redis.Client, stock, sales, sale string,
	n int64) (bool, error) {
	left, isNil, err := e.runInt(ctx, c, "stock_take", []string{stock, sales}, n, sale)
	if err != nil || isNil || left < -1 {
		return false, fmt.Errorf("the sale answered %d, nil %t (%v)", left, isNil, err)
	}
	return left >= 0, nil
}

// sellByWatch tries until it has sold or there is not enough: EXEC answers nil
// whenever another buyer was faster, on whichever node.
func (e *env) sellByWatch(ctx context.Context, c *redis.Client, stock, sales, sale string,
	n int64) (bool, error) {
	for attempt := 0; ; attempt++ {
		enough := false
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			left, err := tx.Get(ctx, stock).Int64()
			if err != nil {
				return err
			}
			if enough = left >= n; !enough {
				return nil
			}
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, stock, left-n, 0)
				p.HSet(ctx, sales, sale, n)
				return nil
			})
			return err
		}, stock)
		if err == nil {
			return enough, nil
		}
		if !errors.Is(err, redis.TxFailedErr) {
			return false, err
		}
		if err := backOff(ctx, attempt); err != nil {
			return false, err
		}
	}
}
