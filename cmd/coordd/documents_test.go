// Tests of the command lines in the documents.

package main

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	for _, cmd := range commandsWithFlags(newRoot(console{})) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { ours["--"+f.Name] = true })
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
		if first, _, several := strings.Cut(word, "|"); several && first[0] != '-' {
			args[i] = first
		}
	}
	if len(args) == 0 || args[0] == strings.ToUpper(args[0]) {
		return nil
	}
	if !strings.HasPrefix(args[0], "--") {
		return parsesAs(nil, args)
	}
	err := parsesAs(nil, args)
	for _, cmd := range commandsWithFlags(newRoot(console{})) {
		if err != nil && cmd.HasParent() {
			err = parsesAs(strings.Fields(cmd.CommandPath())[1:], args)
		}
	}
	return err
}

// parsesAs returns what is wrong with a command line after the names of a command.
func parsesAs(names, args []string) error {
	root := newRoot(console{})
	args = doubleDashes(root, append(slices.Clone(names), args...))
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	others := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(others) == 0 {
		return nil
	}
	err = cmd.ValidateArgs(others)
	for more := 0; more < 3 && err != nil; more++ { // a document may leave out arguments
		if others = append(others, "x"); cmd.ValidateArgs(others) == nil {
			return nil
		}
	}
	return err
}

// commandsWithFlags returns a command and its subcommands, with all flags that they take.
func commandsWithFlags(cmd *cobra.Command) []*cobra.Command {
	groupsOf(cmd) // adds those of its parents
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, commandsWithFlags(sub)...)
	}
	return all
}
