// Tests of the bounds on the replies and the work of a batch.

package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/tests/detector"
)

// requestsOf encodes calls as a batch.
func requestsOf(calls ...[]string) []byte {
	var batch []byte
	for _, c := range calls {
		batch = commands.AppendRequest(batch, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args(c...)}})
	}
	return batch
}

// transactionOf encodes calls as one transaction.
func transactionOf(calls ...[]string) []byte {
	q := commands.Request{Proto: 2, Multi: true}
	for _, c := range calls {
		q.Cmds = append(q.Cmds, commandtest.Args(c...))
	}
	return commands.AppendRequest(nil, &q)
}

// answers applies a batch as an entry and shows each reply: an error in full, others by their
// length.
func answers(t *testing.T, m *Machine, batch []byte) string {
	t.Helper()
	result, err := m.Apply(m.Index()+1, &Entry{ClockMs: 1000, Batches: [][]byte{batch}}, true)
	if err != nil {
		t.Fatal(err)
	}
	return shape(t, result.Replies[0])
}

func shape(t *testing.T, replies []byte) string {
	t.Helper()
	if most := commands.MaxReplyBytes + 1000; len(replies) > most {
		t.Errorf("%d bytes of replies", len(replies))
	}
	all, err := commandtest.ParseAll(replies)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var show func(v commandtest.Value)
	show = func(v commandtest.Value) {
		switch {
		case v.IsError():
			fmt.Fprintf(&b, "%s ", v.Text)
		case v.Kind == '*':
			b.WriteString("[ ")
			for _, e := range v.Elems {
				show(e)
			}
			b.WriteString("] ")
		case len(v.Text) > 20:
			fmt.Fprintf(&b, "%d ", len(v.Text))
		default:
			fmt.Fprintf(&b, "%s ", v.Text)
		}
	}
	for _, v := range all {
		show(v)
	}
	return strings.TrimSpace(b.String())
}

// bigMachine has values at keys named by their size in MiB.
func bigMachine(t *testing.T) *Machine {
	m := newestMachine(testTable())
	for _, mib := range []int{1, 20, 40} {
		answers(t, m, requestsOf([]string{"SET", fmt.Sprint(mib), strings.Repeat("x", mib<<20)}))
	}
	answers(t, m, requestsOf([]string{"RPUSH", "list", "a", "b"}))
	return m
}

// A reply that does not fit becomes an error that reports whether the command ran. Later replies
// are sent if they fit.
func TestReplyBound(t *testing.T) {
	detector.Skip(t)
	m := bigMachine(t)
	get := func(key string) []string { return []string{"GET", key} }
	fits := []string{"SET", "exact", strings.Repeat("x",
		commands.MaxReplyBytes-len("$67108852\r\n\r\n"))}
	over := []string{"SET", "over", fits[2] + "x"}
	for _, c := range []struct {
		batch []byte
		want  string
	}{
		// the OK takes part of it
		{requestsOf(fits, get("exact")), "OK " + string(commands.ErrReplySize)},
		{requestsOf(get("exact")), "67108851"},
		{requestsOf(over), "OK"},
		{requestsOf(get("over")), string(commands.ErrReplySize)},
		// one reply of this size uses up the work of a batch
		{requestsOf(get("40"), get("20"), get("20"), get("1"), get("none")), "41943040"},
		{transactionOf(get("40"), get("20"), get("20"), get("1"), get("none")),
			"[ 41943040 20971520 " + string(commands.ErrReplySize) + " 1048576  ]"},
		{transactionOf(get("40"), []string{"GETDEL", "40"}, get("40")),
			"[ 41943040 " + string(commands.ErrReplySize) + " " + string(commands.ErrReplySize) +
				" ]"},
		{transactionOf(get("exact"), []string{"LPOP", "list"}, get("20"), []string{"LLEN", "list"}),
			"[ " + string(commands.ErrReplySize) + " a 20971520 1 ]"},
		{requestsOf([]string{"MGET", "20", "20", "20", "20"}), string(commands.ErrReplySize)},
		{requestsOf(append([]string{"MGET"}, strings.Split(strings.Repeat("20 ", 100_000),
			" ")...)), string(commands.ErrReplySize)},
		{requestsOf([]string{"EVAL", "return {ARGV[1], ARGV[1], ARGV[1], redis.call('INCR', 'n')}",
			"0", strings.Repeat("x", 22<<20)}),
			"ERR " + lua.ErrMemory},
		{requestsOf([]string{"EVAL",
			"local t, u = {}, {} for i = 1, 1000 do t[i] = ('x'):rep(60) end for i = 1, 1010 do " +
				"u[i] = t end redis.call('INCR', 'n') return u", "0"}),
			string(errReplyLost)},
		{requestsOf(get("n")), "2"},
	} {
		if got := answers(t, m, c.batch); got != strings.TrimSpace(c.want) {
			t.Errorf("%.60q: %.300s, want %s", c.batch, got, c.want)
		}
	}
}

