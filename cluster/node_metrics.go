// What Prometheus reads of the cluster's side of a node: Raft, the queues, the log and snapshots.

package cluster

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/metrics"
)

// Metrics are those of a node.
var Metrics metrics.Set

var (
	metricRole = Metrics.Gauge("coordd_raft_role",
		"1 for the node's role: leader, follower or candidate.", "role")
	metricLeader = Metrics.Gauge("coordd_raft_leader_known",
		"1: the node knows who leads, and has a connection there or leads itself.")
	metricTerm    = Metrics.Gauge("coordd_raft_term", "Raft's term.")
	metricCommit  = Metrics.Gauge("coordd_raft_commit_index", "Newest committed entry.")
	metricApplied = Metrics.Gauge("coordd_raft_applied_index", "Newest applied entry.")
	metricLast    = Metrics.Gauge("coordd_raft_last_index", "Newest entry in the log.")
	metricBehind  = Metrics.Gauge("coordd_raft_behind_entries",
		"Committed entries that this node has not applied, as far as it knows.")
	metricBehindFor = Metrics.Gauge("coordd_raft_behind_seconds",
		"For how long it has been behind.")
	metricContact = Metrics.Gauge("coordd_raft_leader_contact_seconds",
		"Since this node heard from the leader; 0 on the leader.")
	metricElections = Metrics.Counter("coordd_raft_elections_total",
		"Elections that this node stood for.")
	metricLeaders = Metrics.Counter("coordd_raft_leader_changes_total",
		"Leaders that this node learned of, one after the other.")
	metricStalled = Metrics.Gauge("coordd_raft_leader_stalled",
		"1: the node leads, but can have nothing committed, and lets another take over.")
	metricMembers = Metrics.Gauge("coordd_members", "Members of the cluster.", "suffrage")
	metricLag     = Metrics.Gauge("coordd_member_lag_entries",
		"Entries that a member has not stored yet. On the leader.", "member")
	metricHeard = Metrics.Gauge("coordd_member_contact_seconds",
		"Since the leader heard from a member. On the leader.", "member")
	metricConnected = Metrics.Gauge("coordd_member_connected",
		"1: this node has a connection to the member.", "member")
	metricDiffers = Metrics.Gauge("coordd_member_state_differs",
		"1: the member's state is not this node's, as last compared.", "member")
	metricEqual = Metrics.Gauge("coordd_state_equal_index",
		"Newest entry up to which the node's state is known to be that of a majority.")
	metricBuilds = Metrics.Gauge("coordd_builds",
		"Different builds (release, Go, processor, commit) among this node and the members that "+
			"it is connected to.")

	metricBatches = Metrics.Sizes("coordd_raft_entry_batches",
		"Batches of connections in an entry that this node proposed; 0: a tick.", maxEntryBatches)
	metricRequests = Metrics.Sizes("coordd_raft_entry_requests",
		"Requests in an entry that this node proposed.", MaxBatchRequests)
	metricBytes = Metrics.Sizes("coordd_raft_entry_bytes",
		"Bytes of an entry that this node proposed.", 16<<20)
	metricProposed = Metrics.Seconds("coordd_raft_proposal_duration_seconds",
		"From proposing an entry until it is applied and its replies are there. On the leader.")
	metricReplicated = Metrics.Seconds("coordd_raft_replication_duration_seconds",
		"From proposing an entry until it is committed, durable and about to be applied. On the "+
			"leader.")
	metricApply = Metrics.Seconds("coordd_raft_apply_duration_seconds",
		"Applying an entry.")
	metricLogWrite = Metrics.Seconds("coordd_raft_log_write_duration_seconds",
		"Writing entries to the log, with the fsync.")
	metricLogBytes = Metrics.Counter("coordd_raft_log_written_bytes_total",
		"Bytes of entries written to the log.")
	metricLogFailing = Metrics.Gauge("coordd_raft_log_failing",
		"1: the node cannot store entries, or a write hangs.")
	metricInFlight = Metrics.Gauge("coordd_raft_entries_in_flight",
		"Entries that were proposed and are not applied.")
	metricQueued = Metrics.Gauge("coordd_queue_batches",
		"Batches that wait to be proposed (write) or read (read).", "queue")
	metricQueuedBytes = Metrics.Gauge("coordd_queue_bytes", "Their bytes.", "queue")

	metricSnapshots = Metrics.Counter("coordd_snapshots_total",
		"Snapshots written or received since the start.")
	metricSnapshotFailures = Metrics.Counter("coordd_snapshot_failures_total",
		"Snapshots that were begun and not finished.")
	metricSnapshotUnreadable = Metrics.Gauge("coordd_snapshot_unreadable",
		"1: the newest snapshot that the node wrote could not be read back, so the log grows.")
	metricSnapshotsUnreadable = Metrics.Counter("coordd_snapshots_unreadable_total",
		"Snapshots that were written and could not be read back. They count as failures too.")
	metricSnapshotReadSeconds = Metrics.Counter("coordd_snapshot_read_seconds_total",
		"The part of that time in which they were read back.")
	metricSnapshotSeconds = Metrics.Counter("coordd_snapshot_seconds_total",
		"Time that finished snapshots took.")
	metricSnapshotAt = Metrics.Gauge("coordd_snapshot_timestamp_seconds",
		"When the newest snapshot was begun; none: there is none.")
	metricLogCache = Metrics.Gauge("coordd_log_cache_bytes",
		"Log entries that are in memory for followers, at most 16 MiB or one entry.")
	metricSnapshotBytes = Metrics.Gauge("coordd_snapshot_size_bytes", "Size of the newest one.")
	metricSnapshotIndex = Metrics.Gauge("coordd_snapshot_index",
		"Newest entry in the newest snapshot.")

	metricDiskFree = Metrics.Gauge("coordd_disk_free_bytes",
		"Free space of the file system with the data directory.")
	metricDiskSize = Metrics.Gauge("coordd_disk_size_bytes", "Size of that file system.")
	metricLoading  = Metrics.Gauge("coordd_loading",
		"1: the node loads a snapshot or replays its log.")
	metricLevel = Metrics.Gauge("coordd_feature_level", "Feature level of the state.")
	metricKnown = Metrics.Gauge("coordd_feature_level_known",
		"Newest feature level that this release knows.")
)

