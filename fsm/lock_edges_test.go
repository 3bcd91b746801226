// Tests of locks beside plain commands, and of what claims and leases leave behind.

package fsm

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// Whom SET NX GET refuses for the queue is not told null, by which clients take the lock for their
// own.
func TestRefusedSetIsNoNull(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET b x")
	w.run("LEASE GRANT 10000")
	w.wait("n1", 1, "LOCK.ACQUIRE a w1 PX 1000 WAIT 0 KEYS 1 b")
	w.wait("n1", 2, "LOCK.ACQUIRE a w2 PX 1000 WAIT 0 PRIORITY 1 KEYS 1 b")
	for _, line := range []string{"SET a me NX GET", "SET a me NX GET PX 1000",
		fmt.Sprint("SET a me GET NX LEASE ", w.leases.Last())} {
		if got := string(w.Read(nil, call(line), w.clock, 1)); got != "$2\r\nw2\r\n" {
			t.Errorf("%s as a read: %q", line, got)
		}
		w.reply(line, "$2 w2")
		w.reply("EXISTS a", ":0")
	}
	w.run("DEL b")
	w.grants("2")
	w.reply("SET a me NX GET", "$2 w2")
	w.reply("LOCK.RELEASE a w2", ":1")
	w.reply("SET a me NX GET", "$2 w1") // it waits for b
	w.reply("LOCK.RELEASE b w2", ":1")
	w.grants("1")
	w.run("LOCK.RELEASE a w1")
	w.reply("SET a me NX GET", "$-1")
	w.reply("GET a", "$2 me")
}

// What a wait was granted that its node sends again is given up, also if its user may send nothing
// any more.
func TestWhatWasGrantedIsSentAgain(t *testing.T) {
	const ours = 5 << 50
	for _, wanted := range []string{"-NOAUTH ", "-NOPERM ", "-OOM "} {
		w := newWaitMachine(t)
		w.run("SET l x")
		number := FirstWait(ours) + 1
		line := "LOCK.ACQUIRE l me PX 100000 WAIT 0"
		p := w.wait("n1", number, line)
		w.proposer = ours // it is claimed
		w.run("DEL l")
		w.proposer = 0
		switch wanted {
		case "-NOAUTH ":
			w.run("ACL SETUSER default resetpass")
		case "-NOPERM ":
			w.run("ACL SETUSER default -lock.acquire")
		default:
			w.apply(lineSystem(commands.SettingMaxMemory + " 1"))
		}
		q := w.waitRequest("n1", number, line)
		q.Wait.Order, q.Woken = p.Order, true
		if got := w.Read(nil, commands.AppendRequest(nil, &q), w.clock, 1); len(got) > 0 {
			t.Errorf("%s: a dry run replies %q", wanted, got)
		}
		if got := w.sendAgain("n1", p, number, line); !strings.Contains(got, wanted) {
			t.Fatalf("%q, want %s", got, wanted)
		}
		if w.ks.DB(0).Find([]byte("l")) != nil || !w.waiting.locks.claims.empty() {
			t.Errorf("%s: the lock is held by nobody", wanted)
		}
	}
}

// Claims that are over keep nothing in memory until those before them are over.
func TestClaimsKeepNothing(t *testing.T) {
	w := newWaitMachine(t)
	keys := strings.Repeat("k", 1<<20)
	for i := range uint64(20) {
		w.run("SET l x")
		w.wait("n1", i+1, fmt.Sprintf("LOCK.ACQUIRE l me PX 9000 WAIT 0 ID r%d KEYS 1 %s", i,
			keys))
		w.run("DEL l")
		if i == 0 {
			w.run("LOCK.RELEASE l me KEYS 1 " + keys) // its claim stays
			continue
		}
		w.apply(lineSystem(fmt.Sprint(commands.SystemLeaveWait, " ", i+1)))
	}
	kept := 0
	v := &w.waiting.locks.claims
	for _, queue := range [][]*claim{v.opened, v.kept} {
		for _, c := range queue {
			kept += c.bytes()
		}
	}
	if kept > v.bytes+20*claimCost {
		t.Errorf("%d bytes are kept, and count as %d", kept, v.bytes)
	}
}

// Who has a lock for a time of its own has it so, though that ends with a lease that had it before.
func TestTimesOfTheirOwn(t *testing.T) {
	for _, form := range []string{"", " REENTRANT", " SHARED", " PERMITS 1 OF 3"} {
		w := newWaitMachine(t)
		w.run("LEASE GRANT 10000")
		lease := w.leases.Last()
		empty := w.leases.Bytes()
		w.run(fmt.Sprintf("LOCK.ACQUIRE l me LEASE %d%s", lease, form))
		w.run("LOCK.EXTEND l me PX 10000")
		if got := w.leases.Bytes(); got != empty {
			t.Errorf("%s: the lease counts %d bytes, want %d", form, got, empty)
		}
		w.run(fmt.Sprint("LEASE REVOKE ", lease))
		w.reply("EXISTS l", ":1")
		w.reply("LOCK.RELEASE l me", ":1")
	}
}

