// Tests of what the wall clocks of the members say.

package clock

import (
	"slices"
	"testing"
)

// The time of day follows this node's clock, 0, unless a majority of the clocks is beyond it.
func TestSteerTo(t *testing.T) {
	for _, c := range []struct {
		ahead  []int64
		voters int
		want   int64
	}{
		{[]int64{0}, 1, 0},
		{[]int64{0}, 3, 0},
		{[]int64{0, 9}, 2, 0},
		{[]int64{0, -9}, 2, 0},
		{[]int64{0, 9}, 3, 0}, // the third decides
		{[]int64{0, -9}, 3, 0},
		{[]int64{0, 9, -9}, 3, 0},
		{[]int64{0, 7, 9}, 3, 7},
		{[]int64{-7, 0, -9}, 3, -7},
		{[]int64{0, 7, 9}, 4, 0},
		{[]int64{0, 7, 9, 8}, 4, 7},
		{[]int64{7, 9, 8}, 4, 7}, // this node has no vote
		{[]int64{0, 7, 9, 8}, 5, 7},
		{[]int64{0, -7, -9, -8}, 5, -7},
		{[]int64{0, -7, -9}, 5, 0},
	} {
		if got := steerTo(slices.Clone(c.ahead), c.voters); got != c.want {
			t.Errorf("%v of %d voters: %d, want %d", c.ahead, c.voters, got, c.want)
		}
	}
}

// A majority is at or past the value, whoever is silent or wrong.
func TestMajorityAt(t *testing.T) {
	for _, c := range []struct {
		values []int64
		voters int
		want   int64
		ok     bool
	}{
		{[]int64{7}, 1, 7, true},
		{nil, 1, 0, false},
		{[]int64{7}, 2, 0, false},
		{[]int64{7, 5}, 2, 5, true},
		{[]int64{0}, 3, 0, false},
		{[]int64{0, 900}, 3, 0, true}, // one is silent
		{[]int64{900, 0, 1}, 3, 1, true},
		{[]int64{-900, 0, 1}, 3, 0, true},
		{[]int64{900, 1, 900, 0}, 4, 1, true},
		{[]int64{900, 1, 900, 0, 2}, 5, 2, true},
		{[]int64{900, 1, 900}, 5, 1, true},
	} {
		got, ok := majorityAt(slices.Clone(c.values), c.voters)
		if got != c.want || ok != c.ok {
			t.Errorf("%v of %d voters: %d %v", c.values, c.voters, got, ok)
		}
	}
}

// It is settled what the clocks say once those that are silent cannot change it.
func TestMajorityIsSettled(t *testing.T) {
	for _, c := range []struct {
		ahead          []int64
		silent, voters int
		want           Walls
	}{
		{[]int64{0}, 0, 1, Walls{0, true, true}},
		{[]int64{0}, 2, 3, Walls{0, false, false}},
		{[]int64{0, 50}, 1, 3, Walls{0, true, true}},
		{[]int64{0, 5000}, 1, 3, Walls{0, true, false}},
		{[]int64{0, 5000}, 0, 3, Walls{0, true, true}}, // the third is of release 0.1
		{[]int64{0, 5000, 5001}, 0, 3, Walls{5000, true, true}},
		{[]int64{0}, 0, 3, Walls{0, false, true}},
		{[]int64{0, 1, 5000}, 2, 5, Walls{0, true, false}},
		{[]int64{0, 1, 5000, 2}, 1, 5, Walls{1, true, true}},
	} {
		if got := MajorityOf(c.ahead, c.silent, c.voters); got != c.want {
			t.Errorf("%v, %d silent of %d: %+v", c.ahead, c.silent, c.voters, got)
		}
	}
}
