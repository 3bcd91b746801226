// string.format: the conversions of C's printf that Lua 5.1 allows, and %q.

package script

import (
	"math"
	"strconv"
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/ascii"
)

// formatFlags are the flags of a conversion; Lua refuses more flag characters than there are flags.
const formatFlags = "-+ #0"

// formatSpec is one conversion of a format: %[flags][width][.precision]verb.
type formatSpec struct {
	left, plus, space, alternate, zero bool
	width                              int
	precision                          int // -1: none given
}

// stringFormat is string.format(format, ...).
func stringFormat(L *lua.LState) int {
	format := checkString(L, 1)
	b := budgetOf(L)
	chargeWork(L, len(format))
	out := text{L: L}
	arg := 1
	for i := 0; i < len(format); {
		c := format[i]
		i++
		if c != '%' {
			j := strings.IndexByte(format[i:], '%')
			if j < 0 {
				j = len(format) - i
			}
			out.write(format[i-1 : i+j])
			i += j
			continue
		}
		if i < len(format) && format[i] == '%' {
			out.write("%")
			i++
			continue
		}
		if arg++; arg > L.GetTop() {
			argError(L, arg, "no value")
		}
		var spec formatSpec
		spec, i = scanSpec(L, format, i)
		verb := byte(0)
		if i < len(format) {
			verb = format[i]
			i++
		}
		if verb == 'q' {
			b.Charge(L, numeralInstructions)
			out.quote(checkString(L, arg))
			continue
		}
		one := formatOne(L, spec, verb, arg)
		b.Charge(L, numeralInstructions+int64(len(one))/8+spec.floatCost(verb, L.Get(arg)))
		if verb != 's' {
			b.ChargeBytes(L, 3*int64(len(one))) // digits, padding and sign are put together
		}
		out.write(one)
	}
	return push(L, out.done())
}

// scanSpec reads flags, width and precision at format[i:], and returns them and the index of the
// verb.
func scanSpec(L *lua.LState, format string, i int) (formatSpec, int) {
	spec := formatSpec{precision: -1}
	start := i
	for ; i < len(format) && strings.IndexByte(formatFlags, format[i]) >= 0; i++ {
		switch format[i] {
		case '-':
			spec.left = true
		case '+':
			spec.plus = true
		case ' ':
			spec.space = true
		case '#':
			spec.alternate = true
		case '0':
			spec.zero = true
		}
	}
	if i-start > len(formatFlags) {
		raise(L, "invalid format (repeated flags)")
	}
	spec.width, i = scanTwoDigits(format, i)
	if i < len(format) && format[i] == '.' {
		spec.precision, i = scanTwoDigits(format, i+1)
	}
	if i < len(format) && isDigit(format[i]) {
		raise(L, "invalid format (width or precision too long)")
	}
	return spec, i
}

// scanTwoDigits reads at most two digits at s[i:], and returns their value (0 if there is none) and
// the index after them.
func scanTwoDigits(s string, i int) (value, end int) {
	for end = i; end < len(s) && end < i+2 && isDigit(s[end]); end++ {
		value = value*10 + int(s[end]-'0')
	}
	return value, end
}

// formatOne formats argument arg by one conversion.
func formatOne(L *lua.LState, spec formatSpec, verb byte, arg int) string {
	switch verb {
	case 'c':
		// C Lua reads sprintf's result up to the first zero byte. For character 0, that is the
		// padding.
		return cString(spec.pad(string([]byte{byte(truncate(checkNumber(L, arg)))}), false))
	case 'd', 'i':
		return spec.signed(truncate(checkNumber(L, arg)))
	case 'o', 'u', 'x', 'X':
		return spec.unsigned(truncateUnsigned(checkNumber(L, arg)), verb)
	case 'e', 'E', 'f', 'g', 'G':
		return spec.float(checkNumber(L, arg), verb)
	case 's':
		s := checkString(L, arg)
		if spec.precision < 0 && len(s) >= 100 {
			return s // too long to be padded, so C Lua returns it unchanged, zero bytes included
		}
		if spec.precision >= 0 && len(s) > spec.precision {
			s = s[:spec.precision]
		}
		return spec.pad(cString(s), false)
	}
	raise(L, "invalid option '%"+cString(string([]byte{verb}))+"' to 'format'")
	return ""
}

