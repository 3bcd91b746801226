package lua

// Numbers as text and back, as in C Lua 5.1 on Linux: "%.14g" for a number as a string, strtod for
// a string as a number.

import (
	"math"
	"strconv"
	"strings"

	"github.com/coordd/coordd/internal/ascii"
)

// nanText is how every NaN is written. C Lua on x86 writes "-nan" for 0/0 and "nan" after a unary
// minus. IEEE leaves a NaN's sign to the processor, so text that showed it could differ between
// nodes. Redis shows this text in nearly every case.
const nanText = "-nan"

// FormatNumber writes f as C's "%.14g" does ("inf", "-inf", "-nan", "-0" among them).
func FormatNumber(f float64) string {
	return string(AppendNumber(make([]byte, 0, 24), f, 14))
}

// AppendNumber appends f as C's "%.<precision>g" writes it; precision is at least 1.
func AppendNumber(buf []byte, f float64, precision int) []byte {
	switch {
	case f != f:
		return append(buf, nanText...)
	case math.IsInf(f, 0):
		if f < 0 {
			buf = append(buf, '-')
		}
		return append(buf, "inf"...)
	case (precision == 14 && math.Abs(f) < 1e14 || precision == 17 && math.Abs(f) < 1e17) &&
		f == math.Trunc(f) && (f != 0 || !math.Signbit(f)):
		return strconv.AppendInt(buf, int64(f), 10)
	}
	return strconv.AppendFloat(buf, f, 'g', precision, 64)
}

// ParseNumber reads a whole string as a number, as C Lua does: in strtod's syntax, surrounded by
// optional white space. A zero byte ends the text.
func ParseNumber(s string) (f float64, ok bool) {
	if f, ok = parseDigits(s); ok {
		return f, true
	}
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	f, n := ScanNumber(s)
	if n == 0 {
		return 0, false
	}
	for ; n < len(s); n++ {
		if !isSpace(s[n]) {
			return 0, false
		}
	}
	return f, true
}

// parseDigits reads a number that is nothing but a few digits, as most are.
func parseDigits(s string) (f float64, ok bool) {
	const most = 18 // digits that an int64 holds; its conversion rounds as ParseFloat does
	if len(s) == 0 || len(s) > most {
		return 0, false
	}
	n := int64(0)
	for _, c := range []byte(s) {
		if !isNumeral(c) {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return float64(n), true
}

// ScanNumber reads the number at the start of s as C's strtod does: white space, a sign, then
// digits with a fraction and an exponent, hexadecimal digits after 0x with a binary exponent,
// "inf", "infinity" or "nan", in any case. n is the number of bytes read, 0 if there is no number.
func ScanNumber(s string) (f float64, n int) {
	i := 0
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	start := i
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		i++
	}
	if end, value := scanWord(s, i); end > 0 {
		if s[start] == '-' {
			value = -value
		}
		return value, end
	}
	digits, expMark, suffix := isNumeral, byte('e'), ""
	first := i
	if i+1 < len(s) && s[i] == '0' && s[i+1]|0x20 == 'x' && startsMantissa(s[i+2:], isHexDigit) {
		digits, expMark, suffix = isHexDigit, 'p', "p0"
		first = i + 2
	}
	i = scanMantissa(s, first, digits)
	if i < 0 {
		return 0, 0
	}
	if e := scanExponent(s, i, expMark); e > i {
		i, suffix = e, ""
	}
	f, _ = strconv.ParseFloat(s[start:i]+suffix, 64) // out of range gives ±Inf or 0, as strtod does
	return f, i
}

// scanWord reads "infinity", "inf", "nan" or "nan(chars)" at s[i:]; end is 0 if there is none.
func scanWord(s string, i int) (end int, value float64) {
	switch {
	case hasFold(s[i:], "infinity"):
		return i + 8, math.Inf(1)
	case hasFold(s[i:], "inf"):
		return i + 3, math.Inf(1)
	case hasFold(s[i:], "nan"):
		end = i + 3
		if end < len(s) && s[end] == '(' {
			j := end + 1
			for j < len(s) && isWord(s[j]) {
				j++
			}
			if j < len(s) && s[j] == ')' {
				end = j + 1
			}
		}
		return end, math.NaN()
	}
	return 0, 0
}

// hasFold reports whether s begins with prefix (lower case), ignoring ASCII case.
func hasFold(s, prefix string) bool {
	return len(s) >= len(prefix) && ascii.Equal(s[:len(prefix)], prefix)
}

// startsMantissa reports whether s begins with digits, or with a point and a digit.
func startsMantissa(s string, digit func(byte) bool) bool {
	if s != "" && s[0] == '.' {
		s = s[1:]
	}
	return s != "" && digit(s[0])
}

// scanMantissa returns the end of digits[.digits] at s[i:], -1 if there is no digit.
func scanMantissa(s string, i int, digit func(byte) bool) int {
	if !startsMantissa(s[i:], digit) {
		return -1
	}
	for i < len(s) && digit(s[i]) {
		i++
	}
	if i < len(s) && s[i] == '.' {
		for i++; i < len(s) && digit(s[i]); {
			i++
		}
	}
	return i
}

// scanExponent returns the end of the exponent at s[i:], i if there is no complete one.
func scanExponent(s string, i int, mark byte) int {
	if i >= len(s) || s[i]|0x20 != mark {
		return i
	}
	j := i + 1
	if j < len(s) && (s[j] == '+' || s[j] == '-') {
		j++
	}
	if j >= len(s) || !isNumeral(s[j]) {
		return i
	}
	for j < len(s) && isNumeral(s[j]) {
		j++
	}
	return j
}

func isNumeral(c byte) bool  { return c >= '0' && c <= '9' }
func isHexDigit(c byte) bool { return isNumeral(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
func isSpace(c byte) bool    { return c == ' ' || c >= '\t' && c <= '\r' }
func isWord(c byte) bool     { return isNumeral(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' }
