// This file holds the package documentation: what cluster does, and the life of a write and of a read.

// Package cluster replicates opaque requests over hashicorp/raft and answers them with their replies. It knows no
// command: a batch is an encoded run of requests of one connection, and the Machine that Open is given encodes batches
// into log entries, applies them and runs reads.
//
// # The life of a write
//
//  1. Write puts the batch into the node's intake queue and sleeps until its reply is there. No goroutine is started.
//  2. The proposer (one goroutine) takes all that is ready. On the leader it builds one log entry of it, stamped with
//     the cluster clock and marked with the term in which the stamp was read, and hands it to Raft; a few entries are
//     in flight at a time, so batches gather while the disks are busy. On a follower it sends one frame to the leader.
//  3. Raft makes the entry durable on a majority and applies it to the machine, which returns one reply a batch.
//  4. The completer (one goroutine) takes the entries in order of proposal and hands each batch its reply; a frame
//     that came from a follower is answered with one frame.
//
// # Certainty
//
// Three outcomes exist. A reply: the batch ran, once. ErrNotRun and ErrTooLarge: it did not run and never will.
// ErrUnknown: it may or may not have run. Raft refuses some entries before they enter any log (not the leader, a
// leadership transfer under way); a frame may not have begun to leave this node; an entry whose mark is not the term
// that it was logged in is void on every node. Those are routed again until LeaderWait is over. Everything else that
// goes wrong after the hand-over is ErrUnknown. Nothing resends a write whose outcome is not known.
//
// # The life of a read
//
//  1. Read puts the batch into the read queue. On a follower it goes to the leader in a frame.
//  2. On the leader the read loop (one goroutine) takes all that wait, notes the commit index, and asks the other
//     voters which term they are in. When with this node a majority is in no later term than the leader's own, no
//     later leader had been elected when the question was put, so the commit index covers every write that was
//     acknowledged by then. See read_confirm.go for why raft.VerifyLeader is not enough.
//  3. It waits until the machine has applied that index, and runs the batches.
//
// Before the first write or read of a term a Raft barrier has passed, so all earlier terms are applied.
//
// # The cluster clock
//
// Entries carry a stamp in milliseconds that only the leader's monotonic clock drives. A new leader continues from
// the newest stamp in its log plus the time since that entry arrived here, so the clock can lag over a change of
// leader, never run ahead. See clock.go.
package cluster
