// Tests of commands that wait in the machine: who is served when, what ends a wait, and that all
// machines agree.

package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
)

// waitMachine is a machine of node n1 whose clients may wait.
type waitMachine struct {
	t *testing.T
	*Machine
	term     uint64
	proposer uint64 // of the next entry
	eras     map[string]uint64
	news     []commands.Event // of the newest entry
	spent    uint64           // by it
	clock    int64
}

func newWaitMachine(t *testing.T) *waitMachine {
	w := &waitMachine{t: t, Machine: newestMachine(testTable()), term: 1, clock: 1000,
		eras: map[string]uint64{}}
	w.SetNode("n1")
	w.apply()
	w.eras["n1"], w.eras["n2"] = 1, 1
	return w
}

// apply applies an entry of requests and returns their replies.
func (w *waitMachine) apply(requests ...commands.Request) []byte {
	w.t.Helper()
	var batch []byte
	for i := range requests {
		batch = commands.AppendRequest(batch, &requests[i])
	}
	e := &Entry{Term: w.term, Origin: w.proposer, ClockMs: w.clock, WallUs: w.clock * 1000,
		Batches: [][]byte{batch}}
	r := mustApply(w.t, w.Machine, w.Index()+1, e, true)
	w.spent = r.Spent
	w.news = slices.DeleteFunc(r.Events, func(e commands.Event) bool {
		return e.Kind != commands.Served && e.Kind != commands.WaitsDropped
	})
	return r.Replies[0]
}

func lineRequest(line string) commands.Request {
	return commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(strings.Fields(line)...)}}
}

// waitRequest is a command of a node that may wait, as wait number.
func (w *waitMachine) waitRequest(node string, number uint64, line string) commands.Request {
	q := lineRequest(line)
	q.Wait = &commands.Wait{Node: []byte(node), Era: w.eras[node], Number: number}
	return q
}

// wait applies waitRequest, and fails unless the machine keeps the command.
func (w *waitMachine) wait(node string, number uint64, line string) commands.Place {
	w.t.Helper()
	p := w.place(w.apply(w.waitRequest(node, number, line)))
	if p.Order == 0 {
		w.t.Fatalf("%s is not kept: %+v", line, p)
	}
	return p
}

func (w *waitMachine) place(reply []byte) commands.Place {
	w.t.Helper()
	p, ok := commands.CutPlace(reply)
	if _, _, waits := commands.CutBlock(reply); !waits || !ok {
		w.t.Fatalf("%q does not wait", reply)
	}
	return p
}

// run applies a command in an entry of its own.
func (w *waitMachine) run(line string) string {
	w.t.Helper()
	return w.text(w.apply(lineRequest(line)))
}

func (w *waitMachine) text(reply []byte) string {
	return strings.ReplaceAll(strings.TrimSuffix(string(reply), "\r\n"), "\r\n", " ")
}

// told shows what the node learned with the newest entry.
func (w *waitMachine) told() string {
	var all []string
	for _, e := range w.news {
		if e.Kind == commands.WaitsDropped {
			all = append(all, fmt.Sprint("dropped ", e.Wait))
			continue
		}
		all = append(all, fmt.Sprintf("%d: %s", e.Wait, w.text(e.Payload)))
	}
	return strings.Join(all, ", ")
}

func (w *waitMachine) want(told string) {
	w.t.Helper()
	if got := w.told(); got != told {
		w.t.Errorf("told %q, want %q", got, told)
	}
}

func (w *waitMachine) reply(line, want string) {
	w.t.Helper()
	if got := w.run(line); got != want {
		w.t.Errorf("%s: %q, want %q", line, got, want)
	}
}

// What one command moves serves the next, before the next request of the entry runs.
func TestChainsAreServedAtOnce(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n1", 1, "BRPOPLPUSH a b 0")
	w.wait("n1", 2, "BRPOPLPUSH b a 0")
	got := w.apply(lineRequest("LPUSH a x"), lineRequest("LRANGE a 0 -1"),
		lineRequest("EXISTS b"))
	w.want("1: $1 x, 2: $1 x")
	if text := w.text(got); text != ":1 *1 $1 x :0" {
		t.Errorf("in the same entry: %q", text)
	}
	w.wait("n1", 3, "BLMOVE 1 2 LEFT RIGHT 0")
	w.wait("n1", 4, "BLMOVE 2 3 LEFT RIGHT 0")
	w.wait("n1", 5, "BLPOP 3 0")
	w.wait("n1", 6, "BRPOPLPUSH self self 0")
	w.reply("RPUSH 1 y", ":1")
	w.want("3: $1 y, 4: $1 y, 5: *2 $1 3 $1 y")
	w.reply("RPUSH self z", ":1")
	w.want("6: $1 z")
	w.reply("LRANGE self 0 -1", "*1 $1 z")
}

