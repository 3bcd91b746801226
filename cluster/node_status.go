// This file holds the view from outside: Status.
package cluster

import (
	"time"

	"github.com/hashicorp/raft"
)

// Roles in Status.
const (
	RoleLeader    = "leader"
	RoleFollower  = "follower"
	RoleCandidate = "candidate"
)

// Status is what a node knows of itself and of the cluster. Positions are indexes of the Raft log.
type Status struct {
	ID         string
	ClientAddr string
	PeerAddr   string
	Role       string // RoleLeader, RoleFollower or RoleCandidate
	LeaderID   string // empty when none is known
	LeaderAddr string // the leader's client address; empty when not known
	// Ready: requests can be served. A leader's barrier has passed; a follower knows a leader, has heard from it
	// lately, and is connected to it.
	Ready       bool
	LogTrouble  string // why this node stores no entries at present, while the others may; empty: it does
	Term        uint64
	Commit      uint64
	Applied     uint64 // by the machine; the commit index when nothing up to it is left for the machine
	LastLog     uint64
	ClockMs     int64         // cluster clock; an estimate where the node does not lead
	LastContact time.Duration // since the leader was heard from; 0 on the leader, -1 for never
	Members     []MemberStatus
	Removed     bool // the node was removed from the cluster, for ever
	Joining     bool // it waits to be taken into a cluster
	Loading     bool // a snapshot is being loaded, or what was in the log at the start has yet to be applied
	// The machine's feature level, and the newest that this node knows; 0 where the machine has none.
	Level, KnownLevel uint64
	// How many entries that the leader has committed this node has not applied, and for how long at least that is so.
	Behind    uint64
	BehindFor time.Duration
	// The newest snapshot that this node has on disk; zero for none.
	SnapshotIndex uint64
	SnapshotTime  time.Time
	Snapshotting  bool // one is being written, or received from the leader
}

// MemberStatus is what the answering node knows of one member.
type MemberStatus struct {
	ID         string
	PeerAddr   string
	ClientAddr string // empty when the member was never connected
	Voter      bool
	Connected  bool   // this node has a connection to it
	KnownLevel uint64 // the newest feature level that it knows, as it last said; 0: not known
	// Known on the leader, from the member's own reports, at most about a second old when idle:
	LastLog     uint64
	Applied     uint64
	LastContact time.Duration // since the last answer from it; -1 for never, 0 for the answering node itself
}

// Status returns the node's present view.
func (n *Node) Status() Status {
	r := n.route.Load()
	s := Status{
		ID: n.cfg.ID, ClientAddr: n.cfg.ClientAddr, PeerAddr: n.mux.Addr().String(),
		LeaderID: r.leaderID, Term: n.raft.CurrentTerm(), Commit: n.raft.CommitIndex(),
		Applied: n.applied(), LastLog: n.raft.LastIndex(), ClockMs: n.reading().clockMs(),
	}
	s.Removed, s.Joining = n.removal.removed.Load(), n.awaitsJoin()
	s.Loading, s.Snapshotting = n.machine.loading() || n.machine.restoring.Load(), n.stores.snapshots.open.Load() > 0
	s.Level, s.KnownLevel = n.levels.Level(), n.levels.KnownLevel()
	snapshot := n.stores.snapshots.newest.Load()
	s.SnapshotIndex, s.SnapshotTime = snapshot.index, snapshot.at
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
		s.Ready = !s.Removed && r.link != nil && r.link.up() && s.LastContact >= 0 && s.LastContact < 2*n.cfg.HeartbeatTimeout
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

// applied returns how far this node has applied the log. Entries that the machine never sees count as applied with
// the one before them.
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
	m := MemberStatus{ID: string(server.ID), PeerAddr: string(server.Address), Voter: server.Suffrage == raft.Voter, LastContact: -1}
	if m.ID == n.cfg.ID {
		m.ClientAddr, m.Connected, m.LastContact, m.KnownLevel = n.cfg.ClientAddr, true, 0, n.levels.KnownLevel()
		m.LastLog, m.Applied = n.raft.LastIndex(), n.applied()
		return m
	}
	if addr, ok := n.peerAddr(m.ID); ok {
		m.PeerAddr = addr
	}
	if l := n.link(m.ID); l != nil {
		l.mu.Lock()
		m.ClientAddr, m.Connected, m.LastLog, m.Applied = l.peer.clientAddr, l.wire != nil, l.report.lastIndex, l.report.applied
		m.KnownLevel = l.peer.level
		if !l.heard.IsZero() {
			m.LastContact = time.Since(l.heard)
		}
		l.mu.Unlock()
	}
	return m
}

// reading returns the leader's reading of the clock on the leader, and elsewhere an estimate.
func (n *Node) reading() reading {
	if r := n.route.Load(); r.lead != nil {
		return r.lead.now()
	}
	return n.arrivals.estimate(n.appliedStamp())
}

// appliedStamp is what the machine knows of time.
func (n *Node) appliedStamp() stamp {
	return stamp{n.machine.clockMs.Load(), n.machine.machine.NewestUs()}
}