// The key of a lock that several hold does not end before what they are told.
func TestKeysLastAsLongAsTheirOwners(t *testing.T) {
	for _, form := range []string{"SHARED", "PERMITS 1 OF 5"} {
		for _, takes := range []string{"LOCK.ACQUIRE l b PX 9000 " + form,
			"LOCK.EXTEND l a PX 9000"} {
			w := newWaitMachine(t)
			w.run("LOCK.ACQUIRE l a PX 9000 " + form)
			w.run("PEXPIRE l 100")
			if got := w.run(takes); !strings.Contains(got, ":10000") {
				t.Fatal(got)
			}
			w.clock += 9000
			w.reply("EXISTS l", ":1")
			w.clock++
			w.reply("EXISTS l", ":0")
		}
	}
}

// The token of a reply is not smaller than that of an earlier holder of any of the keys, also if
// the owner has had the first one for longer.
func TestTokensOfSeveralKeysRise(t *testing.T) {
	for _, form := range []string{"REENTRANT", "SHARED REENTRANT", "PERMITS 1 OF 5"} {
		for _, waits := range []bool{false, true} {
			w := newWaitMachine(t)
			token := func(reply string) (n int) {
				t.Helper()
				grant := reply[strings.Index(reply, "*"):]
				if _, err := fmt.Sscanf(grant, "*4 :%d", &n); err != nil {
					t.Fatalf("%q", reply)
				}
				return n
			}
			first := token(w.run("LOCK.ACQUIRE k me PX 90000 " + form))
			before := token(w.run("LOCK.ACQUIRE l other PX 1000"))
			line := "LOCK.ACQUIRE k me PX 90000 WAIT 0 " + form + " KEYS 1 l"
			got := 0
			if waits {
				w.wait("n1", 1, line)
				w.clock += 1001
				w.apply()
				got = token(w.told())
				w.claims(fmt.Sprint("1 ", first), notWaiting)
				w.claims(fmt.Sprint("1 ", got), "+OK")
			} else {
				w.clock += 1001
				got = token(w.run(line))
			}
			if got <= before || first >= before {
				t.Errorf("%s: the token is %d, that of an earlier holder %d", form, got, before)
			}
			if extended := token(w.run("LOCK.EXTEND k me PX 90000 KEYS 1 l")); extended != got {
				t.Errorf("%s: extended, the token is %d, was %d", form, extended, got)
			}
		}
	}
}

// Many locks that are freed at once hold up neither requests nor the others who wait.
func TestManyGrantsHoldUpNobody(t *testing.T) {
	const n = 20_000
	w := newWaitMachine(t)
	for i := range n {
		w.run(fmt.Sprintf("SET k%d x", i))
		w.wait("n2", uint64(i+1), fmt.Sprintf("LOCK.ACQUIRE k%d w PX 100000 WAIT 0", i))
	}
	elsewhere := func(q commands.Request) commands.Request {
		q.DB = 1
		return q
	}
	for i := range uint64(2) {
		w.apply(elsewhere(lineRequest(fmt.Sprintf("SET l%d x", i))))
		w.place(w.apply(elsewhere(w.waitRequest("n1", n+1+i,
			fmt.Sprintf("LOCK.ACQUIRE l%d w PX 100000 WAIT 0", i)))))
	}
	w.run("FLUSHDB")
	for entry := range 2 {
		if at, ok := w.NextDeadline(); !ok || at != 0 {
			t.Fatalf("the next deadline is %d, %v", at, ok)
		}
		other := restored(t, w.Machine)
		ping, free := lineRequest("PING"), elsewhere(lineRequest(fmt.Sprint("DEL l", entry)))
		e := &Entry{Term: w.term, ClockMs: w.clock, WallUs: 1, Batches: [][]byte{
			commands.AppendRequest(nil, &ping), commands.AppendRequest(nil, &free)}}
		r := mustApply(t, w.Machine, w.Index()+1, e, true)
		mustApply(t, other, other.Index()+1, e, false)
		granted := slices.ContainsFunc(r.Events, func(e commands.Event) bool {
			return e.Kind == commands.Served && e.Wait == uint64(n+1+entry)
		})
		if r.Ran != 2 || !granted || len(w.waiting.locks.ready) == 0 {
			t.Errorf("entry %d ran %d batches, granted: %v, %d are left", entry, r.Ran, granted,
				len(w.waiting.locks.ready))
		}
		if w.StateSum() != other.StateSum() {
			t.Error("a restored machine differs")
		}
	}
	for len(w.waiting.locks.ready) > 0 {
		e := &Entry{Term: w.term, ClockMs: w.clock, WallUs: 1}
		mustApply(t, w.Machine, w.Index()+1, e, true)
	}
	if w.waiting.locks.waits != 0 {
		t.Errorf("%d wait", w.waiting.locks.waits)
	}
}

