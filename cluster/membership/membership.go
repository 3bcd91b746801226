// Roles, states, and what nodes and servers tell each other.

package membership

import "time"

// Roles in Status.
const (
	Leader    = "leader"
	Follower  = "follower"
	Candidate = "candidate"
)

// States of a Member: whether it has the state of the answering node, as last compared.
const (
	Equal   = "equal"
	Differs = "differs"
)

// Status is what a node knows of itself and of the cluster. Indexes are those of the Raft log.
type Status struct {
	ID         string
	ClientAddr string
	PeerAddr   string
	Role       string // Leader, Follower or Candidate
	LeaderID   string // empty: unknown
	LeaderAddr string // the leader's client address; empty: unknown
	// Ready: the node serves requests. A leader's barrier has passed; a follower is connected to a
	// leader that it has heard from lately.
	Ready      bool
	LogTrouble string // why this node stores no entries at present; empty: it does
	Term       uint64
	Commit     uint64
	// by the machine; the commit index if the machine has nothing left to apply up to it
	Applied     uint64
	LastLog     uint64
	ClockMs     int64         // cluster clock; an estimate unless the node leads
	LastContact time.Duration // since the leader was heard from; 0 on the leader, -1: never
	Members     []Member
	Removed     bool // removed from the cluster for good
	Joining     bool // waits to be added to a cluster
	// Awaits says what a node with Config.Discover that is Joining waits for, AwaitsNext what is
	// to be done.
	Awaits, AwaitsNext string

	Loading bool // loads a snapshot or replays the log
	// Stranger says that a node of another cluster is where this one's are; empty: it is not.
	Stranger  string
	Unreached bool // this node reaches others, and none of them reaches it at PeerAddr
	// Owing says that the node waits for what it had before it was refetched; empty: it does not.
	Owing string
	// Level is the machine's feature level, KnownLevel the newest that this node knows; 0 for a
	// machine without levels.
	Level, KnownLevel uint64
	// Behind is how many committed entries this node has not applied, BehindFor for how long at
	// least.
	Behind    uint64
	BehindFor time.Duration
	Snapshot  Snapshot
	LogCache  int // bytes of log entries that are in memory for followers
}

// Snapshot is what a node knows of its snapshots.
type Snapshot struct {
	// Index and Time are of the newest on disk; zero: none.
	Index   uint64
	Time    time.Time
	Writing bool // one is being written or received
	// Trouble says why the newest that this node wrote could not be read back; empty: it could. The
	// log is not cut meanwhile.
	Trouble string
}

// Member is what the answering node knows of one member.
type Member struct {
	ID         string
	PeerAddr   string
	ClientAddr string // empty: none, or never connected
	TLSAddr    string // for clients over TLS, likewise
	Voter      bool
	Connected  bool          // this node is connected to it
	Fault      string        // why this node is not; empty: it is, or has not tried yet
	Elsewhere  bool          // what answers in its place belongs to another cluster
	Inbound    bool          // it is connected to this node
	KnownLevel uint64        // the newest feature level that it knows; 0: unknown
	Version    string        // which coordd it runs; empty: unknown
	Build      string        // what that was built from; empty: unknown
	Uptime     time.Duration // unknown unless Version is known
	Zone       string        // its availability zone; empty: unknown
	Priority   uint64        // for leading; 0: unknown
	Learner    bool          // it never becomes a voter
	State      string        // Equal, Differs or empty: not compared yet
	// RemoveIn is when the leader removes the member, which it cannot reach; 0: not counted down;
	// the least duration above 0: as soon as another member makes up for it
	RemoveIn time.Duration
	// The rest comes from the member's own reports, is known on the leader, and is about a second
	// old at most when idle.
	LastLog    uint64 // 0: it has not reported since it connected, like Applied
	Applied    uint64
	ReportedAt uint64 // the leader's commit index when the report came; 0: unknown
	LogTrouble string // why it stores no entries; empty: it does, as far as known
	// LastContact is the time since the newest question that it has answered, or since it
	// connected; -1: never, 0: the answering node.
	LastContact time.Duration
}

// Kinds of a Change.
const (
	Add      = "add"      // without a vote until it has caught up
	Remove   = "remove"   // for good: the id is never reused
	Promote  = "promote"  // give a member that has caught up its vote now
	Transfer = "transfer" // transfer leadership
)

// Change is one change of the members. Nodes send it to each other as JSON.
type Change struct {
	Kind string `json:"kind"`
	// the member; empty with Transfer: the one with the longest log
	ID       string `json:"id,omitempty"`
	PeerAddr string `json:"peer_addr,omitempty"` // for Add: where the others reach it
}

// Replication is what the leader knows of how far the log is replicated.
type Replication struct {
	// Index: every write acknowledged before the question is at or below it.
	Index uint64
	// Others are the indexes up to which the voters other than the leader are known to have stored
	// and applied the log, in no order. A voter may be further than the leader has heard.
	Others []uint64
}
