// INFO, with the sections and fields that clients and exporters read. Fields for what coordd does
// not have are omitted.

package server

import (
	"cmp"
	"context"
	"crypto/sha1"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
)

// infoText collects sections.
type infoText struct {
	strings.Builder
	srv   *Server
	asker *session
	st    Status
	has   commands.Stats
	now   time.Time
}

func (t *infoText) head(name string) {
	if t.Len() > 0 {
		t.WriteString("\r\n")
	}
	t.WriteString("# " + name + "\r\n")
}

// field writes one line.
func (t *infoText) field(name string, value any) { fmt.Fprintf(t, "%s:%v\r\n", name, value) }

type infoSection struct {
	name  string
	write func(*infoText)
	asked bool // shown only on request, or with everything
}

var infoSections = []infoSection{
	{"Server", infoServer, false},
	{"Clients", infoClients, false},
	{"Memory", infoMemory, false},
	{"Persistence", infoPersistence, false},
	{"Stats", infoStats, false},
	{"Replication", infoReplication, false},
	{"CPU", infoCPU, false},
	{"Modules", func(*infoText) {}, false},
	{"Commandstats", infoCommands, true},
	{"Errorstats", infoErrors, false},
	{"Latencystats", infoLatency, true},
	{"Cluster", infoCluster, false},
	{"Keyspace", infoKeyspace, false},
	{"Coordd", infoCoordd, false},
}

func info(s *session, _ *commands.Spec, args [][]byte) {
	wanted := make(map[string]bool, len(infoSections))
	for _, section := range infoSections {
		wanted[ascii.Lower(section.name)] = false
	}
	usual, all := len(args) == 1, false
	for _, a := range args[1:] {
		switch name := ascii.Lower(a); name {
		case "all", "everything":
			all = true
		case "default":
			usual = true
		default:
			if _, known := wanted[name]; known { // the others are not kept
				wanted[name] = true
			}
		}
	}
	s.flushTally()
	t := &infoText{srv: s.srv, asker: s, st: s.srv.backend.Status(), has: s.srv.backend.Stats(),
		now: time.Now()}
	for _, section := range infoSections {
		if all || (usual && !section.asked) || wanted[ascii.Lower(section.name)] {
			t.head(section.name)
			section.write(t)
		}
	}
	s.w.Verbatim("txt", t.String())
}

func infoServer(t *infoText) {
	uptime := int64(t.now.Sub(t.srv.started).Seconds())
	t.field("redis_version", t.srv.cfg.RedisVersion)
	t.field("redis_git_sha1", "00000000")
	t.field("redis_git_dirty", 0)
	t.field("redis_mode", t.srv.mode())
	t.field("coordd_version", t.srv.cfg.Version)
	t.field("os", runtime.GOOS+" "+runtime.GOARCH)
	t.field("arch_bits", strconv.IntSize)
	t.field("go_version", runtime.Version())
	t.field("process_id", os.Getpid())
	t.field("run_id", t.srv.runID)
	t.field("tcp_port", cmp.Or(t.srv.ports()))
	t.field("server_time_usec", t.now.UnixMicro())
	t.field("uptime_in_seconds", uptime)
	t.field("uptime_in_days", uptime/86400)
	hz := findParam([]byte("hz")).get(t.srv) // as it was set: nothing goes by it
	executable, _ := os.Executable()
	t.fields("hz", hz, "configured_hz", hz, "executable", executable)
	t.field("config_file", t.srv.cfg.ConfigFile)
	t.field("availability_zone", t.srv.cfg.Zone)
}

func infoClients(t *infoText) {
	sessions := t.srv.all()
	subscribers, waiting, query := 0, 0, 0
	for _, c := range sessions {
		if c.kind() == "pubsub" {
			subscribers++
		}
		waiting = max(waiting, c.out.waiting())
		c.mu.Lock()
		query = max(query, c.view.queryBytes)
		c.mu.Unlock()
	}
	t.field("connected_clients", len(sessions))
	t.field("cluster_connections", t.srv.clusterConnections(&t.st))
	t.field("maxclients", t.srv.config.maxClients.Load())
	t.field("client_recent_max_input_buffer", query)
	t.field("client_recent_max_output_buffer", waiting)
	t.field("blocked_clients", t.srv.waitQueues.blocked.Load()+int64(t.srv.pause.size()))
	t.field("lock_waiters", t.has.LockWaiters)
	t.field("tracking_clients", t.srv.tracking.on.Load())
	t.field("clients_in_timeout_table", 0)
	t.field("pubsub_clients", subscribers)
}

// fields writes pairs of a name and a value, one per line.
func (t *infoText) fields(pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(t, "%s:%v\r\n", pairs[i], pairs[i+1])
	}
}

