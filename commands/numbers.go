package commands

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/coordd/coordd/internal/ascii"
)

// ParseInt parses a signed 64-bit integer as strictly as Redis: no spaces, no plus sign, no leading
// zeros.
func ParseInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	digits := b
	if b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || (digits[0] == '0' && len(b) > 1) {
		return 0, false
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	switch {
	case b[0] != '-':
		return int64(n), n <= math.MaxInt64
	case n == 1<<63:
		return math.MinInt64, true
	}
	return -int64(n), n <= math.MaxInt64
}

// ParseFloat parses a double as Redis does: as strtod, but without surrounding spaces, NaN,
// overflow or underflow.
func ParseFloat(b []byte) (float64, bool) {
	if f, ok := parseDigits(b); ok {
		return f, true
	}
	s, ok := floatText(b)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || (f == 0 && !zeroText(b)) {
		return 0, false
	}
	return f, true
}

// parseDigits parses a number that is nothing but a few digits, as most are.
func parseDigits(b []byte) (f float64, ok bool) {
	const most = 18 // digits that an int64 holds; its conversion rounds as ParseFloat does
	if len(b) == 0 || len(b) > most {
		return 0, false
	}
	n := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return float64(n), true
}

// zeroText reports whether the valid number in b has only zero digits before its exponent.
func zeroText(b []byte) bool {
	digits, exponent := "123456789", "eE"
	if strings.ContainsAny(string(b), "xX") {
		digits, exponent = "123456789abcdefABCDEF", "pP"
	}
	mantissa := string(b)
	if i := strings.IndexAny(mantissa, exponent); i >= 0 {
		mantissa = mantissa[:i]
	}
	return !strings.ContainsAny(mantissa, digits)
}

// maxFloatText is the longest text that is parsed as a float, as on Redis.
const maxFloatText = 5 * 1024

// floatText returns b as Go's parsers accept it, or false for texts that Go accepts and C does not.
func floatText(b []byte) (string, bool) {
	if len(b) == 0 || len(b) > maxFloatText || strings.ContainsAny(string(b), "_ \t\n\v\f\r") {
		return "", false
	}
	s := string(b)
	low := ascii.Lower(strings.TrimLeft(s, "+-"))
	if strings.HasPrefix(low, "0x") && !strings.Contains(low, "p") {
		s += "p0" // C allows a hexadecimal float without an exponent
	}
	return s, true
}

// extended is the precision of Redis's increments: the 64-bit mantissa of x87.
const extended = 64

// The range of x87's exponents, as big.Float counts them: larger numbers are infinite, smaller ones
// are refused.
const (
	maxExponent = 16384
	minExponent = -16444
)

// ParseExtended parses a float with 64 bits of mantissa, as INCRBYFLOAT does. It may be infinite.
func ParseExtended(b []byte) (*big.Float, bool) {
	s, ok := floatText(b)
	if !ok {
		return nil, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if math.IsNaN(f) || (err != nil && !errors.Is(err, strconv.ErrRange)) {
		return nil, false
	}
	if math.IsInf(f, 0) && err == nil { // spelled as infinity
		return new(big.Float).SetPrec(extended).SetInf(f < 0), true
	}
	x, _, err := big.ParseFloat(s, 0, extended, big.ToNearestEven)
	if err != nil || x.IsInf() || (x.Sign() == 0 && !zeroText(b)) {
		return nil, false
	}
	if e := x.MantExp(nil); x.Sign() != 0 && (e > maxExponent || e < minExponent) {
		return nil, false
	}
	return x, true
}

// AddExtended adds with 64 bits of mantissa. It returns false if the sum is infinite.
func AddExtended(a, b *big.Float) (*big.Float, bool) {
	if a.IsInf() || b.IsInf() {
		return nil, false
	}
	sum := new(big.Float).SetPrec(extended).Add(a, b)
	return sum, sum.MantExp(nil) <= maxExponent
}

// noDecimals is the exponent below which a number has no 17 decimals that are not 0: 2^-60 is less
// than half of 10^-17.
const noDecimals = -60

// extendedWork is the cost of parsing or formatting any number with 64 bits of mantissa.
const extendedWork = 16

// spendDigits charges for parsing or formatting such a number: its text may have some 5,000 digits.
// The time of a short one was not charged before LevelSecond.
func (x *Call) spendDigits(text []byte) {
	units := min(len(text), maxFloatText) / 2
	if x.Level >= LevelSecond {
		units += extendedWork
	}
	x.Spend(units)
}

// FormatExtended formats the result of INCRBYFLOAT: up to 17 decimals without trailing zeros.
func FormatExtended(x *big.Float) string {
	if x.Sign() != 0 && x.MantExp(nil) < noDecimals {
		// big.Float would first format all of its thousands of digits, which takes milliseconds
		return "0"
	}
	return trimZeros(x.Text('f', 17))
}

// trimZeros returns a decimal number without trailing zeros after the point, and without the sign
// of a zero.
func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}
