package fsm

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// conditional is an EXEC with conditions, of some commands.
func conditional(exec string, lines ...string) *commands.Request {
	q := &commands.Request{Proto: 2, Multi: true, Conditional: true,
		Cmds: [][][]byte{commandtest.Args(strings.Fields(exec)...)}}
	for _, line := range lines {
		q.Cmds = append(q.Cmds, commandtest.Args(strings.Fields(line)...))
	}
	return q
}

// Conditions of EXEC see what the request before has left, as of the entry's time. Where they do
// not hold, a dry run answers: nothing has to be logged.
func TestExecConditions(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET short x PX 10")
	w.run("RPUSH l x")
	w.clock += 100
	wrongType := "-" + string(commands.ErrWrongType)
	for exec, want := range map[string]string{
		"EXEC IFEQ k 5": "*1 :6", "EXEC IFEQ k 6": "*-1", "EXEC IFNE k 5": "*-1",
		"EXEC IFNE k 6": "*1 :6", "EXEC IFNE none 5": "*1 :6", "EXEC IFEQ none 5": "*-1",
		"EXEC XX k NX none": "*1 :6", "EXEC XX k NX k": "*-1", "EXEC XX l NX l": "*-1",
		"EXEC XX none NX none": "*-1",
		"EXEC NX short":        "*1 :6", "EXEC XX short": "*-1", "EXEC IFNE short x": "*1 :6",
		"EXEC IFEQ l x": wrongType, "EXEC XX none IFNE l x": wrongType,
		"EXEC XX k IFEQ k": "-" + string(commands.ErrExecCondition),
	} {
		w.run("SET k 5")
		q := conditional(exec, "INCR k")
		dry := w.text(w.Read(nil, commands.AppendRequest(nil, q), w.clock, w.clock*1000))
		if runs := want == "*1 :6"; runs && dry != "" || !runs && dry != want {
			t.Errorf("%s: a dry run answers %q", exec, dry)
		}
		if got := w.text(w.apply(*q)); got != want {
			t.Errorf("%s: %q, want %q", exec, got, want)
		}
	}
	got := w.text(w.apply(lineRequest("SET k 7"), *conditional("EXEC IFEQ k 7", "SET k 8"),
		*conditional("EXEC IFEQ k 7", "SET k 9"), lineRequest("GET k")))
	if got != "+OK *1 +OK *-1 $1 8" {
		t.Errorf("in one entry: %q", got)
	}
}

// Who may not read the key of a condition learns nothing of it, and the commands do not run.
func TestExecConditionsNeedTheRight(t *testing.T) {
	u := newUsersTest(t)
	u.do(as("", 0, "MSET written 1 secret 1"))
	u.do(as("", 0, "ACL SETUSER bob on nopass +@all ~mine %R~seen %W~written"))
	bob := commands.UserID{Name: []byte("bob"), Created: u.created("bob")}
	for exec, runs := range map[string]bool{
		"EXEC NX seen": true, "EXEC IFNE seen x NX mine": true, "EXEC NX seen XX secret": false,
		"EXEC IFEQ written 1": false, "EXEC XX none XX written": false, "EXEC NX written": false,
	} {
		q := conditional(exec, "APPEND mine x", "DEL mine")
		q.User = bob
		got := u.entry(&Entry{ClockMs: 1, Batches: [][]byte{commands.AppendRequest(nil, q)}})[0]
		ran := got == "*2\r\n:1\r\n:1\r\n"
		if ran != runs || !ran && !strings.HasPrefix(got, "-NOPERM") {
			t.Errorf("%s: %q", exec, got)
		}
	}
}