// BLMOVEM waits until it finds as many as it needs. Who needs fewer is served meanwhile, also who
// came later.
func TestBlmovemWaitsForEnough(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n1", 1, "BLMOVEM l to LEFT RIGHT 0 EXACTLY 3 BULK")
	w.reply("RPUSH l 1 2", ":2")
	w.want("")
	w.wait("n1", 2, "BLMOVEM l to LEFT LEFT 0 EXACTLY 4 OBO")
	w.reply("RPUSH l 3", ":3")
	w.want("1: *3 $1 1 $1 2 $1 3")
	w.wait("n1", 3, "BLMOVEM l to RIGHT RIGHT 0")
	w.reply("RPUSH l 4", ":1")
	w.want("3: *1 $1 4")
	w.wait("n1", 4, "BLMOVEM l to RIGHT RIGHT 0 COUNT 9 BULK")
	w.reply("LPOP to", "$1 1")
	w.reply("RPUSH l 5 6", ":2")
	w.want("4: *2 $1 5 $1 6")
	w.reply("LRANGE to 0 -1", "*5 $1 2 $1 3 $1 4 $1 5 $1 6")
	w.reply("RPUSH l 7 8 9 10 11", ":5")
	w.want("2: *4 $2 10 $1 9 $1 8 $1 7")
	w.reply("LRANGE l 0 -1", "*1 $2 11")
	for i := range uint64(200) { // they are only looked at
		w.wait("n1", 100+i, "BLMOVEM many to LEFT LEFT 0 EXACTLY 2 OBO")
	}
	w.reply("RPUSH many x", ":1")
	if w.spent > 200*lookWork+500 {
		t.Errorf("%d units for a push", w.spent)
	}
	w.wait("n1", 6, "BLMOVEM m self LEFT LEFT 0 EXACTLY 2 OBO")
	restored := restore(t, snapshotBytes(t, w.Snapshot()), testTable())
	if n := restored.waiting.numbers[6]; n == nil || n.class != "list 2" {
		t.Errorf("restored: %v", n)
	}
}

// BZMOVE takes up to its count of what there is, and what it moves serves who waits for it there.
// Changes of the destination, and keys of another type, wake nobody.
func TestBzmoveMovesWhatThereIs(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n1", 1, "BZMOVE z run MAX 0 COUNT 2")
	w.wait("n1", 2, "BZMOVE z run MIN 0 COUNT 9")
	w.wait("n1", 3, "BZPOPMIN run 0")
	w.reply("RPUSH z x", ":1")
	w.reply("DEL z", ":1")
	w.reply("ZADD run 9 y", ":1")
	w.want("3: *3 $3 run $1 y $1 9")
	w.wait("n1", 4, "BZPOPMIN run 0")
	w.reply("ZADD z 1 a 2 b 3 c", ":3")
	w.want("1: *2 *2 $1 c $1 3 *2 $1 b $1 2, 2: *1 *2 $1 a $1 1, 4: *3 $3 run $1 a $1 1")
	w.reply("ZRANGE run 0 -1", "*2 $1 b $1 c")
	w.reply("EXISTS z", ":0")
	w.wait("n1", 5, "BZMOVE z str MIN 0")
	w.wait("n1", 6, "BZMOVE z run MIN 0")
	w.reply("SET str x", "+OK")
	w.reply("ZADD z 1 a", ":1")
	w.want("5: -" + string(commands.ErrWrongType) + ", 6: *1 *2 $1 a $1 1")
	w.wait("n1", 7, "BZMOVE z run MIN 0")
	w.reply("DEL run", ":1")
	w.wait("n1", 8, "BZMOVE run back MIN 0 COUNT 3")
	w.wait("n1", 9, "BZMOVE back z MIN 0")
	w.reply("ZADD z 4 d", ":1") // in a circle
	w.want("7: *1 *2 $1 d $1 4, 8: *1 *2 $1 d $1 4, 9: *1 *2 $1 d $1 4")
	w.reply("ZCARD z", ":1")
}