// bytes writes a size in both of Redis's forms.
func (t *infoText) bytes(name string, n uint64) { t.fields(name, n, name+"_human", human(n)) }

func infoMemory(t *infoText) {
	m := readMemory()
	clients := uint64(max(t.srv.clientMemory.total.Load(), 0))
	overhead := min(t.srv.startBytes+clients, m.objects)
	t.bytes("used_memory", m.objects)
	t.bytes("used_memory_live", m.live)
	t.bytes("used_memory_rss", m.resident)
	t.bytes("used_memory_peak", m.peak)
	t.fields("used_memory_peak_perc", fmt.Sprintf("%.2f%%", percent(m.objects, m.peak)),
		"used_memory_overhead", overhead, "used_memory_startup", t.srv.startBytes,
		"used_memory_dataset", t.has.Memory,
		"used_memory_dataset_perc", fmt.Sprintf("%.2f%%", percent(uint64(t.has.Memory),
			m.objects)),
		"allocator_allocated", m.objects, "allocator_active", m.held, "allocator_resident", m.held)
	if total := systemMemory(); total > 0 {
		t.bytes("total_system_memory", total)
	}
	scripts, libraries := uint64(t.has.ScriptBytes), uint64(t.has.LibraryBytes)
	t.field("used_memory_vm_eval", scripts)
	t.bytes("used_memory_lua", scripts)
	t.fields("number_of_cached_scripts", t.has.Scripts, "number_of_functions", t.has.Functions,
		"number_of_libraries", t.has.Libraries, "used_memory_vm_functions", libraries)
	t.bytes("used_memory_vm_total", scripts+libraries)
	t.bytes("maxmemory", uint64(t.has.MaxMemory))
	t.fields("maxmemory_policy", neverEvict,
		"allocator_frag_ratio", fmt.Sprintf("%.2f", ratio(m.held, m.objects)),
		"allocator_frag_bytes", m.held-min(m.held, m.objects),
		"rss_overhead_ratio", fmt.Sprintf("%.2f", ratio(m.resident, m.held)), "rss_overhead_bytes",
		m.resident-min(m.resident, m.held),
		"mem_fragmentation_ratio", fmt.Sprintf("%.2f", ratio(m.resident, m.objects)),
		"mem_fragmentation_bytes", m.resident-min(m.resident, m.objects),
		"mem_not_counted_for_evict", 0, "mem_replication_backlog", t.st.LogCache,
		"mem_clients_slaves", 0, "mem_clients_normal", clients,
		"mem_cluster_links", 0, "mem_aof_buffer", 0, "mem_allocator", "go",
		"active_defrag_running", 0, "lazyfree_pending_objects", 0, "lazyfreed_objects", 0)
}

