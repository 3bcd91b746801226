package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// knownFailures are the failures that are no news, each with its reason.
type knownFailures []knownFailure

type knownFailure struct {
	suite, pattern, reason string
}

// readKnown reads the file known: a line "= REASON", and under it lines "SUITE PATTERN" of tests
// that fail for that reason, or "SUITE ~PATTERN" of what they say when they fail. SUITE@follower is
// the suite on a follower. A star in a pattern stands for any characters.
func readKnown(file string) (knownFailures, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var known knownFailures
	reason := ""
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "= "):
			reason = line[2:]
		default:
			suite, pattern, ok := strings.Cut(line, " ")
			if !ok || reason == "" {
				return nil, fmt.Errorf("%s:%d: neither = REASON nor SUITE PATTERN", file, n)
			}
			known = append(known, knownFailure{suite, pattern, reason})
		}
	}
	return known, lines.Err()
}

// reason returns why a test is known to fail, or "".
func (known knownFailures) reason(r result, o outcome) string {
	for _, k := range known {
		if k.explains(r, o) {
			return k.reason
		}
	}
	return ""
}

func (k knownFailure) explains(r result, o outcome) bool {
	suite, onFollower := strings.CutSuffix(k.suite, "@follower")
	if suite != r.suite || onFollower && r.target != follower.name {
		return false
	}
	if text, said := strings.CutPrefix(k.pattern, "~"); said {
		return matches(text, o.Failure)
	}
	return matches(k.pattern, o.Test)
}

// matches reports whether a text is like a pattern whose stars stand for any characters.
func matches(pattern, text string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	if !strings.HasPrefix(text, head) {
		return false
	}
	for text = text[len(head):]; ; text = text[1:] {
		if matches(rest, text) {
			return true
		}
		if text == "" {
			return false
		}
	}
}

// check returns an error if a test failed that is not known to fail.
func (known knownFailures) check(results []result) error {
	unknown := 0
	for _, r := range results {
		for _, o := range r.outcomes {
			if o.Failure != "" && known.reason(r, o) == "" {
				unknown++
				fmt.Printf("FAILED %s (%s) %s\n       %s\n", r.suite, r.target, o.Test, o.Failure)
			}
		}
	}
	for _, k := range known {
		if k.isGone(results) {
			fmt.Printf("passes, but is listed in known: %s %s\n", k.suite, k.pattern)
		}
	}
	if unknown > 0 {
		return fmt.Errorf("%d failures are not in %s", unknown, path.Join(sources, "known"))
	}
	return nil
}

// isGone reports whether a test by its name was run, and did not fail on any server.
func (k knownFailure) isGone(results []result) (gone bool) {
	for _, r := range results {
		for _, o := range r.outcomes {
			switch {
			case strings.HasPrefix(k.pattern, "~") || o.Skipped || !k.explains(r, o):
			case o.Failure != "":
				return false
			default:
				gone = true
			}
		}
	}
	return gone
}

// writeReport writes the tables of what was run and of what failed.
func writeReport(results []result, known knownFailures) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# Test suites of others

Written by `+"`make suites`"+`. It fetches these suites from their registries, unmodified but for
ports, and runs them against one node and against a follower of three, both new for each unit. For
suites that start redis-server themselves (miniredis, redigo, redsync), a program of that name starts
coordd with the same ports, password, users and certificates. A failure that
[testdata/suites/known](../testdata/suites/known) does not list fails the target. Skipped is what a
suite skips by itself on a server that it did not start.

Run on %s.

| Suite | Version | Server | Passed | Failed | Skipped |
|---|---|---|---|---|---|
`, time.Now().Format(time.DateOnly))
	for _, r := range results {
		passed, failed, skipped := count(r.outcomes)
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d |\n", r.suite, r.version, r.target, passed,
			failed, skipped)
	}
	b.WriteString("\n## Failures\n\n| Suite | Test | Server | Reason |\n|---|---|---|---|\n")
	for _, f := range failures(results) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.of.suite, cell(f.Test),
			strings.Join(f.targets, ", "), cmp.Or(known.reason(f.of, f.outcome), "**unknown**"))
	}
	b.WriteString(notThere)
	return os.WriteFile(report, []byte(b.String()), 0o644)
}

// notThere says which suites were looked for, and why they are not run.
const notThere = `
## Not there

| Suite | Why |
|---|---|
| ioredis, redis (node-redis), bullmq, bull, bee-queue, redlock, redis-semaphore, rate-limiter-flexible, rate-limit-redis, connect-redis | their npm packages have no tests |
| redis-py, python-rq, python-limits, python-fakeredis, kombu, ruby-redis, Predis, Redis.pm | Debian 12 has their sources, but the mirror that was used does not |
| Sidekiq | Debian's source package has no tests |
| redsync on followers | it starts 48 servers, each a cluster then |
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
