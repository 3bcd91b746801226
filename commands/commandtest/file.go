// Scenario files and their parser.

package commandtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// File is a scenario file.
type File struct {
	Path  string
	Steps []Step
}

// Step is a line of a scenario file: a call, unless Directive names something else.
type Step struct {
	Line int    // in the file, from 1
	Text string // the line itself

	Args    [][]byte
	Compare Compare
	Silent  bool      // no reply comes
	Want    *[2]Value // the expected replies in RESP2 and RESP3, if not the real server's

	Directive string // "resp", "db", "advance", "fresh", "conn", "receive", "blocked"
	Number    int64  // operand of resp (2, 3), db, advance (ms), blocked (clients)
	Name      string // operand of conn
}

// Load reads the files that match pattern. No match is an error.
func Load(pattern string) ([]*File, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no scenario file matches %s", pattern)
	}
	var files []*File
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parseFile(path, string(b))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func parseFile(path, text string) (*File, error) {
	f := &File{Path: path}
	advanced := false // since the last @fresh
	number := 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := parseStep(line)
		switch {
		case err != nil:
		case s.Directive == "fresh":
			advanced = false
		case s.Directive == "advance":
			advanced = true
		case advanced && s.Want == nil && !s.Silent:
			err = errors.New(
				"after @advance the real server is not asked: the line has to carry its reply " +
					"(=> …)")
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		s.Line, s.Text = number, line
		f.Steps = append(f.Steps, s)
	}
	return f, nil
}

func parseStep(line string) (s Step, err error) {
	if line[0] == '@' {
		return parseDirective(line)
	}
	if line[0] == '[' {
		words, rest, ok := strings.Cut(line[1:], "]")
		if !ok {
			return s, errors.New("']' is missing")
		}
		if s.Compare, s.Silent, err = parseCompare(words); err != nil {
			return s, err
		}
		line = rest
		if rest = strings.TrimSpace(rest); rest == "@receive" {
			s.Directive = "receive"
			return s, nil
		}
	}
	args, want, found, err := splitCall(line)
	if err != nil {
		return s, err
	}
	if len(args) == 0 {
		return s, errors.New("the call is missing")
	}
	s.Args = args
	if !found {
		return s, nil
	}
	if s.Silent {
		return s, errors.New("a [silent] call has no reply")
	}
	w, err := parseWant(want)
	s.Want = &w
	return s, err
}

func parseDirective(line string) (s Step, err error) {
	name, arg, _ := strings.Cut(line[1:], " ")
	arg = strings.TrimSpace(arg)
	s.Directive = name
	switch name {
	case "fresh", "receive":
		if arg != "" {
			return s, fmt.Errorf("@%s takes no argument", name)
		}
		return s, nil
	case "conn":
		if s.Name = arg; arg == "" {
			return s, errors.New("@conn NAME: the name is missing")
		}
		return s, nil
	case "resp", "db", "advance", "blocked":
		s.Number, err = strconv.ParseInt(arg, 10, 64)
		if err != nil || s.Number < 0 || (name == "resp" && s.Number != 2 && s.Number != 3) {
			return s, fmt.Errorf("@%s cannot be %q", name, arg)
		}
		return s, nil
	}
	return s, fmt.Errorf("unknown directive @%s", name)
}
