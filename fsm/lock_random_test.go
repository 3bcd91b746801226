// Random calls of those who wait for locks, over few keys and owners, on the machines of two nodes
// that are restored from each other's snapshots: they stay equal, who was told of a lock has it,
// and nobody waits whose node has forgotten it.

package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// lockNodes are two nodes, each with its machine and its clients that wait.
type lockNodes struct {
	t       *testing.T
	dice    *rand.Rand
	nodes   [2]*lockNode
	term    uint64
	clock   int64
	full    bool     // there is no memory
	entries []string // for failures
}

// lockNode is a node.
type lockNode struct {
	*Machine
	origin, era, number uint64
	waits               map[uint64]*lockWait
	order               []*lockWait // the same, as they came
}

// lockWait is a client of a node that waits.
type lockWait struct {
	number, order, era uint64
	db                 int
	line               string
	sends              bool   // it is to be sent again
	granted            []byte // reply that is to be claimed
}

func (n *lockNode) id() string { return n.waiting.node }

func newLockNodes(t *testing.T, seed uint64) *lockNodes {
	v := &lockNodes{t: t, dice: rand.New(rand.NewPCG(seed, 1)), term: 1, clock: 1000}
	for i := range v.nodes {
		v.nodes[i] = &lockNode{Machine: newestMachine(testTable()), origin: uint64(i+5) << 50,
			waits: map[uint64]*lockWait{}}
		v.nodes[i].number = FirstWait(v.nodes[i].origin)
		v.nodes[i].SetNode(fmt.Sprint("n", i+1))
	}
	v.entry()
	return v
}

// entry applies requests on both machines, and returns the replies.
func (v *lockNodes) entry(all ...commands.Request) (reply []byte) {
	v.t.Helper()
	var batch []byte
	by := v.dice.IntN(2)
	for i := range all {
		v.copies(&all[i])
		batch = commands.AppendRequest(batch, &all[i])
		line := fmt.Sprintf("%d by n%d: %d %q", v.clock, by+1, all[i].DB, all[i].Cmds)
		if w := all[i].Wait; w != nil {
			line += fmt.Sprintf(" %s %d %d %d", w.Node, w.Number&1023, w.Era, w.Order)
		}
		v.entries = append(v.entries, line)
	}
	var read []byte
	if len(all) == 1 && !all[0].System {
		before := v.nodes[0].StateSum()
		read = v.nodes[0].Read(nil, batch, v.clock, v.clock*1000)
		if v.nodes[0].StateSum() != before {
			v.fail("a dry run changes the state")
		}
	}
	e := &Entry{Term: v.term, Origin: v.nodes[by].origin, ClockMs: v.clock, WallUs: v.clock * 1000,
		Batches: [][]byte{batch}}
	var events [2][]commands.Event
	for i, n := range v.nodes {
		r := mustApply(v.t, n.Machine, n.Index()+1, e, i == 0)
		if events[i] = r.Events; i == 0 {
			reply = r.Replies[0]
		}
	}
	if len(all) > 0 {
		v.entries = append(v.entries, "    "+strings.ReplaceAll(string(reply), "\r\n", " "))
	}
	if len(read) > 0 && !bytes.Equal(read, reply) {
		v.fail("a dry run replies %q", read)
	}
	if a, b := v.nodes[0].StateSum(), v.nodes[1].StateSum(); a != b {
		v.fail("the machines differ")
	}
	for i, n := range v.nodes {
		for _, e := range events[i] {
			v.hears(n, e, len(all) < 2)
		}
	}
	return reply
}

// restoreCopy is put in place of a RESTORE of what DUMP replies of a key.
const restoreCopy = "RESTORE-COPY"

