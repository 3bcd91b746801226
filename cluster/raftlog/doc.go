// Package raftlog is the log on disk: raft-wal's, and for directories of release 0.1 raft-boltdb's,
// made to accept entries again after anything that happened to it, and to be believed only where it
// proves that nothing is missing (docs/adr/0013 and 0056).
//
// What Raft may do with it, and when, is its caller's: this package stores, reads, deletes, and
// says what it has room for.
package raftlog
