// Tests of locks that their owners hold already, and of waits that their nodes send again: what is
// told, and what is left of the wait.

package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// sendAgain changes the term, and has a node send a wait again. It returns the reply.
func (w *waitMachine) sendAgain(node string, p commands.Place, number uint64, line string) string {
	w.t.Helper()
	w.term++
	w.apply()
	w.eras[node] = w.eraOf(node)
	q := w.waitRequest(node, number, line)
	q.Wait.Order, q.Woken = p.Order, true
	return w.text(w.apply(q))
}

// A wait that is sent again ends with its reply, also with an error: its queue would else grant the
// lock to nobody.
func TestWhatIsSentAgainWaitsNoMore(t *testing.T) {
	const line = "LOCK.ACQUIRE l me PX 100000 WAIT 0 ID r1"
	for code, prepare := range map[string]commands.Request{
		"-OOM ":    lineSystem(commands.SettingMaxMemory + " 1"),
		"-NOPERM ": lineRequest("ACL SETUSER default -lock.acquire"),
		"-NOAUTH ": lineRequest("ACL SETUSER default resetpass"),
	} {
		w := newWaitMachine(t)
		w.run("SET l x")
		p := w.wait("n1", 1, line)
		w.apply(prepare)
		q := w.waitRequest("n1", 1, line)
		q.Wait.Order, q.Woken = p.Order, true
		if got := w.Read(nil, commands.AppendRequest(nil, &q), w.clock, 1); len(got) > 0 {
			t.Errorf("%s: a dry run replies %q", code, got)
		}
		if got := w.sendAgain("n1", p, 1, line); !strings.Contains(got, code) {
			t.Fatalf("%q, want %s", got, code)
		}
		if v := &w.waiting; w.Waits(1) || v.locks.waits != 0 || v.bytes != 0 ||
			len(v.locks.byKey)+len(v.locks.calls) != 0 {
			t.Errorf("%s: it waits on", code)
		}
	}
}

// So it does if it is granted at once.
func TestWhatIsSentAgainIsGrantedOnce(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	line := "LOCK.ACQUIRE l me PX 100000 WAIT 0 ID r1"
	p := w.wait("n1", 1, line)
	w.sweeps = 1 // it waits for a key that has expired, and that an entry has not reached
	for i := range 3 {
		w.run(fmt.Sprintf("SET a%d x PX 1", i))
	}
	w.run("PEXPIRE l 5")
	w.clock += 10
	if got := w.sendAgain("n1", p, 1, line); !strings.HasPrefix(got, "*4 :") {
		t.Fatal(got)
	}
	w.apply()
	w.restores()
	w.claims("1", "+OK")
	w.reply("LOCK.RELEASE l me", ":1")
	w.reply("EXISTS l", ":0")
}

// restores fails unless a machine begins with the snapshot of w, and has the same state.
func (w *waitMachine) restores() {
	w.t.Helper()
	file := snapshotBytes(w.t, w.Snapshot())
	m, err := ReadSnapshot(bytes.NewReader(file), testTable())
	if err != nil {
		w.t.Fatal(err)
	}
	if m.StateSum() != w.StateSum() || !bytes.Equal(snapshotBytes(w.t, m.Snapshot()), file) {
		w.t.Error("a restored machine differs")
	}
}

// Who enters a lock again that it holds need not queue for it, though it waits for another one too.
func TestEnteringAgainBesideOthers(t *testing.T) {
	for _, form := range []string{"REENTRANT", "SHARED REENTRANT"} {
		w := newWaitMachine(t)
		w.run("LOCK.ACQUIRE k me PX 100000 " + form)
		w.run("SET l x")
		w.wait("n1", 1, "LOCK.ACQUIRE k v PX 100000 WAIT 0")
		line := "LOCK.ACQUIRE k me PX 100000 WAIT 0 " + form + " KEYS 1 l"
		w.wait("n1", 2, line)
		w.run("DEL l")
		w.grants("2")
		w.reply("LOCK.RELEASE k me KEYS 1 l", ":2")
		w.grants("")
		// what is free it has to queue for, and what another holds
		w.run("SET l x")
		w.wait("n1", 3, line)
		w.reply("LOCK.RELEASE k me", ":1")
		w.grants("1")
		w.run("DEL l")
		w.grants("")
		w.reply("LOCK.RELEASE k v", ":1")
		w.grants("3")
	}
}

