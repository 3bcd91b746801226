// What the server needs from the rest of coordd.

package server

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
)

// Workload says which connection sends a batch and what the batch does, so that one busy connection
// does not delay the others.
type Workload struct {
	Conn uint64 // the connection; 0: the server itself
	// a hash of the command; 0: unknown. Batches with the same hash should cost alike
	Command uint64
	Shape   uint64 // a hash of the command and its first key
	Light   bool   // of O(log n) work besides its bytes
	// how long it waits for a leader; 0: as long as the node lets requests wait, negative: not
	LeaderWait time.Duration
}

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
	// Waits reports whether the state, as this node has applied it, has the wait of a number.
	Waits(number uint64) bool
	// WaitingNodes returns the ids of the nodes with commands that wait in the state. It is cheap
	// if there are none.
	WaitingNodes() []string
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
	Stats() Stats
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
	// HasOthers reports whether there are other nodes. It never waits.
	HasOthers() bool
	// AskOthers asks the other nodes, whose Server.Answer answers, and returns the answers that
	// came in time, in no order. Questions have at most 1 MiB, answers 4 MiB.
	AskOthers(question []byte) [][]byte
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

// Replication is what the leader knows of how far the log is replicated.
type Replication struct {
	// Index: every write acknowledged before the question is at or below it.
	Index uint64
	// Others are the indexes up to which the voters other than the leader are known to have stored
	// and applied the log, in no order.
	Others []uint64
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
	NodeID     string
	Role       string // leader, follower or candidate
	LeaderID   string // empty: unknown
	LeaderAddr string // client address of the leader, host:port
	Ready      bool   // accepts commands
	// why clients should not be sent to the node; empty: they may be, if it is ready
	NotReady string
	// the operator's next act against NotReady; empty: none, or it depends on the other members
	Next string
	// why it cannot store entries, empty: it can. Without, it still accepts commands, which the
	// others store
	LogTrouble string
	// why its newest snapshot could not be read back; empty: it could
	SnapshotTrouble string
	Removed         bool // the node was removed from the cluster
	Joining         bool // waiting to be added to a cluster
	Loading         bool // loading a snapshot, or applying the log of before the start

	Term, Commit, Applied, LastLog uint64 // Raft's term; log indexes
	ClockMs                        int64  // the cluster clock, ms
	// since a follower last heard from the leader; 0 on the leader
	LeaderContact time.Duration
	Members       []Member

	// Behind is how many entries committed by the leader this node has yet to apply, and BehindFor
	// how long it has been behind, as far as it knows.
	Behind    uint64
	BehindFor time.Duration

	SnapshotIndex     uint64    // of the newest snapshot; 0: none
	SnapshotTime      time.Time // when it was taken
	Level, KnownLevel uint64    // feature level of the state, and the newest that this node knows
	Snapshotting      bool      // one is being written or received
}

// Stats counts what the state holds.
type Stats struct {
	Databases            []DatabaseStatus // by number
	Expired              uint64           // keys expired since the state began
	Libraries, Functions int              // function libraries, and the functions in them
	Changes              uint64           // commands that changed something since the snapshot
	Scripts              int              // in the cache
	// runs of scripts and functions since the state was loaded, those of them that exceeded their
	// budgets, and their processor time by os.clock
	ScriptRuns, ScriptsStopped uint64
	ScriptSeconds              float64
	Notify                     commands.NotifyFlags
	Memory, MaxMemory          int64 // what the data counts and may count, bytes; 0: no limit
}

// ChangeKind is a kind of membership change.
type ChangeKind string

// Kinds of membership changes.
const (
	AddMember      ChangeKind = "add" // PeerAddr is the new node's
	RemoveMember   ChangeKind = "remove"
	PromoteMember  ChangeKind = "promote"
	TransferLeader ChangeKind = "transfer" // ID may be empty: the most up-to-date voter
)

// MemberChange is a membership change.
type MemberChange struct {
	Kind         ChangeKind
	ID, PeerAddr string
}

// Member is a node of the cluster.
type Member struct {
	ID         string
	PeerAddr   string
	ClientAddr string // empty: unknown
	TLSAddr    string // for clients over TLS; empty: unknown
	Voter      bool
	Connected  bool   // this node has a connection to it
	Fault      string // why this node has none; empty: it has, or has not tried yet
	Inbound    bool   // it has a connection to this node
	// the newest feature level it knows, as last reported to the leader; 0: unknown
	KnownLevel uint64
	Version    string        // of its coordd; empty: unknown
	Build      string        // what that was built from; empty: unknown
	Uptime     time.Duration // unknown unless Version is known
	Zone       string        // its availability zone; empty: unknown
	Priority   uint64        // for leading: the highest leads; 0: unknown
	Learner    bool          // it never becomes a voter
	State      string        // equal to the leader's or differs; empty: not compared yet
	// RemoveIn is when the leader removes the member, which it cannot reach; 0: not counted down;
	// the least duration above 0: as soon as another member makes up for it
	RemoveIn time.Duration
	// LastLog is the index up to which the member's log is known to be durable; 0 except on the
	// leader.
	LastLog uint64
	// Applied is the index up to which the member is known to have applied the log; 0 except on
	// the leader.
	Applied uint64
	// ReportedAt is the leader's commit index when the member reported LastLog and Applied; 0:
	// unknown.
	ReportedAt uint64
	// LastContact is the time since the leader last heard from it; negative except on the leader.
	LastContact time.Duration
}

// DatabaseStatus counts the keys of a database.
type DatabaseStatus struct {
	Keys, Volatile int
}
