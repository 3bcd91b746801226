// Tests of how pipelines become batches: what goes together, reply order, and errors.

package server

import (
	"fmt"
	"strings"
	"testing"
)

func calls(lines ...string) string {
	var all [][]string
	for _, l := range lines {
		all = append(all, strings.Fields(l))
	}
	return pipeline(all...)
}

func TestBatches(t *testing.T) {
	n := start(t, nil)
	for _, c := range []struct {
		name    string
		lines   []string
		want    []string
		batches string
	}{
		{"writes go together", []string{"SET a 1", "INCR a", "SET b 2"},
			[]string{"+OK\r\n", ":2\r\n", "+OK\r\n"}, "write 3"},
		{"reads go together", []string{"GET a", "GET b"}, []string{"$1\r\n2\r\n", "$1\r\n2\r\n"},
			"read 2"},
		{"reads join writes", []string{"GET a", "INCR a", "GET a"},
			[]string{"$1\r\n2\r\n", ":3\r\n", "$1\r\n3\r\n"}, "write 3"},
		{
			"the session's own answers stay in place",
			[]string{"SET a 1", "PING", "INCR a", "NOSUCH", "SELECT 1", "SET a 7", "SELECT 0",
				"GET a", "ECHO x"},
			[]string{"+OK\r\n", "+PONG\r\n", ":2\r\n",
				"-ERR unknown command 'NOSUCH', with args beginning with: \r\n", "+OK\r\n",
				"+OK\r\n", "+OK\r\n", "$1\r\n2\r\n", "$1\r\nx\r\n"},
			"write 4",
		},
		{
			"transactions go together",
			[]string{"MULTI", "SET a 1", "EXEC", "MULTI", "INCR a", "GET a", "EXEC", "GET a"},
			[]string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n", "+OK\r\n", "+QUEUED\r\n",
				"+QUEUED\r\n", "*2\r\n:2\r\n$1\r\n2\r\n", "$1\r\n2\r\n"},
			"write 3",
		},
		{"a transaction of reads is a read", []string{"MULTI", "GET a", "EXEC"},
			[]string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n$1\r\n2\r\n"}, "read 1"},
		{
			"a watch is known before its transaction",
			[]string{"WATCH a", "MULTI", "INCR a", "EXEC", "WATCH a", "INCR a", "MULTI", "GET a",
				"EXEC"},
			[]string{"+OK\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n:3\r\n", "+OK\r\n", ":4\r\n",
				"+OK\r\n", "+QUEUED\r\n", "*-1\r\n"},
			"read 1, write 3, dry run 1",
		},
		{"a watch is forgotten by who comes after it",
			[]string{"WATCH a", "UNWATCH", "INCR a", "MULTI", "GET a", "EXEC"},
			[]string{"+OK\r\n", "+OK\r\n", ":5\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n$1\r\n5\r\n"},
			"read 1, write 2"},
		{
			"what asks about the node waits", []string{"SET a 1", "INFO cluster", "SET a 2"},
			[]string{"+OK\r\n", "$30\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n", "+OK\r\n"},
			"write 1, write 1",
		},
		{"silence", []string{"CLIENT REPLY SKIP", "SET a 5", "CLIENT REPLY OFF", "INCR a", "PING",
			"MULTI", "INCR a", "EXEC", "CLIENT REPLY ON", "GET a"},
			[]string{"+OK\r\n", "$1\r\n7\r\n"}, "write 4"},
		{
			"the session's part of a transaction sees what came before and is seen by what comes " +
				"after",
			[]string{"MULTI", "SELECT 1", "SET s 1", "CLIENT SETNAME me", "EXEC", "GET s",
				"CLIENT GETNAME", "SELECT 0", "GET s"},
			[]string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
				"*3\r\n+OK\r\n+OK\r\n+OK\r\n", "$1\r\n1\r\n", "$2\r\nme\r\n", "+OK\r\n", "$-1\r\n"},
			"write 1, read 2",
		},
		{"stale reads", []string{"READONLY", "GET a", "READWRITE", "GET a", "READONLY", "SET a 1",
			"MULTI", "GET a", "EXEC"},
			[]string{"+OK\r\n", "$1\r\n7\r\n", "+OK\r\n", "$1\r\n7\r\n", "+OK\r\n", "+OK\r\n",
				"+OK\r\n", "+QUEUED\r\n", "*1\r\n$1\r\n1\r\n"}, "local 1, read 1, write 2"},
		{"a fencing token is never stale", []string{"READONLY", "FENCE none", "GET none",
			"READWRITE", "READONLY", "MULTI", "GET none", "FENCE none", "EXEC"},
			[]string{"+OK\r\n", "$-1\r\n", "$-1\r\n", "+OK\r\n", "+OK\r\n", "+OK\r\n",
				"+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n$-1\r\n$-1\r\n"}, "read 2, read 1"},
		{"time is the leader's", []string{"TIME"},
			[]string{"*2\r\n$10\r\n1700000000\r\n$6\r\n123456\r\n"}, "read 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.fake.takeCalls()
			k := n.dial(t)
			k.raw(calls(c.lines...))
			for _, w := range c.want {
				k.want(w)
			}
			if batches := n.fake.takeCalls(); batches != c.batches {
				t.Errorf("batches %q, want %q", batches, c.batches)
			}
			if got := k.call("ECHO", "end"); got != "$3\r\nend\r\n" {
				t.Errorf("after it: %q", got)
			}
		})
	}
}

