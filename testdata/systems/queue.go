package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	jobs = 600
	// doneLimit bounds the wait for the last job; quiet is how long a second run may come after.
	doneLimit = 3 * time.Minute
	quiet     = 3 * time.Second
	// inFlight is how many jobs the three workers may have taken when the leader changes twice.
	inFlight = 6
)

// queue is a library with a program that runs as its producer or as a worker.
type queue struct {
	name, version string
	program       []string
	promise       string
	mayLose       int // jobs, within the promise
}

// queues takes the path of the program of the queues in Go.
func queues(goProgram string) []queue {
	node := []string{"node", sources + "/node/queue.js"}
	python := []string{"/usr/bin/python3", sources + "/python/queue_program.py"} // Debian's
	php := []string{"php", sources + "/php/queue.php"}
	const restarts = "at least once; a worker that saw an error starts again"
	return []queue{
		{"asynq", "0.26.0", []string{goProgram, "asynq"}, "at least once", 0},
		{"gocraft/work", "0.5.1", []string{goProgram, "gocraft"}, restarts, 0},
		{"rmq", "5.2.0", []string{goProgram, "rmq"}, restarts, 0},
		{"BullMQ", "6.7.0", append(node, "bullmq"), "at least once", 0},
		{"Bee-Queue", "2.0.0", append(node, "bee-queue"), "at least once", 0},
		{"node-resque", "9.7.1", append(node, "node-resque"),
			"at most once: a taken job stays under the name of its worker", inFlight},
		{"RQ", "1.13.0", append(python, "rq"), "at most once: `BLPOP` takes a job away", inFlight},
		{"Celery", "5.2.6", append(python, "celery"),
			"at least once, but for the reply of `BRPOP`", inFlight},
		{"Sidekiq", "6.4.1", []string{"ruby", sources + "/ruby/queue.rb"},
			"at most once: `BRPOP` takes a job away", inFlight},
		{"Laravel queue", "8.83.26", append(php, "laravel"), "at least once", 0},
		{"Symfony Messenger", "5.4.53", append(php, "symfony"), "at least once", 0},
	}
}

// run lets the queue work on a cluster of its own, so that none sees what another left.
func (q queue) run(ctx context.Context, dir, coordd string) (*tally, error) {
	t := &tally{put: map[string]int{}, ran: map[string]int{}}
	c, err := startCluster(ctx, dir, coordd)
	if err != nil {
		return t, err
	}
	defer c.stop()
	ctx, cancel := context.WithCancel(ctx)
	p := programs{stop: cancel}
	defer p.end()
	for i := range 4 {
		role := "work"
		if i == 3 {
			role = "produce"
		}
		program := append(slices.Clone(q.program), role, "systems", fmt.Sprint(jobs))
		env := []string{"COORDD_ADDR=" + c.addrs[i%3], "TMPDIR=" + dir}
		if err := p.start(ctx, program, env, t.line); err != nil {
			return t, err
		}
	}
	ran := func(n int) func() bool { return func() bool { return len(t.ran) >= n } }
	if err := t.until(ctx, "a third of the jobs", ran(jobs/3)); err != nil {
		return t, err
	}
	if err := c.killLeader(ctx); err != nil {
		return t, err
	}
	if err := t.until(ctx, "two thirds", ran(jobs*2/3)); err != nil {
		return t, err
	}
	if err := c.handOver(ctx); err != nil {
		return t, err
	}
	done := func(lost int) func() bool {
		return func() bool { return len(t.ran)+lost >= jobs && len(t.put) >= jobs }
	}
	err = t.until(ctx, "all jobs", done(0)) // a job that comes late is not lost
	t.mu.Lock()
	if done(q.mayLose)() {
		err = nil
	}
	t.mu.Unlock()
	time.Sleep(quiet)
	return t, err
}

// tally counts what the programs report.
type tally struct {
	mu       sync.Mutex
	put, ran map[string]int
	last     time.Time
	gap      time.Duration // the longest time in which no job began
}

func (t *tally) line(word, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch word {
	case "put":
		t.put[id]++
	case "ran":
		now := time.Now()
		if !t.last.IsZero() && len(t.ran) < jobs {
			t.gap = max(t.gap, now.Sub(t.last))
		}
		t.last = now
		t.ran[id]++
	}
}

func (t *tally) until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, doneLimit)
	defer cancel()
	for {
		t.mu.Lock()
		ok, put, ran := done(), len(t.put), len(t.ran)
		t.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %d taken, %d ran", what, put, ran)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (t *tally) row(q queue) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost, doubled := 0, 0
	for id := range t.put {
		if t.ran[id] == 0 {
			lost++
		}
	}
	for _, times := range t.ran {
		if times > 1 {
			doubled++
		}
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %.1f | %s |", q.name, q.version, len(t.put),
		lost, doubled, t.gap.Seconds(), q.promise)
}
