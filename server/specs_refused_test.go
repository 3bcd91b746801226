// Keeps the unsupported commands disjoint from the command table.

package server

import (
	"strings"
	"testing"
)

func TestRefusedCommandsAreNotInTheTable(t *testing.T) {
	table := testTable()
	for name := range refused {
		container, sub, _ := strings.Cut(name, "|")
		c := table.Get([]byte(container))
		if sub == "" && c != nil || c != nil && table.Subcommand(c, []byte(sub)) != nil {
			t.Errorf("%s is refused, and in the table", name)
		}
	}
}
