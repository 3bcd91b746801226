package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var hiredisSuite = suite{name: "hiredis", fetch: fetchHiredis, test: testHiredis}

func fetchHiredis(ctx context.Context, dir string) (string, []string, error) {
	version, err := fetchDebian(ctx, dir, "hiredis")
	if err != nil {
		return "", nil, err
	}
	build := exec.CommandContext(ctx, "make", "hiredis-test")
	build.Dir = dir
	out, err := output(build)
	if err != nil {
		return "", nil, fmt.Errorf("make hiredis-test: %w: %s", err, out)
	}
	return version, []string{"tests"}, nil
}

var hiredisLine = regexp.MustCompile(`^#\d+ (.*): (?:(PASSED)|FAILED|SKIPPED)$`)

func testHiredis(ctx context.Context, dir, _ string, s server) ([]outcome, error) {
	test := exec.CommandContext(ctx, "./hiredis-test", "-h", "127.0.0.1", "-p", s.port,
		"--skip-throughput")
	test.Dir = dir
	out, err := output(test)
	var outcomes []outcome
	for line := range strings.Lines(colors.ReplaceAllString(out, "")) {
		line = strings.TrimSpace(line)
		m := hiredisLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		o := outcome{Test: m[1], Skipped: strings.HasSuffix(line, "SKIPPED")}
		if m[2] == "" && !o.Skipped {
			o.Failure = line
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, err
}

// phpredisSuite is the class for a single server of the suite of phpredis, beside the extension
// that Debian built from the same source. Its sessions are scripts that run in processes of PHP.
var phpredisSuite = suite{name: "phpredis", fetch: fetchPhpredis, test: testPhpredis}

func fetchPhpredis(ctx context.Context, dir string) (string, []string, error) {
	version, err := fetchDebian(ctx, dir, "php-redis")
	return version, []string{"tests"}, err
}

var (
	phpPort    = regexp.MustCompile(`:6379'`)
	phpTest    = regexp.MustCompile(`^test\w+`)
	phpOutcome = regexp.MustCompile(`\[(PASSED|FAILED|SKIPPED)\]$`)
	phpFailure = regexp.MustCompile(`^(Assertion failed.*) \((test\w+)\)$`)
)

func testPhpredis(ctx context.Context, dir, _ string, s server) ([]outcome, error) {
	// The source package also has a release for PHP 5.
	sources, err := filepath.Glob(filepath.Join(dir, "redis-5*", "tests"))
	if err != nil || len(sources) != 1 {
		return nil, fmt.Errorf("tests of phpredis: %v, %w", sources, err)
	}
	work, err := os.MkdirTemp(dir, "work")
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(work, os.DirFS(sources[0])); err != nil {
		return nil, err
	}
	if err := replaceIn(filepath.Join(work, "*.php"), phpPort, ":"+s.port+"'"); err != nil {
		return nil, err
	}
	test := exec.CommandContext(ctx, "php", "TestRedis.php", "--class", "Redis", "--nocolors",
		"--host", "127.0.0.1", "--port", s.port)
	test.Dir = work
	// The suite looks for an extension that was just built, unless it is told how to start PHP.
	test.Env = append(slices.Clone(s.env), "TEST_PHP_ARGS=-d display_errors=0")
	out, err := output(test)
	return readPhp(colors.ReplaceAllString(out, "")), err
}

// readPhp reads what the suite of phpredis prints: names and outcomes of tests, between which PHP
// has its own say, and at the end why tests failed.
func readPhp(out string) []outcome {
	var outcomes []outcome
	why := map[string]string{}
	current := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if name := phpTest.FindString(line); name != "" {
			current = name
		}
		if m := phpFailure.FindStringSubmatch(line); m != nil {
			why[m[2]] += filepath.Base(m[1]) + "; "
		}
		m := phpOutcome.FindStringSubmatch(line)
		if m == nil || current == "" {
			continue
		}
		o := outcome{Test: current, Skipped: m[1] == "SKIPPED"}
		if m[1] == "FAILED" {
			o.Failure = "failed"
		}
		outcomes = append(outcomes, o)
		current = ""
	}
	for i, o := range outcomes {
		if o.Failure != "" && why[o.Test] != "" {
			outcomes[i].Failure = why[o.Test]
		}
	}
	return outcomes
}
