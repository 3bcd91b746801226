package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/invariant"
)

// TestInvariantsAreListed: docs/testing.md has what a node checks while it runs.
func TestInvariantsAreListed(t *testing.T) {
	const begin, end = "<!-- invariants -->\n", "<!-- /invariants -->\n"
	doc, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(doc), begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatal("docs/testing.md has no place for them")
	}
	var rows strings.Builder
	rows.WriteString("| Invariant | What holds | Otherwise |\n|---|---|---|\n")
	for _, r := range invariant.All() {
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", r.Name, r.Holds, r.Otherwise)
	}
	keep(t, "docs/testing.md", before+begin+rows.String()+end+after)
}
