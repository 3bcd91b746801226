// Powers.

package lua

import (
	"math"

	"github.com/coordd/coordd/internal/libm"
)

// HardUnits is what a function of package libm costs besides, if its arguments are hard.
const HardUnits = 2000

// releasedPower is the operator ^ up to feature level 2. Its last bits depend on the processor, so
// what replays entries of these levels must do so on one that applied them.
func releasedPower(a, b float64) float64 { return math.Pow(a, b) }

// power is the operator ^, and charges for a hard one.
func (L *LState) power(a, b float64) float64 {
	if !L.G.RoundsPowers {
		return releasedPower(a, b)
	}
	z, hard := libm.Pow(a, b)
	if hard {
		L.G.Budget.Take(HardUnits, 0)
	}
	return z
}

// arithmetic is an operator.
func (L *LState) arithmetic(op int, a, b float64) float64 {
	if op == OP_POW {
		return L.power(a, b)
	}
	return arithmetic(op, a, b)
}