// systemMemory returns the memory of the machine, bytes; 0 if unknown.
func systemMemory() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseUint(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// residentBytes returns the resident memory of the process, now and peak, from the system if
// available.
func residentBytes(held uint64) (now, peak uint64) {
	now, peak = held, held
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return now, peak
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseUint(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak
}

// human formats bytes as Redis does: 1.50M.
func human(n uint64) string {
	f := float64(n)
	for i, unit := range []string{"B", "K", "M", "G", "T"} {
		if f < 1024 || unit == "T" {
			if i == 0 {
				return fmt.Sprintf("%dB", n)
			}
			return fmt.Sprintf("%.2f%s", f, unit)
		}
		f /= 1024
	}
	return ""
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// infoPersistence shows the log as Redis's AOF, and snapshots as its RDB files.
func infoPersistence(t *infoText) {
	asked := t.srv.saving.state()
	status := "ok"
	if asked.failure != nil {
		status = "err"
	}
	busy := number(t.st.Snapshot.Writing || asked.now >= 0)
	t.fields("loading", number(t.st.Loading), "async_loading", 0,
		"rdb_changes_since_last_save", t.has.Changes,
		"rdb_bgsave_in_progress", busy, "rdb_last_save_time", t.srv.lastSave(&t.st),
		"rdb_last_bgsave_status", status,
		"rdb_last_bgsave_time_sec", asked.last, "rdb_current_bgsave_time_sec", asked.now,
		"rdb_saves", asked.saves,
		"aof_enabled", 1, "aof_rewrite_in_progress", busy, "aof_rewrite_scheduled", 0,
		"aof_last_rewrite_time_sec", asked.last, "aof_current_rewrite_time_sec", asked.now,
		"aof_last_bgrewrite_status", status, "aof_last_write_status", "ok",
		"module_fork_in_progress", 0, "coordd_last_backup_time", t.srv.stats.backupAt.Load(),
		"coordd_last_backup_bytes", t.srv.stats.backupBytes.Load())
}

func infoStats(t *infoText) {
	s := &t.srv.stats
	ops, in, out := s.rate(t.now)
	t.field("total_connections_received", s.connections.Load())
	t.field("total_commands_processed", s.commands.Load())
	t.field("instantaneous_ops_per_sec", int64(ops))
	t.field("total_net_input_bytes", s.bytesIn.Load())
	t.field("total_net_output_bytes", s.bytesOut.Load())
	t.field("instantaneous_input_kbps", fmt.Sprintf("%.2f", in/1024))
	t.field("instantaneous_output_kbps", fmt.Sprintf("%.2f", out/1024))
	t.field("rejected_connections", s.rejected.Load()+s.protected.Load())
	t.field("expired_keys", t.has.Expired)
	t.fields("evicted_keys", 0, "evicted_clients", t.srv.clientMemory.evicted.Load(),
		"total_eviction_exceeded_time", 0, "current_eviction_exceeded_time", 0)
	t.fields("keyspace_hits", t.has.Found, "keyspace_misses", t.has.Missed)
	t.field("pubsub_channels", t.srv.pubsub.kinds(subChannel))
	t.field("pubsub_patterns", t.srv.pubsub.kinds(subPattern))
	t.field("pubsubshard_channels", t.srv.pubsub.kinds(subShard))
	t.field("pubsub_counted", number(!t.srv.counting.blinded(t.srv)))
	t.fields("latest_fork_usec", 0, "total_forks", 0, "migrate_cached_sockets", 0,
		"slave_expires_tracked_keys", 0,
		"active_defrag_hits", 0, "active_defrag_misses", 0, "active_defrag_key_hits", 0,
		"active_defrag_key_misses", 0)
	if t.srv.tracking.on.Load() > 0 {
		// what earlier commands have changed is no longer tracked
		ctx, cancel := context.WithTimeout(context.Background(), ownDelay)
		t.asker.awaitDelivery(ctx)
		cancel()
	}
	_, keys, items, prefixes := t.srv.tracking.counts()
	t.fields("tracking_total_keys", keys, "tracking_total_items", items, "tracking_total_prefixes",
		prefixes)
	for i, what := range [...]string{"auth", "cmd", "key", "channel"} { // as denialReasons
		t.field("acl_access_denied_"+what, t.srv.denials.counts[i].Load())
	}
	t.field("total_error_replies", s.errorReplies.Load())
	t.field("total_reads_processed", s.reads.Load())
	t.field("total_writes_processed", s.writes.Load())
}

func infoReplication(t *infoText) {
	st := t.st.seenBy(t.asker)
	if t.srv.presentsMaster(st.Role) {
		online := t.srv.followers(&st)
		t.field("role", "master")
		t.field("connected_slaves", len(online))
		for i, m := range online {
			host, port := clientHostPort(&m)
			fmt.Fprintf(t, "slave%d:ip=%s,port=%s,state=online,offset=%d,lag=%d\r\n", i, host, port,
				m.Applied, int64(m.LastContact.Seconds()))
		}
		infoHistory(t)
		return
	}
	host, port := "", "0"
	link := "down"
	if st.LeaderID != "" {
		host, port = hostPort(st.LeaderAddr)
		if st.Ready {
			link = "up"
		}
	}
	t.field("role", "slave")
	t.field("master_host", host)
	t.field("master_port", port)
	t.field("master_link_status", link)
	t.field("master_last_io_seconds_ago", int64(st.LastContact.Seconds()))
	t.field("master_sync_in_progress", 0)
	if link == "down" {
		t.field("master_link_down_since_seconds", int64(st.LastContact.Seconds()))
	}
	t.field("slave_read_repl_offset", st.LastLog)
	t.field("slave_repl_offset", st.Applied)
	t.field("slave_priority", 100)
	t.field("slave_read_only", 0)
	t.field("replica_announced", 1)
	t.field("connected_slaves", 0)
	infoHistory(t)
}

// infoHistory shows the position in the log. All nodes have one log, named by the ids of the
// members; unlike Redis's backlog, it has no fixed size.
func infoHistory(t *infoText) {
	state := "no-failover"
	if t.srv.failingOver.Load() {
		state = "failover-in-progress"
	}
	ids := make([]string, len(t.st.Members))
	for i, m := range t.st.Members {
		ids[i] = m.ID
	}
	slices.Sort(ids)
	t.fields("master_failover_state", state, "master_replid",
		fmt.Sprintf("%x", sha1.Sum([]byte(strings.Join(ids, " ")))),
		"master_replid2", strings.Repeat("0", 40), "master_repl_offset", t.st.Commit,
		"second_repl_offset", -1,
		"repl_backlog_active", 0, "repl_backlog_size", 0, "repl_backlog_first_byte_offset", 0,
		"repl_backlog_histlen", 0)
}

func infoCPU(t *infoText) {
	var self, children syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) != nil ||
		syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children) != nil {
		return
	}
	seconds := func(v syscall.Timeval) string { return fmt.Sprintf("%.6f", float64(v.Nano())/1e9) }
	t.field("used_cpu_sys", seconds(self.Stime))
	t.field("used_cpu_user", seconds(self.Utime))
	t.field("used_cpu_sys_children", seconds(children.Stime))
	t.field("used_cpu_user_children", seconds(children.Utime))
}

func infoErrors(t *infoText) {
	counts, _ := t.srv.stats.errorCounts()
	words := make([]string, 0, len(counts))
	for w := range counts {
		words = append(words, w)
	}
	slices.Sort(words)
	for _, w := range words {
		fmt.Fprintf(t, "errorstat_%s:count=%d\r\n", w, counts[w])
	}
}

// infoCluster is for clients that check here before they use CLUSTER (redis-py 4 does).
func infoCluster(t *infoText) {
	t.field("cluster_enabled", number(!t.srv.alone()))
}

func infoKeyspace(t *infoText) {
	for i, db := range t.has.Databases {
		if db.Keys > 0 {
			fmt.Fprintf(t, "db%d:keys=%d,expires=%d,avg_ttl=%d\r\n", i, db.Keys, db.Volatile,
				db.MeanTTL)
		}
	}
}

// infoCoordd shows what Redis has no field for.
func infoCoordd(t *infoText) {
	st := &t.st
	ready := 0
	if st.Ready {
		ready = 1
	}
	t.field("node_id", st.ID)
	t.field("raft_role", st.Role)
	t.field("raft_term", st.Term)
	t.field("raft_commit_index", max(st.Commit, st.Applied)) // Raft's is older after a snapshot
	t.field("raft_applied_index", st.Applied)
	t.field("raft_last_log_index", st.LastLog)
	t.field("feature_level", st.Level)
	t.field("known_feature_level", st.KnownLevel)
	t.field("leader_id", st.LeaderID)
	t.field("leader_addr", st.seenBy(t.asker).LeaderAddr)
	t.field("leader_contact_ms", st.LastContact.Milliseconds())
	t.field("cluster_clock_ms", st.ClockMs)
	t.field("unauthenticated_clients", t.srv.unauthenticated.Len())
	t.field("unauthenticated_closed", t.srv.stats.unauthenticatedClosed.Load())
	t.field("unauthenticated_refused", t.srv.door.Refused())
	t.field("address_refused", t.srv.gate.Refused()+t.srv.httpGate.Refused())
	t.field("user_clients_refused", t.srv.userClients.refused.Load())
	t.field("auth_delayed", t.srv.guessing.delayed.Load())
	t.field("rate_delayed", t.srv.stats.rateDelayed.Load())
	t.field("rate_delayed_clients", t.srv.stats.rateDelayedClients.Load())
	t.field("unlogged_writes", t.srv.stats.dryRunHits.Load())
	t.field("vain_tries", t.srv.stats.dryRunMisses.Load())
	t.field("snapshot_index", st.Snapshot.Index)
	t.field("leases", t.has.Leases)
	t.field("unclaimed_grants", t.has.UnclaimedGrants)
	t.field("once_requests", t.has.OnceRequests)
	t.field("request_work", t.has.RequestWork)
	t.field("ready", ready)
	if st.NotReady != "" {
		t.field("not_ready", st.NotReady)
	}
	if st.LogTrouble != "" {
		t.field("log_trouble", st.LogTrouble)
	}
	if st.Snapshot.Trouble != "" {
		t.field("snapshot_trouble", st.Snapshot.Trouble)
	}
	if t.srv.cfg.Audit != nil {
		t.field("audit_dropped", t.srv.cfg.Audit.Dropped())
	}
	for i, c := range t.srv.cfg.Certificates() {
		fmt.Fprintf(t, "certificate%d:name=%s,expires=%d,days_left=%d,last_reload=%s\r\n", i, c.Name,
			c.Expires.Unix(), int(c.Expires.Sub(t.now)/(24*time.Hour)), c.LastReload())
	}
	for i, m := range st.Members {
		match := int64(m.LastLog)
		if st.Role != "leader" && m.ID != st.ID {
			match = -1 // only the leader hears how far they are
		}
		fmt.Fprintf(t, "member%d:id=%s,peer=%s,client=%s,tls=%s,voter=%t,match=%d,zone=%s,"+
			"priority=%d,learner=%t,removed_in=%d\r\n", i, m.ID, m.PeerAddr, m.ClientAddr,
			m.TLSAddr, m.Voter, match, m.Zone, m.Priority, m.Learner, removedIn(&m))
	}
}
