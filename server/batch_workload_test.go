// Tests of the description of batches for the backend, and of session commands that take turns.

package server

import (
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// Batches are distinguished by what makes their cost differ, and by nothing else.
func TestWorkloadsDistinguishBatches(t *testing.T) {
	table := testTable()
	of := func(line string) Workload {
		var cmds [][][]byte
		var spec *commands.Spec
		for part := range strings.SplitSeq(line, "; ") {
			args := commandtest.Args(strings.Fields(part)...)
			cmds = append(cmds, args)
			spec = table.Get(args[0])
		}
		return sized(workloadOf(0, spec, cmds), len(cmds))
	}
	for _, c := range []struct {
		a, b           string
		command, shape bool // equal
	}{
		{"SET a 1", "SET a 2", true, true},
		{"SET a 1", "SET b 1", true, false},
		{"SET a 1", "GET a", false, false},
		{"KEYS *", "KEYS a*", true, false},
		{"EVAL return 0", "EVAL fill 0", false, false},
		{"EVAL fill 1 a", "EVAL fill 1 b", true, false},
		{"EVAL fill 1 a x", "EVAL fill 1 a y", true, true},
		{"SET a 1; SET b 1", "SET a 1", false, false},
		{"FLUSHALL", "FLUSHALL", true, true},
	} {
		a, b := of(c.a), of(c.b)
		if a.Command == 0 || a.Shape == 0 || (a.Command == b.Command) != c.command ||
			(a.Shape == b.Shape) != c.shape {
			t.Errorf("%q and %q: %+v, %+v", c.a, c.b, a, b)
		}
	}
	for line, light := range map[string]bool{"SET a 1": true, "GET a": true, "KEYS *": false,
		"EVAL s 1 a": false} {
		if got := of(line).Light; got != light {
			t.Errorf("%q is light: %v", line, got)
		}
	}
	if load := workloadOf(0, nil, nil); load.Command == 0 || load.Shape == 0 {
		t.Error("an empty transaction")
	}
}

// Session commands that compute take turns by connection, also in transactions; constant replies
// are cached per protocol.
func TestSessionCommandsTakeTurns(t *testing.T) {
	n := start(t, nil)
	a, b := n.dial(t), n.dial(t)
	shared := func() (of []Workload) {
		n.fake.set(func() { of, n.fake.scheduled = n.fake.scheduled, nil })
		return of
	}
	for _, call := range []string{
		"COMMAND", "COMMAND DOCS", "COMMAND DOCS get", "COMMAND LIST", "COMMAND INFO get",
		"COMMAND GETKEYS get k", "COMMAND COUNT", "CONFIG GET *", "CLIENT LIST",
		"INFO", "SLOWLOG GET", "LATENCY HISTOGRAM", "MEMORY STATS", "ACL CAT",
	} {
		a.call(strings.Fields(call)...)
		if of := shared(); len(of) != 1 || of[0].Conn == 0 || of[0].Command == 0 {
			t.Errorf("%s: %v", call, of)
		}
	}
	for _, call := range []string{"PING", "ECHO x", "CLIENT ID", "CONFIG SET slowlog-max-len 10",
		"MULTI", "COMMAND DOCS"} {
		if a.call(strings.Fields(call)...); len(shared()) != 0 {
			t.Errorf("%s took a turn", call)
		}
	}
	a.call("EXEC")
	b.call("COMMAND", "DOCS")
	if of := shared(); len(of) != 2 || of[0].Conn == of[1].Conn ||
		of[0].Command != of[1].Command {
		t.Errorf("two connections: %v", of)
	}
	for _, call := range []string{"COMMAND", "COMMAND DOCS", "COMMAND LIST"} {
		words := strings.Fields(call)
		two := a.call(words...)
		a.call("HELLO", "3")
		three := a.call(words...)
		if again := b.call(words...); again != two {
			t.Errorf("%s differs the second time", call)
		}
		a.call("HELLO", "2")
		if call != "COMMAND LIST" && two == three || a.call(words...) != two {
			t.Errorf("%s does not follow the protocol", call)
		}
	}
	made := 0
	n.Server.constants.Range(func(any, any) bool { made++; return true })
	if made != 6 {
		t.Errorf("%d answers were made", made)
	}
}

// The keys of a call are found in one pass: with one pass per key this test would take an hour.
func TestGetKeysOfManyArguments(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	words := []string{"COMMAND", "GETKEYSANDFLAGS", "MSET"}
	for i := range 100_000 {
		words = append(words, formatInt(int64(i)), "v")
	}
	if got := c.call(words...); !strings.HasPrefix(got, "*100000\r\n*2\r\n$1\r\n0\r\n") ||
		!strings.Contains(got, "$5\r\n99999\r\n") {
		t.Errorf("%.100s", got)
	}
}

// Who reads no replies pays for what it asks for like everybody.
func TestSilentClientsPay(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.raw(calls("CLIENT REPLY OFF", "SET a 1"))
	eventually(t, "the silent write", func() bool {
		n.fake.mu.Lock()
		defer n.fake.mu.Unlock()
		return n.fake.lastLoad.Command != 0
	})
	if load := n.fake.lastLoad; load.Conn == 0 {
		t.Errorf("%+v", load)
	}
}

// How long requests wait for a leader is what the connection says, or else CONFIG.
func TestLeaderWait(t *testing.T) {
	n := start(t, nil)
	c, other := n.dial(t), n.dial(t)
	sees := func(c *client, want time.Duration) {
		t.Helper()
		c.call("SET", "k", "v")
		n.fake.mu.Lock()
		defer n.fake.mu.Unlock()
		if got := n.fake.lastLoad.LeaderWait; got != want {
			t.Errorf("requests wait for %v, want %v", got, want)
		}
	}
	sees(c, 0)
	c.call("CLIENT", "LEADER-WAIT", "100")
	sees(c, 100*time.Millisecond)
	sees(other, 0)
	other.call("CONFIG", "SET", "coordd-leader-wait", "0")
	sees(other, -1)
	sees(c, 100*time.Millisecond)
	c.call("CLIENT", "LEADER-WAIT", "-1")
	sees(c, -1)
	c.call("CLIENT", "LEADER-WAIT", "7")
	c.call("RESET")
	sees(c, -1)
}
