// Tests of how errors are counted, and of what is kept of them.

package server

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/tier"
)

// An error counts the same alone and in a transaction.
func TestErrorsInTransactionsCountAlike(t *testing.T) {
	n := start(t, nil)
	n.setPassword(t, "pw")
	c := n.dial(t)
	c.call("AUTH", "pw")
	c.call("SET", "text", "abc")
	long := strings.Repeat("x", 1000)
	failing := [][]string{
		{"INCR", "text"},
		{"LPUSH", "text", "x"},
		{"EXPIRE", "text", "1", long},
		{"XGROUP", "CREATECONSUMER", "none", "g", "c"},
		{"EVALSHA", strings.Repeat("f", 40), "0"},
		{"EVAL", "return redis.error_reply('ODD')", "0"},
		{"EVAL", "return redis.error_reply('WORD with more')", "0"},
		{"EVAL", "return redis.error_reply('BROKEN\\r\\nline')", "0"},
		{"EVAL", "return redis.error_reply(string.rep('L', 200) .. ' y')", "0"},
		{"EVAL", "return redis.error_reply(' begins with a space')", "0"},
		{"EVAL", "return redis.error_reply('')", "0"},
		{"CLIENT", "SETINFO", long, "x"},
		{"HELLO", "3", long},
		{"AUTH", "wrong"},
		{"CONFIG", "SET", "maxclients", "many"},
	}
	for _, words := range failing {
		var shown [2]string
		for i := range shown {
			c.call("CONFIG", "RESETSTAT")
			reply := ""
			if i == 0 {
				reply = c.call(words...)
			} else {
				c.call("MULTI")
				c.call(words...)
				reply = strings.TrimPrefix(c.call("EXEC"), "*1\r\n")
			}
			if !strings.HasPrefix(reply, "-") {
				t.Fatalf("%.80q: %.80q is no error", words, reply)
			}
			shown[i] = c.call("INFO", "errorstats")
		}
		if shown[0] != shown[1] {
			t.Errorf("%.80q: %.300q in a transaction, alone %.300q", words, shown[1], shown[0])
		}
		if len(shown[0]) > 2*maxErrorWord {
			t.Errorf("%.80q: %d bytes of INFO", words, len(shown[0]))
		}
	}
}

// An idle connection keeps nothing of what it has sent, of the error that it got, or of the reply.
func TestLargeRequestsLeaveNoMemory(t *testing.T) {
	detector.Skip(t)
	const clients = 10
	size := 1 << 20
	if tier.Checking() {
		size = 8 << 20
	}
	limit := 5 * size // of twenty that were sent
	n := start(t, func(c *Config) {
		c.cronPeriod, c.trimAfter = 50*time.Millisecond, 100*time.Millisecond
	})
	n.dial(t).call("CONFIG", "SET", "slowlog-log-slower-than", "0")
	heap := func() int {
		runtime.GC()
		runtime.GC() // what pools held at the first
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	big := strings.Repeat("y", size)
	for _, words := range [][]string{
		{"CLIENT", "SETINFO", big, "x"}, {"HELLO", "3", big}, {"EXPIRE", "k", "1", big},
		{"EVAL", "return redis.error_reply(ARGV[1])", "0", big}, {big}, {"CLIENT", big},
		{"ECHO", big}, {"GET", big}, {"SET", "k", big}, {"DEL", "k", big}, {"LPUSH", "l", "a", big},
		{"PUBLISH", "c", big}, {"SUBSCRIBE", big}, {"CLIENT", "SETNAME", big},
		{"CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", big}, {"CONFIG", "GET", big},
		{"SCAN", "0", "MATCH", big}, {"BLPOP", big, "0.001"}, {"ACL", "GETUSER", big},
		{"XREADGROUP", "GROUP", big, "c", "STREAMS", "s", ">"}, {"WATCH", "k", big},
	} {
		base := heap()
		for _, block := range []bool{false, true} {
			for range clients {
				c := n.dial(t) // which is not to keep replies either
				c.raw(pipeline([]string{"CLIENT", "REPLY", "OFF"}))
				if block {
					c.raw(pipeline([]string{"MULTI"}, words, []string{"EXEC"}))
				} else {
					c.raw(pipeline(words, []string{"UNWATCH"}))
				}
				c.raw(pipeline([]string{"CLIENT", "REPLY", "ON"}))
				c.want("+OK\r\n")
			}
		}
		n.dial(t).call("FLUSHALL")
		eventually(t, fmt.Sprintf("%.60q leaves no memory", words),
			func() bool { return heap() < base+limit })
	}
	runtime.KeepAlive(big)
	text := "ERR " + strings.Repeat("x", 100)
	if unsafe.StringData(string(codeOf(text))) == unsafe.StringData(text) {
		t.Error("the code word keeps the text")
	}
}

// The errors of a session show little of a large argument, whichever it is.
func TestErrorsShowLittleOfArguments(t *testing.T) {
	detector.Skip(t) // it works much
	const most = 1024
	n := start(t, nil)
	big := strings.Repeat("y", 1<<16)
	check := func(words ...string) {
		t.Helper()
		c := n.dial(t)
		defer func() { _ = c.Close() }()
		c.raw(pipeline(words, []string{"QUIT"}))
		raw, err := c.Receive()
		if err == nil && raw[0] == '-' && len(raw) > most {
			t.Errorf("%.80q: an error of %d bytes: %.120q", words, len(raw), raw)
		}
	}
	for _, line := range []string{"HELLO 3", "CLIENT LIST TYPE", "CLIENT KILL TYPE",
		"CLIENT KILL USER", "CLIENT TRACKING on BCAST PREFIX ab PREFIX a PREFIX",
		"CONFIG SET maxclients", "CONFIG SET save",
		"COMMAND LIST FILTERBY", "COMMAND LIST FILTERBY ACLCAT", "CONFIG SET maxclients 5"} {
		check(append(strings.Fields(line), big)...)
		check(append(strings.Fields(line), big, "x")...)
	}
	sweep := func(spec *commands.Spec) {
		if spec.Local == nil || spec.Has(commands.Blocking) {
			return
		}
		name := strings.Split(spec.FullName(), "|")
		least := max(spec.Arity, -spec.Arity, len(name)+1)
		for count := least; count <= least+2; count++ {
			for at := len(name); at < count; at++ {
				words := append(slices.Clone(name), slices.Repeat([]string{"x"},
					count-len(name))...)
				words[at] = big
				check(words...)
			}
		}
	}
	for _, spec := range n.Server.table.All() {
		sweep(spec)
		for i := range spec.Subcommands {
			sweep(&spec.Subcommands[i])
		}
	}
}
