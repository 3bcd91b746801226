// Tests of requests that run once: what a repeat gets, on which machine, how long, and as whom.

package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/once"
)

// onceMachines are two machines with the same log: only the first replies.
type onceMachines struct {
	t             *testing.T
	asked, silent *Machine
	clockMs       int64
}

func newOnceMachines(t *testing.T) *onceMachines {
	return &onceMachines{t, newestMachine(testTable()), newestMachine(testTable()), 1}
}

// do applies a request on both machines, which must agree, and returns its reply.
func (o *onceMachines) do(q *commands.Request) string {
	o.t.Helper()
	batch := commands.AppendRequest(nil, q)
	e := &Entry{ClockMs: o.clockMs, WallUs: o.clockMs * 1000, Batches: [][]byte{batch}}
	index := o.asked.Index() + 1
	a := mustApply(o.t, o.asked, index, e, true)
	b := mustApply(o.t, o.silent, index, e, false)
	if a.Spent != b.Spent {
		o.t.Errorf("%s is %d units where it was asked, %d elsewhere", q.Cmds[0], a.Spent, b.Spent)
	}
	if a, b := o.asked.StateSum(), o.silent.StateSum(); a != b {
		o.t.Errorf("after %s the machines differ", q.Cmds[0])
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(a.Replies[0]), "\r\n"), "\r\n", " ")
}

func (o *onceMachines) want(proto int, line, want string) {
	o.t.Helper()
	q := lineRequest(line)
	q.Proto = proto
	if got := o.do(&q); got != want {
		o.t.Errorf("%s: %q, want %q", line, got, want)
	}
}

// The silent machine and one from a snapshot answer as the one that replied the first time.
func TestRepeatsElsewhere(t *testing.T) {
	o := newOnceMachines(t)
	o.want(2, "INCREX n ID r1", "*2 :1 :1")
	o.want(2, "IDEMPOTENT r2 RPUSH l a b", ":2")
	o.want(2, "IDEMPOTENT r3 SET s x", "+OK")
	path := goldenFiles + "once-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, o.asked.Snapshot()))
	if !bytes.Equal(snapshotBytes(t, o.asked.Snapshot()), readGolden(t, path)) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
	o.asked, o.silent = o.silent, restore(t, snapshotBytes(t, o.asked.Snapshot()), testTable())
	o.want(2, "INCREX n ID r1", "*2 :1 :1")
	o.want(2, "IDEMPOTENT r2 RPUSH l a b", ":2")
	o.asked, o.silent = o.silent, o.asked
	o.want(2, "IDEMPOTENT r2 RPUSH l a b", ":2")
	o.want(2, "IDEMPOTENT r3 SET s y", "-"+string(commands.ErrOtherRequest))
	o.want(2, "LLEN l", ":2")
	a, b := snapshotBytes(t, o.asked.Snapshot()), snapshotBytes(t, o.silent.Snapshot())
	if !bytes.Equal(a, b) {
		t.Error("equal machines have other snapshots")
	}
}

// Time ends what is remembered on a machine that swept as on one that did not, and its memory comes
// back.
func TestRepeatsInTime(t *testing.T) {
	o := newOnceMachines(t)
	o.want(2, "GET x", "$-1")
	empty := o.asked.memory()
	o.want(2, "SET n 0", "+OK")
	before := o.asked.memory()
	o.want(2, "IDEMPOTENT r1 INCR n", ":1")
	if got := o.asked.memory(); got < before+int64(len("r1:1\r\n")) {
		t.Errorf("%d bytes, %d before a reply was remembered", got, before)
	}
	o.clockMs += once.LifeMs
	o.want(2, "IDEMPOTENT r1 INCR n", ":1")
	// a dry run with a later reading of the clock finds it gone, and belongs in the log
	q := lineRequest("IDEMPOTENT r1 INCR n")
	batch := commands.AppendRequest(nil, &q)
	if got := string(o.asked.Read(nil, batch, o.clockMs, 1)); got != ":1\r\n" {
		t.Errorf("a dry run in time: %q", got)
	}
	if got := string(o.asked.Read(nil, batch, o.clockMs+1, 1)); got != "" {
		t.Errorf("a dry run past the time: %q", got)
	}
	o.clockMs++
	o.want(2, "IDEMPOTENT r1 INCR n", ":2")
	o.want(2, "DEL n", ":1")
	o.clockMs += once.LifeMs + 1
	o.want(2, "GET x", "$-1")
	if got := o.asked.memory(); got != empty || o.asked.once.Len() != 0 {
		t.Errorf("%d bytes, %d before", got, empty)
	}
	if s := o.asked.Snapshot(); len(s.parts) > 0 {
		t.Error("a snapshot has a part for nothing")
	}
}

