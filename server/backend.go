package server

// This file declares what the server needs of the rest of coordd.

import (
	"context"
	"io"
	"time"

	"github.com/coordd/coordd/commands"
)

// Asker tells whose a run is and what is in it, so that a connection that asks for much does not hold up those that ask for little.
type Asker struct {
	Source  uint64 // the connection; 0: the server itself
	Command uint64 // a hash of what is asked for; 0: not told. Runs with the same one are expected to do alike
	Shape   uint64 // a hash of that and of what it is asked of: the first key
}

// Backend runs requests. A run is count requests encoded one after the other by commands.AppendRequest; its result is
// their RESP replies, one after the other. They may be fewer than count, but one at least: the requests behind them did not run, because the replies or the
// work would have been too much for one run, and are to be sent again. The text of an error is the error reply, code word first ("CLUSTERDOWN …", "UNKNOWN …"), for
// every request of the run. Nobody keeps the run or changes the replies after the call.
type Backend interface {
	// Write puts the run in the log and returns when it is durable and applied.
	Write(ctx context.Context, by Asker, batch []byte, count int) ([]byte, error)
	// Read runs requests that change nothing, linearizably.
	Read(ctx context.Context, by Asker, batch []byte, count int) ([]byte, error)
	// Try is Read for a run that may write: it is run up to the first request that would change anything. There may be no reply at all.
	Try(ctx context.Context, by Asker, batch []byte, count int) ([]byte, error)
	// ReadLocal runs requests that change nothing on this node's own state, however old it is.
	ReadLocal(by Asker, batch []byte, count int) ([]byte, error)
	// Share runs f, which answers a command of the session by a computation, and waits for nobody. Where that takes long it is one f at a
	// time, fairly among the connections. The error is an error reply, and says that f did not run.
	Share(by Asker, f func()) error
	// Observe says of which keys' changes Deliver is to be told from now on: of those that wants answers true for, of none if it is
	// nil. What a run that is handed over afterwards does not see of a change, Deliver is told of.
	Observe(wants func(db int, key string) bool)
	// ValueBytes estimates what the values of keys of a database take on this node, as it has them now. ok is false where it would have to wait.
	ValueBytes(db int, keys [][]byte) (bytes int, ok bool)
	// Status tells about the node and its cluster. It waits for nobody, neither the machine nor Raft: probes ask it, and those who are
	// to hear in time that the node is busy.
	Status() Status
	// Stats counts what the state holds. It waits for what the machine is at.
	Stats() Stats
	// Watch says whether Deliver is to be told from now on of the commands that scripts call, in requests that say who asks.
	Watch(on bool)
	// HandOver gives leadership to a member, or to the one that is furthest where id is empty, and returns when another node leads. The text of an
	// error is the error reply.
	HandOver(id string) error
	// Snapshot writes a snapshot of the state, which the log is cut by, and returns when it is on disk.
	Snapshot() error
	// ChangeMembers has the leader, whichever node that is, change the members of the cluster, and returns when that is done. The text of an
	// error is the error reply.
	ChangeMembers(c MemberChange) error
	// MembersSeen asks the leader what it knows of the members.
	MembersSeen() ([]Member, error)
	// Holders asks the leader, whichever node that is, who holds everything that was acknowledged by now.
	Holders(ctx context.Context) (Holders, error)
	// Backup takes the state as it is now, no older than what was acknowledged on any node before the call.
	Backup(ctx context.Context) (Backup, error)
	// Stop begins to stop the node. It does not wait.
	Stop()
	// WatchLeader gives a channel that has a token after each change of the leader, and a function that ends the watch.
	WatchLeader() (<-chan struct{}, func())
	// Role is Status's alone, for each connection's greeting: it costs next to nothing and waits for nobody.
	Role() string
}

// Holders tells who holds the log: everything that was acknowledged before the question lies at or below Index, and the voters that do not lead are
// known to have it on disk, and applied, up to Others.
type Holders struct {
	Index  uint64
	Others []uint64
}

// Backup is the state at one moment. It may be written while commands run, more than once, with the same bytes.
type Backup interface {
	// Size is how many bytes WriteTo writes. To know it costs as much as to write them.
	Size() int64
	WriteTo(w io.Writer) (int64, error)
}

// Status is what INFO, ROLE, WAIT and the health pages tell about the node and its cluster.
type Status struct {
	NodeID     string
	Role       string // leader, follower or candidate
	LeaderID   string // empty: not known
	LeaderAddr string // where clients reach the leader, host:port
	Ready      bool   // takes commands now
	NotReady   string // why it does not
	LogTrouble string // why it stores no entries at present; it takes commands all the same, which the others store. Empty: it does
	Removed    bool   // the node was removed from the cluster
	Joining    bool   // it waits to be taken into a cluster
	Loading    bool   // it loads a snapshot, or has yet to apply what was in its log when it started

	Term, Commit, Applied, LastLog uint64        // raft's term; indexes of the log
	ClockMs                        int64         // the cluster clock, ms
	LeaderContact                  time.Duration // since a follower last heard from its leader; the leader has 0
	Members                        []Member

	// Behind is how many entries that the leader has committed this node has yet to apply, and BehindFor how long at least it has not
	// applied something that was committed, as far as it knows of the leader.
	Behind    uint64
	BehindFor time.Duration

	SnapshotIndex     uint64    // of the newest snapshot; 0: none
	SnapshotTime      time.Time // when it was taken
	Level, KnownLevel uint64    // the feature level of the state, and the newest that this node knows
	Snapshotting      bool      // one is being written, or received
}

// Stats counts what the state holds.
type Stats struct {
	Databases            []DatabaseStatus // by number
	Expired              uint64           // keys that expired since the state began
	Libraries, Functions int              // of functions, and the functions in them
	Scripts              int              // in the cache
	Notify               commands.NotifyFlags
}

// ChangeKind is what a change of the members does.
type ChangeKind string

// The kinds of changes.
const (
	AddMember      ChangeKind = "add" // PeerAddr is the new node's
	RemoveMember   ChangeKind = "remove"
	PromoteMember  ChangeKind = "promote"
	TransferLeader ChangeKind = "transfer" // ID may be empty: to the voter that is furthest
)

// MemberChange is one change of the members.
type MemberChange struct {
	Kind         ChangeKind
	ID, PeerAddr string
}

// Member is a node of the cluster.
type Member struct {
	ID         string
	PeerAddr   string
	ClientAddr string // empty: not known
	Voter      bool
	Connected  bool   // this node has a connection to it
	KnownLevel uint64 // the newest feature level that it knows, as it last told the leader; 0: not known
	// Match is the index up to which the member's log is known to be durable; known on the leader alone, 0 elsewhere.
	Match uint64
	// Applied is the index up to which it is known to have applied the log, on the leader alone too.
	Applied uint64
	// LastContact is the time since the leader last heard from it; known on the leader alone, negative elsewhere.
	LastContact time.Duration
}

// DatabaseStatus counts the keys of a database.
type DatabaseStatus struct {
	Keys, Volatile int
}