// Reads stop before the reply that does not fit, and with enough of them. A request for the rest
// gets it.
func TestReadsStopBeforeTheBound(t *testing.T) {
	detector.Skip(t)
	m := bigMachine(t)
	read := func(batch []byte) string { return shape(t, m.Read(nil, batch, 1000, 0)) }
	get := func(key string) []string { return []string{"GET", key} }
	for _, c := range []struct {
		batch []byte
		want  string
	}{
		{requestsOf(get("40"), get("20"), get("20"), get("1")), "41943040"},
		{requestsOf(get("1"), get("1"), get("1"), get("1"), get("1"), get("1")),
			"1048576 1048576 1048576 1048576"},
		{requestsOf(get("1"), get("1"), get("1"), []string{"SET", "1", "x", "NX", "GET"}, get("1")),
			"1048576 1048576 1048576 1048576 1048576"},
		{requestsOf(get("1"), []string{"MGET", "20", "40", "20"}), "1048576"},
		{requestsOf([]string{"MGET", "20", "40", "20"}, get("1")), string(commands.ErrReplySize)},
		{append(requestsOf(get("1")), transactionOf(get("40"), get("40"), get("1"))...), "1048576"},
		{append(transactionOf(get("40"), get("40"), get("1")), requestsOf(get("1"))...),
			"[ 41943040 " + string(commands.ErrReplySize) + " 1048576 ]"},
	} {
		if got := read(c.batch); got != c.want {
			t.Errorf("%.60q: %.300s, want %s", c.batch, got, c.want)
		}
	}
	prefix := []byte("+before\r\n")
	if got := m.Read(prefix, requestsOf(get("40"), get("40")), 1000, 0); !bytes.HasPrefix(got,
		prefix) || shape(t, got[len(prefix):]) != "41943040" {
		t.Errorf("with a prefix: %d bytes", len(got))
	}
}

// A batch stops after much work, at the same place on every node, whether or not it builds replies.
// The rest did not run.
func TestBatchWorkIsBounded(t *testing.T) {
	detector.Skip(t)
	const half = "redis.call('INCR', 'n') for i = 1, 5000000 do end return 'half'"
	eval := []string{"EVAL", half, "0"}
	m, other := newestMachine(testTable()), newestMachine(testTable())
	e := &Entry{ClockMs: 1000,
		Batches: [][]byte{requestsOf([]string{"SET", "a", "b"}, eval, eval, []string{"INCR", "n"}),
			requestsOf([]string{"INCR", "n"})}}
	result, err := m.Apply(1, e, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Apply(1, e, false); err != nil {
		t.Fatal(err)
	}
	if got := shape(t, result.Replies[0]); got != "OK half" || result.Ran != 1 {
		t.Errorf("%s, %d batches ran", got, result.Ran)
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), snapshotBytes(t, other.Snapshot())) {
		t.Error("a node that builds no replies has another state")
	}
	runaway := []string{"EVAL_RO", "while true do end", "0"}
	if got := shape(t, m.Read(nil, requestsOf(runaway, runaway, runaway), 1000,
		0)); strings.Count(got, lua.ErrInstructions) != 1 {
		t.Error(got)
	}
	build := []string{"EVAL", "return #string.rep('x', 40000000)", "0"}
	if got := answers(t, m, requestsOf(build, build, build)); got != "40000000" {
		t.Error(got)
	}
	runaway[0] = "EVAL"
	calls := [][]string{}
	for range 10 {
		calls = append(calls, runaway)
	}
	calls = append(calls, []string{"INCR", "n"})
	got := answers(t, m, transactionOf(calls...))
	if strings.Count(got, lua.ErrInstructions) != 1 ||
		!strings.HasSuffix(got, strings.Repeat(string(errTransactionWork)+" ", 10)+"]") {
		t.Error(got)
	}
	load := []string{"FUNCTION", "LOAD", "REPLACE",
		"#!lua name=l\nredis.register_function('f', function() end) for i = 1, 900000 do end"}
	calls = nil
	for range 100 {
		calls = append(calls, load)
	}
	if got := answers(t, m, requestsOf(calls...)); len(strings.Fields(got)) > 20 {
		t.Errorf("loaded %s", got)
	}
}
