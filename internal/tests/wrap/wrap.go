package wrap

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// Columns is how wide a line is at most. A tab counts for tabColumns.
const (
	Columns    = 100
	tabColumns = 4
)

// Width returns how wide a line is.
func Width(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// paragraph is lines that can be filled again.
type paragraph struct {
	lines       []string
	first, rest string // what begins the first line and the others
}

// flush appends the paragraph to lines, filled again if one of it is too wide.
func (p *paragraph) flush(lines []string) []string {
	defer func() { *p = paragraph{} }()
	wide, words := false, []string(nil)
	for i, line := range p.lines {
		wide = wide || Width(line) > Columns
		prefix := p.rest
		if i == 0 {
			prefix = p.first
		}
		line = strings.TrimPrefix(line, strings.TrimRight(prefix, " "))
		words = append(words, strings.Fields(line)...)
	}
	if !wide {
		return append(lines, p.lines...)
	}
	line := p.first
	for i, word := range words {
		switch {
		case i == 0:
			line += word
		case Width(line)+1+Width(word) > Columns && !begins.MatchString(word):
			lines = append(lines, line)
			line = p.rest + word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

var (
	// begins is a word that would begin something else at the start of a line.
	begins = regexp.MustCompile(`^([-*+#>|]+|\d+[.)])$`)
	item   = regexp.MustCompile(`^ {0,3}([-*+]|\d+[.)]) +`)
	// verbatim is a line of Markdown that is no prose: a heading, a row, code, a mark, a quotation,
	// or one that ends where it does.
	verbatim = regexp.MustCompile(`^(#|    |\s*\||\s*<|\s*>|\s*\[[^]]*\]: |\s*$)|(  |\\)$`)
)

// Markdown returns a document whose prose is not too wide.
func Markdown(text string) string {
	var lines []string
	var p paragraph
	code := false
	for _, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch mark := item.FindString(line); {
		case fence || code || verbatim.MatchString(line):
			lines = append(p.flush(lines), line)
			code = code != fence
		case mark != "":
			lines = p.flush(lines)
			p = paragraph{[]string{line}, mark, strings.Repeat(" ", len(mark))}
		case len(p.lines) == 0:
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			p = paragraph{[]string{line}, indent, indent}
		default:
			p.lines = append(p.lines, line)
		}
	}
	return strings.Join(p.flush(lines), "\n")
}

// comment is a line with nothing but prose in a comment.
var comment = regexp.MustCompile(`^\t*// [^ \t]`)

// Comments returns Go sources, formatted by gofmt, whose comments are not too wide, but for those
// behind code. Raw strings that look like comments are comments to it.
func Comments(text string) string {
	var lines []string
	var p paragraph
	for _, line := range strings.Split(text, "\n") {
		prefix := line[:len(line)-len(strings.TrimLeft(line, "\t"))] + "// "
		switch {
		case !comment.MatchString(line) || item.MatchString(line[len(prefix):]):
			lines = append(p.flush(lines), line)
		case len(p.lines) > 0 && p.rest == prefix:
			p.lines = append(p.lines, line)
		default:
			lines = p.flush(lines)
			p = paragraph{[]string{line}, prefix, prefix}
		}
	}
	return strings.Join(p.flush(lines), "\n")
}