// The order of arrival holds over all nodes, and only the own node's replies are built.
func TestOrderOfArrivalHoldsOverNodes(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n1", 1, "BLPOP l 0")
	w.wait("n2", 2, "BLPOP l 0")
	w.wait("n1", 3, "BRPOP k l 0")
	w.wait("n1", 4, "BZPOPMIN l 0") // of another type: nothing for it
	w.reply("RPUSH l a b c d", ":4")
	w.want("1: *2 $1 l $1 a, 3: *2 $1 l $1 d")
	w.reply("LRANGE l 0 -1", "*1 $1 c")
	w.reply("DEL l", ":1")
	w.reply("ZADD l 1 m", ":1")
	w.want("4: *3 $1 l $1 m $1 1")
	if len(w.waiting.all)+len(w.waiting.queues)+w.waiting.bytes != 0 {
		t.Errorf("left: %+v", w.waiting)
	}
}

// A transaction and a script bring all that they bring at once, and what they take back serves
// nobody.
func TestServedAfterTheWholeRequest(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n1", 1, "BLPOP l 0")
	w.wait("n1", 2, "BLMPOP 0 2 k l LEFT COUNT 9")
	multi := commands.Request{Proto: 2, Multi: true, Cmds: [][][]byte{
		commandtest.Args("LPUSH", "l", "x"), commandtest.Args("DEL", "l")}}
	w.apply(multi)
	w.want("")
	multi.Cmds[1] = commandtest.Args("LPUSH", "l", "y", "z")
	w.apply(multi)
	w.want("1: *2 $1 l $1 z, 2: *2 $1 l *2 $1 y $1 x")
	w.wait("n1", 3, "BLPOP l 0")
	script := lineRequest("EVAL - 1 l")
	script.Cmds[0][1] = []byte("redis.call('RPUSH', KEYS[1], 'a', 'b') " +
		"return redis.call('LLEN', KEYS[1])")
	if got := w.text(w.apply(script)); got != ":2" {
		t.Errorf("the script: %q", got)
	}
	w.want("3: *2 $1 l $1 a")
}

// Keys that come by other ways serve too.
func TestEveryWayToBringSomething(t *testing.T) {
	for _, bring := range []string{"RENAME from l", "COPY from l REPLACE",
		"LMOVE from l LEFT LEFT", "SORT from ALPHA STORE l"} {
		for _, over := range []bool{false, true} { // a value of another type
			if over && strings.HasPrefix(bring, "LMOVE") {
				continue
			}
			w := newWaitMachine(t)
			w.run("RPUSH from x")
			w.wait("n1", 1, "BLPOP l 0")
			if over {
				w.run("SET l v")
			}
			w.run(bring)
			w.want("1: *2 $1 l $1 x")
		}
	}
	w := newWaitMachine(t)
	there := lineRequest("RPUSH l x")
	there.DB = 1
	w.apply(there)
	w.wait("n1", 1, "BLPOP l 0")
	w.run("SWAPDB 0 1")
	w.want("1: *2 $1 l $1 x")
}

// Those that a request serves at many keys are served in order of arrival, on every machine.
func TestManyKeysAreServedInOrder(t *testing.T) {
	w := newWaitMachine(t)
	var want []string
	for i := range 20 {
		there := lineRequest(fmt.Sprintf("RPUSH l%d x", i))
		there.DB = 1
		w.apply(there)
	}
	for i := range 20 {
		k := i * 7 % 20 // neither the order of the keys nor that in which they were made
		w.wait("n1", uint64(i+1), fmt.Sprintf("BLPOP l%d 0", k))
		name := fmt.Sprint("l", k)
		want = append(want, fmt.Sprintf("%d: *2 $%d %s $1 x", i+1, len(name), name))
	}
	w.run("SWAPDB 0 1")
	w.want(strings.Join(want, ", "))
}

// A command that cannot run any more has its error, and takes nothing.
func TestServedWithAnError(t *testing.T) {
	w := newWaitMachine(t)
	w.run("SET wrong value")
	w.wait("n1", 1, "BLMOVE l wrong LEFT LEFT 0")
	w.wait("n1", 2, "BLPOP l 0")
	w.run("RPUSH l x")
	w.want("1: -WRONGTYPE Operation against a key holding the wrong kind of value, " +
		"2: *2 $1 l $1 x")
}

