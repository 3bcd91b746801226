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
var languages = []string{"node", "go", "kubernetes", "debian", "tls"}

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
	nodes, err := startCluster(ctx, dir)
	if err != nil {
		return err
	}
	defer nodes.stop()
	var checks []check
	var errs []error
	for _, language := range languages {
		if len(only) > 0 && !slices.Contains(only, language) {
			continue
		}
		c, err := runLanguage(ctx, language, nodes)
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

// nodes are the processes that the programs use.
type nodes struct {
	addrs      []string // of three voters
	standalone string   // of a learner that presents itself as standalone
	stop       func()
}

// startCluster builds coordd and starts four processes of it.
func startCluster(ctx context.Context, dir string) (*nodes, error) {
	binary := filepath.Join(dir, "coordd")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/coordd")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building coordd: %w", err)
	}
	ports, err := ports.Free(8)
	if err != nil {
		return nil, err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	n := &nodes{addrs: []string{at(0), at(1), at(2)}, standalone: at(3), stop: func() {
		cancel()
		for _, p := range started {
			_ = p.Wait() // it was told to end
		}
	}}
	begin := func(i int, args ...string) error {
		// The programs are not about failover: a machine that they keep busy shall not cause one.
		p := exec.CommandContext(ctx, binary, append(args, "--id", fmt.Sprintf("n%d", i+1),
			"--listen", at(i), "--data-dir", filepath.Join(dir, fmt.Sprint(i)),
			"--heartbeat-timeout", "3s", "--log-level", "warn")...)
		p.Stderr = os.Stderr
		p.Cancel = func() error { return p.Process.Signal(syscall.SIGTERM) }
		p.WaitDelay = 10 * time.Second
		if err := p.Start(); err != nil {
			return err
		}
		started = append(started, p)
		return nil
	}
	members := fmt.Sprintf("n1=%s,n2=%s,n3=%s", at(4), at(5), at(6))
	for i := range n.addrs {
		err = errors.Join(err, begin(i, "--cluster", members))
	}
	for _, addr := range n.addrs {
		err = errors.Join(err, waitReady(ctx, addr))
	}
	err = errors.Join(err, begin(3, "--join", n.addrs[0], "--peer-listen", at(7), "--learner",
		"--present-as", "standalone"), waitReady(ctx, n.standalone))
	if err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
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
func runLanguage(ctx context.Context, language string, n *nodes) ([]check, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./run")
	cmd.Dir = filepath.Join(sources, language)
	cmd.Env = append(os.Environ(), "COORDD_ADDRS="+strings.Join(n.addrs, ","),
		"COORDD_STANDALONE="+n.standalone)
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
			"machine, and a learner with\n`--present-as standalone`. " +
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
