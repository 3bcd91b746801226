// What the server needs from the rest of coordd.

package server

import (
	"context"
	"errors"
	"io"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
)

// What nodes of a cluster and their servers have in common.
type (
	// Workload says which connection sends a batch and what the batch does, so that one busy
	// connection does not delay the others.
	Workload = fair.Workload
	// Member is a node of the cluster.
	Member = membership.Member
	// MemberChange is a membership change.
	MemberChange = membership.Change
	// Replication is what the leader knows of how far the log is replicated.
	Replication = membership.Replication
)

// Outcome says what an Error means for the requests that it answers.
type Outcome uint8

const (
	// Unknown requests may or may not have run, or may still run. Sending them again may run them
	// twice.
	Unknown Outcome = iota
	// NotRun requests did not run and never will. They may succeed when they are sent again.
	NotRun
	// NoLeader is NotRun because the node reaches no leader.
	NoLeader
	// Refused requests did not run and never will. Sending them again does not help.
	Refused
)

// Error is how a Backend fails. Outcome tells the server what became of the requests, Reply tells
// the client.
type Error struct {
	Outcome Outcome
	Reply   string // the error reply, code word first
}

// Error returns the error reply.
func (e *Error) Error() string { return e.Reply }

// outcomeOf returns the outcome of err, Unknown if it is not an *Error.
func outcomeOf(err error) Outcome {
	var e *Error
	if errors.As(err, &e) {
		return e.Outcome
	}
	return Unknown
}

// Backend runs requests. A batch is requests encoded by commands.AppendRequest; the result is their
// RESP replies, both concatenated. The reply may be partial, with at least one element: the
// remaining requests did not run, because the replies or the work would exceed the limits of one
// batch, and are to be sent again. An error is an *Error and answers every request of the batch.
// The backend retains neither the batch nor the replies after the call.
type Backend interface {
	// Write logs a batch of count requests and returns when it is durable and applied.
	Write(ctx context.Context, load Workload, batch []byte,
		count int) (commands.Replies, error)
	// Read runs requests that change nothing, linearizably.
	Read(ctx context.Context, load Workload, batch []byte) (commands.Replies, error)
	// DryRun is Read for a batch that may write: it runs the requests before the first that would
	// change something, possibly none.
	DryRun(ctx context.Context, load Workload, batch []byte) (commands.Replies, error)
	// ReadLocal runs requests that change nothing on this node's own state, however old.
	ReadLocal(load Workload, batch []byte) (commands.Replies, error)
	// Schedule runs f, a computation for a session command that never waits. Long ones run one at a
	// time, fairly among connections. An *Error means that f did not run.
	Schedule(load Workload, f func()) error
	// Level returns the feature level of the state, as this node has applied it. It never waits.
	Level() uint64
	// ClockMs returns the cluster clock as far as this node knows it, which is not ahead, in ms. It
	// never waits.
	ClockMs() int64
	// Waits reports whether the state, as this node has applied it, has the wait of a number.
	Waits(number uint64) bool
	// LockTokens returns the tokens by which owners hold locks in the state, as this node has
	// applied it, 0 for those that do not, and the largest token that there may be. Deliver calls
	// it.
	LockTokens(of []commands.HeldLock) (tokens []uint64, newest uint64)
	// WaitingNodes returns the ids of the nodes with commands that wait in the state. It is cheap
	// if there are none.
	WaitingNodes() []string
	// FirstWait returns the number that comes before those that this process gives to waits. The
	// state knows by it which are of the process that proposed an entry.
	FirstWait() uint64
	// OwnWaits returns the numbers of the waits in the state that this node has sent, also those of
	// earlier processes. It is cheap if nobody waits.
	OwnWaits() []uint64
	// SubscribedNodes returns the ids of the nodes whose subscribers the state counts. It is cheap
	// if there are none.
	SubscribedNodes() []string
	// HolderNodes returns the ids of the nodes with connections that hold leases in the state, and
	// are there, as far as it knows. It is cheap if there are none.
	HolderNodes() []string
	// WaitsHeld reports whether the state serves nobody until waits are back that a change of
	// leader has dropped. It never waits.
	WaitsHeld() bool
	// Observe sets the key filter for Deliver; nil reports no changed keys. Deliver receives every
	// change that a batch sent afterwards does not see.
	Observe(wants func(db int, key string) bool)
	// ValueBytes estimates the size of the values of keys on this node, in its current state. ok
	// is false if it would have to wait.
	ValueBytes(db int, keys [][]byte) (bytes int, ok bool)
	// ScriptFlags returns the flags that a script, as this node knows it, declares. declared is
	// false if it declares none, or is unknown.
	ScriptFlags(s commands.Script) (flags commands.FunctionFlags, declared bool)
	// ScriptVerdicts returns the scripts that are refused, or were and are allowed, oldest first.
	ScriptVerdicts() []commands.ScriptVerdict
	// Users are the users as this node has applied them; nil until it has caught up with a leader
	// once.
	Users() *Users
	// Status describes the node and its cluster. It waits neither for the machine nor for Raft:
	// probes call it, and clients that should learn quickly that the node is busy.
	Status() Status
	// Stats counts what the state holds. It waits for the machine.
	Stats() commands.Stats
	// Watch sets whether Deliver receives the commands that scripts call, for requests that carry
	// a client number.
	Watch(on bool)
	// TransferLeadership transfers leadership to a member, or to the most up-to-date one if id is
	// empty, and returns when another node leads. It fails with an *Error.
	TransferLeadership(id string) error
	// Snapshot writes a snapshot, truncates the log, and returns when the snapshot is on disk.
	Snapshot() error
	// ChangeMembers asks the leader, on whichever node, to change the membership, and returns when
	// that is done. It fails with an *Error.
	ChangeMembers(c MemberChange) error
	// Found founds a cluster, if this node is one of those that wait for that, and returns its id:
	// also if it exists already. It fails with an *Error.
	Found() (cluster string, err error)
	// FoundingUsers are the first users of the cluster that Found would found; nil: it would not.
	FoundingUsers() *acl.Users
	// LeaderMembers asks the leader for its view of the members.
	LeaderMembers() ([]Member, error)
	// Replication asks the leader, on whichever node, how far the log is replicated.
	Replication(ctx context.Context) (Replication, error)
	// AskOthers asks the other nodes but those that are down. Their Server.Answer answers. It
	// returns the answers that came in time, in no order, and the ids of the nodes whose answers
	// did not. Questions have at most 1 MiB, answers 4 MiB.
	AskOthers(question []byte) (answers [][]byte, silent []string)
	// Barrier waits until this node has applied every write acknowledged on any node before the
	// call. It fails with an *Error.
	Barrier(ctx context.Context) error
	// Backup captures the state as this node has applied it. It is called after a Barrier.
	Backup() Backup
	// Stop starts stopping the node, without waiting.
	Stop()
	// WatchLeader returns a channel that receives a token after each change of leader, and a
	// function that ends the watch.
	WatchLeader() (<-chan struct{}, func())
	// Role returns Status's role. It is cheap and never waits: every HELLO calls it.
	Role() string
}

// Backup is the state at one moment. It can be written several times, while commands run, with
// identical bytes.
type Backup interface {
	// Size returns how many bytes WriteTo writes, at the cost of writing them.
	Size() int64
	WriteTo(w io.Writer) (int64, error)
}

// Status is what INFO, ROLE, WAIT and the health pages show about the node and its cluster.
type Status struct {
	membership.Status
	// why clients should not be sent to the node; empty: they may be, if it is ready
	NotReady string
	// the operator's next act against NotReady; empty: none, or it depends on the other members
	Next string
}