// Who takes, extends or releases locks that many others hold pays for finding what is his among
// theirs, also if their hash is a small one, which is searched from its beginning.
func TestOwnersAreSearchedForACharge(t *testing.T) {
	const keys, owners = 128, 500
	others := fmt.Sprint("KEYS ", keys-1)
	for i := 1; i < keys; i++ {
		others += fmt.Sprint(" k", i)
	}
	spent := func(holders int) (all []uint64) {
		w := newWaitMachine(t)
		w.run("LEASE GRANT 100000")
		for i := range keys {
			var batch []commands.Request
			for o := range holders {
				line := fmt.Sprintf("LOCK.ACQUIRE k%d %s%d LEASE %d SHARED", i,
					strings.Repeat("o", 60), 1000+o, w.leases.Last())
				batch = append(batch, lineRequest(line))
			}
			w.apply(batch...)
			if i%8 == 7 {
				w.run("LEASE GRANT 100000")
			}
		}
		for _, line := range []string{"LOCK.ACQUIRE k0 me PX 1000 SHARED " + others,
			"LOCK.EXTEND k0 me PX 2000 " + others, "LOCK.RELEASE k0 me " + others} {
			if got := w.run(line); strings.HasPrefix(got, "-") || got == ":0" {
				t.Fatal(got)
			}
			all = append(all, w.spent)
		}
		return all
	}
	few, many := spent(1), spent(owners)
	for i := range few {
		if least := few[i] + keys*owners/4; many[i] < least {
			t.Errorf("call %d: %d units among %d owners, want %d", i, many[i], owners, least)
		}
	}
}

// Who waits for many locks with long names is shown without a copy of them: looking at queues is
// charged by their length alone.
func TestQueuesForManyLocksAreShown(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	others := " KEYS 127"
	for i := range 127 {
		others += fmt.Sprintf(" %s%d", strings.Repeat("k", 2000), i)
	}
	const waiters = 20
	for i := range uint64(waiters) {
		w.wait("n1", i+1, "LOCK.ACQUIRE l me PX 1000 WAIT 0 PRIORITY 7 SHARED"+others)
	}
	shown := "*8 $5 owner $2 me $4 kind $6 shared $8 priority :7 $8 waits-ms :0"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := w.text(w.Read(nil, call("LOCK.WAITERS l"), w.clock, 1))
	runtime.ReadMemStats(&after)
	if strings.Count(got, shown) != waiters {
		t.Errorf("%s", got)
	}
	if made := after.TotalAlloc - before.TotalAlloc; made > waiters<<16 {
		t.Errorf("it made %d bytes", made)
	}
}

// A lease may last so long that what is attached to it can be restored, and no longer.
func TestLongestLeases(t *testing.T) {
	const longest = "3153600000000"
	w := newWaitMachine(t)
	for _, line := range []string{"LEASE GRANT 3153600000001", "LEASE GRANT 1 DELAY 3153600000001",
		"LEASE GRANT 9223372036854775807"} {
		w.reply(line, "-ERR invalid expire time in 'lease|grant' command")
	}
	w.run("LEASE GRANT " + longest + " DELAY " + longest)
	w.run(fmt.Sprintf("LOCK.ACQUIRE l me LEASE %d SHARED", w.leases.Last()))
	dump := w.apply(lineRequest("DUMP l"))
	_, value, _ := bytes.Cut(dump, []byte("\r\n"))
	q := lineRequest("RESTORE copy 0 value")
	q.Cmds[0][3] = value[:len(value)-2]
	if got := w.text(w.apply(q)); got != "+OK" {
		t.Error(got)
	}
	if own, left := w.run("HPTTL copy FIELDS 1 me"), w.run("HPTTL l FIELDS 1 me"); own != left ||
		own != "*1 :6307200000000" {
		t.Errorf("%q, the copy %q", left, own)
	}
	w.restores()
}

