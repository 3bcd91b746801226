// The copy of the repository, and running tests in it.

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coordd/internal/tests/mutations"
)

// limit bounds a run of tests, and endWait how long their processes may take to end after it.
const (
	limit   = 10 * time.Minute
	endWait = 20 * time.Second
)

// tree is a copy of the repository, in which a mutation is planted at a time.
type tree struct {
	dir    string
	passed map[string]bool // commands that pass without a mutation
}

// copyTree copies the files that git knows or would know.
func copyTree(ctx context.Context) (*tree, error) {
	dir, err := os.MkdirTemp("", "coordd-mutations-")
	if err != nil {
		return nil, err
	}
	t := &tree{dir: dir, passed: map[string]bool{}}
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others",
		"--exclude-standard").Output()
	if err == nil {
		err = t.fill(strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00"))
	}
	if err != nil {
		t.remove()
		return nil, err
	}
	return t, nil
}

func (t *tree) fill(paths []string) error {
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // deleted, and not committed yet; or a link
		}
		to := filepath.Join(t.dir, path)
		content, err2 := os.ReadFile(path)
		err3 := os.MkdirAll(filepath.Dir(to), 0o755)
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) remove() { _ = os.RemoveAll(t.dir) }

// apply applies a patch to the tree, or takes it back.
func (t *tree) apply(ctx context.Context, path string, reverse bool) error {
	patch, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	args := []string{"apply", patch}
	if reverse {
		args = []string{"apply", "--reverse", patch}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "git", args...)
	cmd.Dir = t.dir
	// the tree is no repository, nor a part of one
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(t.dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w\n%s", err, out)
	}
	return nil
}

// passes returns an error if a command fails on the tree as it is.
func (t *tree) passes(ctx context.Context, c mutations.Command) error {
	if t.passed[c.String()] {
		return nil
	}
	r, err := t.test(ctx, c)
	switch {
	case err != nil:
		return err
	case r.failed != "" || r.panicked:
		return fmt.Errorf("%s fails:\n%s", r.failed, r.output)
	case r.passed == 0:
		return fmt.Errorf("%s runs no test, or only such that are skipped here", c)
	}
	t.passed[c.String()] = true
	return nil
}

// result is the result of a run of tests.
type result struct {
	failed   string        // the first test that failed; empty: none
	after    time.Duration // from the start of the tests until that
	passed   int           // tests that passed
	panicked bool          // the process of the tests ended by itself
	output   string        // of the tests
}

// event is a line of go test -json.
type event struct {
	Time                 time.Time
	Action, Test, Output string
}

// test builds and runs tests. An error means that they could not be built or did not end in time.
func (t *tree) test(ctx context.Context, c mutations.Command) (result, error) {
	binary := filepath.Join(t.dir, "mutated.test")
	build := []string{"test", "-c", "-vet=off", "-o", binary}
	run := []string{"tool", "test2json", "-t", binary, "-test.v=test2json"}
	for _, flag := range c.Flags {
		if name, ok := strings.CutPrefix(flag, "-"); !ok {
			run = append(run, flag) // a flag's value
		} else if name == "race" {
			build = append(build, flag)
		} else {
			run = append(run, "-test."+name)
		}
	}
	builds := [][]string{append(build, c.Package)}
	if strings.HasPrefix(c.Package, "./internal/tests/") { // they build it too: as a test's failure
		builds = append(builds, []string{"build", "-o", os.DevNull, "./cmd/coordd"})
	}
	for _, args := range builds {
		if out, err := t.command(ctx, ".", c.Env, args...).CombinedOutput(); err != nil {
			return result{}, fmt.Errorf("building: %w\n%s", err, out)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := t.command(ctx, c.Package, c.Env, run...).Output()
	var failed *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &failed) {
		return result{}, fmt.Errorf("%s: %w", c, errors.Join(ctx.Err(), err))
	}
	r, parseErr := readResult(out)
	if parseErr == nil && err != nil && r.failed == "" {
		parseErr = fmt.Errorf("%s fails, but no test does:\n%s%s", c, r.output, failed.Stderr)
	}
	return r, parseErr
}

// command is a run of go in a directory of the tree. At the end of its time it is killed, with all
// processes that it started.
func (t *tree) command(ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(t.dir, dir)
	// the next copy, in another directory, finds in the cache what this one has built
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-trimpath"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = endWait
	return cmd
}

// readResult reads the output of go test -json.
func readResult(out []byte) (result, error) {
	var r result
	var text strings.Builder
	var start time.Time
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return r, err
		}
		switch {
		case e.Action == "start":
			start = e.Time
		case e.Action == "output":
			text.WriteString(e.Output)
			r.panicked = r.panicked || strings.HasPrefix(e.Output, "panic: ") ||
				strings.HasPrefix(e.Output, "fatal error: ")
		case e.Action == "pass" && e.Test != "":
			r.passed++
		case e.Action == "fail" && e.Test != "" && r.failed == "":
			r.failed, r.after = e.Test, e.Time.Sub(start)
		}
	}
	r.output = text.String()
	return r, nil
}