// meters count what happens on a node.
type meters struct {
	batches, requests, bytes metrics.Histogram // what a proposed entry holds
	proposed, replicated     metrics.Histogram
	elections, leaders       atomic.Uint64
	disk                     metrics.Asker[diskSpace]
}

// proposal counts an entry that is being proposed.
func (m *meters) proposal(calls []*call, batches, bytes int) {
	requests := 0
	for _, c := range calls {
		requests += c.count
	}
	m.batches.Add(uint64(batches))
	m.requests.Add(uint64(requests))
	m.bytes.Add(uint64(bytes))
}

// settled counts an entry that was applied. beganAt is when that began, ns since processStart; 0:
// unknown.
func (m *meters) settled(e *entry, beganAt int64) {
	m.proposed.Time(time.Since(e.proposed))
	if beganAt != 0 {
		m.replicated.Time(time.Duration(beganAt) - e.proposed.Sub(processStart))
	}
}

// diskSpace is that of a file system, bytes; size 0: unknown.
type diskSpace struct{ free, size float64 }

// GiveMetrics writes the values of Metrics.
func (n *Node) GiveMetrics(o metrics.Out) {
	st := n.Status()
	n.giveRaft(o, &st)
	n.giveMembers(o, &st)
	n.giveEntries(o)
	n.giveStores(o, &st)
}

func (n *Node) giveRaft(o metrics.Out, st *membership.Status) {
	for _, role := range []string{membership.Leader, membership.Follower, membership.Candidate} {
		o.Flag(metricRole, role == st.Role, role)
	}
	o.Flag(metricLeader, st.Ready)
	o.Value(metricTerm, float64(st.Term))
	o.Value(metricCommit, float64(st.Commit))
	o.Value(metricApplied, float64(st.Applied))
	o.Value(metricLast, float64(st.LastLog))
	o.Value(metricBehind, float64(st.Behind))
	o.Value(metricBehindFor, st.BehindFor.Seconds())
	if st.LastContact >= 0 {
		o.Value(metricContact, st.LastContact.Seconds())
	}
	o.Value(metricElections, float64(n.meters.elections.Load()))
	o.Value(metricLeaders, float64(n.meters.leaders.Load()))
	o.Flag(metricStalled, n.stalledLeader.Load())
	o.Flag(metricLoading, st.Loading)
	o.Value(metricLevel, float64(st.Level))
	o.Value(metricKnown, float64(st.KnownLevel))
}