// So it is if its owner gets the lock while it waits, also behind others, on a restored machine
// too.
func TestWhoWaitsForMoreEntersAgain(t *testing.T) {
	for _, form := range []string{"REENTRANT", "SHARED REENTRANT"} {
		w := newWaitMachine(t)
		w.run("SET k x")
		w.wait("n1", 1, "LOCK.ACQUIRE k me PX 100000 WAIT 0 "+form)
		w.wait("n1", 2, "LOCK.ACQUIRE k v PX 100000 WAIT 0")
		w.wait("n1", 3, "LOCK.ACQUIRE k you PX 100000 WAIT 0 REENTRANT KEYS 1 m")
		w.wait("n1", 4, "LOCK.ACQUIRE k me PX 100000 WAIT 0 "+form+" KEYS 1 l")
		w.wait("n1", 5, "LOCK.ACQUIRE l you PX 100000 WAIT 0")
		w.wait("n1", 6, "LOCK.ACQUIRE l me PX 100000 WAIT 0 "+form+" KEYS 1 k")
		w.term++
		w.restores()
		w.Machine = restored(t, w.Machine)
		w.SetNode("n1")
		w.run("DEL k")
		w.grants("1 4 6")
		w.reply("LOCK.RELEASE k me", ":1")
		w.reply("LOCK.RELEASE k me KEYS 1 l", ":2")
		w.grants("")
		w.reply("LOCK.RELEASE k me KEYS 1 l", ":2")
		w.grants("2 5")
		w.reply("LOCK.RELEASE k v", ":1")
		w.grants("3")
		if w.waiting.locks.several != 0 {
			t.Errorf("%d wait for several", w.waiting.locks.several)
		}
	}
}

// Those whose owner has the lock in another form wait on, however many they are, and leave an entry
// nothing to do.
func TestManyWaitInVainToEnter(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET k x")
	w.wait("n1", 1, "LOCK.ACQUIRE k me PX 100000 WAIT 0 REENTRANT KEYS 1 l")
	w.wait("n1", 2, "LOCK.ACQUIRE k v PX 100000 WAIT 0 KEYS 1 l")
	const many = 5000
	var batch []commands.Request
	for i := range uint64(many) {
		batch = append(batch, w.waitRequest("n1", i+3,
			"LOCK.ACQUIRE k me PX 1000 WAIT 0 REENTRANT SHARED KEYS 1 l"))
	}
	for len(batch) > 0 {
		n := min(len(batch), 2000)
		w.apply(batch[:n]...)
		batch = batch[n:]
	}
	w.run("DEL k")
	w.grants("1")
	if w.waiting.locks.several != many || len(w.waiting.locks.ready) != 0 {
		t.Errorf("%d wait for several locks, %d are ready", w.waiting.locks.several,
			len(w.waiting.locks.ready))
	}
}

// A wait has one claim, whatever came before, and what it counts comes back.
func TestClaimsOfOneWait(t *testing.T) {
	w := newWaitMachine(t)
	for _, claimed := range []bool{true, false} {
		w.waiting.locks.openClaim(&claim{number: 7, node: "n1", claimed: claimed,
			untilMs: w.clock + claimedMs})
		w.clock++
	}
	for range 3 {
		w.clock += claimedMs
		w.apply()
	}
	if v := &w.waiting.locks.claims; !v.empty() || v.bytes != 0 || len(v.opened)+len(v.kept) != 0 {
		t.Errorf("%d claims of %d bytes are left", len(v.numbers), v.bytes)
	}
}

