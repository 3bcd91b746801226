package node

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/server"
)

var update = flag.Bool("update", false, "write the golden file of a level above the released ones")

// TestCatalogOfUsers holds the commands that rules of users can name at LevelSecond, with what
// decides there whether a call may run: categories, what is done to keys, channels, and whether
// maxmemory refuses it. A later release that adds a command to the level, or changes one, would
// decide otherwise than its neighbors. New commands have a later Level.
func TestCatalogOfUsers(t *testing.T) {
	table := commands.NewTable(commands.Specs(), server.Specs())
	var text strings.Builder
	line := func(s *commands.Spec, level uint64) {
		if max(s.Level, level) > commands.LevelSecond {
			return
		}
		fmt.Fprintf(&text, "%s %s", s.FullName(), strings.Join(s.Categories().Names(), ","))
		if s.Has(commands.NoAuth) {
			text.WriteString(" no-auth")
		}
		for _, part := range s.KeyParts() {
			text.WriteString(" keys:" + strings.Join(part.Flags.Words(), ","))
		}
		if s.Channels != commands.NoChannels {
			fmt.Fprintf(&text, " channels:%d", s.Channels)
		}
		switch {
		case s.Grows != nil, s.Script != nil:
			text.WriteString(" may-grow")
		case s.Has(commands.DenyOOM):
			text.WriteString(" grows")
		}
		text.WriteByte('\n')
	}
	for _, s := range table.All() {
		line(s, 0)
		for i := range s.Subcommands {
			line(&s.Subcommands[i], s.Level)
		}
	}
	const golden = "../../testdata/golden/catalog-level-3.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		for l := range strings.Lines(text.String()) {
			if !strings.Contains(string(want), l) {
				t.Errorf("not in %s: %s", golden, l)
			}
		}
		t.Errorf("commands of LevelSecond are not those of %s", golden)
	}
}