// A read of a remembered call is no log entry, and one that would change something is.
func TestDryRunsRecall(t *testing.T) {
	o := newOnceMachines(t)
	o.want(2, "INCREX n ID r1", "*2 :1 :1")
	for line, want := range map[string]string{
		"INCREX n ID r1":                   "*2\r\n:1\r\n:1\r\n",
		"INCREX n ID r2":                   "",
		"INCREX n BYINT 2 ID r1":           "-" + string(commands.ErrOtherRequest) + "\r\n",
		"INCREX n UBOUND 1 ID r3":          "*2\r\n:1\r\n:0\r\n",
		"IDEMPOTENT r4 GET n":              "$1\r\n1\r\n",
		"IDEMPOTENT r4 INCR n":             "",
		"IDEMPOTENT r4 PUBLISH c m":        "",
		"IDEMPOTENT r4 SCRIPT LOAD return": "",
	} {
		q := lineRequest(line)
		before := o.asked.StateSum()
		got := string(o.asked.Read(nil, commands.AppendRequest(nil, &q), 1, 1))
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		if o.asked.StateSum() != before {
			t.Errorf("%s as a read changed the state", line)
		}
	}
}

// A repeat may come in the other protocol.
func TestRepeatsInBothProtocols(t *testing.T) {
	o := newOnceMachines(t)
	o.want(3, "INCREX f BYFLOAT 1.5 ID r1", "*2 ,1.5 ,1.5")
	o.want(3, "INCREX f BYFLOAT 1.5 ID r1", "*2 ,1.5 ,1.5")
	o.want(2, "INCREX f BYFLOAT 1.5 ID r1", "*2 $3 1.5 $3 1.5")
	o.want(2, "IDEMPOTENT r2 SET s x GET", "$-1")
	o.want(3, "IDEMPOTENT r2 SET s x GET", "_")
	o.want(2, "IDEMPOTENT r2 SET s x GET", "$-1")
	o.want(3, "ZADD z 1 a", ":1")
	o.want(3, "IDEMPOTENT r3 ZPOPMIN z", "*2 $1 a ,1")
	o.want(2, "IDEMPOTENT r3 ZPOPMIN z", "*2 $1 a $1 1")
}

// A repeat in the other protocol pays for taking the reply apart, which may have many elements.
func TestRepeatsInTheOtherProtocolPay(t *testing.T) {
	w := newWaitMachine(t)
	const elements = 2300
	w.run("RPUSH l" + strings.Repeat(" a", elements))
	q := lineRequest(fmt.Sprint("IDEMPOTENT r1 LPOP l ", elements))
	w.apply(q)
	w.apply(q)
	same := w.spent
	q.Proto = 3
	if got := w.apply(q); w.spent < same+4*elements {
		t.Errorf("%d units of work, and in the protocol of the first %d: %.40q", w.spent, same, got)
	}
}

// A reply that is too long is not kept, on no machine.
func TestLongReplies(t *testing.T) {
	o := newOnceMachines(t)
	for _, c := range []struct {
		id   string
		n    int
		kept bool
	}{
		{"r1", once.MaxReply - len("$16384\r\n\r\n"), true},
		{"r2", once.MaxReply - len("$16384\r\n\r\n") + 1, false},
	} {
		o.want(2, "SETRANGE k "+fmt.Sprint(c.n-1)+" x", fmt.Sprintf(":%d", c.n))
		call := "IDEMPOTENT " + c.id + " GETDEL k"
		q := lineRequest(call)
		first := o.do(&q)
		if len(first) < c.n {
			t.Fatalf("the reply has %d bytes", len(first))
		}
		want := first
		if !c.kept {
			want = "-" + string(commands.ErrReplyNotKept)
		}
		if got := o.do(&q); got != want {
			t.Errorf("%d bytes: the repeat gets %.60q", c.n, got)
		}
	}
	// The room that other replies have used up decides about what is sent, not what is remembered.
	long := strings.Repeat("x", 60<<20)
	o.do(&commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args("SET", "long", long)}})
	q := &commands.Request{Proto: 2, Multi: true}
	for _, line := range []string{"GET long", "IDEMPOTENT r3 GETDEL k2"} {
		q.Cmds = append(q.Cmds, commandtest.Args(strings.Fields(line)...))
	}
	o.do(&commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args("SET", "k2", long[:5<<20])}})
	if got := o.do(q); !strings.Contains(got, string(commands.ErrReplySize)) {
		t.Errorf("%.80q", got[60<<20:])
	}
	o.want(2, "EXISTS k2", ":1")
}

