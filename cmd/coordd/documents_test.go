// Tests of the command lines in the documents.

package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	continued = regexp.MustCompile(`\\\n\s*`)
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	// a command line of a block: after a prompt or another program that runs it
	blockLine = regexp.MustCompile(`(?m)^(?:(?:    |\t)(?:\$ |.*\bsudo (?:-u \w+ )?|exec )?|ExecStart=)` +
		`(?:\S*/)?coordd (.+)$`)
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	// where the shell goes on, and what an example leaves out
	lineEnd = regexp.MustCompile(`\s(?:\||>|&|;|#|2>|<|–).*$|…`)
)

// TestDocumentedCommandLines parses each command line of coordd in the documents, and each of its
// flags that they give a value.
func TestDocumentedCommandLines(t *testing.T) {
	root, lines := filepath.Join("..", ".."), 0
	ours := map[string]bool{}
	for _, f := range flagsOfNode() {
		ours["--"+f.name] = true
	}
	for _, c := range subcommands() {
		for _, f := range c.flags() {
			ours["--"+f.name] = true
		}
	}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if e.IsDir() && e.Name() == "testdata" {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() || !slices.Contains([]string{".md", ".service", ".yaml", ".yml"},
			filepath.Ext(path)) {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := continued.ReplaceAllString(string(b), " ")
		text = fenced.ReplaceAllStringFunc(text, func(block string) string {
			return strings.ReplaceAll(strings.Trim(block, "`"), "\n", "\n    ")
		})
		var found []string
		for _, m := range blockLine.FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			switch {
			case strings.Contains(m[1], ": "): // a message
			case len(words) > 1 && words[0] == "coordd":
				found = append(found, strings.Join(words[1:], " "))
			case len(words) > 1 && ours[words[0]]:
				found = append(found, m[1])
			}
		}
		for _, line := range found {
			lines++
			line = os.Expand(line, func(name string) string { // as the unit sets it
				_, value, _ := strings.Cut(text, " "+name+"=")
				_, first, _ := strings.Cut(text, "="+name+"=")
				return strings.Fields(cmp.Or(first, value, "N"))[0]
			})
			if err := parses(strings.Fields(lineEnd.ReplaceAllString(line, ""))); err != nil {
				t.Errorf("%s: coordd %s: %v", path, line, err)
			}
		}
		return nil
	})
	if err != nil || lines < 100 {
		t.Fatal(lines, err)
	}
}

// parses returns what is wrong with a command line, which is not run. One that begins with a flag
// is of a node or of any subcommand.
func parses(args []string) error {
	if last := args[len(args)-1]; strings.HasPrefix(last, "--") && !strings.Contains(last, "=") {
		args = args[:len(args)-1] // its value is left out
	}
	for i, word := range args {
		if word == "N" {
			args[i] = "1"
		}
	}
	if len(args) == 0 || args[0] == strings.ToUpper(args[0]) {
		return nil
	}
	var help helpRequest
	none := console{func(string) string { return "" }, io.Discard, io.Discard}
	bare := strings.HasPrefix(args[0], "--")
	_, err := parseConfig(append(slices.Clone(args), "--help"), none.getenv)
	for _, c := range subcommands() {
		rest := args
		if c.name == args[0] {
			rest = args[1:]
		} else if !bare || errors.As(err, &help) {
			continue
		}
		err = c.run(context.Background(), append(slices.Clone(rest), "--help"), none)
	}
	if errors.As(err, &help) {
		return nil
	}
	return err
}