// A wait ends when its node says so, when the leader does not reach the node, and with the term.
func TestEndsOfWaits(t *testing.T) {
	w := newWaitMachine(t)
	leave := func(n string) string {
		return w.text(w.apply(commands.Request{Proto: 2, System: true,
			Cmds: [][][]byte{commandtest.Args(commands.SystemLeaveWait, n)}}))
	}
	w.wait("n1", 1, "BLPOP l l k 0")
	w.wait("n2", 2, "BLPOP l 0")
	if got := leave("1") + leave("1"); got != "+OK-"+string(commands.ErrNotWaiting) {
		t.Errorf("leaving twice: %q", got)
	}
	w.wait("n1", 3, "BLPOP l 0")
	w.apply(commands.Request{Proto: 2, System: true,
		Cmds: [][][]byte{commandtest.Args(commands.SystemDropWaits, "n2")}})
	w.want("")
	if got := w.WaitingNodes(); !slices.Equal(got, []string{"n1"}) || !w.Waits(3) || w.Waits(2) {
		t.Errorf("waiting: %q", got)
	}
	w.apply(commands.Request{Proto: 2, System: true,
		Cmds: [][][]byte{commandtest.Args(commands.SystemDropWaits, "n1")}})
	w.want(fmt.Sprint("dropped ", w.Index()))

	// what was on its way when the waits were dropped is not kept, and learns the era
	p := w.place(w.apply(w.waitRequest("n1", 4, "BLPOP l 0")))
	if p.Order != 0 || p.Era != w.Index()-1 {
		t.Errorf("place %+v", p)
	}
	w.eras["n1"] = p.Era
	old := w.wait("n1", 4, "BLPOP l 0")

	w.term++
	w.reply("RPUSH l x", ":1") // the first entry of the term: nobody is served
	w.want(fmt.Sprint("dropped ", w.Index()))
	w.reply("LLEN l", ":1")
	if w.eras["n1"] = w.eraOf("n1"); len(w.waiting.all) != 0 {
		t.Error("somebody still waits")
	}
	// as many new ones do not end the hold, which is for those that are still to come
	w.wait("n1", 5, "BLPOP l 0")
	w.wait("n1", 6, "BLPOP l 0")
	w.want("")
	if !w.Held() {
		t.Error("new waits take the place of one that is to come back")
	}
	q := w.waitRequest("n1", 4, "BLPOP l 0") // back in its place, it is served
	q.Wait.Order = old.Order
	w.apply(q)
	w.want("4: *2 $1 l $1 x")
}

func (w *waitMachine) eraOf(node string) uint64 { return w.waiting.eraOf([]byte(node)) }

// A command that is sent again has its old place.
func TestPlacesAreKept(t *testing.T) {
	w := newWaitMachine(t)
	var places [3]commands.Place
	for i := range places {
		places[i] = w.wait("n1", uint64(i+1), "BLPOP l 0")
	}
	w.term++
	w.apply()
	w.eras["n1"] = w.eraOf("n1")
	for _, i := range []int{2, 0, 1} {
		q := w.waitRequest("n1", uint64(i+1), "BLPOP l 0")
		q.Wait.Order, q.Woken = places[i].Order, true
		w.apply(q)
	}
	w.wait("n1", 4, "BLPOP l 0")
	w.run("RPUSH l a b c d")
	w.want("1: *2 $1 l $1 a, 2: *2 $1 l $1 b, 3: *2 $1 l $1 c, 4: *2 $1 l $1 d")
}

