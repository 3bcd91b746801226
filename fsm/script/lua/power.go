// Powers.

package lua

import (
	"math"

	"github.com/coordd/coordd/internal/libm"
)

// What a power costs besides if it is rounded correctly, and what a function of package libm does
// if its arguments are hard.
const (
	roundedUnits = 4
	HardUnits    = 2000
)

// releasedPower is the operator ^ at feature level 1. Its last bits depend on the processor, so
// what replays entries of these levels must do so on one that applied them.
func releasedPower(a, b float64) float64 { return math.Pow(a, b) }

// power is the operator ^. It charges for a rounded one; the next instruction ends a spent budget.
func (L *LState) power(a, b float64) float64 {
	if !L.G.RoundsPowers {
		return releasedPower(a, b)
	}
	units := int64(roundedUnits)
	z, hard := libm.Pow(a, b)
	if hard {
		units += HardUnits
	}
	L.G.Budget.Take(units, 0)
	return z
}

// arithmetic is an operator.
func (L *LState) arithmetic(op int, a, b float64) float64 {
	if op == OP_POW {
		return L.power(a, b)
	}
	return arithmetic(op, a, b)
}
