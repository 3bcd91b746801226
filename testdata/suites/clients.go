package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
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
