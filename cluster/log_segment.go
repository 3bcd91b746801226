//go:build !coordd_tests

package cluster

// segmentSize is the size of the log's files; 0: raft-wal's default, 64 MiB. This package's tests
// lower it.
var segmentSize = 0

// defaultTrailing is how many entries a log keeps after a snapshot for followers that lag.
const defaultTrailing = 10240
