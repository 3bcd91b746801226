// Tests of those who wait for locks: who gets one when, what gives it up, and that machines agree.

package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// granted shows the numbers of the waits that the newest entry granted.
func (w *waitMachine) granted() string {
	var all []string
	for _, e := range w.news {
		if e.Kind == commands.Served && bytes.HasPrefix(e.Payload, []byte("*4\r\n:")) &&
			!bytes.HasPrefix(e.Payload, []byte("*4\r\n:0\r\n")) {
			all = append(all, fmt.Sprint(e.Wait))
		}
	}
	return strings.Join(all, " ")
}

// grants fails unless the newest entry granted those waits, in this order, and claims them.
func (w *waitMachine) grants(want string) {
	w.t.Helper()
	if got := w.granted(); got != want {
		w.t.Fatalf("granted to %q, want %q", got, want)
	}
	for _, number := range strings.Fields(want) {
		w.claims(number, "+OK")
	}
}

func (w *waitMachine) claims(number, want string) {
	w.t.Helper()
	if got := w.text(w.apply(lineSystem(commands.SystemClaim + " " + number))); got != want {
		w.t.Fatalf("claim of %s: %q, want %q", number, got, want)
	}
}

const notWaiting = "-" + string(commands.ErrNotWaiting)

// holder returns what GET says of a key.
func (w *waitMachine) holder(key string) string {
	w.t.Helper()
	_, value, _ := strings.Cut(w.run("GET "+key), " ")
	return value
}

// The lock goes from one to the next in the order of arrival over all nodes, by whatever command it
// ends.
func TestLocksAreGrantedInOrder(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l me")
	for i, node := range []string{"n2", "n1", "n2", "n1", "n1", "n1", "n1", "n1"} {
		w.wait(node, uint64(i+1), fmt.Sprintf("LOCK.ACQUIRE l w%d PX 1000 WAIT 0", i+1))
	}
	for i, end := range []string{"DEL l", "LOCK.RELEASE l w1", "GETDEL l", "PEXPIREAT l 1",
		"FLUSHALL", "RENAME l other", "SWAPDB 0 1"} {
		w.run(end)
		next := fmt.Sprintf("w%d", i+1)
		if got := w.holder("l"); got != next {
			t.Fatalf("behind %s it is held by %q, want %s", end, got, next)
		}
		w.claims(fmt.Sprint(i+1), "+OK")
	}
	w.clock += 1001
	w.apply()
	w.grants("8")
	if n := w.waiting.locks.Waiting(0, []byte("l")); n != 0 || len(w.waiting.numbers) != 0 {
		t.Errorf("%d wait", n)
	}
}

// Nobody takes a lock before those who wait for it, though it is free: the first waits for another
// key as well.
func TestNobodyOvertakes(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET b x")
	w.wait("n1", 1, "LOCK.ACQUIRE a w1 PX 1000 WAIT 0 KEYS 1 b")
	w.wait("n1", 2, "LOCK.ACQUIRE a w2 PX 1000 WAIT 0")
	for _, line := range []string{"SET a y NX", "SETNX a y", "MSETNX a y c z",
		"MSETEX 1 a y NX PX 1000", "LOCK.ACQUIRE a y PX 1000", "LOCK.ACQUIRE a y PX 1000 SHARED",
		"LOCK.ACQUIRE a y PX 1000 REENTRANT", "LOCK.ACQUIRE a y PX 1000 PERMITS 1 OF 5",
		"LOCK.ACQUIRE c y PX 1000 KEYS 1 a"} {
		got := w.run(line)
		if got != "$-1" && got != ":0" && !strings.HasPrefix(got, "*4 :0 ") {
			t.Errorf("%s: %q", line, got)
		}
		w.reply("EXISTS a c", ":0")
	}
	w.reply("SET a y NX GET", "$2 w1")
	w.reply("EXISTS a", ":0")
	// reading is free, as is what does not ask
	w.reply("GET a", "$-1")
	w.run("DEL b")
	w.grants("1")
	w.reply("LOCK.RELEASE a w1 KEYS 1 b", ":2")
	w.grants("2")
	w.reply("SET c y NX", "+OK")
}

