package libm

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"math/big"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write tables.go")

// The constants and tables are what the oracle says. With -update the test writes them.
func TestTables(t *testing.T) {
	const file = "tables.go"
	want, err := format.Source(makeTables())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s is not what go test ./internal/libm -update writes", file)
	}
	for _, s := range [][]fix{expSeries[:], logSeries[:], sinSeries[:], cosSeries[:], atanSeries[:],
		sinhSeries[:]} {
		for i, c := range s {
			if c.hi == 0 && c.lo>>63 != 0 || i > 0 && s[i-1].hi == 0 && c.hi != 0 {
				t.Errorf("a sum that begins with %x may overflow one word", c)
			}
		}
	}
}

// bitsOf returns the first bits of x after the binary point, rounded down, in words.
func bitsOf(x *big.Float, places uint, words int) []uint64 {
	n, _ := new(big.Float).SetMantExp(x, int(places)).Int(nil)
	if x.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(64*words)))
	}
	list := make([]uint64, words)
	for i := words - 1; i >= 0; i-- {
		list[i] = new(big.Int).And(n, new(big.Int).SetUint64(1<<64-1)).Uint64()
		n.Rsh(n, 64)
	}
	return list
}

func hexWords(w []uint64) string {
	s := ""
	for i, x := range w {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%#016x", x)
	}
	return s
}

func fixOf(x *big.Float) string { return "{" + hexWords(bitsOf(x, 128, 2)) + "}" }

// tableWriter writes declarations.
type tableWriter struct{ bytes.Buffer }

func (w *tableWriter) list(comment, name, kind string, perLine int, items []string) {
	fmt.Fprintf(w, "\n// %s\nvar %s = [...]%s{", comment, name, kind)
	for i, item := range items {
		if i%perLine == 0 {
			fmt.Fprint(w, "\n")
		}
		fmt.Fprintf(w, "%s, ", item)
	}
	fmt.Fprint(w, "\n}\n")
}

// table lists the values of f from 0 up to n.
func table(n int, f func(i int) string) (items []string) {
	for i := range n {
		items = append(items, f(i))
	}
	return items
}

func makeTables() []byte {
	var w tableWriter
	fmt.Fprint(&w, "// The constants and tables, rounded down. Made by go test ./internal/libm "+
		"-update.\n\npackage libm\n")
	pi, log2 := oraclePi(2000), oracleLog(wideOf(2))
	one := wideOf(1)
	fmt.Fprintf(&w, "\n// quarterPi is π/4.\nvar quarterPi = fix%s\n", fixOf(ratio(pi, 4)))
	fmt.Fprintf(&w, "\n// inverseLog10 is 2/ln 10.\nvar inverseLog10 = fix%s\n",
		fixOf(quo(wideOf(2), oracleLog(wideOf(10)))))
	fmt.Fprintf(&w, "\n// log2E is 1/ln 2, times 2^63.\nconst log2E = %s\n",
		hexWords(bitsOf(quo(one, log2), 63, 1)))
	inverse := new(big.Float).SetPrec(2000).Quo(new(big.Float).SetPrec(2000).SetInt64(2), pi)
	single := func(words []uint64) []string {
		return table(len(words), func(i int) string { return hexWords(words[i : i+1]) })
	}
	w.list("log2Words is ln 2.", "log2Words", "uint64", 4, single(bitsOf(log2, 448, 7)))
	w.list("twoOverPi is 2/π.", "twoOverPi", "uint64", 4, single(bitsOf(inverse, 24*64, 24)))
	w.list("expHigh is e^(i/64)/2.", "expHigh", "fix", 2, table(45, func(i int) string {
		return fixOf(ratio(oracleExp(ratio(wideOf(float64(i)), 64)), 2))
	}))
	w.list("expMiddle is e^(i/4096) - 1.", "expMiddle", "fix", 2, table(64, func(i int) string {
		return fixOf(sub(oracleExp(ratio(wideOf(float64(i)), 4096)), one))
	}))
	w.list("logFactor is near 256/m for m from 1 + i/64 on; the first and the last are exact at "+
		"their ends.", "logFactor", "uint16", 12,
		table(64, func(i int) string { return fmt.Sprint(factorOf(i)) }))
	w.list("logFirst is -ln(factor/256), as word3.", "logFirst", "word3", 1,
		table(64, func(i int) string {
			l := oracleLog(ratio(wideOf(256), float64(factorOf(i))))
			return "{" + hexWords(bitsOf(l, 180, 3)) + "}"
		}))
	w.list("logSecond is -ln(1 - (i-64)/4096), as word3.", "logSecond", "word3", 1,
		table(129, func(i int) string {
			l := oracleLog(ratio(wideOf(4096), float64(4096-(i-64))))
			return "{" + hexWords(bitsOf(l, 180, 3)) + "}"
		}))
	w.list("sinCosOf is of i/64; the cosine of 0 is not used.", "sinCosOf",
		"struct{ sin, cos fix }", 1, table(51, func(i int) string {
			s, c := oracleSinCos(ratio(wideOf(float64(i)), 64))
			if i == 0 {
				c = wideOf(0)
			}
			return "{fix" + fixOf(s) + ", fix" + fixOf(c) + "}"
		}))
	w.list("arctangents is atan(i/64).", "arctangents", "fix", 2, table(65, func(i int) string {
		return fixOf(oracleAtan(ratio(wideOf(float64(i)), 64)))
	}))
	writeSeries(&w)
	return w.Bytes()
}

// factorOf is an element of logFactor.
func factorOf(i int) int {
	switch i {
	case 0:
		return 256
	case 63:
		return 128
	}
	return (256*128 + (129+2*i)/2) / (129 + 2*i) // 256 / (1 + (i+1/2)/64), rounded
}

func writeSeries(w *tableWriter) {
	factorial := func(n int) float64 {
		f := 1.0
		for i := 2; i <= n; i++ {
			f *= float64(i)
		}
		return f
	}
	s := func(n int, shift int, divisor func(n int) float64) []string {
		return table(n, func(i int) string {
			c := ratio(wideOf(1), divisor(i+1))
			return fixOf(c.SetMantExp(c, -shift*(i+1)))
		})
	}
	w.list("expSeries is 1/n!, for x times 2^12.", "expSeries", "fix", 2, s(9, 12, factorial))
	w.list("logSeries is 1/(n+1), for x times 2^11.", "logSeries", "fix", 2,
		s(11, 11, func(n int) float64 { return float64(n + 1) }))
	w.list("sinSeries is 1/(2n+1)!, for x² times 2^12.", "sinSeries", "fix", 2,
		s(6, 12, func(n int) float64 { return factorial(2*n + 1) }))
	w.list("cosSeries is 1/(2n)!, for x² times 2^12.", "cosSeries", "fix", 2,
		s(7, 12, func(n int) float64 { return factorial(2 * n) }))
	w.list("atanSeries is 1/(2n+1), for x² times 2^12.", "atanSeries", "fix", 2,
		s(9, 12, func(n int) float64 { return float64(2*n + 1) }))
	w.list("sinhSeries is 1/(2n+1)!, for x² times 2^4.", "sinhSeries", "fix", 2,
		s(12, 4, func(n int) float64 { return factorial(2*n + 1) }))
}
