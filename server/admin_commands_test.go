// Tests of commands that observe and control a node: MONITOR, SLOWLOG, histograms, snapshots,
// SHUTDOWN, FAILOVER, DEBUG, INFO.

package server

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// addrOf returns a client's address as the server sees it.
func addrOf(c *client) string {
	_, rest, _ := strings.Cut(c.call("CLIENT", "INFO"), " addr=")
	addr, _, _ := strings.Cut(rest, " ")
	return addr
}

func TestMonitorLines(t *testing.T) {
	n := start(t, nil)
	w, c := n.dial(t), n.dial(t)
	addr := regexp.QuoteMeta(addrOf(c))
	if got := w.call("MONITOR"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	line := func(want string) {
		t.Helper()
		if got := w.next(); !regexp.MustCompile(`^\+[0-9]{10}\.[0-9]{6} \[` + want +
			`\r\n$`).MatchString(got) {
			t.Fatalf("%q does not match %s", got, want)
		}
	}
	c.call("SELECT", "3")
	line("3 " + addr + `\] "SELECT" "3"`)
	c.call("SET", "a", "\x00\"\\\r\x7f")
	line("3 " + addr + `\] "SET" "a" "\\x00\\"\\\\\\r\\x7f"`)
	c.call("EVAL",
		"redis.call('SELECT', 5) redis.call('SET', KEYS[1], 'x') return redis.call('INFO')", "1",
		"k")
	line("3 " + addr + `\] "EVAL" .*`)
	line(`3 lua\] "SELECT" "5"`)
	line(`5 lua\] "SET" "k" "x"`)
	c.call("MULTI")
	line("3 " + addr + `\] "MULTI"`)
	c.call("SELECT", "7")
	c.call("GET", "a")
	c.call("EXEC")
	line("7 " + addr + `\] "SELECT" "7"`)
	line("7 " + addr + `\] "GET" "a"`)
	line("7 " + addr + `\] "EXEC"`)
	if list := c.call("CLIENT", "LIST"); !strings.Contains(list, "flags=O ") {
		t.Error(list)
	}
	w.call("RESET")
	if list := c.call("CLIENT", "LIST"); strings.Contains(list, "flags=O ") ||
		n.monitors.size.Load() != 0 || n.fake.watched {
		t.Error("RESET does not end MONITOR")
	}
}

// A monitor that does not read is closed at the subscriber limit, and delays nobody.
func TestMonitorIsBounded(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxSubscriberBytes = 1 << 20 })
	w, c := n.dial(t), n.dial(t)
	w.call("MONITOR")
	big := strings.Repeat("x", 1<<18)
	for range 64 {
		c.call("ECHO", big)
	}
	eventually(t, "the monitor is closed", func() bool { return n.monitors.size.Load() == 0 })
}

func TestSlowCallIsTrimmed(t *testing.T) {
	var args [][]byte
	for i := range 40 {
		args = append(args, fmt.Appendf(nil, "a%d", i))
	}
	args[1] = bytes.Repeat([]byte("x"), 130)
	kept := slowCall(args)
	if len(kept) != 32 || string(kept[31]) != "... (9 more arguments)" ||
		string(kept[1]) != strings.Repeat("x", 128)+"... (2 more bytes)" {
		t.Errorf("%d: %q", len(kept), kept)
	}
	if kept := slowCall(args[2:34]); len(kept) != 32 || string(kept[31]) != "a33" {
		t.Errorf("%q", kept)
	}
}

func TestSlowlogHidesPasswords(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("CONFIG", "SET", "slowlog-log-slower-than", "0")
	c.call("AUTH", "default", "secret")
	c.call("HELLO", "2", "AUTH", "default", "secret")
	if got := c.call("SLOWLOG", "GET"); strings.Contains(got, "secret") ||
		strings.Count(got, "(redacted)") != 4 {
		t.Error(got)
	}
}

func TestLatencyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		c.call("CONFIG", "SET", "latency-monitor-threshold", "5")
		c.call("DEBUG", "SLEEP", "0.02")
		if got := c.call("LATENCY", "LATEST"); !strings.HasPrefix(got,
			"*1\r\n*4\r\n$7\r\ncommand\r\n") {
			t.Error(got)
		}
		if got := c.call("LATENCY", "HISTORY", "command"); !strings.HasPrefix(got,
			"*1\r\n*2\r\n:") {
			t.Error(got)
		}
		if got := c.call("LATENCY", "GRAPH", "command"); !strings.Contains(got,
			"command - high 20 ms, low 20 ms") {
			t.Error(got)
		}
		if got := c.call("LATENCY", "DOCTOR"); !strings.Contains(got, "command: 1 slow seconds") {
			t.Error(got)
		}
		if got := c.call("LATENCY", "RESET", "command", "nosuch"); got != ":1\r\n" {
			t.Error(got)
		}
	})
}

