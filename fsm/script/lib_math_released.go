// The math library below LevelSecond: functions of package math, whose last bits differ between
// processors and between versions of Go. Nothing else may call them.

package script

import "math"

func releasedAcos(x float64) float64     { return math.Acos(x) }
func releasedAsin(x float64) float64     { return math.Asin(x) }
func releasedAtan(x float64) float64     { return math.Atan(x) }
func releasedAtan2(y, x float64) float64 { return math.Atan2(y, x) }
func releasedCos(x float64) float64      { return math.Cos(x) }
func releasedCosh(x float64) float64     { return math.Cosh(x) }
func releasedExp(x float64) float64      { return math.Exp(x) }
func releasedLog(x float64) float64      { return math.Log(x) }
func releasedPow(x, y float64) float64   { return math.Pow(x, y) }
func releasedSin(x float64) float64      { return math.Sin(x) }
func releasedSinh(x float64) float64     { return math.Sinh(x) }
func releasedTan(x float64) float64      { return math.Tan(x) }
func releasedTanh(x float64) float64     { return math.Tanh(x) }

// releasedLog10 is exact for powers of ten. Go's is not: its log10(1000) is slightly below 3.
func releasedLog10(f float64) float64 {
	r := math.Log10(f)
	if n := math.Round(r); math.Abs(r-n) < 1e-9 && math.Abs(n) < 300 && math.Pow10(int(n)) == f {
		return n
	}
	return r
}
