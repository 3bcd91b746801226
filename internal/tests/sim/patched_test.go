//go:build coordd_sim

package sim

import _ "unsafe" // for linkname

// patched: see runtimepatch.
const patched = true

//go:linkname setSeed
func setSeed(seed uint64)

// seedRuntime makes the bubble's scheduler and random numbers follow a seed, until it ends.
func seedRuntime(seed uint64) func() {
	setSeed(seed<<1 | 1)
	return func() { setSeed(0) }
}
