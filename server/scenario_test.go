// Runs testdata/sessions against a server over a socket, and against a real redis-server.

package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

const scenarioFiles = "../testdata/sessions/*.txt"

func TestScenarios(t *testing.T) {
	plainOnly(t)
	n := start(t, nil)
	commandtest.Run(t, scenarioFiles, commandtest.Server{
		Reset: func() error {
			n.fake.reset()
			n.guessing.mu.Lock() // nobody waits for having guessed wrong in an earlier file
			defer n.guessing.mu.Unlock()
			n.guessing.idle.Purge()
			return nil
		},
		Open: func() (commandtest.Target, error) { return commandtest.Dial("tcp", n.addr) },
	})
}

// TestEveryCommandHasAScenario fails for session commands that no scenario calls.
func TestEveryCommandHasAScenario(t *testing.T) {
	table := testTable()
	files, err := commandtest.Load(scenarioFiles)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	called := map[*commands.Spec]bool{}
	for _, f := range files {
		for _, s := range f.Steps {
			if len(s.Args) == 0 {
				continue
			}
			if c := table.Get(s.Args[0]); c != nil {
				called[c] = true
				if len(s.Args) > 1 {
					called[table.Subcommand(c, s.Args[1])] = true
				}
			}
		}
	}
	for _, spec := range Specs() {
		c := table.Get([]byte(spec.Name))
		if !called[c] {
			t.Errorf("no scenario calls %s", c.FullName())
		}
		for i := range c.Subcommands {
			if sub := &c.Subcommands[i]; !called[sub] {
				t.Errorf("no scenario calls %s", sub.FullName())
			}
		}
	}
}

// TestSpecsAreComplete holds every declaration against the rules that COMMAND and the documentation
// stand on.
func TestSpecsAreComplete(t *testing.T) {
	var check func(c *commands.Spec, path string)
	check = func(c *commands.Spec, path string) {
		name := path + c.Name
		checkDocumentation(t, name, c)
		checkHandling(t, name, c)
		for i := range c.Subcommands {
			check(&c.Subcommands[i], name+"|")
		}
	}
	specs := slices.Concat(Specs(), commands.Specs())
	for i := range specs {
		check(&specs[i], "")
	}
	if len(specs) < 25 {
		t.Error(fmt.Sprint(len(specs), " commands are too few"))
	}
}

// checkDocumentation checks the fields that COMMAND DOCS shows.
func checkDocumentation(t *testing.T, name string, c *commands.Spec) {
	t.Helper()
	missing := ""
	for _, f := range [][2]string{{"name", c.Name}, {"group", c.Group}, {"since", c.Since},
		{"summary", c.Summary}, {"complexity", c.Complexity}} {
		if f[1] == "" {
			missing += " " + f[0]
		}
	}
	if missing != "" || c.Arity == 0 {
		t.Errorf("%s: arity %d, without%s", name, c.Arity, missing)
	}
	first, _, _ := strings.Cut(c.Summary, " ")
	if !strings.HasSuffix(strings.TrimSuffix(first, ","), "s") ||
		!strings.HasSuffix(c.Summary, ".") {
		t.Errorf("%s: the summary %q is not a sentence in the third person", name, c.Summary)
	}
	if strings.Contains(c.Usage(), ":") && !strings.Contains(c.Usage(), ":port") {
		t.Errorf("%s: unknown type of an argument: %s", name, c.Usage())
	}
}

// checkHandling checks that something runs the command, and what dispatch knows of it.
func checkHandling(t *testing.T, name string, c *commands.Spec) {
	t.Helper()
	if c.Local == nil && c.Handler == nil && c.Subcommands == nil {
		t.Errorf("%s: nothing runs it", name)
	}
	blocks := c.Has(commands.Blocking) && c.Handler != nil
	if blocks != (c.Waits != commands.NeverWaits) {
		t.Errorf("%s: Waits is %d, but the flag Blocking is %v", name, c.Waits, blocks)
	}
	if (c.Kind == commands.Read || c.Kind == commands.Write) && c.Handler == nil &&
		c.Subcommands == nil {
		t.Errorf("%s: kind %d without a handler", name, c.Kind)
	}
}

// TestSyntaxesAreReadable holds every command's syntax against the notation that COMMAND DOCS and
// random tests read.
func TestSyntaxesAreReadable(t *testing.T) {
	var check func(c *commands.Spec)
	check = func(c *commands.Spec) {
		if _, err := commands.ParseSyntax(c.Syntax); err != nil {
			t.Errorf("%s: %v", c.FullName(), err)
		}
		for i := range c.Subcommands {
			check(&c.Subcommands[i])
		}
	}
	for _, c := range testTable().All() {
		check(c)
	}
}