// An operator extends no lock past what LOCK.EXTEND would: it could be dumped, and not restored.
func TestLongestExtension(t *testing.T) {
	for _, form := range []string{"SHARED", "PERMITS 1 OF 2", "REENTRANT", ""} {
		w := newWaitMachine(t)
		w.run("LOCK.ACQUIRE l me PX 1000 " + form)
		extend := "LOCKS EXTEND l me " + w.run("FENCE l")[1:]
		for _, ms := range []string{"3153600000001", "9223372036854775807"} {
			w.reply(extend+" "+ms, "-ERR invalid expire time in 'locks|extend' command")
		}
		w.reply(extend+" 3153600000000", ":1")
		_, value, _ := bytes.Cut(w.apply(lineRequest("DUMP l")), []byte("\r\n"))
		q := lineRequest("RESTORE copy 0 value")
		q.Cmds[0][3] = value[:len(value)-2]
		if got := w.text(w.apply(q)); got != "+OK" {
			t.Errorf("%s: %s", form, got)
		}
	}
}

// Priorities have bounds on both sides.
func TestPrioritiesHaveBounds(t *testing.T) {
	for priority, takes := range map[string]bool{"1000000000": true, "-1000000000": true,
		"1000000001": false, "-1000000001": false, "9223372036854775807": false,
		"-9223372036854775807": false, "-9223372036854775808": false} {
		w := newWaitMachine(t)
		got := w.run("LOCK.ACQUIRE l me PX 1000 PRIORITY " + priority)
		if strings.HasPrefix(got, "*4 :") != takes {
			t.Errorf("%s: %s", priority, got)
		}
	}
}

// Who holds a lock that was renamed, copied or restored has a larger token than those who held
// another one of that name before, and a smaller one than who holds it next.
func TestTokensOfMovedLocks(t *testing.T) {
	for _, form := range []string{"SHARED REENTRANT", "PERMITS 1 OF 5", "REENTRANT"} {
		for _, moves := range []string{"RENAME l m", "COPY l m REPLACE", "RESTORE", "SWAPDB 0 1"} {
			w := newWaitMachine(t)
			token := func(key, owner string) uint64 {
				own, _ := w.LockTokens([]commands.HeldLock{{Key: key, Owner: owner}})
				return own[0]
			}
			w.run("LOCK.ACQUIRE l me PX 90000 " + form)
			dump := w.apply(lineRequest("DUMP l"))
			if moves == "SWAPDB 0 1" {
				w.run("RENAME l m")
				w.run("MOVE m 1")
			}
			w.run("LOCK.ACQUIRE m other PX 90000")
			before := token("m", "other")
			if moves != "RESTORE" {
				w.run(moves)
			} else {
				_, value, _ := bytes.Cut(dump, []byte("\r\n"))
				q := lineRequest("RESTORE m 0 value REPLACE")
				q.Cmds[0][3] = value[:len(value)-2]
				w.apply(q)
			}
			moved := token("m", "me")
			reply := w.run("LOCK.ACQUIRE m me PX 90000 " + form)
			if want := fmt.Sprintf("*4 :%d ", moved); moved <= before ||
				!strings.HasPrefix(reply, want) {
				t.Errorf("%s, %s: the token is %d, that of an earlier holder %d: %s", form, moves,
					moved, before, reply)
			}
			if got := w.run("LOCK.INFO m"); !strings.Contains(got, fmt.Sprintf("$5 token :%d "+
				"$6 ttl-ms", moved)) {
				t.Errorf("%s, %s: %s", form, moves, got)
			}
			w.reply("FENCE m", fmt.Sprint(":", moved))
			w.reply(fmt.Sprintf("LOCK.RELEASE m me TOKEN %d", moved), ":1")
			w.run("LOCK.ACQUIRE m me PX 90000 " + form)
			moved = token("m", "me")
			w.restores()
			if got := token("m", "me"); got != moved {
				t.Errorf("%s, %s: the token was %d, and is %d", form, moves, moved, got)
			}
			w.run("LOCK.STEAL m next PX 90000")
			if next := token("m", "next"); next <= moved {
				t.Errorf("%s, %s: the token is %d, that of an earlier holder %d", form, moves,
					next, moved)
			}
		}
	}
	// a number of another cluster
	w := newWaitMachine(t)
	q := lineRequest("HSET l me value")
	q.Cmds[0][3] = []byte("shared 1 9000000000000000000")
	w.apply(q)
	w.run("LOCK.ACQUIRE l me PX 90000 SHARED REENTRANT")
	held := []commands.HeldLock{{Key: "l", Owner: "me"}, {Key: "l", Owner: "next"}}
	before, _ := w.LockTokens(held)
	w.run("LOCK.STEAL l next PX 90000")
	if after, _ := w.LockTokens(held); before[0] == 0 || after[1] <= before[0] {
		t.Errorf("token %d, that of the next holder %d", before[0], after[1])
	}
}