// Users do not share ids, and a later user of a name is another one. Rights to both commands are
// asked for at each repeat.
func TestRepeatsOfUsers(t *testing.T) {
	u := newUsersTest(t)
	rules := "ACL SETUSER bob on nopass ~a* +increx +idempotent +incr +get +cl.throttle"
	u.want(as("", 0, rules), "+OK")
	bob := u.created("bob")
	u.want(as("bob", bob, "INCREX a ID r1"), "*2\r\n:1\r\n")
	u.want(as("", 0, "INCREX a ID r1"), "*2\r\n:2\r\n")
	u.want(as("bob", bob, "INCREX a ID r1"), "*2\r\n:1\r\n")
	u.want(as("", 0, "INCREX a ID r1"), "*2\r\n:2\r\n")
	u.want(as("default", u.created("default"), "INCREX a ID r1"), "*2\r\n:2\r\n")
	u.want(as("bob", bob, "IDEMPOTENT r2 INCR a"), ":3")
	u.want(as("bob", bob, "IDEMPOTENT r3 INCR b"), "-NOPERM this user has no permissions to "+
		"access")
	u.want(as("bob", bob, "IDEMPOTENT r3 DECR a"), "-NOPERM this user has no permissions to run "+
		"the 'decr' command")
	for call, want := range map[string]string{
		"INCR a": "+OK", "DECR a": "$", "INCR b": "$", "NONE a": "-ERR unknown",
		"GET":                 "-ERR wrong",
		"IDEMPOTENT r INCR a": "-ERR IDEMPOTENT cannot run IDEMPOTENT",
	} {
		u.want(as("", 0, "ACL DRYRUN bob IDEMPOTENT r "+call), want)
	}
	u.want(as("", 0, "ACL SETUSER bob -incr"), "+OK")
	u.want(as("bob", bob, "IDEMPOTENT r2 INCR a"), "-NOPERM")
	u.want(as("", 0, "ACL SETUSER bob +incr -idempotent"), "+OK")
	u.want(as("bob", bob, "IDEMPOTENT r2 INCR a"), "-NOPERM this user has no permissions to run "+
		"the 'idempotent' command")
	u.want(as("", 0, "ACL DRYRUN bob IDEMPOTENT r INCR a"), "$")
	u.want(as("", 0, "ACL DELUSER bob"), ":1")
	u.want(as("", 0, rules), "+OK")
	u.want(as("bob", u.created("bob"), "INCREX a ID r1"), "*2\r\n:4\r\n")
}

// What loads scripts and functions changes something too.
func TestRepeatsOfLoads(t *testing.T) {
	o := newOnceMachines(t)
	load := func(id, name string) string {
		return o.do(&commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args("IDEMPOTENT", id,
			"FUNCTION", "LOAD", "#!lua name="+name+"\nredis.register_function('"+name+
				"', function() return 1 end)")}})
	}
	for range 2 {
		if got := load("r1", "one"); got != "$3 one" {
			t.Errorf("%q", got)
		}
	}
	if got := load("r2", "one"); !strings.HasPrefix(got, "-ERR") {
		t.Errorf("a library that exists: %q", got)
	}
	o.want(2, "FUNCTION DELETE one", "+OK")
	if got := load("r2", "one"); got != "$3 one" { // the error was not remembered
		t.Errorf("%q", got)
	}
	o.want(2, "IDEMPOTENT r3 FCALL one 0", ":1")
	o.want(2, "FUNCTION DELETE one", "+OK")
	o.want(2, "IDEMPOTENT r3 FCALL one 0", "-ERR Function not found")
}

