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
	rows, err := readRows()
	if err != nil {
		return err
	}
	var errs []error
	keep := func(name, row string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		fmt.Println(row)
		rows[name] = row
		errs = append(errs, writeReport(rows, queues(""), services()))
	}
	for _, q := range queues(queueProgram) {
		if chosen(q.name) {
			t, err := q.run(ctx, filepath.Join(dir, "data-"+q.name), coordd)
			keep(q.name, t.row(q), err)
		}
	}
	for _, s := range services() {
		if chosen(s.name) {
			r, err := s.run(ctx, filepath.Join(dir, "data-"+s.name), coordd)
			keep(s.name, r.row(s), err)
		}
	}
	return errors.Join(errs...)
}

// readRows returns the rows of the report by system: a run of some systems keeps those of others.
func readRows() (map[string]string, error) {
	text, err := os.ReadFile(report)
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "| "); ok {
			name, _, _ = strings.Cut(name, " |")
			rows[name] = strings.TrimSpace(line)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return rows, err
}

func build(ctx context.Context, dir, output, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-C", dir, "-o", output, pkg)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

func writeReport(rows map[string]string, queues []queue, services []service) error {
	var queueRows, serviceRows []string
	for _, q := range queues {
		if row := rows[q.name]; row != "" {
			queueRows = append(queueRows, row)
		}
	}
	for _, s := range services {
		if row := rows[s.name]; row != "" {
			serviceRows = append(serviceRows, row)
		}
	}
	text := `# Systems through a change of the leader

Written by ` + "`make systems`" + `: each system runs, unmodified, on three nodes of its own.
Rows can be of different runs: ` + "`go run ./testdata/systems NAME`" + ` replaces one.

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
