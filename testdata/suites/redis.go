package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/tests/ports"
)

// redisSuite is Redis's own suite, from Debian's source package. Tests that want DEBUG or a server
// of their own are skipped by it.
var redisSuite = suite{name: "redis", fetch: fetchRedis, test: testRedis}

// Units of the Tcl suite that start servers, read their files, or test what coordd does not have.
var redisUnitsOut = []string{"unit/aofrw", "unit/tls", "unit/oom-score-adj", "unit/shutdown",
	"unit/wait", "unit/cluster/misc", "unit/cluster/links", "unit/cluster", "unit/violations"}

// Tests that wait for ever, and what for.
var redisTestsOut = []string{
	// by chance: that Redis reads its sockets in a certain order
	"BRPOPLPUSH with multiple blocked clients",
	// an eviction
	"Keyspace notifications: evicted events",
}

func fetchRedis(ctx context.Context, dir string) (string, []string, error) {
	version, err := fetchDebian(ctx, dir, "redis")
	if err != nil {
		return "", nil, err
	}
	for _, name := range []string{"redis-server", "redis-cli", "redis-benchmark"} {
		err := os.Symlink(filepath.Join("/usr/bin", name), filepath.Join(dir, "src", name))
		if err != nil {
			return "", nil, err
		}
	}
	list := exec.CommandContext(ctx, "tclsh", "tests/test_helper.tcl", "--list-tests")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return "", nil, err
	}
	units := slices.DeleteFunc(strings.Fields(string(out)), func(unit string) bool {
		return !strings.HasPrefix(unit, "unit/") || slices.Contains(redisUnitsOut, unit)
	})
	return version, units, nil
}

// fetchDebian unpacks a source package of the Debian release that runs here into dir.
func fetchDebian(ctx context.Context, dir, name string) (version string, err error) {
	work, err := os.MkdirTemp("", "coordd-suites-apt")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	parts, lists := filepath.Join(work, "parts"), filepath.Join(work, "lists")
	if err := errors.Join(os.Mkdir(parts, 0o755), os.Chmod(work, 0o755), sourcesOf(parts),
		os.MkdirAll(filepath.Join(lists, "partial"), 0o755)); err != nil {
		return "", err
	}
	options := []string{"-q", "-o", "Dir::Etc::sourcelist=-",
		"-o", "Dir::Etc::sourceparts=" + parts, "-o", "Dir::State::lists=" + lists,
		"-o", "APT::Sandbox::User=root"}
	for _, args := range [][]string{{"update"}, {"source", name}} {
		apt := exec.CommandContext(ctx, "apt-get", append(slices.Clone(options), args...)...)
		apt.Dir = work
		if out, err := apt.CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get %s: %w: %s", args[0], err, out)
		}
	}
	trees, _ := filepath.Glob(filepath.Join(work, name+"-*"))
	descriptions, _ := filepath.Glob(filepath.Join(work, "*.dsc"))
	if len(trees) != 1 || len(descriptions) != 1 {
		return "", fmt.Errorf("apt-get source %s unpacked %v", name, trees)
	}
	description, err := os.ReadFile(descriptions[0])
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^Version: (\S+)`).FindSubmatch(description)
	if found == nil {
		return "", fmt.Errorf("%s names no version", descriptions[0])
	}
	return string(found[1]), os.CopyFS(dir, os.DirFS(trees[0]))
}

// sourcesOf writes apt's lists of source packages into dir: where this system has its Debian
// packages from.
func sourcesOf(dir string) error {
	if text, err := os.ReadFile("/etc/apt/sources.list.d/debian.sources"); err == nil {
		text = regexp.MustCompile(`(?m)^Types: .*$`).ReplaceAll(text, []byte("Types: deb-src"))
		return os.WriteFile(filepath.Join(dir, "debian.sources"), text, 0o644)
	}
	text, err := os.ReadFile("/etc/apt/sources.list")
	if err != nil {
		return err
	}
	text = regexp.MustCompile(`(?m)^deb `).ReplaceAll(text, []byte("deb-src "))
	return os.WriteFile(filepath.Join(dir, "debian.list"), text, 0o644)
}

var (
	colors  = regexp.MustCompile("\x1b\\[[0-9;]*m")
	tclLine = regexp.MustCompile(`^\[(ok|err|skip|ignore|exception|TIMEOUT)\]: (.*)$`)
	tclTime = regexp.MustCompile(` \(\d+ ms\)$`)
)

func testRedis(ctx context.Context, dir, unit string, s server) ([]outcome, error) {
	base, err := ports.Free(1) // of the suite's own processes; it listens 32 below its --baseport
	if err != nil {
		return nil, err
	}
	// The suite ends by itself after two minutes in which no test ends.
	args := []string{"tests/test_helper.tcl", "--host", "127.0.0.1", "--port", s.port,
		"--single", unit, "--tags", "-needs:debug", "--durable", "--timeout", "120", "--baseport",
		fmt.Sprint(base[0] + 32)}
	for _, out := range redisTestsOut {
		args = append(args, "--skiptest", out)
	}
	test := exec.CommandContext(ctx, "tclsh", args...)
	test.Dir = dir
	out, err := output(test)
	if err == nil && !strings.Contains(out, "The End") {
		err = errors.New("the suite did not end")
	}
	return readTcl(unit, out), err
}

// output runs a program and returns what it prints. That it fails is no error: its tests do.
func output(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	ownGroup(cmd)
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() ||
		errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if dump := os.Getenv("COORDD_SUITES_OUTPUT"); dump != "" {
		f, openErr := os.OpenFile(dump, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if openErr == nil {
			_, _ = io.WriteString(f, out.String())
			err = errors.Join(err, f.Close())
		}
	}
	return out.String(), err
}

// readTcl reads what the Tcl suite prints: a line for each test, and under a failed one the reason.
func readTcl(unit, out string) []outcome {
	var outcomes []outcome
	lines := strings.Split(colors.ReplaceAllString(out, ""), "\n")
	for i, line := range lines {
		m := tclLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := strings.TrimSuffix(tclTime.ReplaceAllString(m[2], ""), " in tests/"+unit+".tcl")
		o := outcome{Test: unit + ": " + name, Skipped: m[1] == "skip" || m[1] == "ignore"}
		switch m[1] {
		case "err":
			o.Failure = "failed"
			if i+1 < len(lines) {
				o.Failure = lines[i+1]
			}
		case "exception", "TIMEOUT":
			o.Test, o.Failure = unit+": (stopped)", name
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// ownGroup has the programs that cmd starts end with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = processGroup
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = 5 * time.Second
}