// Several keys are taken together. Those who want the same ones in another order do not block each
// other.
func TestSeveralKeysAtOnce(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET a x")
	w.run("SET b x")
	w.wait("n1", 1, "LOCK.ACQUIRE a w1 PX 1000 WAIT 0 KEYS 1 b")
	w.wait("n1", 2, "LOCK.ACQUIRE b w2 PX 1000 WAIT 0 KEYS 1 a")
	w.wait("n1", 3, "LOCK.ACQUIRE b w3 PX 1000 WAIT 0")
	w.run("DEL a")
	w.grants("")
	w.run("DEL b")
	w.grants("1")
	if a, b := w.run("FENCE a"), w.run("FENCE b"); a != b {
		t.Errorf("two tokens: %s, %s", a, b)
	}
	w.run("DEL b")
	w.grants("") // the second is first for b
	w.run("DEL a")
	w.grants("2")
	w.reply("LOCK.RELEASE a w2 KEYS 1 b", ":2")
	w.grants("3")
}

// When the first for a key leaves, what waited behind it for that alone is served.
func TestWhoBlockedLeaves(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET b x")
	w.wait("n2", 1, "LOCK.ACQUIRE a w1 PX 1000 WAIT 0 KEYS 1 b")
	w.wait("n1", 2, "LOCK.ACQUIRE a w2 PX 1000 WAIT 0")
	w.wait("n2", 3, "LOCK.ACQUIRE a w3 PX 1000 WAIT 0")
	w.wait("n1", 4, "LOCK.ACQUIRE a w4 PX 1000 WAIT 0")
	w.apply(lineSystem(commands.SystemLeaveWait + " 1"))
	w.grants("2")
	w.apply(lineSystem(commands.SystemDropWaits + " n2"))
	w.reply("LOCK.RELEASE a w2", ":1")
	w.grants("4")
}

// Readers come in together, but none before a writer who waits; writers wait for all of them.
func TestReadersAndWriters(t *testing.T) {
	w := newWaitMachine(t)
	reader := func(number int) string {
		return fmt.Sprintf("LOCK.ACQUIRE l r%d PX 1000 WAIT 0 SHARED", number)
	}
	for i := range 2 {
		got := w.run(fmt.Sprintf("LOCK.ACQUIRE l first%d PX 1000 SHARED", i))
		if strings.HasPrefix(got, "*4 :0") {
			t.Fatal(got)
		}
	}
	w.wait("n1", 1, "LOCK.ACQUIRE l w1 PX 1000 WAIT 0")
	w.wait("n1", 2, reader(2))
	w.wait("n1", 3, reader(3))
	w.wait("n1", 4, "LOCK.ACQUIRE l w4 PX 1000 WAIT 0")
	w.wait("n1", 5, reader(5))
	w.reply("LOCK.RELEASE l first0", ":1")
	w.grants("")
	w.reply("LOCK.RELEASE l first1", ":1")
	w.grants("1")
	w.reply("LOCK.RELEASE l w1", ":1")
	w.grants("2 3")
	w.reply("HLEN l", ":2")
	w.reply("LOCK.RELEASE l r2", ":1")
	w.grants("")
	w.clock += 1001 // the other reader's time is over
	w.apply()
	w.grants("4")
	w.reply("LOCK.RELEASE l w4", ":1")
	w.grants("5")
}

func TestPermits(t *testing.T) {
	w := newWaitMachine(t)
	w.run("LOCK.ACQUIRE l a PX 1000 PERMITS 2 OF 3")
	if got := w.run("LOCK.ACQUIRE l d PX 1000 PERMITS 2 OF 3"); !strings.HasPrefix(got, "*4 :0 ") {
		t.Errorf("four of three: %q", got)
	}
	w.wait("n1", 1, "LOCK.ACQUIRE l b PX 1000 WAIT 0 PERMITS 3 OF 3")
	w.wait("n1", 2, "LOCK.ACQUIRE l c PX 1000 WAIT 0 PERMITS 1 OF 3")
	w.reply("LOCK.RELEASE l a PERMITS 1", ":1")
	w.grants("")
	w.reply("LOCK.RELEASE l a PERMITS 1", ":1")
	w.grants("1")
	w.reply("LOCK.RELEASE l b PERMITS 2", ":1")
	w.grants("2")
	w.reply("HLEN l", ":2")
	if _, value, _ := strings.Cut(w.run("HGET l b"), " "); !strings.HasPrefix(value, "permits 1 ") {
		t.Errorf("b has %q", value)
	}
	w.clock += 1001
	w.reply("EXISTS l", ":0")
}