// copies puts a RESTORE, to another key or the same, in the places of restoreCopy.
func (v *lockNodes) copies(q *commands.Request) {
	v.t.Helper()
	for i, args := range q.Cmds {
		if string(args[0]) != restoreCopy {
			continue
		}
		dump := lineRequest("DUMP " + string(args[1]))
		dump.DB = q.DB
		reply := v.nodes[0].Read(nil, commands.AppendRequest(nil, &dump), v.clock, v.clock*1000)
		_, value, _ := bytes.Cut(reply, []byte("\r\n"))
		q.Cmds[i] = [][]byte{[]byte("RESTORE"), []byte(v.pick("k", "l", "m")),
			[]byte(v.pick("0", "500")), bytes.TrimSuffix(value, []byte("\r\n")),
			[]byte("REPLACE")}
	}
}

func (v *lockNodes) fail(format string, args ...any) {
	v.t.Helper()
	v.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(v.entries, "\n"))
}

// hears acts on what a node learns with an entry.
func (v *lockNodes) hears(n *lockNode, e commands.Event, alone bool) {
	v.t.Helper()
	switch e.Kind {
	case commands.Served:
		v.entries = append(v.entries, fmt.Sprintf("    %s: %d %v %s", n.id(), e.Wait&1023,
			e.Claimed, strings.ReplaceAll(string(e.Payload), "\r\n", " ")))
		w := n.waits[e.Wait]
		switch {
		case w == nil:
			v.fail("%s does not know %d, which was served", n.id(), e.Wait&1023)
		case w.granted != nil:
			v.fail("%d is granted twice", e.Wait&1023)
		case !e.Claimed && grantsLock(e.Payload):
			w.granted, w.sends = e.Payload, false
		default:
			v.ends(n, w)
			if alone && grantsLock(e.Payload) {
				v.told(w, e.Payload)
			}
		}
	case commands.WaitsDropped:
		n.era = max(n.era, e.Wait)
		for _, w := range n.order {
			w.sends = w.sends || w.granted == nil && w.era < n.era
		}
	}
}

func grantsLock(reply []byte) bool {
	return bytes.HasPrefix(reply, []byte("*4\r\n:")) &&
		!bytes.HasPrefix(reply, []byte("*4\r\n:0\r"))
}

// ends forgets a client that has its reply, or has gone.
func (v *lockNodes) ends(n *lockNode, w *lockWait) {
	delete(n.waits, w.number)
	n.order = slices.DeleteFunc(n.order, func(o *lockWait) bool { return o == w })
}

// told fails unless a client that learns of locks has them, by that token or older ones.
func (v *lockNodes) told(w *lockWait, reply []byte) {
	v.t.Helper()
	words := strings.Fields(w.line)
	var token uint64
	if _, err := fmt.Sscanf(string(reply), "*4\r\n:%d\r\n", &token); err != nil {
		v.fail("%q", reply)
	}
	keys := words[1:2:2]
	if at := slices.Index(words, "KEYS"); at > 0 {
		keys = append(keys, words[at+2:]...)
	}
	largest := uint64(0)
	for _, key := range keys {
		own, _ := v.nodes[0].LockTokens([]commands.HeldLock{{DB: w.db, Key: key,
			Owner: words[2]}})
		if largest = max(largest, own[0]); own[0] == 0 {
			v.fail("%s was told of %s, and does not have it", w.line, key)
		}
	}
	if largest != token {
		v.fail("%s was told of token %d, but has %d", w.line, token, largest)
	}
}

// send sends a wait, for the first time or again.
func (v *lockNodes) send(n *lockNode, w *lockWait, again bool) {
	v.t.Helper()
	q := lineRequest(w.line)
	q.DB, q.Woken = w.db, again
	q.Wait = &commands.Wait{Node: []byte(n.id()), Era: n.era, Number: w.number, Order: w.order}
	w.sends, w.era = false, n.era
	reply := v.entry(q)
	if _, _, waits := commands.CutBlock(reply); waits {
		p, _ := commands.CutPlace(reply)
		if n.era = max(n.era, p.Era); p.Order == 0 {
			w.sends = true
		} else if w.order = p.Order; n.waits[w.number] == nil {
			// it was served by the entry itself, and the node has had its reply
			return
		}
		return
	}
	if again && grantsLock(reply) {
		w.granted = reply
		return
	}
	v.ends(n, w)
	if grantsLock(reply) && !strings.Contains(w.line, " ID ") { // it may be an earlier call's
		v.told(w, reply)
	}
}