func TestDrawLatency(t *testing.T) {
	e := latencyEvent{samples: []latencySample{{100, 10}, {7000, 40}, {7190, 20}}, highest: 90}
	want := "command - high 40 ms, low 10 ms (all time high 90 ms)\n" + strings.Repeat("-", 80) +
		"\n" +
		" _ \n | \n |_\n_||\n" + "\n131\nhm0\n  s\n"
	if got := drawLatency("command", e, 7200); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Requested snapshots do not overlap, and INFO shows them.
func TestSnapshotsOnDemand(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	n.fake.set(func() { n.fake.begun, n.fake.gate = make(chan struct{}, 1), make(chan struct{}) })
	if got := c.call("BGSAVE"); got != "+Background saving started\r\n" {
		t.Fatal(got)
	}
	receive(t, "it begins", n.fake.begun)
	for call, want := range map[string]string{
		"BGSAVE":          "-ERR Background save already in progress\r\n",
		"SAVE":            "-ERR Background save already in progress\r\n",
		"BGSAVE SCHEDULE": "+Background saving scheduled\r\n",
		"BGREWRITEAOF":    "-ERR Background append only file rewriting already in progress\r\n",
	} {
		if got := c.call(strings.Fields(call)...); got != want {
			t.Errorf("%s: %q", call, got)
		}
	}
	if got := c.call("INFO", "persistence"); !strings.Contains(got,
		"rdb_bgsave_in_progress:1\r\n") || !strings.Contains(got, "rdb_saves:0\r\n") {
		t.Error(got)
	}
	n.fake.set(func() { close(n.fake.gate); n.fake.begun, n.fake.gate = nil, nil })
	eventually(t, "the snapshot is written", func() bool {
		return strings.Contains(c.call("INFO", "persistence"), "rdb_saves:1\r\n")
	})
	n.fake.set(func() { n.fake.fail = errors.New("no room") })
	if got := c.call("SAVE"); got != "-ERR snapshot failed: no room\r\n" {
		t.Error(got)
	}
	if got := c.call("INFO", "persistence"); !strings.Contains(got,
		"rdb_last_bgsave_status:err\r\n") {
		t.Error(got)
	}
}

func TestShutdownAndFailover(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	n.fake.takeCalls()
	c.call("FAILOVER", "TO", "10.0.0.2", "7001")
	if got := n.fake.takeCalls(); got != "transfer to n2" {
		t.Error(got)
	}
	n.fake.set(func() { n.fake.fail = &Error{Unknown, "UNKNOWN nobody took over in time"} })
	if got := c.call("FAILOVER"); got != "-UNKNOWN nobody took over in time\r\n" {
		t.Error(got)
	}
	n.fake.set(func() { n.fake.fail, n.fake.st.Role = nil, "follower" })
	if got := c.call(
		"FAILOVER"); got != "-ERR FAILOVER is not valid when server is a replica.\r\n" {
		t.Error(got)
	}
	n.fake.set(func() { n.fake.st.Role, n.fake.st.Members = "leader", n.fake.st.Members[:1] })
	if got := c.call("FAILOVER"); got != "-ERR FAILOVER requires connected replicas.\r\n" {
		t.Error(got)
	}
	n.fake.takeCalls()
	if err := c.Send(commandtest.Args("SHUTDOWN", "NOSAVE", "NOW")); err != nil {
		t.Fatal(err)
	}
	c.ended()
	if got := n.fake.takeCalls(); got != "stop" {
		t.Error(got)
	}
}

func TestDebugObject(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("SET", "a", "12")
	addr := addrOf(c)
	if got := c.call("DEBUG", "OBJECT", "a"); !regexp.MustCompile(
		`^\+Value at:0 refcount:1 encoding:int memory:[0-9]+ created:[0-9]+ changed:[0-9]+\r\n$`).MatchString(got) {
		t.Error(got)
	}
	// Only the calling connection sleeps, and it can be closed.
	if err := c.Send(commandtest.Args("DEBUG", "SLEEP", "3600")); err != nil {
		t.Fatal(err)
	}
	d := n.dial(t)
	eventually(t, "the connection sleeps", func() bool {
		return strings.Contains(d.call("CLIENT", "LIST"), "cmd=debug")
	})
	d.call("CLIENT", "KILL", "ADDR", addr)
	c.ended()
}

// infoFields are the fields that redis_exporter and other exporters read, as far as they apply to
// coordd.
const infoFields = `uptime_in_seconds process_id config_file connected_clients blocked_clients maxclients tracking_clients
clients_in_timeout_table pubsub_clients client_recent_max_input_buffer client_recent_max_output_buffer allocator_active allocator_allocated
allocator_resident allocator_frag_bytes allocator_frag_ratio rss_overhead_bytes rss_overhead_ratio used_memory used_memory_rss used_memory_peak
used_memory_overhead used_memory_startup used_memory_dataset number_of_cached_scripts number_of_functions number_of_libraries maxmemory
maxmemory_policy mem_fragmentation_ratio mem_fragmentation_bytes mem_clients_slaves mem_clients_normal mem_not_counted_for_evict
active_defrag_running lazyfree_pending_objects lazyfreed_objects loading async_loading rdb_changes_since_last_save rdb_bgsave_in_progress
rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves aof_enabled aof_rewrite_in_progress
aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec aof_last_bgrewrite_status aof_last_write_status
module_fork_in_progress total_connections_received total_commands_processed instantaneous_ops_per_sec total_net_input_bytes
total_net_output_bytes instantaneous_input_kbps instantaneous_output_kbps rejected_connections expired_keys evicted_keys evicted_clients
pubsub_channels pubsub_patterns pubsubshard_channels latest_fork_usec total_forks slave_expires_tracked_keys active_defrag_hits
active_defrag_misses active_defrag_key_hits active_defrag_key_misses total_error_replies total_reads_processed total_writes_processed role
connected_slaves master_failover_state master_replid master_replid2 master_repl_offset second_repl_offset repl_backlog_active
repl_backlog_size repl_backlog_first_byte_offset repl_backlog_histlen used_cpu_sys used_cpu_user used_cpu_sys_children
used_cpu_user_children cluster_enabled`

func TestInfoHasWhatExportersRead(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("SET", "a", "1")
	text := c.call("INFO", "all")
	for name := range strings.FieldsSeq(infoFields) {
		if !strings.Contains(text, "\r\n"+name+":") {
			t.Errorf("INFO has no %s", name)
		}
	}
	for _, pattern := range []string{
		`cmdstat_set:calls=1,usec=[0-9]+,usec_per_call=[0-9.]+,rejected_calls=0,failed_calls=0\r\n`,
		`latency_percentiles_usec_set:p50=[0-9.]+,p99=[0-9.]+,p99\.9=[0-9.]+\r\n`,
		`db0:keys=1,expires=0,avg_ttl=0\r\n`,
		`slave0:ip=10\.0\.0\.2,port=7001,state=online,offset=100,lag=0\r\n`,
		`master_replid:[0-9a-f]{40}\r\n`, `# Modules\r\n`,
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("INFO has no %s", pattern)
		}
	}
	n.fake.set(func() { n.fake.st.Loading = true })
	if !strings.Contains(c.call("INFO", "persistence"), "loading:1\r\n") {
		t.Error("INFO does not say that the node is loading")
	}
}

