// Package fsm is the replicated state machine: what a log entry means.
//
// A [Machine] is the whole state: the keyspace, the script cache and function libraries (package
// fsm/script), the shared settings, the feature level and the clocks. Only entries change it, so
// machines that applied the same entries are equal, byte for byte in a snapshot.
//
// An [Entry] holds batches; a batch holds the requests of one connection, each a command or a
// transaction. [Machine.Apply] stamps the clock, sweeps what has expired, and runs the requests in
// order through the handlers of the command table. It returns replies (on the node that proposed
// the entry), events for the clients of this node, and the work that was done. A batch and an entry
// stop at their work limits; what did not run has no reply.
//
// [Machine.Read] serves reads from the applied state. A command that may write is run dry: it stops
// where it would change something, and then belongs in the log. [Machine.Snapshot] freezes the
// state without copying it; [ReadSnapshot] makes a machine of a file.
//
// Members compare [Machine.StateSum], package cluster says how. Below commands.LevelSecond every
// 256th entry or so carries the leader's running hash over all changes, see [Check]. A machine
// whose own hash differs refuses the entry with a [DivergedError].
//
// [Adapter] connects a machine to hashicorp/raft and to package cluster, with the lock that admits
// either one writer or many readers. All else here is a pure function of the log: purity_test.go
// refuses clocks, randomness, goroutines, I/O and ranging over maps.
package fsm