func (v *lockNodes) setting(words ...any) string {
	v.t.Helper()
	return string(v.entry(lineSystem(strings.TrimSpace(fmt.Sprintln(words...)))))
}

// claim claims what a wait was granted.
func (v *lockNodes) claim(n *lockNode, w *lockWait) {
	v.t.Helper()
	reply, c := w.granted, v.nodes[0].waiting.locks.claims.numbers[w.number]
	byEntry := c != nil && c.claimed // of its node's process, which has had the reply since
	if w.granted = nil; v.setting(commands.SystemClaim, w.number) != "+OK\r\n" {
		w.sends = true
		return
	}
	if v.ends(n, w); !byEntry && !strings.Contains(w.line, " ID ") {
		v.told(w, reply)
	}
}

func (v *lockNodes) pick(of ...string) string { return of[v.dice.IntN(len(of))] }

// until is until when a lock is held.
func (v *lockNodes) until() string {
	if last := v.nodes[0].leases.Last(); last != 0 && v.dice.IntN(3) == 0 {
		return fmt.Sprint("LEASE ", last)
	}
	return "PX " + v.pick("1", "300", "3000", "30000")
}

// line returns a random command.
func (v *lockNodes) line() string {
	key, owner := v.pick("k", "k", "l", "m"), v.pick("a", "b", "c")
	switch v.dice.IntN(20) {
	case 16:
		return v.changes(key, owner)
	case 17:
		return v.pick("LOCK.INFO "+key, "LOCK.WAITERS "+key, "PTTL "+key, "FENCE.CHECK f 6",
			"FENCE.CHECK f 5 PX 300", "WINDOW.HIT w 2 PX 700 ID r4", "CL.THROTTLE t 1 1 1 1 ID r5",
			"WINDOW.HIT w 20000 PX 700 COST 3", "WINDOW.HIT w 5 PX 100 x 3 PX 1000 COST 2 PEEK")
	case 18:
		return v.pick("FLUSHDB", "SWAPDB 1 0", "MOVE "+key+" 0", "RENAMENX "+key+" l",
			"COPY "+key+" "+key+" DB 1", "SORT "+key+" STORE l", restoreCopy+" "+key,
			restoreCopy+" "+key, restoreCopy+" "+key)
	case 19:
		last := fmt.Sprint(" LEASE ", v.nodes[0].leases.Last())
		return v.pick("SET "+key+" "+owner+last, "SET "+key+" "+owner+" NX"+last, last[1:],
			"LOCK.EXTEND "+key+" "+owner+" PX 200 KEYS 1 n", "LEASE GRANT 1 DELAY 1000",
			"LOCK.EXTEND n "+owner+last+" KEYS 1 "+key,
			"LOCK.RELEASE "+key+" "+owner+" PERMITS 1000000")
	case 11:
		return "EVAL return(redis.call('LOCK.ACQUIRE',KEYS[1],ARGV[1],'PX','400','WAIT','0')) 1 " +
			key + " " + owner
	case 12:
		return "LEASE GRANT 3000 CONNECTION GRACE " + v.pick("0", "800")
	case 0:
		return v.pick("DEL", "PERSIST", "FENCE") + " " + key
	case 1:
		return "LOCK.STEAL " + key + " " + owner + " " + v.until()
	case 2:
		return "LOCK.EXTEND " + key + " " + owner + " " + v.until()
	case 3, 4, 5:
		return "LOCK.RELEASE " + key + " " + owner + v.pick("", "", " PERMITS 1", " ID r1",
			" KEYS 1 n")
	case 6:
		return v.pick("SET "+key+" x NX PX 500", "SET "+key+" a PX 700", "RPUSH "+key+" e",
			"PEXPIRE "+key+" 400", "HDEL "+key+" "+owner)
	case 7:
		return v.pick("FLUSHALL", "SWAPDB 0 1", "RENAME "+key+" m", "COPY "+key+" l REPLACE",
			"MOVE "+key+" 1")
	case 8:
		return "LEASE GRANT " + v.pick("500", "5000") + v.pick("", " DELAY 700", " ID r2")
	case 9:
		return "LEASE " + v.pick("KEEPALIVE", "KEEPALIVE", "REVOKE") + " " +
			fmt.Sprint(v.nodes[0].leases.Last())
	case 10:
		return "IDEMPOTENT r3 " + v.pick("DEL "+key, "LOCK.ACQUIRE "+key+" "+owner+" PX 900")
	}
	return v.acquire(false)
}

