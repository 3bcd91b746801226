package observe

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown characters of a key or a name are shown.
const maxShown = 160

// Show returns what clients have typed in a form that is safe to print: on one line, valid UTF-8,
// without control characters, and without characters that turn around the text beside them.
func Show(s string) string {
	var b strings.Builder
	shown := 0
	for i, w := 0, 0; i < len(s); i += w {
		var r rune
		if r, w = utf8.DecodeRuneInString(s[i:]); shown == maxShown {
			fmt.Fprintf(&b, "… (%d bytes)", len(s))
			break
		}
		shown++
		switch {
		case r == '\\': // it begins what stands for other characters
			b.WriteString(`\\`)
		case r == utf8.RuneError && w == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}