// What IDEMPOTENT runs uses memory as it does.
func TestRepeatsPastTheLimit(t *testing.T) {
	u := newUsersTest(t)
	u.want(as("", 0, "SET k x"), "+OK")
	u.want(as("", 0, "IDEMPOTENT r1 SET j x"), "+OK")
	u.want(settingOf("", 0, commands.SettingMaxMemory, "1"), "+OK")
	u.want(as("", 0, "IDEMPOTENT r1 SET j x"), "+OK") // it has run
	u.want(as("", 0, "IDEMPOTENT r2 RPUSH l x"), "-OOM")
	u.want(as("", 0, "IDEMPOTENT r3 SET k y"), "+OK")
	u.want(as("", 0, "IDEMPOTENT r4 DEL k"), ":1")
	u.want(as("", 0, "IDEMPOTENT r5 RPUSH l x", "GET k"), "-EXECABORT")
	u.want(as("", 0, "IDEMPOTENT r6 DEL j", "GET k"), "*2\r\n:1\r\n$-1")
}

// A command that waits is remembered when it is served. A repeat that waits beside it gets its
// reply.
func TestRepeatsOfWaits(t *testing.T) {
	specs := commands.Specs()
	for i := range specs {
		if s := &specs[i]; s.Name == "blpop" {
			s.RequestID = func(args [][]byte) []byte { return args[len(args)-2] }
		}
	}
	m := newestMachine(commands.NewTable(specs))
	w := &waitMachine{t: t, Machine: m, term: 1, clock: 1000, eras: map[string]uint64{}}
	w.SetNode("n1")
	w.apply()
	w.eras["n1"] = 1
	// the last key is the id
	w.wait("n1", 1, "BLPOP a b r1 0")
	if w.once.Len() != 0 {
		t.Error("a command is remembered that waits")
	}
	w.wait("n1", 2, "BLPOP a b r1 0")
	w.reply("RPUSH b x y", ":2")
	w.want("1: *2 $1 b $1 x, 2: *2 $1 b $1 x")
	w.reply("LRANGE b 0 -1", "*1 $1 y")
	if got := w.text(w.apply(w.waitRequest("n1", 3, "BLPOP a b r1 0"))); got != "*2 $1 b $1 x" {
		t.Errorf("a repeat later gets %q", got)
	}
}

// A panic, a bug, is no reply to remember, and the next command of the transaction replies.
func TestPanicsAreNotRemembered(t *testing.T) {
	specs, panics := commands.Specs(), true
	for i := range specs {
		if s := &specs[i]; s.Name == "incr" {
			run := s.Handler
			s.Handler = func(x *commands.Call) error {
				err := run(x)
				if panics {
					panic("a bug")
				}
				return err
			}
		}
	}
	table := commands.NewTable(specs)
	o := &onceMachines{t, newestMachine(table), newestMachine(table), 1}
	q := lineRequest("IDEMPOTENT r1 INCR n")
	q.Multi, q.Cmds = true, append(q.Cmds, commandtest.Args("GET", "n"))
	e := &Entry{ClockMs: 1, Batches: [][]byte{commands.AppendRequest(nil, &q)}}
	for _, m := range []*Machine{o.asked, o.silent} {
		r, err := m.Apply(1, e, m == o.asked)
		if err != nil {
			t.Fatal(err)
		}
		if want := "*2\r\n-ERR internal error: a bug\r\n$1\r\n1\r\n"; m == o.asked &&
			string(r.Replies[0]) != want {
			t.Errorf("%q", r.Replies[0])
		}
	}
	panics = false
	o.want(2, "IDEMPOTENT r1 INCR n", ":2")
}

// Below the second level there are no ids.
func TestNoRepeatsBelowTheSecondLevel(t *testing.T) {
	m := NewMachine(testTable())
	for line, want := range map[string]string{
		"INCREX n ID r1":               "-ERR syntax error",
		"IDEMPOTENT r1 INCR n":         "-ERR unknown command",
		"CL.THROTTLE t 1 1 60 1 ID r1": "-ERR wrong number",
	} {
		got := string(mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1,
			Batches: [][]byte{call(line)}}, true).Replies[0])
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// A message is sent once, though no key changes.
func TestRepeatsOfMessages(t *testing.T) {
	m := newestMachine(testTable())
	for i, want := range []int{1, 0} {
		r := mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1,
			Batches: [][]byte{call("IDEMPOTENT r1 PUBLISH c m")}}, true)
		if len(r.Events) != want {
			t.Errorf("try %d sends %d messages, want %d", i, len(r.Events), want)
		}
	}
}
