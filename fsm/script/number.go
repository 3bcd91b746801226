// Numbers as bytes, and character classes.

package script

import (
	"math"

	"github.com/coordd/coordd/internal/ascii"
)

// nanBits is the NaN that is written as bytes, whatever sign and payload the processor gave it:
// x86's 0/0.
const nanBits = 0xFFF8000000000000

// canonical returns f, with the same NaN for all.
func canonical(f float64) float64 {
	if f != f {
		return math.Float64frombits(nanBits)
	}
	return f
}

// numeralInstructions is the cost of a number for a library function that writes many.
const numeralInstructions = 6

// hasFold reports whether s begins with prefix (lower case), ignoring ASCII case.
func hasFold(s, prefix string) bool {
	return len(s) >= len(prefix) && ascii.Equal(s[:len(prefix)], prefix)
}

// The character classes of C's "C" locale; bytes from 128 up belong to none.

func isDigit(c byte) bool    { return c >= '0' && c <= '9' }
func isLower(c byte) bool    { return c >= 'a' && c <= 'z' }
func isUpper(c byte) bool    { return c >= 'A' && c <= 'Z' }
func isAlpha(c byte) bool    { return isLower(c | 0x20) }
func isAlnum(c byte) bool    { return isAlpha(c) || isDigit(c) }
func isHexDigit(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
func isSpace(c byte) bool    { return c == ' ' || c >= '\t' && c <= '\r' }
func isControl(c byte) bool  { return c < ' ' || c == 0x7f }
func isPunct(c byte) bool    { return c > ' ' && c < 0x7f && !isAlnum(c) }
