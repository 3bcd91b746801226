// Runs the code of docs/guide.

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/tier"
)

// guidePage is the code of a page of the guide: blocks by language, and its Lua files by name.
type guidePage struct {
	name   string
	blocks map[string][]string
	lua    map[string]string
}

var (
	guideBlock   = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	guidePrinted = regexp.MustCompile(`(?m)(?://|#) → (.*)$`)
	luaFile      = regexp.MustCompile(`^-- (\w+\.lua)`)
)

func readGuide(t *testing.T) (prologue map[string][]string, pages []guidePage) {
	t.Helper()
	files, err := filepath.Glob("../../../docs/guide/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p := guidePage{strings.TrimSuffix(filepath.Base(file), ".md"), map[string][]string{},
			map[string]string{}}
		for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "lua" {
				p.blocks[m[1]] = append(p.blocks[m[1]], m[2])
			} else if name := luaFile.FindStringSubmatch(m[2]); name != nil {
				p.lua[name[1]] = m[2]
			} else {
				t.Errorf("%s: a block of Lua does not begin with its name", file)
			}
		}
		for _, language := range guideLanguages {
			if len(p.blocks[language.name]) != len(p.blocks["go"]) {
				t.Errorf("%s has %d blocks of Go and %d of %s", file, len(p.blocks["go"]),
					len(p.blocks[language.name]), language.name)
			}
		}
		if p.name == "README" {
			prologue = p.blocks
		} else {
			pages = append(pages, p)
		}
	}
	if len(pages) == 0 || prologue == nil {
		t.Fatal("found no pages, or no README.md")
	}
	return prologue, pages
}

// guideLanguage is a language of the guide. head goes before the prologue of docs/guide/README.md.
type guideLanguage struct {
	name  string
	needs []string // as missing has it
	file  string
	run   []string // the file follows
	probe []string // a command that fails, and says why, if the library is missing
	head  string
	tail  string
}

const nodeModules = "testdata/clients/node/node_modules"

var guideLanguages = []guideLanguage{
	{name: "go", needs: []string{"go"}},
	{
		name: "js", needs: []string{"node", nodeModules + "/redis"}, file: "page.mjs",
		run: []string{"node"},
		head: `import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { createClient, defineScript, RESP_TYPES } from 'redis';
`,
		tail: "client.destroy();\n",
	},
	{
		// Debian's own interpreter: no other finds its libraries.
		name: "python", needs: []string{"python3"}, file: "page.py",
		run:   []string{"/usr/bin/python3"},
		probe: []string{"/usr/bin/python3", "-c", "import redis"},
		head:  "import json, os, random, secrets, threading, time\nimport redis\n",
	},
	{
		name: "php", needs: []string{"php"}, file: "page.php", run: []string{"php"},
		probe: []string{"php", "-r", "class_exists('Redis') || exit('no phpredis') || exit(1);"},
		head:  "<?php\ndeclare(strict_types=1);\n",
	},
	{name: "java", needs: []string{"javac"}},
}

