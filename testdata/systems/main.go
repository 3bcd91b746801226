// Command systems runs systems that use Redis, each on a cluster of three coordd processes whose
// leader is killed and hands over in mid-work, and writes docs/systems.md. It is run from the top
// of the repository: go run ./testdata/systems [NAME ...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	sources = "testdata/systems"
	report  = "docs/systems.md"
)

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
	coordd, queueProgram := filepath.Join(dir, "coordd"), filepath.Join(dir, "queue")
	if err := errors.Join(build(ctx, ".", coordd, "./cmd/coordd"),
		build(ctx, sources+"/go", queueProgram, ".")); err != nil {
		return err
	}
	chosen := func(name string) bool { return len(only) == 0 || slices.Contains(only, name) }
	var queueRows, serviceRows []string
	var errs []error
	for _, q := range queues(queueProgram) {
		if !chosen(q.name) {
			continue
		}
		t, err := q.run(ctx, filepath.Join(dir, "data-"+q.name), coordd)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", q.name, err))
		}
		queueRows = append(queueRows, t.row(q))
		fmt.Println(queueRows[len(queueRows)-1])
	}
	for _, s := range services() {
		if !chosen(s.name) {
			continue
		}
		r, err := s.run(ctx, filepath.Join(dir, "data-"+s.name), coordd)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		}
		serviceRows = append(serviceRows, r.row(s))
		fmt.Println(serviceRows[len(serviceRows)-1])
	}
	if len(only) == 0 {
		errs = append(errs, writeReport(queueRows, serviceRows))
	}
	return errors.Join(errs...)
}

func build(ctx context.Context, dir, output, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", dir, "-o", output, pkg)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func writeReport(queueRows, serviceRows []string) error {
	text := `# Systems through a change of the leader

Written by ` + "`make systems`" + `: each system runs, unmodified, on three nodes of its own.

## Queues

One producer and three workers. The leader is killed (` + "`kill -9`" + `) and restarted after a third
of the jobs, and hands over (` + "`FAILOVER`" + `) after two thirds. *Lost* are jobs that the library took
and no worker began; *doubled* ones were begun twice.

| System | Version | Jobs | Lost | Doubled | Seconds without service | Promise |
|---|---|---|---|---|---|---|
` + strings.Join(queueRows, "\n") + `

## Sessions, messages, limits, locks and tools

Each repeats one round of checks. The leader is killed and restarted once ` + fmt.Sprint(calm) +
		` rounds in a row
succeeded, and hands over after as many more; as many follow. A round *failed* if it got an error or
no answer in time; before the leader is killed none may. It is *wrong* if it broke the promise in
the last column.

| System | Version | Rounds | Failed | Wrong | Seconds without service | Checked |
|---|---|---|---|---|---|---|
` + strings.Join(serviceRows, "\n") + `

## Not run

` + notRun
	return os.WriteFile(report, []byte(text), 0o644)
}