// Batches have limits: a longer pipeline makes several, and loses nothing.
func TestBatchLimits(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	var b strings.Builder
	const many = 3*maxBatchRequests + 7
	for range many {
		b.WriteString(calls("INCR c"))
	}
	go func() { _ = c.SendRaw([]byte(b.String())) }()
	for i := range many {
		c.want(fmt.Sprintf(":%d\r\n", i+1))
	}
	for _, run := range strings.Split(n.fake.takeCalls(), ", ") {
		var count int
		if _, err := fmt.Sscanf(run, "write %d", &count); err != nil || count > maxBatchRequests {
			t.Fatalf("run %q: %v", run, err)
		}
	}
	big := strings.Repeat("x", maxBatchBytes/2)
	c.raw(pipeline([]string{"SET", "a", big}, []string{"SET", "b", big},
		[]string{"SET", "c", big + big + big}))
	c.want("+OK\r\n", "+OK\r\n", "+OK\r\n")
	if got := c.call("STRLEN", "c"); got != fmt.Sprintf(":%d\r\n", 3*len(big)) {
		t.Fatalf("%q", got)
	}
	if batches := n.fake.takeCalls(); strings.ContainsAny(batches, "23") {
		t.Fatalf("batches %q are larger than allowed", batches)
	}
}

// An error of the backend answers every request of its batch and nothing else.
func TestBackendErrors(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	const down = "-CLUSTERDOWN no leader\r\n"
	n.fake.set(func() { n.fake.fail = &Error{NoLeader, "CLUSTERDOWN no leader"} })
	c.raw(calls("SET a 1", "PING", "GET a", "PUBLISH x y", "MULTI", "SET a 1", "CLIENT ID", "EXEC",
		"WATCH a", "ECHO x"))
	c.want(down, "+PONG\r\n", down, down, "+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", down, down,
		"$1\r\nx\r\n")
	n.fake.set(func() { n.fake.fail = &Error{Unknown, "UNKNOWN lost"} })
	c.raw(calls("INCR a", "INCR a", "CLIENT GETNAME"))
	c.want("-UNKNOWN lost\r\n", "-UNKNOWN lost\r\n", "$-1\r\n")
	n.fake.set(func() { n.fake.fail = nil })
	c.raw(calls("MULTI", "INCR a", "EXEC", "EXEC"))
	c.want("+OK\r\n", "+QUEUED\r\n", "*1\r\n:1\r\n", "-ERR EXEC without MULTI\r\n")
	info := c.call("INFO", "errorstats", "stats")
	for _, want := range []string{"errorstat_CLUSTERDOWN:count=5\r\n",
		"errorstat_UNKNOWN:count=2\r\n", "errorstat_ERR:count=1\r\n", "total_error_replies:8\r\n"} {
		if !strings.Contains(info, want) {
			t.Errorf("INFO lacks %q: %s", want, info)
		}
	}
}

// RESP3 replies keep their types through batches and transactions.
func TestReplyForms(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.raw(calls("HSET h f v", "HGETALL h", "MULTI", "HGETALL h", "ZADD z 1.5 m", "ZSCORE z m",
		"GET none", "CLIENT GETNAME", "EXEC", "WATCH h", "HSET h g w", "MULTI", "EXEC"))
	c.want(":1\r\n", "%1\r\n$1\r\nf\r\n$1\r\nv\r\n", "+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
		"+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
		"*5\r\n%1\r\n$1\r\nf\r\n$1\r\nv\r\n:1\r\n,1.5\r\n_\r\n_\r\n", "+OK\r\n", ":1\r\n",
		"+OK\r\n", "_\r\n")
}
