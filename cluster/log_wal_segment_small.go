//go:build coordd_small_segments

package cluster

// segmentSize lets tests that kill processes meet the end of a file of the log every few entries. No release has it.
const segmentSize = 16 << 10