// changes returns a command that changes what a lock is, as no client of locks does.
func (v *lockNodes) changes(key, owner string) string {
	script := func(body string) string {
		return "EVAL return(redis.call(" + body + ")) 1 " + key + " " + owner
	}
	return v.pick("HSET "+key+" "+owner+" 1", "HINCRBY "+key+" "+owner+" 5",
		"HINCRBY "+key+" "+owner+" -1", "HPEXPIRE "+key+" 300 FIELDS 1 "+owner,
		"HPERSIST "+key+" FIELDS 1 "+owner, "HDEL "+key+" a b c", "UNLINK k l m n",
		"SET "+key+" a KEEPTTL", "APPEND "+key+" b", "GETDEL "+key,
		script("'HSET',KEYS[1],ARGV[1],'shared\\0321\\03299'"),
		script("'HSET',KEYS[1],ARGV[1],'permits\\0329223372036854775807\\0321'"),
		script("'LOCK.STEAL',KEYS[1],ARGV[1],'PX','400')and(redis.call('LOCK.RELEASE',"+
			"KEYS[1],ARGV[1])"),
		script("'LOCK.RELEASE',KEYS[1],ARGV[1])and(redis.call('LOCK.ACQUIRE',KEYS[1],"+
			"ARGV[1],'PX','400','SHARED')"))
}

// acquire returns a LOCK.ACQUIRE.
func (v *lockNodes) acquire(waits bool) string {
	line := "LOCK.ACQUIRE " + v.pick("k", "k", "l", "m") + " " + v.pick("a", "b", "c") + " " +
		v.until()
	if waits {
		line += " WAIT 0"
	}
	line += v.pick("", "", "", " REENTRANT", " REENTRANT", " SHARED", " SHARED REENTRANT",
		" PERMITS 1 OF 2", " PERMITS 2 OF 2", " PERMITS 1 OF 3")
	line += v.pick("", "", "", " PRIORITY 1", " ID r1", " ID r2")
	return line + v.pick("", "", " KEYS 1 n", " KEYS 2 o n")
}

