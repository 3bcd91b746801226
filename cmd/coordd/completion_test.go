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

	"github.com/spf13/pflag"

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

// TestMain has the process be coordd for the shells that ask it.
func TestMain(m *testing.M) {
	if os.Getenv("COORDD_TEST_ASKED") != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// inShell runs a script in a shell that has a file and a command line as its arguments, and coordd
// on its path.
func inShell(t *testing.T, shell []string, script, file, line string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	if err := os.Symlink(os.Args[0], filepath.Join(bin, "coordd")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), shell[0], append(shell[1:], script, file, line)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "COORDD_TEST_ASKED=1",
		"PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// A real bash completes the command line, whose last word the cursor is at.
func TestBashCompletion(t *testing.T) {
	file := fileFor(t, "bash", printed(t, "completion", "bash"))
	// in place of package bash-completion and of bash itself; the words without descriptions
	script := `. "$0"; COMP_TYPE=9; COLUMNS=200; COMP_WORDS=($1); compopt() { :; }
		_init_completion() {
			words=("${COMP_WORDS[@]}"); cword=$((${#words[@]} - 1)); cur=${words[cword]}
		}
		__start_coordd; printf '%s\n' "${COMPREPLY[@]}" | sed 's/ .*//' | xargs`
	for _, c := range []struct{ line, want string }{
		{"coordd back", "backup"},
		{"coordd re", "restore recover refetch reset-default-user restart-wait"},
		{"coordd --max-c", "--max-clients"},
		{"coordd --id n1 --tls-ca", "--tls-ca"},
		{"coordd dev --", "--port --help"},
		{"coordd check-config --unix", "--unix-socket --unix-socket-perm"},
		{"coordd restore file --tok", "--tokens-above"},
		{"coordd version --j", "--json"},
		{"coordd locks sh", "show"},
		{"coordd locks show lock:a --tok", "--token"},
		{"coordd help back", "backup"},
		{"coordd man back", "backup"},
		{"coordd backup verif", "verify"},
		{"coordd backup fi", ""}, // a file: bash completes it
		{"coordd --config co", ""},
	} {
		got, err := inShell(t, []string{"bash", "-c"}, script, file, c.line)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.line, got, err, c.want)
		}
	}
}

// filesToo is what a completion says if a shell completes names of files besides.
const filesToo = ":0\n"

// Shells complete names of files where an argument or a value may be one.
func TestCompletionOfFiles(t *testing.T) {
	for line, files := range map[string]bool{
		"backup fi": true, "--config co": true, "restore ": true, "certs di": true,
		"back": false, "locks sh": false, "--conf": false, "help ba": false, "man ba": false,
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), append([]string{"__complete"},
			strings.Split(line, " ")...), noEnv, &out, &errs)
		if code != 0 || strings.HasSuffix(out.String(), filesToo) != files {
			t.Errorf("%s: %d, %q; want files: %v", line, code, out.String(), files)
		}
	}
}

func TestZshCompletion(t *testing.T) {
	file := fileFor(t, "zsh", printed(t, "completion", "zsh"))
	// what the function asks of zsh's own functions
	script := `compdef() { }; _arguments() { print -l -- "$@" }; _describe() { print -l -- $completions }
		. "$0"; words=(${=1}); CURRENT=$#words; _coordd`
	for line, want := range map[string]string{
		"coordd ba":      "backup:Writes the state of a cluster, or of a stopped node, to a file",
		"coordd dev --p": "--port:port of the first node, the others take the next two; 0",
		"coordd --max-c": "--max-clients:limit of client connections [COORDD_MAX_CLIENTS]",
	} {
		out, err := inShell(t, []string{"zsh", "-f", "-c"}, script, file, line)
		if err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%s: %v, %s; want %s", line, err, out, want)
		}
	}
}

func TestFishCompletion(t *testing.T) {
	file := fileFor(t, "fish", printed(t, "completion", "fish"))
	for line, want := range map[string]string{
		"coordd ba": "backup\t", "coordd dev --p": "--port\t", "coordd --max-c": "--max-clients\t",
	} {
		out, err := inShell(t, []string{"fish", "--no-config", "-c"},
			"source $argv[1]; complete -C $argv[2]", file, line)
		if err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%s: %v, %q; want %q", line, err, out, want)
		}
	}
}

func TestPowerShellCompletion(t *testing.T) {
	if script := printed(t, "completion", "powershell"); !strings.Contains(script,
		"Register-ArgumentCompleter -CommandName 'coordd'") {
		t.Error(script)
	}
}

func TestCompletionOfNoShell(t *testing.T) {
	for _, args := range [][]string{{"completion", "tcsh"}, {"completion"}} {
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, noEnv, &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), "bash, zsh, fish or powershell") {
			t.Error(code, errs.String())
		}
	}
}

// The pages have every command, flag and variable, and the formatters have nothing to say.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	printed(t, "man", "--to", dir)
	pages := map[string]string{}
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		page, err := os.ReadFile(filepath.Join(dir, name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[name.Name()] = string(page)
	}
	all := pages["coordd.1"]
	if all != printed(t, "man") || pages["coordd-backup.1"] != printed(t, "man", "backup") {
		t.Error("--to writes other pages than coordd man prints")
	}
	for _, cmd := range available(newRoot(console{})) {
		page := pages["coordd-"+cmd.Name()+".1"]
		if page == "" || !strings.Contains(all, "\n.B "+roff("coordd "+cmd.Name())) {
			t.Errorf("no page, or not in that of coordd: %s", cmd.Name())
		}
		for _, g := range groupsOf(cmd) {
			g.VisitAll(func(f *pflag.Flag) {
				in := page
				if g.Name() != commandTitle {
					in = all
				}
				if !strings.Contains(in, "\n.B "+roff("--"+f.Name)+"\n") {
					t.Errorf("coordd %s: its page lacks --%s", cmd.Name(), f.Name)
				}
			})
		}
	}
	for _, o := range options {
		if !strings.Contains(all, "\n.B "+roff("--"+o.name)+"\n") ||
			!strings.Contains(all, roff("["+o.env()+"]")) {
			t.Errorf("it lacks --%s or %s", o.name, o.env())
		}
	}
	for _, tool := range [][]string{
		{"man", "--warnings", "-E", "UTF-8", "-l"}, {"mandoc", "-T", "lint", "-W", "warning"},
	} {
		t.Run(tool[0], func(t *testing.T) {
			for name, page := range pages {
				dated := strings.Replace(page, " undated ", " 2026-11-23 ", 1) // as of a release
				file := fileFor(t, tool[0], dated)
				cmd := exec.CommandContext(t.Context(), tool[0], append(tool[1:], file)...)
				var said bytes.Buffer
				cmd.Stderr = &said
				if tool[0] == "mandoc" { // which says it on standard output
					cmd.Stdout = &said
				}
				if err := cmd.Run(); err != nil || said.Len() > 0 {
					t.Errorf("%s: %v: %s", name, err, said.String())
				}
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
