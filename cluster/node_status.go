// Status: the node and its cluster as seen from outside.

package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/cluster/membership"
)

// Status returns the node's current view.
func (n *Node) Status() membership.Status {
	r := n.route.Load()
	s := membership.Status{
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
	s.Loading, s.Snapshot.Writing = n.machine.loading() || n.machine.restoring.Load(),
		n.stores.snapshots.open.Load() > 0
	s.Level, s.KnownLevel = n.levels.Level(), n.levels.KnownLevel()
	snapshot := n.stores.snapshots.newest.Load()
	s.Snapshot.Index, s.Snapshot.Time = snapshot.index, snapshot.at
	if why := n.stores.snapshots.reads.trouble.Load(); why != nil {
		s.Snapshot.Trouble = (*why).Error()
	}
	s.LogTrouble = n.logTrouble()
	s.LogCache = n.logs.cached()
	now := time.Now()
	n.lag.note(s.Term, s.Commit, s.Applied, now)
	s.Behind, s.BehindFor = n.lag.behind(s.Applied, now)
	switch state := n.raft.State(); {
	case n.leadsRaft():
		s.Role = membership.Leader
		s.Ready = r.lead != nil
	case state == raft.Candidate:
		s.Role, s.LastContact = membership.Candidate, n.lastContact()
	default:
		s.Role, s.LastContact = membership.Follower, n.lastContact()
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

// AskMembers has members asked what they have, for the next Status, unless this node leads: then it
// asks by itself. A follower asks nobody while it knows a leader, and that one may serve nothing,
// so what the follower knows of the others would be old. It asks once a second at most.
func (n *Node) AskMembers() {
	last, now := n.askedOthers.Load(), int64(time.Since(n.opened))
	if n.route.Load().lead == nil && (last == 0 || now-last >= int64(askAloneEvery)) &&
		n.askedOthers.CompareAndSwap(last, now) {
		n.askAll()
	}
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

func (n *Node) memberStatus(server raft.Server) membership.Member {
	m := membership.Member{ID: string(server.ID), PeerAddr: shownAddress(string(server.Address)),
		Voter: server.Suffrage == raft.Voter, LastContact: -1}
	if m.ID == n.cfg.ID {
		m.ClientAddr, m.TLSAddr = n.cfg.ClientAddr, n.cfg.TLSAddr
		m.Connected, m.LastContact, m.KnownLevel = true, 0, n.levels.KnownLevel()
		m.Version, m.Uptime, m.Build = n.cfg.Version, time.Since(n.opened), n.cfg.Build.String()
		m.State = membership.Equal
		m.Zone, m.Priority, m.Learner = n.cfg.Zone, n.cfg.Priority, n.cfg.Learner
		m.LastLog, m.Applied = n.raft.LastIndex(), n.applied()
		m.LogTrouble = n.troubleOfLog().String()
		return m
	}
	if addr, ok := n.peerAddr(m.ID); ok {
		m.PeerAddr = shownAddress(addr)
	}
	if l := n.link(m.ID); l != nil {
		own := n.clusterID()
		l.mu.Lock()
		m.ClientAddr, m.TLSAddr, m.Connected = l.peer.clientAddr, l.peer.tlsAddr, l.wire != nil
		m.Fault = l.fault
		m.Elsewhere = !m.Connected && !l.lost && own != "" && l.claimed != "" &&
			l.claimed != own
		m.LastLog, m.Applied = l.report.lastIndex, l.report.applied
		m.LogTrouble = l.report.trouble.String()
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
		m.State = membership.Differs
	case known:
		m.State = membership.Equal
	}
	return m
}

// ClockMs returns the cluster clock on the leader, and an estimate of it elsewhere, which is not
// ahead. It waits for nothing.
func (n *Node) ClockMs() int64 { return n.reading().ClockMs() }

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
