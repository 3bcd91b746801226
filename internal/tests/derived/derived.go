package derived

import (
	"fmt"
	"os"
	"strings"
)

const end = "<!-- end -->"

// Part returns the part of a document between its marks, <!-- derived: NAME --> and <!-- end -->,
// and what stands before and behind it, with the marks.
func Part(text, name string) (before, part, after string, err error) {
	begin := "<!-- derived: " + name + " -->\n"
	before, rest, ok := strings.Cut(text, begin)
	part, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", "", "", fmt.Errorf("the marks of the part %q are missing", name)
	}
	return before + begin, part, end + after, nil
}

// Write replaces a part of the document in a file.
func Write(path, name, part string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, _, after, err := Part(string(text), name)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(before+part+after), 0o644)
}
