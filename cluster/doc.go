// Package cluster replicates opaque requests over hashicorp/raft and answers them. It knows no
// command: a batch is the encoded requests of one connection that travel together, and the Machine
// that Open receives encodes batches into log entries, applies entries and runs reads. Batches
// travel between nodes in frames.
//
// # A write
//
//  1. Node.Write puts the batch into the write queue and waits for its reply. It starts no
//     goroutine.
//  2. The proposer (one goroutine) takes everything that waits. On the leader it builds one log
//     entry, stamped with the cluster clock and marked with the term in which it read the stamp,
//     and hands it to Raft. A few entries are in flight at a time, so batches gather while the
//     disks are busy. On a follower it sends one frame to the leader.
//  3. Raft makes the entry durable on a majority and applies it to the machine, which returns one
//     reply per batch.
//  4. The completer (one goroutine) takes the entries in order of proposal and hands each batch its
//     reply. It answers a follower's frame with one frame.
//
// # Certainty
//
// A call has one of three outcomes:
//
//   - A reply: the batch ran, once.
//   - ErrNotRun or ErrTooLarge: it did not run and never will.
//   - ErrUnknown: it may or may not have run.
//
// Some failures are known to precede the log: Raft refuses the entry (not the leader), the frame
// never left this node, or the entry's mark is not the term in which it was logged, which voids it
// on every node. Such batches are rerouted until LeaderWait is over. Every other failure after the
// entry was handed to Raft is ErrUnknown. Nothing resends a write whose outcome is unknown.
//
// # A read
//
//  1. Node.Read puts the batch into the read queue. On a follower it goes to the leader in a frame.
//  2. On the leader the read loop (one goroutine) takes everything that waits, notes the commit
//     index, and asks the other voters for their term. If a majority, this node included, is in no
//     later term than the leader, no later leader was elected before the question, so the commit
//     index covers every write acknowledged by then. read_confirm.go says why raft.VerifyLeader
//     does not suffice.
//  3. It waits until the machine has applied that index, and runs the batches.
//
// Before the first write or read of a term a Raft barrier passes, so all earlier terms are applied.
//
// # The cluster clock
//
// Entries carry a stamp in milliseconds that only the leader's monotonic clock drives. A new leader
// continues from the newest stamp in its log plus the time since that entry arrived. So the clock
// can lag over a change of leader, but never runs ahead.
//
// # Packages and files
//
// Packages below this one know no node: clock is the cluster clock; fair shares processors among
// connections; raftlog is the log on disk, and disk what a node believes of its disk.
//
// The names of files sort by concept: node_* the node and its configuration; queue_*, propose and
// read_* the paths of requests; machine_* the seam to the state machine; leader_* leadership,
// elections and wall clocks; raft_* the adapters that Raft sees; peer_* connections between nodes;
// member_* membership and identity; log_* what Raft may do with the log, and snapshots; data_* the
// data directory.
package cluster
