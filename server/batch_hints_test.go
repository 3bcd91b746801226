// Tests of which writes run as a dry run before they are logged, and of batches that a dry run
// answers in part.

package server

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
)

func TestDryRuns(t *testing.T) {
	for _, c := range []struct {
		name    string
		lines   []string // each sent on its own
		batches string
	}{
		{"a lock that is free is not tried", []string{"SET lock a NX", "SET other a NX", "DEL lock",
			"SET lock b NX"}, "write 1, write 1, write 1, write 1"},
		{"one that was held is, until it is free",
			[]string{"SETNX lock a", "SETNX lock b", "SETNX lock b", "SETNX lock c", "DEL lock",
				"SETNX lock d", "SETNX lock e", "SETNX lock f"},
			"write 1, write 1, dry run 1, dry run 1, write 1, dry run 1, write 1, write 1, " +
				"dry run 1"},
		{"each key by itself", []string{"SETNX lock a", "SETNX lock b", "SETNX other b"},
			"write 1, write 1, write 1"},
		{"each database by itself", []string{"SETNX lock a", "SETNX lock b", "SELECT 1",
			"SETNX lock b"}, "write 1, write 1, write 1"},
		{"an answer that tells of a change", []string{"SETNX lock a", "SETNX lock b", "SET lock c",
			"SETNX lock b", "GETDEL lock", "GETDEL lock", "GETDEL lock"},
			"write 1, write 1, write 1, dry run 1, write 1, write 1, dry run 1"},
		{"what always writes is given up", []string{"HSET h f 1", "HSET h f 2", "HSET h f 3",
			"HSET h f 4", "HSET h f 5", "HSET h f 6", "HSET h f 7", "HSET h f 8", "HSET h f 9"},
			"write 1, write 1, dry run 1, write 1, dry run 1, write 1, dry run 1, write 1, " +
				"dry run 1, write 1, write 1, write 1, write 1"},
		{"messages are not tried", []string{"PUBLISH c m", "PUBLISH c m", "PUBLISH c m"},
			"write 1, write 1, write 1"},
		{"who waits is not", []string{"SADD s x", "SADD s x", "BLPOP none 0.001",
			"BLPOP none 0.001"}, // it comes and leaves
			"write 1, write 1, write 1, write 1, write 1, write 1"},
		{"a transaction of reads with a watch", []string{"WATCH a", "MULTI", "GET a", "EXEC"},
			"read 1, dry run 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := start(t, nil)
			k := n.dial(t)
			for _, l := range c.lines {
				k.call(strings.Fields(l)...)
			}
			if batches := n.fake.takeCalls(); batches != c.batches {
				t.Errorf("batches %q, want %q", batches, c.batches)
			}
		})
	}
}

// A pipeline is tried if every write in it probably changes nothing; it is logged from the first
// write that does.
func TestDryRunsOfPipelines(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	held := calls("SETNX a x", "GET a", "SETNX b x")
	c.raw(calls("SET a 1", "SET b 1", "SET c 1") + held)
	c.want("+OK\r\n", "+OK\r\n", "+OK\r\n", ":0\r\n", "$1\r\n1\r\n", ":0\r\n")
	n.fake.takeCalls()
	for _, step := range []struct {
		send    string
		want    []string
		batches string
	}{
		{held, []string{":0\r\n", "$1\r\n1\r\n", ":0\r\n"}, "dry run 3"},
		{calls("SETNX a x", "INCR c", "SETNX b x"), []string{":0\r\n", ":2\r\n", ":0\r\n"},
			"write 3"},
		{calls("SETNX a x", "PUBLISH c m", "SETNX b x"), []string{":0\r\n", ":0\r\n", ":0\r\n"},
			"write 3"},
		{calls("DEL b"), []string{":1\r\n"}, "write 1"},
		{held + calls("PING", "GET b"), []string{":0\r\n", "$1\r\n1\r\n", ":1\r\n", "+PONG\r\n",
			"$1\r\nx\r\n"}, "dry run 4, write 2"},
		{calls("DEL a", "DEL b"), []string{":1\r\n", ":1\r\n"}, "write 2"},
		{calls("SETNX a y"), []string{":1\r\n"}, "dry run 1, write 1"},
	} {
		c.raw(step.send)
		c.want(step.want...)
		if batches := n.fake.takeCalls(); batches != step.batches {
			t.Errorf("%q: batches %q, want %q", step.send, batches, step.batches)
		}
	}
	if got := c.call("INFO", "coordd"); !strings.Contains(got, "unlogged_writes:3\r\n") ||
		!strings.Contains(got, "vain_tries:2\r\n") {
		t.Errorf("INFO coordd: %s", got)
	}
}