// The higher priority goes first, but takes nothing from a holder.
func TestPriorities(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	w.wait("n1", 1, "LOCK.ACQUIRE l w1 PX 1000 WAIT 0 PRIORITY -5")
	w.wait("n1", 2, "LOCK.ACQUIRE l w2 PX 1000 WAIT 0")
	w.wait("n1", 3, "LOCK.ACQUIRE l w3 PX 1000 WAIT 0 PRIORITY 7")
	w.wait("n1", 4, "LOCK.ACQUIRE l w4 PX 1000 WAIT 0 PRIORITY 7")
	for _, next := range []string{"3", "4", "2", "1"} {
		w.run("DEL l")
		w.grants(next)
	}
}

// Who holds a lock and enters again does not queue. The lock is Redisson's.
func TestEnteringAgain(t *testing.T) {
	w := newWaitMachine(t)
	w.run("LOCK.ACQUIRE l a PX 1000 REENTRANT")
	w.wait("n1", 1, "LOCK.ACQUIRE l b PX 1000 WAIT 0 REENTRANT")
	token := strings.Fields(w.run("LOCK.ACQUIRE l a PX 1000 REENTRANT"))[1]
	w.reply("HGET l a", "$1 2")
	w.reply("FENCE l", token)
	w.reply("LOCK.RELEASE l a", ":1")
	w.grants("")
	w.reply("LOCK.RELEASE l a", ":1")
	w.grants("1")
	w.reply("HGET l b", "$1 1")
	w.reply("LOCK.RELEASE l a", ":0")
}

// Those who wait for locks stay while the leader changes. Their nodes send them again, and they
// keep their places.
func TestQueuesOutliveLeaders(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	w.wait("n1", 1, "BLPOP list 0")
	first := w.wait("n2", 2, "LOCK.ACQUIRE l w2 PX 1000 WAIT 0")
	w.wait("n1", 3, "LOCK.ACQUIRE l w3 PX 1000 WAIT 0")
	w.term++
	w.apply()
	w.eras["n1"], w.eras["n2"] = w.eraOf("n1"), w.eraOf("n2")
	if w.Waits(1) || !w.Waits(2) || !w.Waits(3) {
		t.Fatalf("waits %v %v %v", w.Waits(1), w.Waits(2), w.Waits(3))
	}
	w.reply("SET l y NX", "$-1")
	w.run("DEL l") // while the wait of the list is not back
	w.reply("GET l", "$2 w2")
	w.claims("2", "+OK")
	q := w.waitRequest("n2", 4, "LOCK.ACQUIRE l w4 PX 1000 WAIT 0")
	q.Wait.Order, q.Woken = first.Order, true // a node that lost the news of its grant would ask so
	w.apply(q)
	w.run("DEL l")
	w.claims("4", "+OK")
	w.run("DEL l")
	w.grants("3")
}

