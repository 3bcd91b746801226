// What lives here: the scripts of testdata/scripts, run here and on a real redis-server, and their replies compared.

package fsm

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
)

// corpusScript is one script with the arguments that EVAL gets after it.
type corpusScript struct {
	source string
	args   []string
}

// readCorpus reads a file of testdata/scripts.
func readCorpus(t testing.TB, path string) []corpusScript {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []corpusScript
	for line := range strings.Lines(string(b)) {
		if args, ok := strings.CutPrefix(line, "---- "); ok {
			list = append(list, corpusScript{args: strings.Fields(args)})
			continue
		}
		if len(list) == 0 {
			t.Fatalf("%s: it begins without a line ----", path)
		}
		list[len(list)-1].source += line
	}
	for i := range list {
		list[i].source = strings.TrimSuffix(list[i].source, "\n")
	}
	return list
}

// corpusFiles are the files of testdata/scripts.
func corpusFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../testdata/scripts/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	return files
}

// newScriptNode is a machine to run scripts on, over log entries.
func newScriptNode() *scenarioSession {
	table := testTable()
	node := &scenarioNode{table: table, machine: newestMachine(table), clockMs: 1}
	return &scenarioSession{node: node, proto: 2}
}

func TestScriptsLikeRedis(t *testing.T) {
	socket := commandtest.StartRedis(t)
	if socket == "" {
		t.Skip(commandtest.RedisMissing)
	}
	for _, path := range corpusFiles(t) {
		scripts := readCorpus(t, path)
		for _, proto := range []string{"2", "3"} {
			t.Run(filepath.Base(path)+"/resp"+proto, func(t *testing.T) {
				real, err := commandtest.Dial("unix", socket)
				if err != nil {
					t.Fatal(err)
				}
				defer real.Close()
				here := newScriptNode()
				for _, call := range [][]string{{"FLUSHALL"}, {"HELLO", proto}} {
					if _, err := real.Do(commandtest.Args(call...)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := here.Do(commandtest.Args("HELLO", proto)); err != nil {
					t.Fatal(err)
				}
				for _, s := range scripts {
					args := commandtest.Args(append([]string{"EVAL", s.source}, s.args...)...)
					want, err := real.Do(args)
					if err != nil {
						t.Fatalf("%s: redis-server: %v", s.source, err)
					}
					got, err := here.Do(args)
					if err != nil {
						t.Fatalf("%s: %v", s.source, err)
					}
					if !bytes.Equal(got, want) {
						t.Errorf("%s\n  redis  %q\n  coordd %q", s.source, want, got)
					}
				}
			})
		}
	}
}
