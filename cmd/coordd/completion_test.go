package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// printed runs coordd, which must succeed, and returns what it prints.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(context.Background(), args, noEnv, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Fatalf("coordd %v: exit %d, %s", args, code, errs.String())
	}
	return out.String()
}

// fileFor skips the test if a program is missing, and else writes a text for it to a file.
func fileFor(t *testing.T, name, text string) (file string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("SKIPPED: %s is not installed", name)
	}
	file = filepath.Join(t.TempDir(), "_coordd")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A real bash completes the command line, whose last word the cursor is at.
func TestBashCompletion(t *testing.T) {
	file := fileFor(t, "bash", printed(t, "completion", "bash"))
	for _, c := range []struct{ line, want string }{
		{"coordd back", "backup"},
		{"coordd re", "restore recover refetch reset-default-user restart-wait"},
		{"coordd --max-c", "--max-clients"},
		{"coordd --id n1 --tls-ca", "--tls-ca"},
		{"coordd dev --", "--port --help"},
		{"coordd check-config --unix", "--unix-socket --unix-socket-perm"},
		{"coordd restore file --tok", "--tokens-above"},
		{"coordd version --j", "--json"},
		{"coordd backup fi", ""}, // a file: bash completes it
		{"coordd --config co", ""},
	} {
		script := `. "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _coordd
			echo "${COMPREPLY[*]}"`
		out, err := exec.CommandContext(t.Context(), "bash", "-c", script, "bash", file,
			c.line).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
}

func TestZshCompletion(t *testing.T) {
	file := fileFor(t, "zsh", printed(t, "completion", "zsh"))
	if out, err := exec.CommandContext(t.Context(), "zsh", "-n", file).CombinedOutput(); err !=
		nil {
		t.Fatalf("%v: %s", err, out)
	}
	// what the function asks of zsh's own functions
	script := `_arguments() { print -l -- "$@" }; _describe() { print -l -- $commands }
		words=(${=2}); CURRENT=$#words; . "$1"`
	for line, want := range map[string]string{
		"coordd ba":      "backup:writes the state of a running cluster to a file",
		"coordd dev --p": "--port[port of the first node, the others take the next two; 0: any",
		"coordd --max":   "--max-clients[limit of client connections (default 10000)]:value:_files",
	} {
		out, err := exec.CommandContext(t.Context(), "zsh", "-f", "-c", script, "zsh", file,
			line).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s; want %s", line, err, out, want)
		}
	}
}

func TestFishCompletion(t *testing.T) {
	file := fileFor(t, "fish", printed(t, "completion", "fish"))
	for line, want := range map[string]string{
		"coordd ba": "backup\t", "coordd dev --p": "--port\t", "coordd --max-c": "--max-clients\t",
	} {
		cmd := exec.CommandContext(t.Context(), "fish", "--no-config", "-c",
			"source $argv[1]; complete -C $argv[2]", file, line)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, %q; want %q", line, err, out, want)
		}
	}
}

func TestCompletionOfNoShell(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"completion", "tcsh"}, noEnv, &out,
		&errs); code != 2 || !strings.Contains(errs.String(), "must be bash, zsh or fish") {
		t.Error(code, errs.String())
	}
}

// The page has every subcommand, flag and variable, and the formatters have nothing to say.
func TestManPage(t *testing.T) {
	page := printed(t, "man")
	for _, c := range subcommands() {
		if !strings.Contains(page, "\n.SS "+roff("coordd "+c.name)+"\n") {
			t.Errorf("it lacks coordd %s", c.name)
		}
	}
	for _, o := range options {
		if !strings.Contains(page, "\n.B "+roff("--"+o.name)+"\n") ||
			!strings.Contains(page, "\n.I "+roff(o.env())+"\n") {
			t.Errorf("it lacks --%s or %s", o.name, o.env())
		}
	}
	dated := strings.Replace(page, " undated ", " 2026-11-23 ", 1) // as that of a release
	for _, tool := range [][]string{
		{"man", "--warnings", "-E", "UTF-8", "-l"}, {"mandoc", "-T", "lint", "-W", "warning"},
	} {
		t.Run(tool[0], func(t *testing.T) {
			file := fileFor(t, tool[0], dated)
			cmd := exec.CommandContext(t.Context(), tool[0], append(tool[1:], file)...)
			var said bytes.Buffer
			cmd.Stderr = &said
			if tool[0] == "mandoc" { // which says it on standard output
				cmd.Stdout = &said
			}
			if err := cmd.Run(); err != nil || said.Len() > 0 {
				t.Errorf("%v: %s", err, said.String())
			}
		})
	}
}

func TestVersion(t *testing.T) {
	var b build
	if err := json.Unmarshal([]byte(printed(t, "version", "--json")), &b); err != nil {
		t.Fatal(err)
	}
	if b != thisBuild() || b.NewestLevel != commands.FeatureLevel || b.Go == "" {
		t.Errorf("%+v", b)
	}
	lines := strings.Split(printed(t, "version"), "\n")
	if lines[0] != "coordd "+b.Version || !slices.Contains(lines, b.Go+" "+b.Platform) {
		t.Error(lines)
	}
	if got := printed(t, "--version"); got != lines[0]+"\n" {
		t.Error(got)
	}
}
