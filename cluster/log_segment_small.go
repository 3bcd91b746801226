//go:build coordd_small_segments

package cluster

// segmentSize lets tests that kill processes reach the end of a log file every few entries. No
// release has it.
var segmentSize = 16 << 10

// defaultTrailing lets them reach the end of the oldest one, and followers that need a snapshot.
const defaultTrailing = 32