// A machine that begins with a snapshot in between goes on as the others do.
func TestQueuesInSnapshots(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	w.run("SET m x")
	for i, line := range []string{"LOCK.ACQUIRE l w1 PX 100000 WAIT 0",
		"LOCK.ACQUIRE l w2 PX 100000 WAIT 0 PRIORITY 3",
		"LOCK.ACQUIRE m w3 PX 100000 WAIT 0 SHARED",
		"LOCK.ACQUIRE m w4 PX 100000 WAIT 0 SHARED KEYS 1 n"} {
		w.clock++
		w.wait("n1", uint64(i+1), line)
	}
	w.run("DEL l")
	w.run("DEL m")
	w.claims("3", "+OK")
	other := w.reloaded()
	other.SetNode("n1")
	for _, step := range []func(w *waitMachine) string{
		func(w *waitMachine) string { return w.run("LOCK.WAITERS l") + w.run("LOCK.INFO m") },
		func(w *waitMachine) string { w.clock += claimMs + 1; w.apply(); return w.granted() },
		func(w *waitMachine) string {
			return w.text(w.apply(lineSystem(commands.SystemClaim + " 3")))
		},
		func(w *waitMachine) string { return w.run("DEL l m n") + w.granted() },
	} {
		if a, b := step(w), step(other); a != b || a == "" {
			t.Errorf("%q and %q", a, b)
		}
	}
	if a, b := w.StateSum(), other.StateSum(); a != b {
		t.Errorf("sums %v and %v", a, b)
	}
}

// The format of snapshots with queues and claims.
func TestGoldenQueues(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	w.run("SET m x")
	w.wait("n1", 1, "LOCK.ACQUIRE l w1 PX 100000 WAIT 0 ID r1")
	w.wait("n2", 2, "LOCK.ACQUIRE l w2 PX 100000 WAIT 0 PRIORITY -3 ID r2")
	w.wait("n1", 3, "LOCK.ACQUIRE m w3 PX 100000 WAIT 0 SHARED KEYS 1 n")
	w.run("DEL l")
	w.run("DEL m")
	w.claims("3", "+OK")
	path := goldenFiles + "locks-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, w.Snapshot()))
	file := readGolden(t, path)
	if m := restore(t, file, testTable()); !bytes.Equal(snapshotBytes(t, m.Snapshot()), file) ||
		!bytes.Equal(snapshotBytes(t, w.Snapshot()), file) || m.StateSum() != w.StateSum() {
		t.Errorf("%s is written or read otherwise now: a new format needs a new version", path)
	}
}

// Numbers that somebody has written into a lock overflow into no grant.
func TestPermitsOverflow(t *testing.T) {
	w := newWaitMachine(t)
	w.run("LOCK.ACQUIRE l a PX 100000 PERMITS 1 OF 5")
	for _, owner := range []string{"b", "c"} { // HSET takes no value with a space in it here
		q := lineRequest("HSET l " + owner + " x")
		q.Cmds[0][3] = []byte("permits 9223372036854775807 5")
		w.apply(q)
	}
	w.reply("LOCK.ACQUIRE l d PX 100000 PERMITS 5 OF 5", "*4 :0 :-1 :0 :1")
}