// Many that are served at once do not hold up the entry for longer than any other work: the next
// entries serve the rest, before anything else.
func TestServingIsBounded(t *testing.T) {
	detector.Skip(t)
	w := newWaitMachine(t)
	const many, each = 300, 10_000
	for i := range uint64(many) {
		w.wait("n1", i+1, "BLMPOP 0 1 l LEFT COUNT "+fmt.Sprint(each))
		w.run("RPUSH from" + strings.Repeat(" x", each))
	}
	w.run("RENAME from l")
	served := len(w.news)
	if at, due := w.NextDeadline(); served == many || !due || at >= w.clock {
		t.Fatalf("%d of %d served by one entry, the next due at %d, %v", served, many, at, due)
	}
	half := restore(t, snapshotBytes(t, w.Snapshot()), w.table)
	half.SetNode("n1")
	for ticks := 0; served < many && ticks < many; ticks++ {
		e := &Entry{Term: w.term, Origin: w.proposer, ClockMs: w.clock}
		a := mustApply(t, w.Machine, w.Index()+1, e, true)
		b := mustApply(t, half, half.Index()+1, e, false)
		sameEvents(t, w.Index(), a, b)
		served += len(a.Events)
	}
	if _, due := w.NextDeadline(); served != many || due {
		t.Errorf("%d of %d served, due %v", served, many, due)
	}
	w.reply("EXISTS l", ":0")
}

// What waits is bounded in bytes. Commands beyond wait on their nodes.
func TestWhatWaitsIsBounded(t *testing.T) {
	detector.Skip(t)
	w := newWaitMachine(t)
	key := strings.Repeat("k", 1<<20)
	for i := uint64(1); ; i++ {
		p := w.place(w.apply(w.waitRequest("n1", i, "BLPOP "+key+" 0")))
		if p.Era != w.eras["n1"] {
			t.Fatalf("place %+v", p)
		}
		if p.Order == 0 {
			if i < 20 || w.waiting.bytes > maxWaiting {
				t.Errorf("%d are kept, of %d bytes", i-1, w.waiting.bytes)
			}
			return
		}
	}
}

// What a leader has decided by what it knew of the nodes changes nothing in the term of another.
func TestDecisionsOfATerm(t *testing.T) {
	w := newWaitMachine(t)
	w.term++
	w.run("PING")
	w.eras["n2"] = w.Index()
	w.wait("n2", 1, "BLPOP l 0")
	decided := func(term uint64, setting string) string {
		return w.text(w.apply(lineSystem(fmt.Sprint(commands.SystemInTerm, " ", term, " ",
			setting))))
	}
	refused := "-" + string(commands.ErrOtherTerm)
	for _, setting := range []string{commands.SystemDropWaits + " n2",
		commands.SystemDropHolders + " n2", commands.SystemServeWaits} {
		for _, term := range []uint64{w.term - 1, w.term + 1} {
			if got := decided(term, setting); got != refused {
				t.Errorf("%s in term %d, not %d: %q", setting, w.term, term, got)
			}
		}
	}
	for setting, want := range map[string]string{
		"no-such":                          "-" + string(commands.ErrNoSystemRequest),
		commands.SystemDropHolders + " n2": ":0",
		fmt.Sprint(commands.SystemInTerm, " ", w.term, " ", commands.SystemServeWaits): "-" +
			string(commands.ErrNoSystemRequest)} {
		if got := decided(w.term, setting); got != want {
			t.Errorf("%s: %q", setting, got)
		}
	}
	for _, line := range []string{commands.SystemInTerm,
		fmt.Sprint(commands.SystemInTerm, " ", w.term),
		commands.SystemInTerm + " x " + commands.SystemServeWaits} {
		if got := w.text(w.apply(lineSystem(line))); got[0] != '-' {
			t.Errorf("%s: %q", line, got)
		}
	}
	if !w.Waits(1) {
		t.Error("the wait is dropped")
	}
	if got := decided(w.term, commands.SystemDropWaits+" n2"); got != "+OK" || w.Waits(1) {
		t.Errorf("dropped in its term: %q", got)
	}
}

