// docs/commands.md derives from the command table, and so do the marked parts of
// docs/compatibility.md. To regenerate both:
//
//	go test ./internal/tests/docs -update

package docs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/server"
)

var update = flag.Bool("update", false, "rewrite what derives from the command table")

const commandsDocHead = `# Commands

Derived from the command table: change the Spec, then run ` + "`go test ./internal/tests/docs -update`" + `.
Where a command differs from Redis 7.0.15, [compatibility.md](compatibility.md) says how.

- **Arity** counts the arguments, with the name of the command and of the subcommand. A negative
  number is a minimum.
- **Kind** says who answers. *Read*: the leader, after a quorum has confirmed its leadership,
  without a log entry. *Write*: the leader, through the log. *Session*: the node that the client is
  connected to, from the connection's state. *Admin*: the node that the client is connected to.
- **Since** is the version of Redis that introduced the command, of Valkey for CLIENT CAPA and
  DELIFEQ. 0.x is the version of coordd that introduced a command that Redis lacks.
`

var kindNames = map[commands.Kind]string{
	commands.Session: "session", commands.Read: "read", commands.Write: "write",
	commands.Admin: "admin",
}

// commandsDoc returns the text of docs/commands.md and the number of rows of its table.
func commandsDoc(t *commands.Table) (text string, rows int) {
	var b strings.Builder
	row := func(s *commands.Spec) {
		rows++
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s | %s |\n",
			cell(s.Usage()), s.Arity, kindNames[s.Kind], cell(s.Group), cell(s.Since),
			cell(s.Summary))
	}
	b.WriteString(commandsDocHead)
	b.WriteString(
		"\n| Command | Arity | Kind | Group | Since | Summary |\n|---|---|---|---|---|---|\n")
	for _, s := range t.All() {
		// A container that cannot be called itself appears only through its subcommands.
		if s.Subcommands == nil || s.Handler != nil || s.Local != nil {
			row(s)
		}
		for i := range s.Subcommands {
			row(&s.Subcommands[i])
		}
	}
	return b.String(), rows
}

// cell escapes bars: in a table they end a cell even between backquotes.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

func TestCommandsDoc(t *testing.T) {
	want, rows := commandsDoc(commands.NewTable(commands.Specs(), server.Specs()))
	for _, line := range strings.Split(want, "\n") {
		if strings.HasPrefix(line, "| `") && (strings.Contains(line, "|  |") ||
			strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 7) {
			t.Errorf("a cell is empty or the row is broken: %s", line)
		}
	}
	keep(t, "docs/commands.md", want)
	t.Logf("%d commands", rows)
}

// keep compares a document with the wanted text, or writes that.
func keep(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(root, name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) == want {
		return
	}
	wantLines, haveLines := strings.Split(want, "\n"), strings.Split(string(have), "\n")
	for i := range max(len(wantLines), len(haveLines)) {
		w, h := "", ""
		if i < len(wantLines) {
			w = wantLines[i]
		}
		if i < len(haveLines) {
			h = haveLines[i]
		}
		if w != h {
			t.Fatalf("%s is stale: run `go test ./internal/tests/docs -update`\n"+
				"line %d is    %s\nand should be %s", name, i+1, h, w)
		}
	}
}
