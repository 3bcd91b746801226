package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// limit is how long the tests of a package may take on a busy machine.
const limit = 20 * time.Minute

// binary is the tests of a package.
type binary struct {
	dir  string // of the package, relative to the top
	path string
	race bool
}

// suite is all packages' tests.
type suite struct {
	temporary string
	binaries  []binary
}

// build compiles the tests of packages with flags of go test.
func (s *suite) build(ctx context.Context, packages []string, flags ...string) error {
	if s.temporary == "" {
		dir, err := os.MkdirTemp("", "coordd-tests-")
		if err != nil {
			return err
		}
		s.temporary = dir
	}
	for _, pkg := range packages {
		pkg = filepath.Clean(pkg)
		path := filepath.Join(s.temporary, strconv.Itoa(len(s.binaries))+".test")
		args := append([]string{"test", "-c", "-vet=off", "-o", path}, flags...)
		out, err := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", pkg, err, out)
		}
		if _, err := os.Stat(path); err == nil { // a package without tests has none
			s.binaries = append(s.binaries, binary{pkg, path, len(flags) > 0})
		}
	}
	return nil
}

func (s *suite) remove() { _ = os.RemoveAll(s.temporary) }

// outcome is a run of a package's tests.
type outcome struct {
	took    time.Duration
	cpu     time.Duration // of the process and what it waited for
	tests   []ended
	failed  bool
	output  []byte
	skipped map[string]bool
}

// ended is a test that has ended.
type ended struct {
	name   string
	took   time.Duration
	failed bool
}

// verdict is a line with the outcome of a test that is no subtest.
var verdict = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\w+) \((\d+\.\d+)s\)$`)

// run runs the tests of a package.
func (b binary) run(ctx context.Context, flags ...string) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, append([]string{"-test.v", "-test.paniconexit0",
		"-test.timeout", limit.String()}, flags...)...)
	cmd.Dir = b.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return o, fmt.Errorf("%s: %w", b.dir, err)
	}
	o.took, o.failed, o.output = time.Since(began), err != nil, out.Bytes()
	o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	lines := bufio.NewScanner(bytes.NewReader(o.output))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		if m := verdict.FindStringSubmatch(lines.Text()); m != nil && m[1] != "SKIP" {
			seconds, _ := strconv.ParseFloat(m[3], 64)
			o.tests = append(o.tests, ended{m[2], time.Duration(seconds * float64(time.Second)),
				m[1] == "FAIL"})
		}
	}
	return o, errors.Join(ctx.Err(), lines.Err())
}

// detectorFailed reports whether all that failed is a check of the race detector's own runtime.
func (o outcome) detectorFailed() bool {
	return bytes.Contains(o.output, []byte("ThreadSanitizer: CHECK failed")) &&
		!elsewhere.Match(o.output)
}

// elsewhere is a line of what fails for another reason.
var elsewhere = regexp.MustCompile(`(?m)^ *--- FAIL|^panic:|^fatal error:|WARNING: DATA RACE`)

// failures returns the tests that failed; if none did but the process ended, what it was doing.
func (o outcome) failures() (names []string) {
	for _, t := range o.tests {
		if t.failed {
			names = append(names, t.name)
		}
	}
	if len(names) == 0 && o.failed {
		name := "(no test)"
		for line := range strings.Lines(string(o.output)) {
			if running, ok := strings.CutPrefix(line, "=== RUN   "); ok {
				name = strings.TrimSpace(running) + " (the process ended)"
			}
		}
		names = []string{name}
	}
	return names
}
