// What Prometheus reads of a server: the counters that INFO, SLOWLOG, LATENCY and ACL LOG show, and
// the latency histograms.

package server

import (
	"strconv"

	"github.com/coordd/coordd/internal/metrics"
)

// Metrics are those of a server.
var Metrics metrics.Set

var (
	metricCommands = Metrics.Counter("coordd_commands_total",
		"Commands by name and outcome: ok, error (its own; it ran), rejected (before it ran: "+
			"arguments, rights, MOVED), not_run (no leader, busy, no memory), unknown.",
		"command", "outcome")
	metricDuration = Metrics.Seconds("coordd_command_duration_seconds",
		"Time of a command, or its share of the time of its batch, as in LATENCY HISTOGRAM. None "+
			"while latency-tracking is off.", "command")
	metricRequests = Metrics.Counter("coordd_requests_total",
		"Commands by what their reply makes certain: ok and error (it ran), did_not_run, unknown.",
		"certainty")
	metricErrors = Metrics.Counter("coordd_errors_total",
		"Error replies by code word, and errors that scripts catch, as in INFO errorstats; other: "+
			"of scripts, and unusual ones.",
		"code")
	metricSlow = Metrics.Counter("coordd_slow_commands_total",
		"Commands that SLOWLOG noted, since the start.")
	metricDryRuns = Metrics.Counter("coordd_dry_runs_total",
		"Dry runs of writes: hit (it changed nothing and was not logged), miss (logged after "+
			"all).", "result")

	metricConnections = Metrics.Gauge("coordd_connections", "Client connections.")
	metricMostClients = Metrics.Gauge("coordd_connections_max", "The limit of connections.")
	metricAccepted    = Metrics.Counter("coordd_connections_accepted_total",
		"Client connections accepted.")
	metricRejected = Metrics.Counter("coordd_connections_rejected_total",
		"Client connections refused: limit (maxclients), protected (protected mode), "+
			"flood (too many strangers), address (may not connect, also to the HTTP port), "+
			"user (has its most), unauthenticated (closed for lack of time or room), "+
			"memory (closed: the largest).",
		"reason")
	metricBlocked   = Metrics.Gauge("coordd_clients_blocked", "Clients that wait for a key.")
	metricPubSub    = Metrics.Gauge("coordd_clients_subscribed", "Clients with subscriptions.")
	metricTracking  = Metrics.Gauge("coordd_clients_tracking", "Clients with CLIENT TRACKING.")
	metricStrangers = Metrics.Gauge("coordd_clients_unauthenticated",
		"Clients that must authenticate and have not.")
	metricSubscriptions = Metrics.Gauge("coordd_subscriptions",
		"Channels and patterns with subscribers: channel, pattern, shard.", "kind")
	metricReceived = Metrics.Counter("coordd_received_bytes_total", "Bytes read from clients.")
	metricSent     = Metrics.Counter("coordd_sent_bytes_total", "Bytes written to clients.")
	metricDelayed  = Metrics.Counter("coordd_rate_delayed_total",
		"Requests that waited because their client or user was above its rate.")
	metricDelayedNow = Metrics.Gauge("coordd_clients_rate_delayed",
		"Clients that wait because of their rate.")

	metricDenied = Metrics.Counter("coordd_denied_total",
		"Denials by reason: auth (a failed AUTH), command, key, channel.", "reason")
	metricAuthDelayed = Metrics.Counter("coordd_auth_delayed_total",
		"Calls of AUTH that were delayed because others failed.")
	metricAudit = Metrics.Counter("coordd_audit_dropped_total",
		"Lines that the audit trail lost. Only with an audit trail.")
	metricTraces = Metrics.Counter("coordd_traces_total",
		"Requests whose spans were sent, dropped (no room) or failed (the collector did not take "+
			"them). Only with --otlp.", "result")
	metricExpiry = Metrics.Gauge("coordd_tls_certificate_expiry_timestamp_seconds",
		"When a certificate of this node expires.", "certificate")
	metricReload = Metrics.Gauge("coordd_tls_certificate_reload_failed",
		"1: the newest files of a certificate are not in use.", "certificate")

	metricBackup = Metrics.Gauge("coordd_last_backup_timestamp_seconds",
		"When this node last sent a whole backup; 0: not since its start.")
	metricBackupBytes = Metrics.Gauge("coordd_last_backup_bytes", "The size of that backup.")
	metricReady       = Metrics.Gauge("coordd_ready", "1: the node is ready, as /readyz says.")
)