// A script's reply does not tell what it did: now and then one is tried, and after hits all are.
func TestDryRunsOfScripts(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	look, take := "return redis.call('exists', KEYS[1])", "return redis.call('incr', KEYS[1])"
	tried := func(script, key string, times int) int {
		t.Helper()
		for range times {
			c.call("EVAL", script, "1", key)
		}
		return strings.Count(n.fake.takeCalls(), "dry run")
	}
	if got := tried(look, "a", 200); got < 180 {
		t.Errorf("a script that only looks was tried %d times of 200", got)
	}
	if got := tried(look, "other", 10); got != 10 {
		t.Errorf("with another key it was tried %d times of 10", got)
	}
	if got := tried(take, "count", 640); got > 8 {
		t.Errorf("a script that writes each time was tried %d times of 640", got)
	}
	if got := c.call("GET", "count"); got != "$3\r\n640\r\n" {
		t.Errorf("it ran %q times", got)
	}
	c.raw(calls("MULTI", "EXISTS a", "SETNX count x", "EXEC"))
	c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:0\r\n:0\r\n")
}

// MONITOR needs the log entries of scripts: nothing is tried while it runs.
func TestNoDryRunsBesideMonitor(t *testing.T) {
	n := start(t, nil)
	c, m := n.dial(t), n.dial(t)
	for range 100 {
		c.call("EVAL", "return redis.call('get', KEYS[1])", "1", "a")
	}
	if !strings.Contains(n.fake.takeCalls(), "dry run") {
		t.Fatal("the script is not tried: the test shows nothing")
	}
	m.call("MONITOR")
	c.call("EVAL", "return redis.call('get', KEYS[1])", "1", "a")
	if batches := n.fake.takeCalls(); batches != "write 1" {
		t.Errorf("batches %q", batches)
	}
	if line := m.next(); !strings.Contains(line, `"EVAL"`) {
		t.Errorf("%q", line)
	}
	if line := m.next(); !strings.Contains(line, `lua] "get" "a"`) {
		t.Errorf("%q", line)
	}
}

// An error of a dry run guarantees that nothing ran, as for a read.
func TestDryRunFails(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.raw(calls("SETNX a 1", "SETNX a 1"))
	c.want(":1\r\n", ":0\r\n")
	n.fake.takeCalls()
	n.fake.set(func() {
		n.fake.fail = &Error{NoLeader, "CLUSTERDOWN the command did not run: no leader"}
	})
	if got := c.call("SETNX", "a",
		"1"); got != "-CLUSTERDOWN the command did not run: no leader\r\n" {
		t.Errorf("%q", got)
	}
	if batches := n.fake.takeCalls(); batches != "dry run 1" {
		t.Errorf("batches %q", batches)
	}
}

// BenchmarkHints measures what the hints cost every write, for a free lock.
func BenchmarkHints(b *testing.B) {
	n := newFake()
	var t hints
	args := commandtest.Args("SET", "lock:000000012345", "owner", "NX", "PX", "10000")
	spec := n.table.Get(args[0])
	reply := []byte("+OK\r\n")
	for b.Loop() {
		var next batch
		owed := pending{spec: spec}
		next.consider(&t, 0, [][][]byte{args}, &owed, false)
		if next.worthDryRun(&t) {
			b.Fatal("a lock that is free is tried")
		}
		t.logged(owed.hint, reply)
	}
}
