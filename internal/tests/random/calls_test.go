package random

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

func TestWordsOfSyntax(t *testing.T) {
	for _, c := range []struct{ syntax, some string }{
		{"", ""},
		{"WORD", "WORD"},
		{"<A | B> C", "A C"},
		{"<A | B> C", "B C"},
		{"[A]", "A"},
		{"[A]", ""},
		{"[A | B C]", "B C"},
		{"[A [A ...]]", "A A"},
		{"[NX|XX] [CH]", "XX CH"},
		{"A [B [C]] D", "A B C D"},
	} {
		args, err := commands.ParseSyntax(c.syntax)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		g := NewCalls(commands.NewTable(), 1)
		for range 300 {
			seen[strings.Join(g.Words(args), " ")] = true
		}
		if !seen[c.some] {
			t.Errorf("%s never gives %q but %v", c.syntax, c.some, seen)
		}
	}
}
