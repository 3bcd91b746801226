package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// busyCommand is the argument of a process that keeps a processor busy until its input ends.
const busyCommand = "busy"

func beBusy() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	runtime.LockOSThread()
	for {
	}
}

// startBusy starts n processes that end with this one or when the function that it returns is
// called.
func startBusy(n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	var cmds []*exec.Cmd
	stop = func() {
		_ = out.Close()
		for _, cmd := range cmds {
			_ = cmd.Wait()
		}
	}
	defer in.Close()
	for range n {
		cmd := exec.Command(self, busyCommand)
		cmd.Stdin = in
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		cmds = append(cmds, cmd)
	}
	return stop, nil
}

// tally counts the failures.
type tally struct {
	sync.Mutex
	runs   map[string]int      // by package
	failed map[string][]string // seeds of shuffling, by package and test
}

// flakes runs all tests again and again beside busy processes, workers packages at a time, and
// prints what failed. The output of each failure is kept in logs.
func flakes(ctx context.Context, all *suite, runs, busy, workers int, logs string) error {
	if logs == "" {
		dir, err := os.MkdirTemp("", "coordd-flakes-")
		if err != nil {
			return err
		}
		logs = dir
	} else if err := os.MkdirAll(logs, 0o700); err != nil {
		return err
	}
	defer os.Remove(logs) // if it is still empty
	stop, err := startBusy(busy)
	if err != nil {
		return err
	}
	defer stop()
	t := tally{runs: map[string]int{}, failed: map[string][]string{}}
	var errs []error
	for run := range runs {
		began := time.Now()
		err := t.once(ctx, all, run, workers, logs)
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, err)
		fmt.Printf("run %d of %d: %v, %d failures so far\n", run+1, runs,
			time.Since(began).Round(time.Second), t.failures())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return t.report(logs)
}

// once runs all tests once.
func (t *tally) once(ctx context.Context, all *suite, run, workers int, logs string) error {
	next := make(chan binary)
	var running sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range workers {
		running.Go(func() {
			for b := range next {
				seed := fmt.Sprint(time.Now().UnixNano())
				o, err := b.run(ctx, "-test.shuffle", seed)
				if o.detectorFailed() {
					fmt.Println(b.dir, "again: the race detector failed, not a test")
					o, err = b.run(ctx, "-test.shuffle", seed)
				}
				if ctx.Err() != nil {
					continue
				}
				mu.Lock()
				errs = append(errs, err, t.note(b, o, seed, run, logs))
				mu.Unlock()
			}
		})
	}
	for _, b := range all.binaries {
		next <- b
	}
	close(next)
	running.Wait()
	return errors.Join(errs...)
}

// note counts a run of a package, and keeps its output if it failed.
func (t *tally) note(b binary, o outcome, seed string, run int, logs string) error {
	t.Lock()
	defer t.Unlock()
	t.runs[b.dir]++
	for _, name := range o.failures() {
		name = b.dir + " " + name
		t.failed[name] = append(t.failed[name], seed)
		fmt.Println("FAIL", name)
	}
	if !o.failed {
		return nil
	}
	name := fmt.Sprintf("%s-%d.log", strings.ReplaceAll(b.dir, "/", "-"), run+1)
	return os.WriteFile(filepath.Join(logs, name), o.output, 0o600)
}

func (t *tally) failures() (n int) {
	t.Lock()
	defer t.Unlock()
	for _, seeds := range t.failed {
		n += len(seeds)
	}
	return n
}

// report prints the table of failures, and returns an error if there are any.
func (t *tally) report(logs string) error {
	if len(t.failed) == 0 {
		most := slices.Max(slices.Collect(maps.Values(t.runs)))
		fmt.Printf("nothing failed in %d runs of %d packages\n", most, len(t.runs))
		return nil
	}
	fmt.Println("| Package and test | Failed | Of | -shuffle |\n|---|---|---|---|")
	for _, name := range slices.Sorted(maps.Keys(t.failed)) {
		dir, _, _ := strings.Cut(name, " ")
		fmt.Printf("| %s | %d | %d | %s |\n", name, len(t.failed[name]), t.runs[dir],
			strings.Join(t.failed[name], " "))
	}
	return fmt.Errorf("tests failed; their output is in %s", logs)
}
