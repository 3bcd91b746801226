// The blocks of commands and output of a document, and what they are compared with.

package operations

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// block is what a document shows of a terminal, a file or a log.
type block struct {
	line  int // of the document, from 1
	lines []string
}

// blocks returns the indented blocks of a document by its headings.
func blocks(t testing.TB, document string) map[string][]block {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + document)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]block{}
	heading, within, before := "", false, ""
	for i, l := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(l, "#"):
			heading = strings.TrimLeft(l, "# ")
			within = false
		case strings.HasPrefix(l, "    ") && (within || before == ""):
			if !within {
				all[heading] = append(all[heading], block{line: i + 1})
			}
			within = true
		case l != "":
			within = false
		}
		if within {
			b := &all[heading][len(all[heading])-1]
			b.lines = append(b.lines, l)
		}
		before = l
	}
	for _, bs := range all {
		for i := range bs {
			bs[i].lines = trim(bs[i].lines)
		}
	}
	return all
}

// trim removes the common indentation, and empty lines at the end.
func trim(lines []string) []string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	indent := 100
	for _, l := range lines {
		if l != "" {
			indent = min(indent, len(l)-len(strings.TrimLeft(l, " ")))
		}
	}
	for i, l := range lines {
		lines[i] = l[min(indent, len(l)):]
	}
	return lines
}

// step is a command of a block and the output that stands below it.
type step struct {
	command string
	output  []string
}

// steps returns the commands of a block. Where none begins with "$ ", the block is one script.
func (b block) steps() (all []step) {
	if !strings.Contains("\n"+strings.Join(b.lines, "\n"), "\n$ ") {
		return []step{{command: strings.Join(b.lines, "\n")}}
	}
	for _, l := range b.lines {
		if command, ok := strings.CutPrefix(l, "$ "); ok {
			all = append(all, step{command: command})
		} else {
			last := &all[len(all)-1]
			last.output = append(last.output, l)
		}
	}
	return all
}

// varying is what differs from one run to the next: dates, ids, durations, sizes and numbers.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\d([ T][\d:.]+)?( UTC|Z)?|[0-9a-f]{12,}` +
	`|(\d+(\.\d+)?(h|ms|m|s|µs))+|\d+(\.\d+)? (s|ms|µs)\b|v?\d+(\.\d+)*( [kM]\b)?( [KMG]?i?B\b)?`)

var spaces = regexp.MustCompile(` +`)

func shape(line string) string {
	return spaces.ReplaceAllString(varying.ReplaceAllString(strings.TrimSpace(line), "#"), " ")
}

// alike reports whether a line is what a document shows, but for what varies. In the document "…"
// stands for anything.
func alike(shown, line string) bool {
	parts := strings.Split(shape(shown), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(shape(line))
}

// missing returns the first line of a document that is not in the output, in its order; "" if all
// are. Nothing else may be between them, but where the document has a line "…".
func missing(shown []string, output string) string {
	got := strings.Split(strings.TrimRight(output, "\n"), "\n")
	free := false
	for _, s := range shown {
		if strings.TrimSpace(s) == "…" {
			free = true
			continue
		}
		for free && len(got) > 0 && !alike(s, got[0]) {
			got = got[1:]
		}
		if len(got) == 0 || !alike(s, got[0]) {
			return s
		}
		got, free = got[1:], false
	}
	if len(got) > 0 && !free && len(shown) > 0 {
		return "the end, before: " + got[0]
	}
	return ""
}

// TestOutputIsCompared compares outputs with what a document shows.
func TestOutputIsCompared(t *testing.T) {
	shown := []string{"n1      leader    0       –      24h     v0.2.0", "…",
		"16 keys, 3.1 MiB, at #"}
	for _, c := range []struct {
		output string
		same   bool
	}{
		{"n1 leader 12 – 1m4s v0.3.1\na\nb\n3 keys, 17 KiB, at #\n", true},
		{"n1 leader 12 – 1m4s v0.3.1\n3 keys, 17 KiB, at #", true},
		{"n1 follower 12 – 1m4s v0.3.1\na\n3 keys, 17 KiB, at #", false},
		{"n1 leader 12 – 1m4s v0.3.1\na", false},
		{"n1 leader 12 – 1m4s v0.3.1\n3 keys, 17 KiB, at #\nmore", false},
		{"before\nn1 leader 12 – 1m4s v0.3.1\n3 keys, 17 KiB, at #", false},
	} {
		if got := missing(shown, c.output); (got == "") != c.same {
			t.Errorf("%q: missing %q", c.output, got)
		}
	}
}
