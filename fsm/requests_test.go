// Tests of the work limit of a request, in the machine.

package fsm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
)

// filledMachine applies calls, each with its words and one word for each of n elements.
func filledMachine(t *testing.T, n int, calls ...[]string) *Machine {
	m := newestMachine(testTable())
	for _, words := range calls {
		last := len(words) - 1
		for i := 0; i < n; i += 1000 {
			call := words[:last:last]
			for j := i; j < min(i+1000, n); j++ {
				for _, w := range strings.Fields(words[last]) {
					call = append(call, strings.ReplaceAll(w, "#", strconv.Itoa(j)))
				}
			}
			if got := answers(t, m, requestsOf(call)); strings.HasPrefix(got, "ERR") {
				t.Fatalf("%.60q: %s", call, got)
			}
		}
	}
	return m
}

// twins applies the same entry to two machines, of which only the first builds replies. It returns
// the shape of the replies.
func twins(t *testing.T, m, twin *Machine, run []byte) string {
	t.Helper()
	e := &Entry{ClockMs: 1000, Batches: [][]byte{run}}
	a, err := m.Apply(m.Index()+1, e, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := twin.Apply(twin.Index()+1, e, false); err != nil {
		t.Fatal(err)
	}
	if m.Sum() != twin.Sum() {
		t.Fatal("a node that builds no replies has another state")
	}
	return shape(t, a.Replies[0])
}

// A transaction has the limit of one request: replies count as work, whether they are built or not.
func TestTransactionOfReplies(t *testing.T) {
	detector.Skip(t)
	const fields = 60_000
	hash := []string{"HSET", "h", "field:# value:#"}
	m, twin := filledMachine(t, fields, hash), filledMachine(t, fields, hash)
	var calls [][]string
	for range 200 {
		calls = append(calls, []string{"HGETALL", "h"}, []string{"INCR", "n"})
	}
	got := twins(t, m, twin, transactionOf(calls...))
	if ran := 200 - strings.Count(got, string(errTransactionWork))/2; ran < 3 ||
		ran > commands.MaxRequestWork/fields {
		t.Errorf("%d of the HGETALL ran: %.200s", ran, got)
	}
	counted := twins(t, m, twin, requestsOf([]string{"GET", "n"}))
	if last := strings.Fields(got[:strings.Index(got,
		" ERR the transaction")]); last[len(last)-1] != counted &&
		!strings.Contains(got, "nothing was changed") {
		t.Errorf("n is %s: %.200s", counted, got)
	}
	script := []string{"EVAL", "for i = 1, 200 do redis.call('HGETALL', 'h') end", "0"}
	if got := twins(t, m, twin, requestsOf(script)); !strings.Contains(got, "script stopped") {
		t.Errorf("a script of HGETALL: %.200s", got)
	}
	many := requestsOf(slicesRepeat([]string{"HKEYS", "h"}, 40)...)
	if got := shape(t, m.Read(nil, many, 1000, 0)); strings.Count(got, "[") > 12 {
		t.Errorf("one read gave %d replies", strings.Count(got, "["))
	}
}

func slicesRepeat(call []string, n int) (calls [][]string) {
	for range n {
		calls = append(calls, call)
	}
	return calls
}

// A command that returns and removes data keeps what does not fit into the reply, also after other
// replies.
func TestUnreturnedDataIsKept(t *testing.T) {
	detector.Skip(t)
	big := strings.Repeat("x", 20<<20)
	m, twin := newestMachine(testTable()), newestMachine(testTable())
	for _, call := range [][]string{{"RPUSH", "l", big, "b"}, {"HSET", "h", "f", big},
		{"SET", "s", big}, {"XADD", "x", "1-1", "f", big}, {"XGROUP", "CREATE", "x", "g", "0"},
		{"SET", "first", strings.Repeat("y", 30<<20)}} {
		twins(t, m, twin, requestsOf(call)) // one entry each: an entry is bounded too
	}
	for _, c := range []struct{ call, look string }{
		{"LPOP l 2", "LLEN l"}, {"LPOP l", "LLEN l"}, {"RPOP l 2", "LLEN l"},
		{"LMPOP 1 l LEFT COUNT 2", "LLEN l"}, {"BLPOP l 0", "LLEN l"},
		{"LMOVE l other LEFT LEFT", "LLEN l"},
		{"HGETDEL h FIELDS 1 f", "HLEN h"}, {"GETDEL s", "EXISTS s"}, {"GETSET s x", "STRLEN s"},
		{"SET s x GET", "STRLEN s"}, {"GETEX s PERSIST", "STRLEN s"},
		{"XREADGROUP GROUP g c STREAMS x >", "XPENDING x g"},
	} {
		call, look := strings.Fields(c.call), strings.Fields(c.look)
		before := twins(t, m, twin, requestsOf(look))
		first := []string{"GET", "first"}
		got := twins(t, m, twin, transactionOf(first, []string{"GET", "s"}, call))
		if !strings.Contains(got, string(commands.ErrReplySize)) {
			t.Errorf("%s: %.300s", c.call, got)
		}
		if after := twins(t, m, twin, requestsOf(look)); after != before {
			t.Errorf("%s: %s was %s, is %s", c.call, c.look, before, after)
		}
	}
	if got := twins(t, m, twin,
		requestsOf(strings.Fields("XREADGROUP GROUP g c STREAMS x >"))); strings.Contains(got,
		"ERR") {
		t.Errorf("alone: %s", got)
	}
}

// XREADGROUP delivers what fits into the work and the reply of one request; only that becomes
// pending.
func TestBacklogIsDeliveredInParts(t *testing.T) {
	detector.Skip(t)
	const entries = 160_000
	m, twin := newestMachine(testTable()), newestMachine(testTable())
	const each = 4000 // requests of an entry, which has positions for them
	for i := 0; i < entries; i += each {
		var run []byte
		for j := i; j < i+each; j++ {
			run = append(run,
				requestsOf([]string{"XADD", "x", fmt.Sprintf("1-%d", j+1), "f", "v"})...)
		}
		twins(t, m, twin, run)
	}
	twins(t, m, twin, requestsOf(strings.Fields("XGROUP CREATE x g 0")))
	read := requestsOf(strings.Fields("XREADGROUP GROUP g c STREAMS x >"))
	delivered, rounds := 0, 0
	for ; rounds < 10; rounds++ {
		got := twins(t, m, twin, read)
		if strings.Contains(got, "ERR") {
			t.Fatalf("%.200s", got)
		}
		n := strings.Count(got, " 1-")
		if n == 0 {
			break
		}
		delivered += n
		if pending := strings.Fields(twins(t, m, twin,
			requestsOf(strings.Fields("XPENDING x g"))))[1]; pending != strconv.Itoa(delivered) {
			t.Fatalf("%d were delivered, %s are pending", delivered, pending)
		}
	}
	if delivered != entries || rounds < 2 || rounds > 5 {
		t.Errorf("%d entries in %d parts", delivered, rounds)
	}
	if !bytes.Equal(snapshotBytes(t, m.Snapshot()), snapshotBytes(t, twin.Snapshot())) {
		t.Error("the states differ")
	}
}

// A few bytes cannot create half a gigabyte: the offset past the end of a string is bounded.
func TestOffsetsAreBounded(t *testing.T) {
	m := newestMachine(testTable())
	far := strconv.Itoa(16<<20 + 2)
	for call, want := range map[string]string{
		"SETRANGE k 536870911 x": "ERR", "SETRANGE k " + far + " x": "ERR",
		"SETRANGE near 16777216 x": "16777217", "SETBIT k 4294967295 1": "ERR",
		"SETBIT bits 134217727 1": "0", "BITFIELD k SET u8 #536870000 1": "ERR",
		"BITFIELD_RO k GET u8 #536870000": "[ 0 ]",
	} {
		if got := answers(t, m, requestsOf(strings.Fields(call))); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", call, got)
		}
	}
	if got := answers(t, m, requestsOf([]string{"EXISTS", "k"})); got != "0" {
		t.Error("a refused command created the key")
	}
}

// Checking watched keys is work of the transaction.
func TestWatchedKeysAreWork(t *testing.T) {
	m := newestMachine(testTable())
	q := commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{commandtest.Args("DBSIZE")}}
	spent := func() uint64 {
		r, err := m.Apply(m.Index()+1, &Entry{ClockMs: 1000,
			Batches: [][]byte{commands.AppendRequest(nil, &q)}}, true)
		if err != nil {
			t.Fatal(err)
		}
		return r.Spent
	}
	without := spent()
	for i := range 1000 {
		q.Watch = append(q.Watch, commands.WatchedKey{Key: fmt.Append(nil, "key", i)})
	}
	if got := spent() - without; got != 1000*watchedWork {
		t.Errorf("1,000 watched keys are %d units", got)
	}
	m = NewMachine(testTable())
	with := spent()
	if q.Watch = nil; spent() != with {
		t.Error("they are charged below LevelSecond")
	}
}
