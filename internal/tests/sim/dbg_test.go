//go:build coordd_dbg

package sim

import (
	"runtime"
	"slices"
	"testing"
	_ "unsafe"
)

//go:linkname takeTrace
func takeTrace() [][4]uint64

func TestDbg(t *testing.T) {
	seed := uint64(*firstSeed)
	run(t, newSchedule(seed), nil)
	takeTrace()
	run(t, newSchedule(seed), nil)
	a := slices.Clone(takeTrace())
	run(t, newSchedule(seed), nil)
	b := slices.Clone(takeTrace())
	for i := range a {
		if a[i][0] != b[i][0] || a[i][1] != b[i][1] || a[i][2] != b[i][2] {
			t.Logf("differs at %d of %d", i, len(a))
			for j := max(0, i-15); j < i+6; j++ {
				fa, fb := runtime.FuncForPC(uintptr(a[j][0])).Name(), runtime.FuncForPC(uintptr(b[j][0])).Name()
				t.Logf("%s %x %d g%d | %s %x %d g%d", fa, a[j][1], a[j][2], a[j][3], fb, b[j][1], b[j][2], b[j][3])
			}
			return
		}
	}
}
