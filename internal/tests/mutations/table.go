package mutations

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/tests/derived"
)

// Doc is the document with the table of what found the mutations, between the marks.
const (
	Doc   = "docs/testing.md"
	part  = "mutations"
	title = "| Mutation | What is broken | Found by | After |\n|---|---|---|---|\n"
)

// Row returns the row of the table for a mutation that a test found.
func Row(m Mutation, test string, after time.Duration) string {
	test, _, _ = strings.Cut(test, "/")
	return fmt.Sprintf("| %s | %s | `%s` of `%s` | %.1f s |", m.Name, m.What, test,
		strings.TrimPrefix(m.Find.Package, "./"), after.Seconds())
}

// Rows returns the rows of a document's table, by mutation.
func Rows(text string) (map[string]string, error) {
	_, table, _, err := derived.Part(text, part)
	rows := map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(table, title)) {
		cells := strings.SplitN(line, "|", 3)
		if len(cells) == 3 {
			rows[strings.TrimSpace(cells[1])] = strings.TrimSpace(line)
		}
	}
	return rows, err
}

// Update returns a document with new rows. Those of mutations that did not run stay; those of
// mutations that are no more go.
func Update(text string, list []Mutation, found map[string]string) (string, error) {
	before, _, after, err := derived.Part(text, part)
	if err != nil {
		return "", err
	}
	rows, err := Rows(text)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, m := range list {
		row := rows[m.Name]
		if found[m.Name] != "" {
			row = found[m.Name]
		}
		if row != "" {
			lines = append(lines, row)
		}
	}
	slices.Sort(lines)
	return before + title + strings.Join(lines, "\n") + "\n" + after, nil
}
