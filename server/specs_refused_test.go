// Keeps the table of unsupported commands equal to docs/compatibility.md, and disjoint from the
// command table.

package server

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// leftOut returns the documentation's table for refusals.
func leftOut() string {
	var b strings.Builder
	b.WriteString("| Commands | Why, and what to use |\n|---|---|\n")
	for _, r := range refusals {
		var names []string
		for name := range strings.FieldsSeq(r.names) {
			names = append(names,
				"`"+strings.ToUpper(strings.NewReplacer("|*", " …", "|", " ").Replace(name))+"`")
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names, ", "), r.why)
	}
	return b.String()
}

func TestRefusalsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Left out\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if want := leftOut(); !found || !strings.Contains(section, want) ||
		strings.Count(section, "\n|") != strings.Count(want, "\n") {
		t.Errorf("docs/compatibility.md has to hold, under \"Left out\":\n%s", want)
	}
}

func TestRefusedCommandsAreNotInTheTable(t *testing.T) {
	table := commands.NewTable(commands.Specs(), Specs())
	for name := range refused {
		container, sub, _ := strings.Cut(name, "|")
		c := table.Get([]byte(container))
		if sub == "" && c != nil || c != nil && table.Subcommand(c, []byte(sub)) != nil {
			t.Errorf("%s is refused, and in the table", name)
		}
	}
}
