// Command libraries runs the programs of this directory against a cluster of three coordd processes
// and writes docs/clients.md from what they report. It is run from the top of the repository: go
// run ./testdata/clients/libraries
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/ports"
)

const (
	sources = "testdata/clients/libraries"
	report  = "docs/clients.md"
	// startLimit bounds the wait for the cluster, runLimit that for the programs of one language.
	startLimit = 30 * time.Second
	runLimit   = 15 * time.Minute
)

// languages are the directories with programs; all of them unless arguments name some.
var languages = []string{"node", "go", "debian", "tls"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "libraries:", err)
		os.Exit(1)
	}
}

// check is one line that a program reports.
type check struct {
	language string
	Library  string `json:"library"`
	Version  string `json:"version"`
	Check    string `json:"check"`
	OK       bool   `json:"ok"`
	Error    string `json:"error"`
	Skipped  string `json:"skipped"`
}

func run(ctx context.Context, only []string) error {
	for _, language := range only {
		if !slices.Contains(languages, language) {
			return fmt.Errorf("no programs in %q: there are %v", language, languages)
		}
	}
	dir, err := os.MkdirTemp("", "coordd-clients")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	addrs, stop, err := startCluster(ctx, dir)
	if err != nil {
		return err
	}
	defer stop()
	var checks []check
	var errs []error
	for _, language := range languages {
		if len(only) > 0 && !slices.Contains(only, language) {
			continue
		}
		c, err := runLanguage(ctx, language, addrs)
		checks = append(checks, c...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", language, err))
		}
	}
	failed := 0
	for _, c := range checks {
		if !c.OK && c.Skipped == "" {
			failed++
		}
	}
	if failed > 0 {
		errs = append(errs, fmt.Errorf("%d of %d checks failed", failed, len(checks)))
	}
	if len(only) == 0 {
		errs = append(errs, writeReport(checks))
	}
	return errors.Join(errs...)
}

// startCluster builds coordd and starts three processes of it; stop ends them.
func startCluster(ctx context.Context, dir string) (addrs []string, stop func(), err error) {
	binary := filepath.Join(dir, "coordd")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/coordd")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, nil, fmt.Errorf("building coordd: %w", err)
	}
	ports, err := ports.Free(6)
	if err != nil {
		return nil, nil, err
	}
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("n%d=127.0.0.1:%d", i+1, ports[3+i]))
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	ctx, cancel := context.WithCancel(ctx)
	var nodes []*exec.Cmd
	stop = func() {
		cancel()
		for _, n := range nodes {
			_ = n.Wait() // it was told to end
		}
	}
	for i, addr := range addrs {
		// The programs are not about failover: a machine that they keep busy shall not cause one.
		n := exec.CommandContext(ctx, binary, "--id", fmt.Sprintf("n%d", i+1), "--listen", addr,
			"--cluster", strings.Join(members, ","),
			"--data-dir", filepath.Join(dir, fmt.Sprint(i)), "--heartbeat-timeout", "3s",
			"--log-level", "warn")
		n.Stderr = os.Stderr
		n.Cancel = func() error { return n.Process.Signal(syscall.SIGTERM) }
		n.WaitDelay = 10 * time.Second
		if err := n.Start(); err != nil {
			stop()
			return nil, nil, err
		}
		nodes = append(nodes, n)
	}
	for _, addr := range addrs {
		if err := waitReady(ctx, addr); err != nil {
			stop()
			return nil, nil, err
		}
	}
	return addrs, stop, nil
}

// waitReady waits until a node answers a read, which takes a leader.
func waitReady(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			_, _ = conn.Write(resp.AppendCommand(nil, "DBSIZE"))
			head, err := resp.NewReader(conn).Head()
			conn.Close()
			if err == nil && head.Kind == resp.Int {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w", addr, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// runLanguage runs the programs of one directory and reads what they report. What they print
// besides goes to the terminal.
func runLanguage(ctx context.Context, language string, addrs []string) ([]check, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./run")
	cmd.Dir = filepath.Join(sources, language)
	cmd.Env = append(os.Environ(), "COORDD_ADDRS="+strings.Join(addrs, ","))
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	checks := readChecks(out, language)
	if err := cmd.Wait(); err != nil {
		return checks, err
	}
	if len(checks) == 0 {
		return nil, errors.New("the programs checked nothing")
	}
	return checks, nil
}

func readChecks(r io.Reader, language string) []check {
	var checks []check
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		c := check{language: language}
		if json.Unmarshal(lines.Bytes(), &c) != nil || c.Library == "" || c.Check == "" &&
			c.Skipped == "" {
			fmt.Fprintln(os.Stderr, lines.Text())
			continue
		}
		checks = append(checks, c)
		fmt.Printf("%-8s %-10s %s %s: %s\n", c.result(), language, c.Library, c.Version,
			cmp.Or(c.Check, c.Skipped))
		if c.Error != "" {
			fmt.Println("         ", c.Error)
		}
	}
	return checks
}

func (c *check) result() string {
	switch {
	case c.Skipped != "":
		return "skipped"
	case c.OK:
		return "ok"
	}
	return "FAILED"
}

// writeReport writes the table of what was run.
func writeReport(checks []check) error {
	var b strings.Builder
	b.WriteString("# Clients and libraries\n\n")
	b.WriteString(
		"Written by `make clients`. It installs these libraries, unmodified, from their " +
			"registries and runs\nthem against a cluster of three coordd processes on one " +
			"machine. " +
			"The programs are in\n[testdata/clients/libraries](../testdata/clients/libraries); " +
			"each check judges an outcome. The\nscenario programs of `make test` (go-redis, " +
			"node-redis, " +
			"ioredis, redis-cli) are beside it.\n\n")
	fmt.Fprintf(&b, "Run on %s.\n\n| Library | Version | Check | Result |\n|---|---|---|---|\n",
		time.Now().Format(time.DateOnly))
	slices.SortStableFunc(checks, func(a, b check) int {
		return cmp.Or(cmp.Compare(slices.Index(languages, a.language),
			slices.Index(languages, b.language)), cmp.Compare(a.Library, b.Library))
	})
	for _, c := range checks {
		text, result := c.Check, c.result()
		if c.Skipped != "" {
			text, result = "", "skipped: "+c.Skipped
		}
		if c.Error != "" {
			result += ": " + c.Error
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(c.Library), cell(c.Version), cell(text),
			cell(result))
	}
	return os.WriteFile(report, []byte(b.String()), 0o644)
}

// cell makes a text fit a cell of the table.
func cell(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