// No client hears of a lock that has ended since it was granted: it waits on, in its place.
func TestClaimsOfWhatHasEnded(t *testing.T) {
	for _, form := range []string{"", " REENTRANT", " SHARED", " PERMITS 2 OF 3"} {
		for _, id := range []string{"", " ID r1"} {
			for _, end := range []string{"DEL l", "LOCK.STEAL l you PX 100000", "RENAME l m", ""} {
				w := newWaitMachine(t)
				w.run("SET l x")
				line := "LOCK.ACQUIRE l me PX 100 WAIT 0" + form + id + " KEYS 1 other"
				p := w.wait("n1", 1, line)
				w.wait("n1", 2, "LOCK.ACQUIRE l next PX 100000 WAIT 0")
				w.run("DEL l")
				if got := w.granted(); got != "1" {
					t.Fatalf("%s: granted to %q", line, got)
				}
				if w.clock += 50; end == "" {
					w.clock += 51
					w.apply()
				} else {
					w.run(end)
				}
				w.claims("1", notWaiting)
				w.reply("EXISTS other", ":0")
				q := w.waitRequest("n1", 1, line)
				q.Wait.Order, q.Woken = p.Order, true
				if got := w.text(w.apply(q)); !strings.HasPrefix(got, "?") {
					t.Errorf("%s, %s: %q", line, end, got)
				}
				w.restores()
			}
		}
	}
}

// What an owner holds is not shortened by what it takes besides, nor taken from its lease; nor is
// it told that all lasts as long as what lasts longest.
func TestWhatIsHeldLastsAsLong(t *testing.T) {
	end := func(reply string) string { return strings.Fields(reply)[2] }
	for _, form := range []string{"REENTRANT", "SHARED REENTRANT", "PERMITS 1 OF 5"} {
		w := newWaitMachine(t)
		left := "PTTL l"
		if form != "REENTRANT" {
			left = "HPTTL l FIELDS 1 me"
		}
		w.run("LOCK.ACQUIRE l me PX 9000 " + form)
		before := w.run(left)
		if got := end(w.run("LOCK.ACQUIRE l me PX 1000 " + form)); got != ":10000" {
			t.Errorf("%s: the end is %s", form, got)
		}
		w.reply(left, before)
		if got := end(w.run("LOCK.ACQUIRE l me PX 500 " + form + " KEYS 1 m")); got != ":1500" {
			t.Errorf("%s: the end of both is %s", form, got)
		}
		if got := end(w.run("LOCK.ACQUIRE l me PX 20000 " + form)); got != ":21000" {
			t.Errorf("%s: the later end is %s", form, got)
		}
		// one that is given up
		w.run("SET x y")
		before = w.run(left)
		w.wait("n1", 1, "LOCK.ACQUIRE l me PX 10 WAIT 0 "+form+" KEYS 1 x")
		w.run("DEL x")
		w.apply(lineSystem(commands.SystemLeaveWait + " 1"))
		w.reply("EXISTS x", ":0")
		w.reply(left, before)
		// held as long as a lease
		w.run("DEL l")
		w.run("LEASE GRANT 5000")
		lease := w.leases.Last()
		w.run(fmt.Sprintf("LOCK.ACQUIRE l me LEASE %d %s", lease, form))
		w.run("LOCK.ACQUIRE l me PX 100 " + form)
		w.clock += 4000
		w.run(fmt.Sprint("LEASE KEEPALIVE ", lease))
		if got := w.run(left); !strings.HasSuffix(got, ":5000") {
			t.Errorf("%s: with its lease it has %s", form, got)
		}
	}
}

// What a node's waits were granted is given up for what that takes, however much it is.
func TestGivingUpForANode(t *testing.T) {
	w := newWaitMachine(t)
	const n = 20_000
	for i := range n {
		undo := lineRequest(fmt.Sprintf("LOCK.RELEASE l%d me TOKEN 7", i))
		w.waiting.locks.openClaim(&claim{number: uint64(i + 1), node: "n2",
			untilMs: w.clock + claimMs, undo: commands.AppendRequest(nil, &undo)})
	}
	w.apply(lineSystem(commands.SystemDropWaits + " n2"))
	left := len(w.waiting.locks.claims.numbers)
	if left == 0 || left == n || w.spent > 2*nodeWork {
		t.Errorf("%d units for %d claims", w.spent, n-left)
	}
	for w.clock += claimMs + 1; !w.waiting.locks.claims.empty(); {
		if w.apply(); w.spent > entryWork+nodeWork {
			t.Fatalf("an entry of %d units", w.spent)
		}
	}
}
