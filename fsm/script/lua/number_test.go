package lua

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// Integers and plain digits take a short way, with the results of the long one.
func TestNumbersOfFewDigits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for digits := range 19 {
		for range 1000 {
			n := float64(r.Int64N(int64(pow10(digits)) + 1))
			for _, f := range []float64{n, -n, n + 1, pow10(digits) - 1, n / 8} {
				for _, precision := range []int{14, 16, 17} {
					want := strconv.FormatFloat(f, 'g', precision, 64)
					if got := string(AppendNumber(nil, f, precision)); got != want {
						t.Fatalf("%v with %d digits: %s, want %s", f, precision, got, want)
					}
				}
			}
			text := strings.Repeat("0", r.IntN(3)) + strconv.FormatInt(int64(n), 10)
			want, err := strconv.ParseFloat(text, 64)
			if f, ok := ParseNumber(text); err != nil || !ok || f != want {
				t.Fatalf("%s: %v %v, want %v", text, f, ok, want)
			}
		}
	}
	for _, text := range []string{"", "1a", "a1", "-", "12 3"} {
		if f, ok := ParseNumber(text); ok {
			t.Errorf("%q: %v", text, f)
		}
	}
}

func pow10(n int) float64 {
	p := 1.0
	for range n {
		p *= 10
	}
	return p
}