// TestGuide runs the pages of docs/guide on a real node: what they print must be what their
// comments say. Those in Java are only parsed, for Jedis cannot be had where the tests run. Go and
// Java are in make test, the others take too long for it.
func TestGuide(t *testing.T) {
	tier.Check(t)
	prologue, pages := readGuide(t)
	server := startProcesses(t, 1)[0]
	for _, language := range guideLanguages {
		t.Run(language.name, func(t *testing.T) {
			if language.file != "" && os.Getenv("COORDD_GUIDE") == "" {
				t.Skip("SKIPPED: make guide runs it")
			}
			for _, need := range language.needs {
				if missing(need) {
					t.Skipf("SKIPPED: %s not found", need)
				}
			}
			if language.probe != nil {
				if out, err := exec.Command(language.probe[0],
					language.probe[1:]...).CombinedOutput(); err != nil || len(out) > 0 {
					t.Skipf("SKIPPED: no library for %s: %s", language.name, out)
				}
			}
			dir := t.TempDir()
			start := strings.Join(prologue[language.name], "")
			switch language.name {
			case "java":
				parseJava(t, dir, start, pages)
				return
			case "go":
				buildGo(t, dir, start, pages)
			case "js":
				modules, err := filepath.Abs("../../../" + nodeModules)
				if err == nil {
					err = os.Symlink(modules, filepath.Join(dir, "node_modules"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range pages {
				t.Run(p.name, func(t *testing.T) {
					c := server.client()
					if err := c.FlushAll(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
					code := strings.Join(p.blocks[language.name], "\n")
					run := []string{filepath.Join(dir, "guide"), p.name}
					if language.name != "go" {
						for name, text := range p.lua {
							writeFile(t, filepath.Join(dir, name), text)
						}
						writeFile(t, filepath.Join(dir, language.file),
							language.head+start+code+language.tail)
						run = append(slices.Clone(language.run), language.file)
					}
					lost := &lostReplies{t: t, direct: c, owed: map[string]*lostLease{}}
					addr := proxy(t, "tcp", server.addr, lost.requests, asItIs)
					runPage(t, dir, addr, run, guidePrinted.FindAllStringSubmatch(code, -1))
					lost.end()
					if (p.name == "locks" || p.name == "leader-election") && lost.played == 0 {
						t.Error("no reply was lost")
					}
					if acquires := strings.Contains(code, "LOCK.ACQUIRE"); acquires &&
						lost.acquired == 0 {
						t.Error("no reply to LOCK.ACQUIRE was lost")
					}
				})
			}
		})
	}
}

// runPage runs the program of a page and compares what it prints.
func runPage(t *testing.T, dir, addr string, run []string, printed [][]string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, run[0], run[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+addr)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var want strings.Builder
	for _, m := range printed {
		want.WriteString(m[1] + "\n")
	}
	if err != nil || string(out) != want.String() || want.Len() == 0 {
		t.Errorf("%v\nprinted:\n%s\nthe page says:\n%s\n%s", err, out, &want, &errs)
	}
}

// A declaration of Go begins at the start of a line, after a comment if it has one, and ends with
// the first line that closes what it opened.
var goDeclaration = regexp.MustCompile("(?ms)^(?://[^\n]*\n)*(?:func .*?^}\n|(?:type|var|const) " +
	"(?:[^\n]*[({`]\n.*?^[)}`][^\n]*\n|[^\n]*\n))")

// goImports are the packages of the examples, by the names that they have there.
var goImports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "json": "encoding/json",
	"mathrand": "math/rand/v2", "os": "os", "rand": "crypto/rand",
	"redis": "github.com/redis/go-redis/v9", "strings": "strings", "sync": "sync", "time": "time",
}

// buildGo builds one program of all pages, each of which is a package.
func buildGo(t *testing.T, dir, start string, pages []guidePage) {
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, file), string(text))
	}
	imports, cases := "", ""
	for _, p := range pages {
		name := strings.ReplaceAll(p.name, "-", "")
		var top, body strings.Builder
		for _, block := range p.blocks["go"] {
			top.WriteString(strings.Join(goDeclaration.FindAllString(block, -1), "\n"))
			if rest := goDeclaration.ReplaceAllString(block, ""); strings.TrimSpace(rest) != "" {
				fmt.Fprintf(&body, "if err := func() error {\n%s\nreturn nil\n}(); err != nil {\n"+
					"return err\n}\n", rest)
			}
		}
		code := fmt.Sprintf("%s\nfunc Run(ctx context.Context) error {\n%s\n%sreturn nil\n}\n",
			&top, start, &body)
		needs := "_ \"embed\"\n"
		for word, path := range goImports {
			if regexp.MustCompile(`\b` + word + `\.[A-Z]`).MatchString(code) {
				needs += fmt.Sprintf("%s %q\n", word, path)
			}
		}
		writeFile(t, filepath.Join(dir, name, "page.go"),
			fmt.Sprintf("package %s\n\nimport (\n%s)\n\n%s", name, needs, code))
		for file, text := range p.lua {
			writeFile(t, filepath.Join(dir, name, file), text)
		}
		imports += fmt.Sprintf("%q\n", "github.com/coordd/coordd/"+name)
		cases += fmt.Sprintf("case %q:\nerr = %s.Run(context.Background())\n", p.name, name)
	}
	writeFile(t, filepath.Join(dir, "main.go"), fmt.Sprintf(`package main

import (
	"context"
	"fmt"
	"os"
%s)

func main() {
	var err error
	switch os.Args[1] {
%s	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`, imports, cases))
	cmd := exec.Command("go", "build", "-o", "guide", ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// A method of Java in the examples, which stands at the start of a line.
var javaMethod = regexp.MustCompile(`(?ms)^(?://[^\n]*\n)*(?:static|record) .*?^}\n`)

// javaParser parses files and prints what is wrong with their syntax.
const javaParser = `import com.sun.source.util.JavacTask;
import java.io.File;
import java.util.*;
import javax.tools.*;

class Parse {
    public static void main(String[] names) throws Exception {
        var compiler = ToolProvider.getSystemJavaCompiler();
        var wrong = new DiagnosticCollector<JavaFileObject>();
        var files = compiler.getStandardFileManager(null, null, null);
        var task = (JavacTask) compiler.getTask(null, files, wrong, null, null,
                files.getJavaFileObjects(names));
        task.parse();
        wrong.getDiagnostics().forEach(System.out::println);
    }
}
`

// parseJava checks the syntax of the pages.
func parseJava(t *testing.T, dir, start string, pages []guidePage) {
	writeFile(t, filepath.Join(dir, "Parse.java"), javaParser)
	args := []string{"--add-modules", "jdk.compiler", "Parse.java"}
	for _, p := range pages {
		var top, body strings.Builder
		for _, block := range p.blocks["java"] {
			top.WriteString(strings.Join(javaMethod.FindAllString(block, -1), "\n"))
			fmt.Fprintf(&body, "{\n%s}\n", javaMethod.ReplaceAllString(block, ""))
		}
		file := strings.ReplaceAll(p.name, "-", "_") + ".java"
		writeFile(t, filepath.Join(dir, file), fmt.Sprintf(
			"class Page {\n%s\nvoid run() throws Exception {\n%s\n%s}\n}\n", &top, start, &body))
		args = append(args, file)
	}
	cmd := exec.Command("java", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err = errors.Join(err, os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}
