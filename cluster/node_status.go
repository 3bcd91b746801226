// Status: the node and its cluster as seen from outside.

package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
)

// Roles in Status.
const (
	RoleLeader    = "leader"
	RoleFollower  = "follower"
	RoleCandidate = "candidate"
)

// States in MemberStatus: whether a member's state is that of the answering node, as last compared.
const (
	StateEqual   = "equal"
	StateDiffers = "differs"
)

// Status is what a node knows of itself and of the cluster. Indexes are those of the Raft log.
type Status struct {
	ID         string
	ClientAddr string
	PeerAddr   string
	Role       string // RoleLeader, RoleFollower or RoleCandidate
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
	Members     []MemberStatus
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
	// The newest snapshot on this node's disk; zero: none.
	SnapshotIndex uint64
	SnapshotTime  time.Time
	Snapshotting  bool // a snapshot is being written or received
	// SnapshotTrouble says why the newest snapshot that this node wrote could not be read back;
	// empty: it could. The log is not cut meanwhile.
	SnapshotTrouble string
}

// MemberStatus is what the answering node knows of one member.
type MemberStatus struct {
	ID         string
	PeerAddr   string
	ClientAddr string // empty: none, or never connected
	TLSAddr    string // for clients over TLS, likewise
	Voter      bool
	Connected  bool          // this node is connected to it
	Fault      string        // why this node is not; empty: it is, or has not tried yet
	Inbound    bool          // it is connected to this node
	KnownLevel uint64        // the newest feature level that it knows; 0: unknown
	Version    string        // of its program; empty: unknown
	Build      string        // what that was built from; empty: unknown
	Uptime     time.Duration // unknown unless Version is known
	Zone       string        // its availability zone; empty: unknown
	Priority   uint64        // for leading; 0: unknown
	Learner    bool          // it never becomes a voter
	State      string        // StateEqual, StateDiffers or empty: not compared yet
	// RemoveIn is when the leader removes the member, which it cannot reach; 0: not counted down;
	// the least duration above 0: as soon as another member makes up for it
	RemoveIn time.Duration
	// The rest comes from the member's own reports, is known on the leader, and is about a second
	// old at most when idle.
	LastLog    uint64 // 0: it has not reported since it connected, like Applied
	Applied    uint64
	ReportedAt uint64 // the leader's commit index when the report came; 0: unknown
	// LastContact is the time since the newest question that it has answered, or since it
	// connected; -1: never, 0: the answering node.
	LastContact time.Duration
}

// Status returns the node's current view.
func (n *Node) Status() Status {
	r := n.route.Load()
	s := Status{
		ID: n.cfg.ID, ClientAddr: n.cfg.ClientAddr, PeerAddr: n.mux.Addr().String(),
		LeaderID: r.leaderID, Term: n.raft.CurrentTerm(), Commit: n.raft.CommitIndex(),
		Applied: n.applied(), LastLog: n.raft.LastIndex(), ClockMs: n.reading().ClockMs(),
	}
	s.Removed, s.Joining = n.removal.removed.Load(), n.awaitsJoin()
	if s.Joining && n.cfg.Discover != nil {
		s.AwaitsNext = nextLook
		if w := n.awaits.Load(); w != nil {
			s.Awaits, s.AwaitsNext = w.why, w.next
		}
	}
	s.Unreached = n.unreached.Load()
	if why := n.stranger.Load(); why != nil {
		s.Stranger = *why
	}
	s.Owing = n.owing()
	s.Loading, s.Snapshotting = n.machine.loading() || n.machine.restoring.Load(),
		n.stores.snapshots.open.Load() > 0
	s.Level, s.KnownLevel = n.levels.Level(), n.levels.KnownLevel()
	snapshot := n.stores.snapshots.newest.Load()
	s.SnapshotIndex, s.SnapshotTime = snapshot.index, snapshot.at
	if why := n.stores.snapshots.reads.trouble.Load(); why != nil {
		s.SnapshotTrouble = (*why).Error()
	}
	s.LogTrouble = n.logTrouble()
	now := time.Now()
	n.lag.note(s.Term, s.Commit, s.Applied, now)
	s.Behind, s.BehindFor = n.lag.behind(s.Applied, now)
	switch state := n.raft.State(); {
	case n.leadsRaft():
		s.Role = RoleLeader
		s.Ready = r.lead != nil
	case state == raft.Candidate:
		s.Role, s.LastContact = RoleCandidate, n.lastContact()
	default:
		s.Role, s.LastContact = RoleFollower, n.lastContact()
		s.Ready = !s.Removed && r.link != nil && r.link.up() && s.LastContact >= 0 &&
			s.LastContact < 2*n.cfg.HeartbeatTimeout
	}
	for _, server := range n.configuration().Servers {
		s.Members = append(s.Members, n.memberStatus(server))
	}
	for _, m := range s.Members {
		if m.ID == s.LeaderID {
			s.LeaderAddr = m.ClientAddr
		}
	}
	return s
}