func (n *Node) giveMembers(o metrics.Out, st *membership.Status) {
	voters, others := 0, 0
	for _, m := range st.Members {
		if m.Voter {
			voters++
		} else {
			others++
		}
		if m.ID == n.cfg.ID {
			continue
		}
		o.Flag(metricConnected, m.Connected, m.ID)
		if m.State != "" {
			o.Flag(metricDiffers, m.State == membership.Differs, m.ID)
		}
		if st.Role == membership.Leader {
			o.Value(metricLag, float64(st.LastLog-min(m.LastLog, st.LastLog)), m.ID)
			if m.LastContact >= 0 {
				o.Value(metricHeard, m.LastContact.Seconds(), m.ID)
			}
		}
	}
	o.Value(metricBuilds, float64(len(n.builds())))
	if equal := n.heard.equalTo(); equal > 0 {
		o.Value(metricEqual, float64(equal))
	}
	o.Value(metricMembers, float64(voters), "voter")
	o.Value(metricMembers, float64(others), "nonvoter")
}

func (n *Node) giveEntries(o metrics.Out) {
	m := &n.meters
	o.Histogram(metricBatches, m.batches.Read())
	o.Histogram(metricRequests, m.requests.Read())
	o.Histogram(metricBytes, m.bytes.Read())
	o.Histogram(metricProposed, m.proposed.Read())
	o.Histogram(metricReplicated, m.replicated.Read())
	o.Histogram(metricApply, n.machine.took.Read())
	o.Value(metricInFlight, float64(max(n.inFlight.Load(), 0)))
	for name, q := range map[string]*queue{"write": n.writes, "read": n.reads} {
		batches, bytes := q.depth()
		o.Value(metricQueued, float64(batches), name)
		o.Value(metricQueuedBytes, float64(bytes), name)
	}
}

func (n *Node) giveStores(o metrics.Out, st *membership.Status) {
	o.Histogram(metricLogWrite, n.logs.took.Read())
	o.Value(metricLogBytes, float64(n.logs.written.Load()))
	o.Value(metricLogCache, float64(st.LogCache))
	o.Flag(metricLogFailing, st.LogTrouble != "")
	s := n.stores.snapshots
	o.Value(metricSnapshots, float64(s.finished.Load()))
	o.Value(metricSnapshotFailures, float64(s.failed.Load()))
	o.Flag(metricSnapshotUnreadable, st.Snapshot.Trouble != "")
	o.Value(metricSnapshotsUnreadable, float64(s.reads.unreadable.Load()))
	o.Value(metricSnapshotReadSeconds, time.Duration(s.reads.took.Load()).Seconds())
	o.Value(metricSnapshotSeconds, time.Duration(s.took.Load()).Seconds())
	if newest := s.newest.Load(); newest.index > 0 {
		o.Value(metricSnapshotAt, float64(newest.at.UnixMilli())/1000)
		o.Value(metricSnapshotBytes, float64(newest.size))
		o.Value(metricSnapshotIndex, float64(newest.index))
	}
	disk, ok := n.meters.disk.Ask(n.stores.space.ask)
	if ok && disk.size > 0 {
		o.Value(metricDiskFree, disk.free)
		o.Value(metricDiskSize, disk.size)
	}
}

// depth returns how many batches and bytes wait.
func (q *queue) depth() (batches, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batches = q.lightBatches
	for _, c := range q.heavy {
		batches += len(c.batches)
	}
	return batches, q.bytes
}

// observeRaft counts what Raft tells, and wakes the route loop. It runs in Raft's goroutines.
func (n *Node) observeRaft(o *raft.Observation) bool {
	if state, ok := o.Data.(raft.RaftState); ok && state == raft.Candidate {
		n.meters.elections.Add(1)
	}
	kick(n.routeWake)
	return false
}
