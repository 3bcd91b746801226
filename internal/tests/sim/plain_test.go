//go:build !coordd_sim

package sim

// patched: a goroutine that waits for a mutex keeps time from passing, so nobody may sleep who
// may hold one.
const patched = false

func seedRuntime(uint64) func() { return func() {} }