// committed returns the index of the newest entry that Raft has committed and, on a leader, that is
// durable there too. Every write acknowledged by now is at or below it.
func (n *Node) committed() uint64 { return min(n.raft.CommitIndex(), n.logs.durableTo()) }

// applied returns how far this node has applied the log. Entries that the machine never sees count
// as applied with the one before them.
func (n *Node) applied() uint64 {
	have, commit := n.machine.appliedIndex.Load(), n.raft.CommitIndex()
	if have < commit && n.logs.lastVisible(commit) <= have {
		return commit
	}
	return have
}

func (n *Node) lastContact() time.Duration {
	at := n.raft.LastContact()
	if at.IsZero() {
		return -1
	}
	return time.Since(at)
}

func (n *Node) memberStatus(server raft.Server) MemberStatus {
	m := MemberStatus{ID: string(server.ID), PeerAddr: shownAddress(string(server.Address)),
		Voter: server.Suffrage == raft.Voter, LastContact: -1}
	if m.ID == n.cfg.ID {
		m.ClientAddr, m.TLSAddr = n.cfg.ClientAddr, n.cfg.TLSAddr
		m.Connected, m.LastContact, m.KnownLevel = true, 0, n.levels.KnownLevel()
		m.Version, m.Uptime, m.Build = n.cfg.Version, time.Since(n.opened), n.cfg.Build.String()
		m.State = StateEqual
		m.Zone, m.Priority, m.Learner = n.cfg.Zone, n.cfg.Priority, n.cfg.Learner
		m.LastLog, m.Applied = n.raft.LastIndex(), n.applied()
		return m
	}
	if addr, ok := n.peerAddr(m.ID); ok {
		m.PeerAddr = shownAddress(addr)
	}
	if l := n.link(m.ID); l != nil {
		l.mu.Lock()
		m.ClientAddr, m.TLSAddr, m.Connected = l.peer.clientAddr, l.peer.tlsAddr, l.wire != nil
		m.Fault = l.fault
		m.LastLog, m.Applied = l.report.lastIndex, l.report.applied
		m.ReportedAt = l.reportedAt
		m.KnownLevel = l.peer.level
		m.Zone, m.Priority, m.Learner = l.peer.zone, l.peer.priority, l.peer.isLearner()
		if m.Connected && l.peer.release != "" {
			m.Version, m.Uptime = l.peer.release, time.Since(l.started)
			m.Build = l.peer.build.String()
		}
		if !l.heard.IsZero() {
			m.LastContact = time.Since(l.confirms.newest)
		}
		l.mu.Unlock()
		m.Inbound, m.RemoveIn = n.hasInbound(m.ID), n.removeIn(m.ID)
	}
	switch differs, known := n.heard.stateOf(m.ID); {
	case differs:
		m.State = StateDiffers
	case known:
		m.State = StateEqual
	}
	return m
}

// reading reads the cluster clock on the leader, and estimates it elsewhere.
func (n *Node) reading() clock.Reading {
	if r := n.route.Load(); r.lead != nil {
		return r.lead.Now()
	}
	return n.arrivals.Estimate(n.appliedStamp())
}

// appliedStamp is the stamp of the applied state.
func (n *Node) appliedStamp() clock.Stamp {
	return clock.Stamp{ClockMs: n.machine.clockMs.Load(), WallUs: n.machine.machine.NewestUs()}
}
