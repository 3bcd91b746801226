// Command systems runs queues, each as one producer and three workers in processes of their own,
// on a cluster of three coordd processes whose leader changes twice in mid-work, and writes
// docs/systems.md. It is run from the top of the repository: go run ./testdata/systems
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	sources = "testdata/systems"
	report  = "docs/systems.md"
	jobs    = 600
	// doneLimit bounds the wait for the last job; quiet is how long a second run may come after.
	doneLimit = 3 * time.Minute
	quiet     = 3 * time.Second
)

// system is one queue.
type system struct {
	name, version string
	program       []string
	remarks       string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "systems:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string) error {
	dir, err := os.MkdirTemp("", "coordd-systems")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	coordd, asynq := filepath.Join(dir, "coordd"), filepath.Join(dir, "asynq")
	if err := errors.Join(build(ctx, ".", coordd, "./cmd/coordd"),
		build(ctx, sources+"/go", asynq, ".")); err != nil {
		return err
	}
	node := []string{"node", sources + "/node/queue.js"}
	python := []string{"/usr/bin/python3", sources + "/python/queue_program.py"} // Debian's
	var rows []string
	var errs []error
	for _, s := range []system{
		{"asynq", "0.26.0", []string{asynq}, "at least once"},
		{"BullMQ", "6.7.0", append(node, "bullmq"), "at least once"},
		{"Bee-Queue", "2.0.0", append(node, "bee-queue"), "at least once"},
		{"RQ", "1.13.0", append(python, "rq"), "at most once: `BLPOP` takes a job away"},
		{"Celery", "5.2.6", append(python, "celery"),
			"at least once, but for the reply of `BRPOP`"},
		{"Sidekiq", "6.4.1", []string{"ruby", sources + "/ruby/queue.rb"},
			"at most once: `BRPOP` takes a job away"},
	} {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		t, err := s.run(ctx, filepath.Join(dir, "data-"+s.name), coordd)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		row := t.row(s)
		fmt.Println(row)
		rows = append(rows, row)
	}
	if len(only) == 0 {
		errs = append(errs, writeReport(rows))
	}
	return errors.Join(errs...)
}

func build(ctx context.Context, dir, output, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", dir, "-o", output, pkg)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// run lets the queue work on a cluster of its own, so that none sees what another left.
func (s system) run(ctx context.Context, dir, coordd string) (*tally, error) {
	t := &tally{put: map[string]int{}, ran: map[string]int{}}
	c, err := startCluster(ctx, dir, coordd)
	if err != nil {
		return t, err
	}
	defer c.stop()
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	for i := range 4 {
		role := "work"
		if i == 3 {
			role = "produce"
		}
		if err := s.start(ctx, t, &reading, c.addrs[i%3], role); err != nil {
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
	err = t.until(ctx, "all jobs", func() bool {
		return len(t.ran) >= jobs && len(t.put) >= jobs
	})
	time.Sleep(quiet)
	return t, err
}

func (s system) start(ctx context.Context, t *tally, reading *sync.WaitGroup, addr,
	role string) error {
	args := append(slices.Clone(s.program[1:]), role, "systems", fmt.Sprint(jobs))
	cmd := exec.CommandContext(ctx, s.program[0], args...)
	cmd.Env = append(os.Environ(), "COORDD_ADDR="+addr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	reading.Go(func() {
		t.read(out)
		_ = cmd.Wait() // it is killed at the end
	})
	return nil
}

// tally counts what the programs report.
type tally struct {
	mu       sync.Mutex
	put, ran map[string]int
	last     time.Time
	gap      time.Duration // the longest time in which no job began
}

func (t *tally) read(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		word, id, _ := strings.Cut(lines.Text(), " ")
		t.mu.Lock()
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
		t.mu.Unlock()
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

func (t *tally) row(s system) string {
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
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %.1f | %s |", s.name, s.version, len(t.put),
		lost, doubled, t.gap.Seconds(), s.remarks)
}

func writeReport(rows []string) error {
	text := "# Queues through a change of the leader\n\n" +
		"Written by `make systems`: one producer and three workers, on " +
		"three nodes. The leader is killed\n(`kill -9`) and restarted after a " +
		"third of the jobs, and hands over (`FAILOVER`) after two thirds.\n*Lost* are jobs that " +
		"the library took and no worker began; *doubled* ones were begun twice.\n\n" +
		"| System | Version | Jobs | Lost | Doubled | Seconds without service | Promise |\n" +
		"|---|---|---|---|---|---|---|\n" + strings.Join(rows, "\n") + "\n"
	return os.WriteFile(report, []byte(text), 0o644)
}
