package main

import (
	"bufio"
	"fmt"
	"os"
	"path"
	"strings"
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
