//go:build !coordd_small_segments

package cluster

// segmentSize is the size of the log's files; 0: raft-wal's default, 64 MiB.
const segmentSize = 0