// The metrics of what the node holds.
var (
	metricKeys     = Metrics.Gauge("coordd_keys", "Keys by database, if it has any.", "db")
	metricVolatile = Metrics.Gauge("coordd_keys_with_expiry",
		"Keys that have a time to live, by database.", "db")
	metricExpired = Metrics.Counter("coordd_keys_expired_total",
		"Keys that expired since the state began.")
	metricLookups = Metrics.Counter("coordd_keyspace_lookups_total",
		"Keys that reads which this node ran looked up, by whether they were there.", "result")
	metricData = Metrics.Gauge("coordd_memory_data_bytes",
		"What keys and values count, the same on every node.")
	metricDataMost = Metrics.Gauge("coordd_memory_data_limit_bytes",
		"What they may count: maxmemory; 0: no limit.")
	metricRequestWork = Metrics.Gauge("coordd_request_work_times",
		"How many times the usual work a request may do: CONFIG SET coordd-request-work.")
	metricClientsMemory = Metrics.Gauge("coordd_memory_clients_bytes",
		"What connections hold: their buffers, queued commands, subscriptions.")
	metricReplyMemory = Metrics.Gauge("coordd_memory_replies_bytes",
		"Large replies that clients have not read yet; part of the clients'.")
	metricObjects = Metrics.Gauge("coordd_memory_objects_bytes",
		"Objects, in use or not collected yet: used_memory.")
	metricLive = Metrics.Gauge("coordd_memory_live_bytes",
		"What the latest collection of garbage left of them: used_memory_live.")
	metricResident = Metrics.Gauge("coordd_memory_resident_bytes",
		"Resident memory of the process: used_memory_rss.")
	metricAvailable = Metrics.Gauge("coordd_memory_available_bytes",
		"What the process may use: GOMEMLIMIT, the container's limit or the machine's memory.")
	metricLockWaiters = Metrics.Gauge("coordd_lock_waiters",
		"Commands of all nodes that wait in queues for locks, the same on every node.")
	metricUnclaimed = Metrics.Gauge("coordd_lock_grants_unclaimed",
		"Locks granted to commands that waited, which their nodes have not claimed yet: after a "+
			"second the next in the queue gets them.")
	metricLeases = Metrics.Gauge("coordd_leases", "Leases (LEASE), the same on every node.")
	metricOnce   = Metrics.Gauge("coordd_once_requests",
		"Requests that run once (ID, IDEMPOTENT) whose replies are remembered, the same on every "+
			"node.")
	metricScripts = Metrics.Gauge("coordd_scripts_cached", "Scripts in the cache.")
	metricRuns    = Metrics.Counter("coordd_script_runs_total",
		"Runs of scripts and functions on this node, for entries, reads and dry runs: ended, "+
			"stopped (over its budget).", "result")
	metricScriptSeconds = Metrics.Counter("coordd_script_seconds_total",
		"Processor time of these runs as os.clock counts it, by instructions.")
	metricLibraries = Metrics.Gauge("coordd_function_libraries", "Function libraries.")
	metricFunctions = Metrics.Gauge("coordd_functions", "Functions in the libraries.")
)

// GiveMetrics writes the values of Metrics.
func (s *Server) GiveMetrics(o metrics.Out) {
	s.giveCommands(o)
	s.giveClients(o)
	s.giveSecurity(o)
	s.giveState(o)
	st := s.backend.Status()
	why, _ := s.notReady(&st)
	o.Flag(metricReady, why == "")
	o.Value(metricBackup, float64(s.stats.backupAt.Load()))
	o.Value(metricBackupBytes, float64(s.stats.backupBytes.Load()))
}

func (s *Server) giveCommands(o metrics.Out) {
	t := &s.stats
	unrecognized := t.unrecognized.Load()
	var ok, failed, notRun, unknown uint64
	notRun = unrecognized
	give := func(name, outcome string, n uint64) {
		if n > 0 {
			o.Value(metricCommands, float64(n), name, outcome)
		}
	}
	give("unrecognized", "rejected", unrecognized)
	for spec, c := range t.byCommand {
		// those that are part of others first: no difference is negative
		kept, lost, bad := c.notRun.Load(), c.unknown.Load(), c.failed.Load()
		good, refused := c.calls.Load()-bad, c.rejected.Load()
		bad -= kept + lost
		name := spec.FullName()
		give(name, "ok", good)
		give(name, "error", bad)
		give(name, "rejected", refused)
		give(name, "not_run", kept)
		give(name, "unknown", lost)
		ok, failed, notRun, unknown = ok+good, failed+bad, notRun+refused+kept, unknown+lost
		if times := c.times.Read(); times.Count > 0 {
			o.Histogram(metricDuration, times, name)
		}
	}
	o.Value(metricRequests, float64(ok), "ok")
	o.Value(metricRequests, float64(failed), "error")
	o.Value(metricRequests, float64(notRun), "did_not_run")
	o.Value(metricRequests, float64(unknown), "unknown")
	counts, others := t.errorCounts()
	for word, n := range counts {
		if errorCodes[word] {
			o.Value(metricErrors, float64(n), word)
		}
	}
	if others > 0 {
		o.Value(metricErrors, float64(others), otherCode)
	}
	o.Value(metricSlow, float64(s.commandLogs[slowCalls].noted()))
	o.Value(metricDryRuns, float64(t.dryRunHits.Load()), "hit")
	o.Value(metricDryRuns, float64(t.dryRunMisses.Load()), "miss")
}