// cString returns s up to its first zero byte.
func cString(s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

// pad extends s to the width, with zeros after the sign or the 0x prefix if zeros are requested and
// allowed.
func (spec formatSpec) pad(s string, zeros bool) string {
	n := spec.width - len(s)
	if n <= 0 {
		return s
	}
	if spec.left {
		return s + strings.Repeat(" ", n)
	}
	if !zeros || !spec.zero {
		return strings.Repeat(" ", n) + s
	}
	digits := 0
	for digits < len(s) && (s[digits] == '+' || s[digits] == '-' || s[digits] == ' ') {
		digits++
	}
	if len(s) > digits+1 && s[digits] == '0' && s[digits+1]|0x20 == 'x' {
		digits += 2
	}
	return s[:digits] + strings.Repeat("0", n) + s[digits:]
}

// sign returns the prefix of a number that is not negative.
func (spec formatSpec) sign() string {
	switch {
	case spec.plus:
		return "+"
	case spec.space:
		return " "
	}
	return ""
}

// precise adds leading zeros up to the precision; 0 with precision 0 has no digit at all.
func (spec formatSpec) precise(digits string) string {
	if spec.precision == 0 && digits == "0" {
		return ""
	}
	if n := spec.precision - len(digits); n > 0 {
		return strings.Repeat("0", n) + digits
	}
	return digits
}

// signed is %d and %i.
func (spec formatSpec) signed(n int64) string {
	sign, digits := spec.sign(), ""
	if n < 0 {
		sign, digits = "-", strconv.FormatUint(-uint64(n), 10)
	} else {
		digits = strconv.FormatInt(n, 10)
	}
	return spec.pad(sign+spec.precise(digits), spec.precision < 0)
}

// unsigned is %o, %u, %x and %X.
func (spec formatSpec) unsigned(n uint64, verb byte) string {
	var digits string
	switch verb {
	case 'o':
		digits = spec.precise(strconv.FormatUint(n, 8))
		if spec.alternate && !strings.HasPrefix(digits, "0") {
			digits = "0" + digits
		}
	case 'u':
		digits = spec.precise(strconv.FormatUint(n, 10))
	default:
		digits = spec.precise(strconv.FormatUint(n, 16))
		if spec.alternate && n != 0 {
			digits = "0x" + digits
		}
		if verb == 'X' {
			digits = ascii.Upper(digits)
		}
	}
	return spec.pad(digits, spec.precision < 0)
}

// floatCost is what formatting a float costs beyond other numbers. All digits of one are derived
// from an integer as long as its exponent.
func (spec formatSpec) floatCost(verb byte, v lua.LValue) int64 {
	switch verb | 0x20 {
	case 'e', 'g':
		if spec.precision <= 16 {
			return 0
		}
	case 'f':
	default:
		return 0
	}
	f, _ := toNumber(v)
	_, exponent := math.Frexp(f)
	return int64(max(exponent, -exponent)) / 3
}

// float is %e, %E, %f, %g and %G.
func (spec formatSpec) float(f float64, verb byte) string {
	sign := spec.sign()
	if math.Signbit(f) && f == f {
		sign, f = "-", -f
	}
	var s string
	finite := true
	switch {
	case f != f:
		s, sign, finite = "nan", "-", false
	case math.IsInf(f, 0):
		s, finite = "inf", false
	default:
		s = spec.digits(f, verb|0x20)
	}
	if isUpper(verb) {
		s = ascii.Upper(s)
	}
	return spec.pad(sign+s, finite)
}

// digits formats a finite f >= 0 with verb 'e', 'f' or 'g'.
func (spec formatSpec) digits(f float64, verb byte) string {
	precision := spec.precision
	if precision < 0 {
		precision = 6
	}
	if verb != 'g' {
		s := strconv.FormatFloat(f, verb, precision, 64)
		if spec.alternate && precision == 0 {
			s = withPoint(s)
		}
		return s
	}
	precision = max(precision, 1)
	s := strconv.FormatFloat(f, 'e', precision-1, 64)
	mark := strings.IndexByte(s, 'e')
	exponent, _ := strconv.Atoi(s[mark+1:])
	if exponent >= -4 && exponent < precision {
		s = strconv.FormatFloat(f, 'f', precision-1-exponent, 64)
		mark = len(s)
	}
	mantissa, tail := s[:mark], s[mark:]
	switch {
	case spec.alternate:
		if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
	case strings.Contains(mantissa, "."):
		mantissa = strings.TrimSuffix(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + tail
}

// withPoint adds a decimal point after the integer digits of s, which has no fraction.
func withPoint(s string) string {
	if mark := strings.IndexByte(s, 'e'); mark >= 0 {
		return s[:mark] + "." + s[mark:]
	}
	return s + "."
}

// quote writes s as %q does: as a literal that the Lua compiler reads back.
func (t *text) quote(s string) {
	chargeWork(t.L, len(s))
	t.addByte('"')
	start := 0
	for i := range len(s) {
		escape := ""
		switch s[i] {
		case '"':
			escape = `\"`
		case '\\':
			escape = `\\`
		case '\n':
			escape = "\\\n"
		case '\r':
			escape = `\r`
		case 0:
			escape = `\000`
		default:
			continue
		}
		t.write(s[start:i])
		t.write(escape)
		start = i + 1
	}
	t.write(s[start:])
	t.addByte('"')
}
