package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	reportHead = `# Test suites of others

Written by ` + "`make suites`" + `. It fetches these suites from their registries, unmodified but for
ports, and runs them against one node and against a follower of three, both new for each unit. For
suites that start redis-server themselves (miniredis, redigo, redsync), a program of that name
starts coordd with the same ports, password, users and certificates. A failure that
[testdata/suites/known](../testdata/suites/known) does not list fails the target. Skipped is what a
suite skips by itself on a server that it did not start.

| Suite | Version | Server | Run on | Passed | Failed | Skipped |
|---|---|---|---|---|---|---|
`
	failuresHead = `
## Failures

| Suite | Test | Server | Reason |
|---|---|---|---|
`
)

// writeReport writes the tables of what was run and of what failed. Of suites that were not run
// this time, it keeps the rows that are there.
func writeReport(results []result, known knownFailures) error {
	old, err := os.ReadFile(report)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	summary, failed, _ := strings.Cut(string(old), failuresHead)
	failed, _, _ = strings.Cut(failed, notThere)
	fs := failures(results)
	today := time.Now().Format(time.DateOnly)
	var b, of strings.Builder
	b.WriteString(reportHead)
	of.WriteString(failuresHead)
	for _, s := range suites {
		if !slices.ContainsFunc(results, func(r result) bool { return r.suite == s.name }) {
			b.WriteString(rowsOf(summary, s.name))
			of.WriteString(rowsOf(failed, s.name))
		}
		for _, r := range results {
			if r.suite == s.name {
				passed, failed, skipped := count(r.outcomes)
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d | %d |\n", r.suite, r.version,
					r.target, today, passed, failed, skipped)
			}
		}
		for _, f := range fs {
			if f.of.suite == s.name {
				fmt.Fprintf(&of, "| %s | %s | %s | %s |\n", s.name, cell(f.Test),
					strings.Join(f.targets, ", "),
					cmp.Or(known.reason(f.of, f.outcome), "**unknown**"))
			}
		}
	}
	return os.WriteFile(report, []byte(b.String()+of.String()+notThere), 0o644)
}

// rowsOf returns the rows of a suite in a table.
func rowsOf(table, suite string) (rows string) {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "| "+suite+" |") {
			rows += line
		}
	}
	return rows
}

// notThere says which suites were looked for, and why they are not run.
const notThere = `
## Not there

| Suite | Why |
|---|---|
| ioredis, redis (node-redis), bullmq, bull, bee-queue, redlock, redis-semaphore, rate-limiter-flexible, rate-limit-redis, connect-redis | their npm packages have no tests |
| redis-py, python-rq, python-limits, python-fakeredis, kombu, ruby-redis, Predis, Redis.pm | Debian 12 has their sources, but the mirror that was used does not |
| Sidekiq | Debian's source package has no tests |
| aioredis | Debian 12 has no source package of that name |
| redis: two tests | they wait for ever: for sockets to be read in Redis's order, and for an eviction |
| rueidislock | the module proxy that was used does not have it |
| redsync and miniredis on followers | they start many servers, each a cluster then, and miniredis waits a second for one |
| rueidis: Sentinel, clusters, KeyDB, Dragonfly, Kvrocks | processes of these; the last three repeat the test of a single server |
`

// failure is a test with the servers on which it failed.
type failure struct {
	outcome
	of      result // the first with this failure
	targets []string
}

// failures returns what failed, each test once.
func failures(results []result) []failure {
	var fs []failure
	for _, r := range results {
		for _, o := range r.outcomes {
			if o.Failure == "" {
				continue
			}
			i := slices.IndexFunc(fs, func(f failure) bool {
				return f.of.suite == r.suite && f.Test == o.Test
			})
			if i < 0 {
				i = len(fs)
				fs = append(fs, failure{outcome: o, of: r})
			}
			if !slices.Contains(fs[i].targets, r.target) {
				fs[i].targets = append(fs[i].targets, r.target)
			}
		}
	}
	return fs
}

// cell makes a text fit a cell of the table.
func cell(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
