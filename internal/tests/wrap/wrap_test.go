package wrap

import (
	"strings"
	"testing"
)

var wide = strings.TrimSpace(strings.Repeat("word ", 25))

const (
	filled = "word word word word word word word word word word " +
		"word word word word word word word word word word"
	rest = "word word word word word"
)

func TestMarkdown(t *testing.T) {
	for _, c := range []struct{ what, text, want string }{
		{"a short paragraph", "a\nb\n\nc\n", "a\nb\n\nc\n"},
		{"a wide line", wide, filled + "\n" + rest},
		{"what follows it in the paragraph", "a\n" + wide + "\nb\n\nc",
			"a " + strings.TrimSuffix(filled, " word") + "\nword " + rest + " b\n\nc"},
		{"an item", "- a\n- " + wide + "\n  b\n- c", "- a\n- " +
			strings.TrimSuffix(filled, " word") + "\n  word " + rest + " b\n- c"},
		{"a row", "| " + wide + " |", "| " + wide + " |"},
		{"a heading", "# " + wide, "# " + wide},
		{"indented code", "    " + wide, "    " + wide},
		{"code", "```\n" + wide + "\n```\n" + wide,
			"```\n" + wide + "\n```\n" + filled + "\n" + rest},
		{"a hard break", wide + "  \nb", wide + "  \nb"},
		{"a sign that would begin a list", filled + " - b", filled + " - b"},
		{"a word that is too wide", strings.Repeat("x", 120), strings.Repeat("x", 120)},
	} {
		got := Markdown(c.text)
		if c.what == "a sign that would begin a list" {
			if strings.Contains(got, "\n-") {
				t.Errorf("%s: %q", c.what, got)
			}
		} else if got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.what, got, c.want)
		}
		if again := Markdown(got); again != got {
			t.Errorf("%s: a second time gives %q", c.what, again)
		}
	}
}

func TestComments(t *testing.T) {
	for _, c := range []struct{ what, text, want string }{
		{"a wide line", "\t// " + wide + "\n\tx()", "\t// " +
			strings.TrimSuffix(filled, " word word") + "\n\t// word word " + rest + "\n\tx()"},
		{"code", "//\t" + wide, "//\t" + wide},
		{"a directive", "//go:generate " + wide, "//go:generate " + wide},
		{"behind code", "x() // " + wide, "x() // " + wide},
		{"two paragraphs", "// a\n//\n// " + wide, "// a\n//\n// " +
			strings.TrimSuffix(filled, " word") + "\n// word " + rest},
	} {
		if got := Comments(c.text); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.what, got, c.want)
		}
	}
}
