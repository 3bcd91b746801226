// What the wall clocks of the members say: the time of day jumps only where a majority of them is.

package clock

import (
	"math"
	"slices"
)

// WrongWallMs is how far wall clocks may differ before this is logged.
const WrongWallMs = 1000

// Walls is what the wall clocks of the voters say.
type Walls struct {
	AheadMs int64 // a majority is ahead of this node's by as much at least
	Known   bool  // there are so many
	Settled bool  // those that are not known yet would change nothing
}

// MajorityOf returns what the clocks of some voters say, of which silent ones may say more.
func MajorityOf(ahead []int64, silent, voters int) (w Walls) {
	w.AheadMs, w.Known = majorityAt(slices.Clone(ahead), voters)
	most, _ := majorityAt(append(ahead, slices.Repeat([]int64{math.MaxInt64}, silent)...), voters)
	w.Settled = silent == 0 || w.Known && most != math.MaxInt64 && most-w.AheadMs <= WrongWallMs
	return w
}

// steerTo returns how far what the time of day follows is ahead of this node's wall clock: 0,
// unless a majority of the wall clocks is ahead of it, or behind.
func steerTo(ahead []int64, voters int) int64 {
	if least, ok := majorityAt(slices.Clone(ahead), voters); ok && least > 0 {
		return least
	}
	behind := make([]int64, len(ahead))
	for i, ms := range ahead {
		behind[i] = -ms
	}
	if least, ok := majorityAt(behind, voters); ok && least > 0 {
		return -least
	}
	return 0
}

// majorityAt returns the largest value that a majority of the voters is at or past, given the
// values of some of them; false: of too few.
func majorityAt(values []int64, voters int) (value int64, ok bool) {
	if len(values) <= voters/2 {
		return 0, false
	}
	slices.Sort(values)
	return values[len(values)-1-voters/2], true
}