// TestGoldenWaits: a snapshot holds what waits, in which era, and the newest place.
func TestGoldenWaits(t *testing.T) {
	w := newWaitMachine(t)
	w.wait("n1", 1, "BLPOP l k l 0")
	w.wait("n2", 2, "BLPOP l 0")
	w.apply(commands.Request{Proto: 2, System: true,
		Cmds: [][][]byte{commandtest.Args(commands.SystemDropWaits, "n2")}})
	q := w.waitRequest("n1", 300, "BZPOPMIN z 0")
	q.DB, q.Client, q.User = 3, 9, commands.UserID{Name: []byte("default")}
	w.apply(q)
	path := goldenFiles + "waits-snapshot-v1.bin"
	makeGolden(t, path, snapshotBytes(t, w.Snapshot()))
	file := readGolden(t, path)
	w.Machine = restore(t, file, w.table)
	if !bytes.Equal(snapshotBytes(t, w.Snapshot()), file) {
		t.Errorf("%s is written otherwise now: a new format needs a new version", path)
	}
	w.SetNode("n1")
	if p := w.place(w.apply(w.waitRequest("n2", 4, "BLPOP l 0"))); p.Era != 4 || p.Order != 0 {
		t.Errorf("the era of n2: %+v", p)
	}
	if p := w.wait("n1", 5, "BLPOP l 0"); p.Order != 4 {
		t.Errorf("the next place: %+v", p)
	}
	w.run("RPUSH l a b")
	w.want("1: *2 $1 l $1 a, 5: *2 $1 l $1 b")
	add := lineRequest("ZADD z 1 m")
	add.DB = 3
	w.apply(add)
	w.want("300: *3 $1 z $1 m $1 1")
	if _, err := CheckSnapshot(bytes.NewReader(file), testTable()); err != nil {
		t.Error(err)
	}
}

// randomWaits makes commands that wait, first and again, ends of waits, give-backs, what all these
// meet, and new terms.
type randomWaits struct {
	term       uint64
	batch      []byte // of the newest entry
	requests   int    // in it
	gives      []int  // which of them give back
	back, late int    // give-backs of what was lent, and of what was not, or not any more
}

func (w *randomWaits) request(q commands.Request) {
	w.batch = commands.AppendRequest(w.batch, &q)
	w.requests++
}

func (w *randomWaits) set(words ...string) {
	w.request(commands.Request{Proto: 2, System: true,
		Cmds: [][][]byte{commandtest.Args(words...)}})
}

// add adds some to an entry.
func (w *randomWaits) add(g *random.Calls, m *Machine, e *Entry) {
	if g.IntN(60) == 0 {
		w.term++
	}
	e.Term = w.term
	w.batch, w.requests, w.gives = nil, 0, nil
	if g.IntN(8) == 0 { // nobody waits
		w.set(commands.SystemDropWaits, "n1")
		w.set(commands.SystemDropWaits, "n2")
	}
	for range g.IntN(8) {
		switch number := 1 + g.IntN(12); g.IntN(16) {
		case 0, 1, 2, 3, 4:
			w.wait(g, m, uint64(number))
		case 5, 6:
			w.giveBack(g, m, number)
		case 7:
			w.set(commands.SystemServeWaits)
			w.set(commands.SystemLeaveWait, fmt.Sprint(number))
		default:
			w.change(g)
		}
	}
	e.Batches = append(e.Batches, w.batch)
}

// randomWords picks one of the lines, with other keys in place of its words a and b.
func randomWords(g *random.Calls, lines ...string) []string {
	words := strings.Fields(g.Pick(lines))
	for i, word := range words {
		if word == "a" || word == "b" {
			words[i] = g.Pick([]string{"a", "b", "c"})
		}
	}
	return words
}

func (w *randomWaits) wait(g *random.Calls, m *Machine, number uint64) {
	q := commands.Request{Proto: 2, DB: g.IntN(2) * g.IntN(2), Cmds: [][][]byte{commandtest.Args(
		randomWords(g, "BLPOP a b 0", "BRPOP a b 0", "BLMPOP 0 2 a b LEFT COUNT 3",
			"BZPOPMIN a b 0", "BZMPOP 0 2 a b MAX COUNT 2", "BLMOVE a b LEFT RIGHT 0",
			"BRPOPLPUSH a b 1", "BZMOVE a b MAX 0 COUNT 2")...)}}
	node := []byte(g.Pick([]string{"n1", "n2"}))
	q.Wait = &commands.Wait{Node: node, Number: number, Order: uint64(g.IntN(2) * g.IntN(30)),
		Era: m.waiting.eraOf(node) - uint64(g.IntN(8)/7)}
	w.request(q)
}