// step does something.
func (v *lockNodes) step() {
	v.t.Helper()
	n := v.nodes[v.dice.IntN(2)]
	w := (*lockWait)(nil)
	if len(n.order) > 0 {
		w = n.order[v.dice.IntN(len(n.order))]
	}
	switch k := v.dice.IntN(40); {
	case v.full && k < 10:
		v.full = false
		v.setting(commands.SettingMaxMemory, "0")
	case w != nil && w.sends && k < 20:
		v.send(n, w, true)
	case w != nil && w.granted != nil && k < 25:
		v.claim(n, w)
	case w != nil && k < 4 && !w.sends:
		if v.setting(commands.SystemLeaveWait, w.number); n.waits[w.number] != nil {
			v.ends(n, w)
		}
	case k < 12:
		n.number++
		w = &lockWait{number: n.number, db: v.dice.IntN(8) / 7, line: v.acquire(true)}
		n.waits[w.number], n.order = w, append(n.order, w)
		v.send(n, w, false)
	case k < 26:
		q := lineRequest(v.line())
		q.DB = v.dice.IntN(6) / 5
		q.Holder = &commands.Holder{Node: []byte(n.id()), ID: uint64(v.dice.IntN(2) + 1)}
		if q.Multi = v.dice.IntN(4) == 0; q.Multi {
			for range v.dice.IntN(4) {
				q.Cmds = append(q.Cmds, lineRequest(v.line()).Cmds[0])
			}
		}
		v.entry(q)
	case k < 28:
		v.entry(lineRequest(v.line()), lineRequest(v.line()), lineRequest(v.line()))
	case k < 34:
		v.clock += []int64{0, 1, 100, 501, 1001, 2500, 12000, 61000}[v.dice.IntN(8)]
		v.entry()
	case k < 35:
		v.term++
		v.entry()
	case k < 36:
		v.setting(commands.SystemDropWaits, n.id())
	case k < 37 && v.dice.IntN(2) == 0:
		v.setting(v.pick(commands.SystemDropHolders, commands.SystemEndHolder,
			commands.SystemKeepHolder), n.id(), v.dice.IntN(2)+1)
	case k < 37:
		v.full = true
		v.setting(commands.SettingMaxMemory, "1")
	default:
		v.restores(n)
	}
	v.check()
}

// restores has a node begin with the snapshot of the other.
func (v *lockNodes) restores(n *lockNode) {
	v.t.Helper()
	var files [2][]byte
	for i, n := range v.nodes {
		files[i] = snapshotBytes(v.t, n.Snapshot())
	}
	if !bytes.Equal(files[0], files[1]) {
		v.fail("the snapshots differ")
	}
	m, err := ReadSnapshot(bytes.NewReader(files[0]), testTable())
	if err != nil {
		v.fail("%v", err)
	}
	m.SetNode(n.id())
	if now, again := countsOf(n.Machine), countsOf(m); now != again {
		v.fail("%s, and counted again %s", now, again)
	}
	n.Machine = m
	v.entries = append(v.entries, n.id()+" restored")
}

// countsOf shows what a machine counts as it goes on, which one that is restored counts again.
func countsOf(m *Machine) string {
	v := &m.waiting
	return fmt.Sprint(m.leases.Bytes(), m.leases.Len(), m.once.Bytes(), m.once.Len(), v.bytes,
		v.inDB, v.counts, v.newest, v.locks.waits, v.locks.several, v.locks.calls,
		v.locks.claims.bytes, v.locks.ready, len(v.locks.isReady), v.lent.bytes)
}

// check compares what the machine has with what the nodes know.
func (v *lockNodes) check() {
	v.t.Helper()
	for _, w := range v.nodes[0].waiting.all {
		n := v.nodes[0]
		if w.node != n.id() {
			n = v.nodes[1]
		}
		if n.waits[w.number] == nil {
			v.fail("%s does not know %d, which waits", w.node, w.number&1023)
		}
		if n.mayHave(w) {
			v.fail("%d waits for what is free", w.number&1023)
		}
	}
	for _, n := range v.nodes {
		for _, w := range n.order {
			if !w.sends && w.granted == nil && !n.Waits(w.number) {
				v.fail("%s takes %d for waiting: %s", n.id(), w.number&1023, w.line)
			}
		}
	}
	c := &v.nodes[0].waiting.locks.claims
	size, queued := 0, 0
	for _, queue := range [][]*claim{c.opened, c.kept} {
		for _, own := range queue {
			if !own.gone {
				size, queued = size+own.bytes(), queued+1
			}
		}
	}
	if size != c.bytes || queued != len(c.numbers) {
		v.fail("%d claims of %d bytes, counted as %d of %d", queued, size, len(c.numbers), c.bytes)
	}
}

func TestRandomLocks(t *testing.T) {
	seed, rounds := seeds.Of(t), 200
	if tier.Soaking() {
		rounds = 5000
	}
	for i := range rounds {
		v := newLockNodes(t, seed+uint64(i))
		for range 150 {
			v.step()
		}
		if t.Failed() {
			v.fail("round %d", i)
		}
	}
}
