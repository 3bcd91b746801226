// Package fsm is the replicated state machine: the format of log entries, applying them to the keyspace through the
// command table, dry runs, and snapshots. All of it but adapter.go is a pure function of the log.
package fsm