// giveBack gives back a loan, if there is any, or else what is none.
func (w *randomWaits) giveBack(g *random.Calls, m *Machine, number int) {
	push := randomWords(g, "LPUSH a g h", "RPUSH a g", "ZADD a 5 g")
	parts := 1 + g.IntN(3)
	part := g.IntN(parts)
	if loans := m.waiting.lent.freeze().queue; len(loans) > 0 && g.IntN(4) > 0 {
		l := loans[g.IntN(len(loans))]
		number, part, push[1] = int(l.number), int(l.parts), l.from.key.key
		if g.IntN(4) > 0 {
			push = []string{"LPUSH", l.from.key.key, "g"}
			if l.from.class != "list" {
				push = []string{"ZADD", l.from.key.key, "5", "g"}
			}
		}
	}
	w.gives = append(w.gives, w.requests)
	w.set(append([]string{commands.SystemGiveBack, fmt.Sprint(number), fmt.Sprint(part),
		fmt.Sprint(parts)}, push...)...)
}

// change adds a command that serves those that wait, or ends what is lent.
func (w *randomWaits) change(g *random.Calls) {
	words := randomWords(g, "RPUSH a x y", "ZADD a 1 m 2 n", "RPUSH a x", "ZADD a 1 m",
		"RPUSH a x y z", "ZADD a 1 m 2 n 3 o", "LPUSH a x", "DEL a", "LPOP a", "ZPOPMIN a",
		"EXPIRE a 1", "PEXPIRE a 300", "SET a v", "PERSIST a", "LREM a 0 x", "ZREM a m",
		"SWAPDB 0 1", "FLUSHDB", "FLUSHALL", "RENAME a b", "COPY a b REPLACE",
		"SORT a ALPHA STORE b", "LMOVE a b LEFT RIGHT", "UNLINK a", "LTRIM a 0 0", "SET a v PX 200",
		"ZMOVE a b MIN COUNT 2", "ZMOVEMEMBER a b NX MEMBERS 2 m n")
	q := commands.Request{Proto: 2, DB: g.IntN(2) * g.IntN(2),
		Cmds: [][][]byte{commandtest.Args(words...)}}
	if g.IntN(6) == 0 {
		script := "return redis.pcall('" + strings.Join(words, "','") + "')"
		q.Cmds[0] = commandtest.Args("EVAL", script, "0")
	}
	w.request(q)
}

// count counts the give-backs of the newest entry.
func (w *randomWaits) count(t *testing.T, r Result) {
	t.Helper()
	if len(w.gives) == 0 {
		return
	}
	replies, err := commandtest.ParseAll(r.Replies[len(r.Replies)-1])
	if err != nil || len(replies) != w.requests {
		t.Fatalf("%d replies to %d requests, %v", len(replies), w.requests, err)
	}
	for _, i := range w.gives {
		if replies[i].IsError() {
			w.late++
		} else {
			w.back++
		}
	}
	w.gives = nil
}

// user returns a user as requests name it.
func (w *waitMachine) user(name string) commands.UserID {
	return commands.UserID{Name: []byte(name), Created: w.users.Get([]byte(name)).Created()}
}

// Rights decide about a command that waits with the arguments with which it came: a rule may name
// its first, and all of its keys count, whichever of them serves it.
func TestWaitsAreJudgedAsTheyCame(t *testing.T) {
	denied := "-NOPERM this user has no permissions to "
	for _, x := range []struct{ rules, then, push, want string }{
		{"+blpop|k1 ~*", "", "k1", "*2 $2 k1 $1 x"},
		{"+blpop|k1 ~*", "", "k2", "*2 $2 k2 $1 x"},
		{"+blpop|k1 ~*", "-blpop", "k2", denied + "run the 'blpop' command"},
		{"+blpop|k2 +blpop|k1 ~*", "-blpop +blpop|k2", "k2", denied + "run the 'blpop' command"},
		{"+blpop ~*", "resetkeys ~k2", "k2", denied + "access one of the keys used as arguments"},
		{"+blpop ~*", "resetkeys ~k1 ~k2", "k2", "*2 $2 k2 $1 x"},
	} {
		w := newWaitMachine(t)
		w.run("ACL SETUSER bob on nopass " + x.rules)
		q := w.waitRequest("n1", 7, "BLPOP k1 k2 0")
		q.User = w.user("bob")
		w.place(w.apply(q))
		if x.then != "" {
			w.run("ACL SETUSER bob " + x.then)
		}
		w.run("RPUSH " + x.push + " x")
		if len(w.news) != 1 {
			t.Errorf("%+v: %d are served", x, len(w.news))
			continue
		}
		_, reply := commands.CutDenials(w.news[0].Payload)
		if got := w.text(reply); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}
