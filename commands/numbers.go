package commands

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// ParseInt reads a signed 64-bit integer as strictly as Redis: no spaces, no plus sign, no leading zeros.
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

// ParseFloat reads a double as Redis does: what strtod takes, without spaces around it, and not NaN.
func ParseFloat(b []byte) (float64, bool) {
	s, ok := floatText(b)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !strings.Contains(err.Error(), "out of range") {
		return 0, false
	}
	if err != nil && math.IsInf(f, 0) {
		return 0, false // ERANGE upwards; a denormal that became zero is kept
	}
	return f, !math.IsNaN(f)
}

// floatText is b as Go's parsers take it, or false for texts that Go takes and C does not.
func floatText(b []byte) (string, bool) {
	if len(b) == 0 || len(b) > 5*1024 || strings.ContainsAny(string(b), "_ \t\n\v\f\r") {
		return "", false
	}
	s := string(b)
	low := strings.ToLower(strings.TrimLeft(s, "+-"))
	if strings.HasPrefix(low, "0x") && !strings.Contains(low, "p") {
		s += "p0" // C takes a hexadecimal float without an exponent
	}
	return s, true
}

// extended is a number of the precision that Redis adds increments with: the 64-bit mantissa of x87.
const extended = 64

// ParseExtended reads a float with 64 bits of mantissa, as INCRBYFLOAT does.
func ParseExtended(b []byte) (*big.Float, bool) {
	f, ok := ParseFloat(b)
	if !ok {
		return nil, false
	}
	if math.IsInf(f, 0) {
		return new(big.Float).SetInf(f < 0), true
	}
	s, _ := floatText(b)
	x, _, err := big.ParseFloat(s, 0, extended, big.ToNearestEven)
	if err != nil {
		return big.NewFloat(f).SetPrec(extended), true
	}
	return x, true
}

// FormatExtended writes the result of INCRBYFLOAT: up to 17 decimals without trailing zeros.
func FormatExtended(x *big.Float) string {
	s := x.Text('f', 17)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	if s == "-0" {
		return "0"
	}
	return s
}
