//go:build coordd_tests

package cluster

// small has tests that kill processes reach the end of a log file every few entries, the end of the
// oldest one, and followers that need a snapshot. The linker sets it to "yes", see
// internal/tests/binaries. No release has it.
var small string

var segmentSize, defaultTrailing = func() (int, uint64) {
	if small != "" {
		return 16 << 10, 32
	}
	return 0, 10240
}()