// otherCode is the label of what scripts invent: strangers read the metrics.
const otherCode = "other"

func (s *Server) giveClients(o metrics.Out) {
	t, sessions, subscribers := &s.stats, s.all(), 0
	for _, c := range sessions {
		if c.kind() == "pubsub" {
			subscribers++
		}
	}
	o.Value(metricConnections, float64(len(sessions)))
	o.Value(metricMostClients, float64(s.config.maxClients.Load()))
	o.Value(metricAccepted, float64(t.connections.Load()))
	o.Value(metricRejected, float64(t.rejected.Load()), "limit")
	o.Value(metricRejected, float64(t.protected.Load()), "protected")
	o.Value(metricRejected, float64(s.door.Refused()), "flood")
	o.Value(metricRejected, float64(s.gate.Refused()+s.httpGate.Refused()), "address")
	o.Value(metricRejected, float64(s.userClients.refused.Load()), "user")
	o.Value(metricRejected, float64(t.unauthenticatedClosed.Load()), "unauthenticated")
	o.Value(metricRejected, float64(s.clientMemory.evicted.Load()), "memory")
	o.Value(metricBlocked, float64(s.waitQueues.blocked.Load()+int64(s.pause.size())))
	o.Value(metricPubSub, float64(subscribers))
	o.Value(metricTracking, float64(s.tracking.on.Load()))
	o.Value(metricStrangers, float64(s.unauthenticated.Len()))
	o.Value(metricSubscriptions, float64(s.pubsub.kinds(subChannel)), "channel")
	o.Value(metricSubscriptions, float64(s.pubsub.kinds(subPattern)), "pattern")
	o.Value(metricSubscriptions, float64(s.pubsub.kinds(subShard)), "shard")
	o.Value(metricReceived, float64(t.bytesIn.Load()))
	o.Value(metricSent, float64(t.bytesOut.Load()))
	o.Value(metricDelayed, float64(t.rateDelayed.Load()))
	o.Value(metricDelayedNow, float64(t.rateDelayedClients.Load()))
}

func (s *Server) giveSecurity(o metrics.Out) {
	for i, reason := range denialReasons {
		o.Value(metricDenied, float64(s.denials.counts[i].Load()), reason)
	}
	o.Value(metricAuthDelayed, float64(s.guessing.delayed.Load()))
	if s.cfg.Audit != nil {
		o.Value(metricAudit, float64(s.cfg.Audit.Dropped()))
	}
	if s.cfg.Tracing != nil {
		traces := s.cfg.Tracing.Counts()
		o.Value(metricTraces, float64(traces.Sent), "sent")
		o.Value(metricTraces, float64(traces.Dropped), "dropped")
		o.Value(metricTraces, float64(traces.Failed), "failed")
	}
	for _, c := range s.cfg.Certificates() {
		o.Value(metricExpiry, float64(c.Expires.Unix()), c.Name)
		o.Flag(metricReload, c.Trouble != "", c.Name)
	}
}

// giveState gives what is in memory. The machine's part needs its lock, which a long entry holds,
// and a snapshot that is being loaded: without an answer in time, it is left out.
func (s *Server) giveState(o metrics.Out) {
	m := readMemory()
	o.Value(metricObjects, float64(m.objects))
	o.Value(metricLive, float64(m.live))
	o.Value(metricResident, float64(m.resident))
	o.Value(metricAvailable, float64(availableMemory()))
	o.Value(metricClientsMemory, float64(max(s.clientMemory.total.Load(), 0)))
	o.Value(metricReplyMemory, float64(s.replies.size()))
	has, ok := s.state.Ask(s.backend.Stats)
	if !ok {
		return
	}
	for i, db := range has.Databases {
		if db.Keys > 0 || i == 0 {
			o.Value(metricKeys, float64(db.Keys), strconv.Itoa(i))
			o.Value(metricVolatile, float64(db.Volatile), strconv.Itoa(i))
		}
	}
	o.Value(metricExpired, float64(has.Expired))
	o.Value(metricLookups, float64(has.Found), "hit")
	o.Value(metricLookups, float64(has.Missed), "miss")
	o.Value(metricData, float64(has.Memory))
	o.Value(metricDataMost, float64(has.MaxMemory))
	o.Value(metricRequestWork, float64(has.RequestWork))
	o.Value(metricLockWaiters, float64(has.LockWaiters))
	o.Value(metricUnclaimed, float64(has.UnclaimedGrants))
	o.Value(metricLeases, float64(has.Leases))
	o.Value(metricOnce, float64(has.OnceRequests))
	o.Value(metricScripts, float64(has.Scripts))
	o.Value(metricRuns, float64(has.ScriptRuns-has.ScriptsStopped), "ended")
	o.Value(metricRuns, float64(has.ScriptsStopped), "stopped")
	o.Value(metricScriptSeconds, has.ScriptSeconds)
	o.Value(metricLibraries, float64(has.Libraries))
	o.Value(metricFunctions, float64(has.Functions))
}