// Records that cannot be are refused.
func TestCorruptQueues(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	w.wait("n1", 1, "LOCK.ACQUIRE l w1 PX 1000 WAIT 0 ID r")
	w.wait("n1", 2, "LOCK.ACQUIRE l w2 PX 1000 WAIT 0")
	w.run("DEL l")
	f, record := w.waiting.freeze(), w.waiting.freezeLocks().appendLocks(nil)
	for n := range record {
		v := newWaiting()
		if err := v.restore(f.appendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if err := v.restoreLocks(record[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(record))
		}
	}
}

// What waits without an end fills its share, and no more: then it is refused.
func TestQueuesAreBounded(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x")
	owner := strings.Repeat("o", maxOwnerLength)
	for number := uint64(1); ; number++ {
		reply := w.apply(w.waitRequest("n1", number, "LOCK.ACQUIRE l "+owner+" PX 1000 WAIT 0"))
		if _, _, waits := commands.CutBlock(reply); !waits {
			if got := w.text(reply); got != "-"+string(errQueueFull) {
				t.Fatal(got)
			}
			break
		}
		if w.waiting.bytes > maxWaiting {
			t.Fatalf("%d bytes wait", w.waiting.bytes)
		}
	}
}

const maxOwnerLength = 1024

// Serving a queue costs each entry only what it serves: a lock that is held serves nobody, however
// many wait.
func TestLongQueuesCostLittle(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET l x PX 100000")
	for i := range 5000 {
		w.wait("n1", uint64(i+1), fmt.Sprintf("LOCK.ACQUIRE l w%d PX 1000 WAIT 0", i))
	}
	w.run("PEXPIRE l 90000")
	if w.spent > 500 {
		t.Errorf("a change that frees nothing costs %d units", w.spent)
	}
	w.run("DEL l")
	if w.spent > 2000 || w.granted() != "1" {
		t.Errorf("a handover costs %d units, granted to %q", w.spent, w.granted())
	}
	// all of one term: none is to come back
	w.term++
	w.apply()
	if w.Held() || len(w.waiting.all) != 4999 ||
		!slices.IsSortedFunc(w.waiting.all, compareWaiters) {
		t.Errorf("held %v, %d wait", w.Held(), len(w.waiting.all))
	}
}

// An operator sees who holds a lock, by which lease, and who waits, and how much there is of all;
// what he releases goes to the next.
func TestQueuesAreShown(t *testing.T) {
	w := newWaitMachine(t)
	w.known = known{}
	w.Witness(true)
	w.run("LEASE GRANT 10000")
	lease := w.leases.Last()
	w.run(fmt.Sprintf("LOCK.ACQUIRE l a LEASE %d SHARED", lease))
	w.run("LOCK.ACQUIRE l b PX 5000 SHARED")
	w.wait("n1", 1, "LOCK.ACQUIRE l w1 PX 1000 WAIT 0 PRIORITY 3")
	w.wait("n2", 2, "LOCK.ACQUIRE l w2 PX 1000 WAIT 0 SHARED")
	w.wait("n2", 3, "LOCK.ACQUIRE free w3 PX 1000 WAIT 0 KEYS 1 l")
	w.clock += 100
	w.apply()
	show := func(line, want string) {
		t.Helper()
		q := &commands.Request{Proto: 2, Cmds: [][][]byte{do(line)}}
		reply, _ := w.ReadWork(nil, commands.AppendRequest(nil, q), w.clock, 1, nil, false)
		if got := w.text(reply); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	show("LOCKS LIST", fmt.Sprintf("$6 queued :3 $5 lease :%d", lease))
	show("LOCK.LIST", fmt.Sprintf("$6 queued :3 $5 lease :%d", lease))
	show("LOCKS SHOW l", "$6 shared $6 owners *2 $1 a $1 b $7 holders :2")
	show("LOCKS SHOW l", "$6 ttl-ms :4900 $5 lease :0 $5 queue *3 *8 $5 owner $2 w1 $4 kind "+
		"$6 string $8 priority :3 $8 waits-ms :100 *8 $5 owner $2 w2 $4 kind $6 shared")
	show("LOCKS SHOW free", "*12 $3 key $4 free $4 kind $0  $6 queued :1 $5 queue *1")
	show("LOCK.INFO l", fmt.Sprintf("$6 ttl-ms :9900 $5 lease :%d", lease))
	s := w.Stats()
	if s.LockWaiters != 3 || s.Leases != 1 || s.UnclaimedGrants != 0 {
		t.Errorf("%+v", s)
	}
	token := func(owner string) string {
		own, _ := w.LockTokens([]commands.HeldLock{{Key: "l", Owner: owner}})
		return fmt.Sprint(own[0])
	}
	w.reply("LOCKS RELEASE l b 7", ":0")
	w.reply("LOCKS EXTEND l b "+token("a")+" 9000", ":1") // the key's
	w.reply("PTTL l", ":-1")
	w.reply("HPTTL l FIELDS 1 b", "*1 :9000")
	w.reply("LOCKS RELEASE l b "+token("b"), ":1")
	w.reply("LOCKS RELEASE l a "+token("a"), ":1")
	if s := w.Stats(); s.LockWaiters != 2 || s.UnclaimedGrants != 1 {
		t.Errorf("%+v", s)
	}
	facts := w.witness.Facts()
	if last := facts[len(facts)-1]; last.Kind != commands.LockGranted ||
		string(last.Owner) != "w1" || last.QueuedMs != w.clock-100 {
		t.Errorf("%+v", facts)
	}
	w.grants("1")
}