// A pause holds everybody until it ends; a held client that disconnects is forgotten.
func TestPauseHoldsAndFrees(t *testing.T) {
	n := start(t, nil)
	c, gone := n.dial(t), n.dial(t)
	c.call("CLIENT", "PAUSE", "3600000", "WRITE")
	var held []*client
	for i := range 20 {
		w := n.dial(t)
		w.raw(pipeline([]string{"SET", fmt.Sprint(i), "x"}, []string{"PING"}))
		held = append(held, w)
	}
	if err := gone.Send(commandtest.Args("SET", "gone", "x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all wait", func() bool { return n.pause.size() == 21 })
	_ = gone.Close()
	eventually(t, "who has gone waits no more", func() bool { return n.pause.size() == 20 })
	if got := c.call("DBSIZE"); got != ":0\r\n" {
		t.Error(got)
	}
	for _, also := range [][]string{{"PFCOUNT", "hll"}, {"PUBLISH", "news", "x"}} {
		w, before := n.dial(t), n.pause.size()
		w.raw(pipeline(also))
		eventually(t, also[0]+" waits too", func() bool { return n.pause.size() == before+1 })
		defer w.want(":0\r\n")
	}
	for _, i := range rand.New(rand.NewPCG(seeds.Of(t), 0)).Perm(5) {
		held[i].raw(pipeline([]string{"PING"}))
	}
	c.call("CLIENT", "UNPAUSE")
	for _, w := range held {
		w.want("+OK\r\n", "+PONG\r\n")
	}
	if got := c.call("DBSIZE"); got != ":20\r\n" {
		t.Error(got)
	}
}

// A pause of writes holds scripts but those that declare that they write nothing.
func TestPauseOfWritesAndScripts(t *testing.T) {
	const reads, writes = "#!lua flags=no-writes\nreturn 'ran'", "#!lua\nreturn 'ran'"
	const ran = "$3\r\nran\r\n"
	n := start(t, nil)
	c, admin, transaction := n.dial(t), n.dial(t), n.dial(t)
	library := "#!lua name=l\nredis.register_function{function_name='looks', callback=function() " +
		"return 'ran' end, flags={'no-writes'}}\n" +
		"redis.register_function('acts', function() return 'ran' end)"
	if got := c.call("FUNCTION", "LOAD", library); got[0] == '-' {
		t.Fatal(got)
	}
	transaction.call("MULTI")
	transaction.call("EVAL", writes, "0")
	admin.call("CLIENT", "PAUSE", "3600000", "WRITE")
	sha := map[string]string{}
	if got := c.call("SCRIPT", "FLUSH"); got != "+OK\r\n" {
		t.Errorf("%q", got)
	}
	for _, source := range []string{reads, writes} {
		sha[source] = strings.Fields(c.call("SCRIPT", "LOAD", source))[1]
	}
	for _, call := range [][2]string{{"EVAL", reads}, {"EVALSHA", sha[reads]}, {"FCALL", "looks"},
		{"EVAL_RO", "return 'ran'"}, {"EVAL_RO", reads}, {"FCALL_RO", "looks"}} {
		n.fake.set(func() { n.fake.lagsScripts = true }) // as a follower, just after SCRIPT LOAD
		if got := c.call(call[0], call[1], "0"); got != ran {
			t.Errorf("%q: %q", call, got)
		}
	}
	n.fake.set(func() { n.fake.lagsScripts = true })
	c.raw(pipeline([]string{"MULTI"}, []string{"EVAL", reads, "0"}, []string{"EXEC"}))
	c.want("+OK\r\n", "+QUEUED\r\n", "*1\r\n"+ran)

	var held []func()
	hold := func(w *client, want string, call ...string) {
		before := n.pause.size()
		w.raw(pipeline(call))
		eventually(t, fmt.Sprintf("%q to wait", call), func() bool {
			return n.pause.size() == before+1
		})
		held = append(held, func() { w.want(want) })
	}
	hold(transaction, "*1\r\n"+ran, "EXEC")
	hold(n.dial(t), ran, "EVAL", "return 'ran'", "0")
	hold(n.dial(t), ran, "EVAL", writes, "0")
	hold(n.dial(t), ran, "EVALSHA", sha[writes], "0")
	hold(n.dial(t), ran, "FCALL", "acts", "0")
	hold(n.dial(t), "-NOSCRIPT No matching script. Please use EVAL.\r\n", "EVALSHA",
		strings.Repeat("0", 40), "0")
	hold(n.dial(t), "-ERR Can not execute a script with write flag using *_ro command.\r\n",
		"FCALL_RO", "acts", "0")
	hold(n.dial(t), "-ERR Can not execute a script with write flag using *_ro command.\r\n",
		"EVAL_RO", writes, "0")
	admin.call("CLIENT", "UNPAUSE")
	for _, check := range held {
		check()
	}
}

// The size of a reply counts, however much of it was sent while it was written, or whoever answers
// it; and no log shows a password.
func TestLargeCalls(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("CONFIG", "SET", "commandlog-request-larger-than", "1000",
		"commandlog-reply-larger-than", "1000")
	last := func(kind string) string { return c.call("COMMANDLOG", "GET", "1", kind) }
	want := func(kind string, size int, args string) {
		t.Helper()
		if got := last(kind); !strings.Contains(got, fmt.Sprintf("\r\n:%d\r\n%s", size, args)) {
			t.Errorf("%s: %q", kind, got)
		}
	}
	x := strings.Repeat("x", 1000)
	c.call("ECHO", x) // of the session
	want("large-request", 1023, "*2\r\n$4\r\nECHO\r\n$148\r\n")
	want("large-reply", 1009, "*2\r\n$4\r\nECHO\r\n$148\r\n")
	c.call("SET", "key", x)
	c.raw(calls("GET key", "PING", "GET key"))
	for _, reply := range []string{"$1000\r\n" + x, "+PONG", "$1000\r\n" + x} {
		c.want(reply + "\r\n")
	}
	want("large-reply", 1009, "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n")
	if got := c.call("COMMANDLOG", "LEN", "large-reply"); got != ":3\r\n" {
		t.Error(got)
	}
	c.call("AUTH", "default", strings.Repeat("secret", 200))
	if got := last("large-request"); strings.Contains(got, "secret") ||
		strings.Count(got, "(redacted)") != 2 {
		t.Error(got)
	}
}
