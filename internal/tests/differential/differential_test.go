// Random calls to a machine and to redis-server. Each reply is compared, and all data at the end of
// each round. Only known_test.go says what may differ.

package differential

import (
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/server"
)

// testTable is the table of a node.
var testTable = sync.OnceValue(func() *commands.Table {
	return commands.NewTable(commands.Specs(), server.Specs())
})

// callsVariable is the environment variable with the number of calls of TestDifferential.
const callsVariable = "COORDD_DIFFERENTIAL"

const (
	defaultCalls  = 30_000
	callsPerRound = 1500
	callsAtOnce   = 40
	// maxDifferences ends the test. Each ends its round, since what follows may be its consequence.
	maxDifferences = 10
	databasesUsed  = 8 // by their numbers in pools
)

// TestDifferential makes random calls, valid and invalid, alone, in transactions and in scripts, on
// a machine and on redis-server. Any difference in replies or data without a known reason fails it.
func TestDifferential(t *testing.T) {
	d := newDifferential(t)
	for _, spec := range random.NewCalls(d.table, 0).Specs {
		if _, known := newerModels[spec.FullName()]; known && spec.Name != "set" {
			d.specs = append(d.specs, spec)
		}
	}
	calls := callsWanted(t)
	seed := seeds.Of(t)
	for d.calls < calls && d.differences < maxDifferences {
		d.round(seed)
		seed = d.nextSeed(seed)
	}
	d.report()
}

// callsWanted is the number of calls by the environment or the default.
func callsWanted(t *testing.T) int {
	calls := defaultCalls
	if s := os.Getenv(callsVariable); s != "" {
		var err error
		if calls, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", callsVariable, err)
		}
	}
	return calls
}

// newDifferential starts a real server, and skips the test if none is installed.
func newDifferential(t *testing.T) *differential {
	socket := commandtest.NeedRedis(t)
	real, err := commandtest.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = real.Close() })
	d := &differential{T: t, table: testTable(), socket: socket, real: real,
		server: commandtest.Redis(socket), seen: map[string]int{}, excused: map[string]int{}}
	d.listCommands()
	return d
}

// differential is a run of TestDifferential.
type differential struct {
	*testing.T
	socket string // of the real server
	table  *commands.Table
	server *commandtest.Server
	specs  []*commands.Spec // that both servers have
	groups []string         // of several specs
	real   *commandtest.Conn

	g       *random.Calls
	node    *node
	began   time.Time
	realDB  int // -1: not known
	proto   int
	ttls    int // TTLs made so far
	entries int // ids of stream entries made so far
	watch   []commands.WatchedKey
	pending []sent
	// absolute times, ms: the first word of the round's first call with each
	given   map[int64]*[]byte
	failure string // the round's first difference
	setIDs  bool   // XSETID was called in the round

	differences int
	calls       int
	unrun       int            // transactions that WATCH stopped
	seen        map[string]int // calls without an error, by command
	// differences, by the line of docs/compatibility.md that documents them
	excused map[string]int
}

// sent is a request whose reply the real server owes.
type sent struct {
	request
	got   []byte // our reply
	owed  int    // replies of the real server to read; the last one counts
	waits bool   // our command waits; the real server ran it in a transaction, where it cannot
}

// listCommands finds the specs that the real server has too, and that a machine runs.
func (d *differential) listCommands() {
	names := d.theirCommands()
	for _, spec := range random.NewCalls(d.table, 0).Specs {
		if names[spec.FullName()] && !avoided(spec) {
			d.specs = append(d.specs, spec)
		}
	}
	if len(d.specs) < 180 {
		d.Fatalf("only %d commands to compare", len(d.specs))
	}
	sizes := map[string]int{}
	for _, spec := range d.specs {
		if sizes[spec.Group]++; sizes[spec.Group] == 5 {
			d.groups = append(d.groups, spec.Group)
		}
	}
}

// theirCommands are the full names of the real server's commands.
func (d *differential) theirCommands() map[string]bool {
	theirs, err := commandtest.Parse(d.ask("COMMAND", "LIST"))
	if err != nil {
		d.Fatal(err)
	}
	names := map[string]bool{}
	for _, name := range theirs.Elems {
		names[name.Text] = true
	}
	return names
}

// nextSeed is the seed of the next round. It also selects the next group, so that a round's seed
// alone repeats it.
func (d *differential) nextSeed(seed uint64) uint64 {
	n := uint64(len(d.groups))
	random := rand.New(rand.NewPCG(seed, 1)).Uint64() >> 1
	return random - random%n + (seed+1)%n
}

// ask makes a call on the real server alone.
func (d *differential) ask(words ...string) []byte {
	raw, err := d.real.Do(commandtest.Args(words...))
	if err != nil {
		d.Fatal(err)
	}
	return raw
}

// round makes random requests. If the servers differ, it finds a few requests that suffice.
func (d *differential) round(seed uint64) {
	d.g, d.ttls, d.entries = random.NewCalls(d.table, seed), 0, 0
	d.g.Specs, d.g.Pools = d.specs, asRandom(differentialPools)
	if d.g.IntN(4) == 0 {
		d.g.Specs, d.g.Pools = slices.DeleteFunc(slices.Clone(d.specs),
			func(s *commands.Spec) bool {
				return strings.HasPrefix(s.Name, "sort")
			}), asRandom(widePools)
	}
	if d.g.IntN(4) > 0 {
		d.g.Shunned = seldomRight
	}
	proto, focus := 2+d.g.IntN(2), d.focus(seed)
	var made []request
	stocks := 0
	if d.g.IntN(2) == 0 {
		stocks, d.g.Strays = len(stock), 12
	}
	failure := d.play(proto, func(yield func(request) bool) {
		for len(made) < callsPerRound {
			if len(made) < stocks {
				made = append(made, request{calls: [][][]byte{d.stocked(len(made))}})
			} else {
				made = append(made, d.request(focus))
			}
			if !yield(made[len(made)-1]) {
				return
			}
		}
	})
	if failure == "" {
		return
	}
	few := d.shrunk(made, func(requests []request) bool {
		again := d.play(proto, slices.Values(requests))
		if again != "" {
			failure = again
		}
		return again != ""
	})
	d.reportFailure(seed, proto, failure, few)
}

// play runs requests on empty servers, compares replies and the final data, and returns the first
// difference.
func (d *differential) play(proto int, requests iter.Seq[request]) (failure string) {
	d.restart(proto)
	for q := range requests {
		if wait, ok := d.send(q); ok && wait > 0 {
			d.receive()
			time.Sleep(wait)
			d.sweep()
		}
		d.outlasted(q)
		if len(d.pending) >= callsAtOnce {
			d.receive()
		}
		if d.failure != "" {
			break
		}
	}
	if d.receive(); d.failure == "" {
		d.compareData()
	}
	return d.failure
}

// outlasted fails the test if a key of ours ends while it runs: which of the servers still has it
// would depend on how fast they run.
func (d *differential) outlasted(q request) {
	const testMs = 600_000
	atMs, ok := d.node.machine.NextDeadline()
	if left := atMs - d.node.clockMs; ok && left > 0 && left < testMs {
		d.Fatalf("a key ends in %d ms; after %s", left, callText(q))
	}
}

// restart empties both servers.
func (d *differential) restart(proto int) {
	if err := d.server.Reset(); err != nil {
		d.Fatal(err)
	}
	d.began = time.Now()
	d.node = newNode(d.table)
	d.watch, d.realDB, d.proto, d.failure, d.given = nil, -1, proto, "", map[int64]*[]byte{}
	d.setIDs = false
	d.ask("UNWATCH")
	d.ask("HELLO", strconv.Itoa(proto))
}

// tick advances our clock.
func (d *differential) tick() {
	d.node.clockMs = max(d.node.clockMs, time.Since(d.began).Milliseconds()+1)
}

// sweep has the real server look at all keys, so that expired ones are gone on both sides.
func (d *differential) sweep() {
	d.tick()
	if _, err := d.node.apply(nil); err != nil {
		d.Fatal(err)
	}
	for db := range databasesUsed {
		d.ask("SELECT", strconv.Itoa(db))
		d.ask("SCAN", "0", "COUNT", "100000") // KEYS would leave them
	}
	d.realDB = databasesUsed - 1
}

// send runs a request on the machine and sends it to the real server. wait is the time until what
// it made expires on both. It does not send requests that cannot be compared.
func (d *differential) send(q request) (wait time.Duration, ok bool) {
	if wait, ok = d.comparable(q); !ok {
		return 0, false
	}
	d.tick()
	s := sent{request: q}
	var wire []byte
	say := func(call [][]byte) {
		wire = resp.AppendCall(wire, call)
		s.owed++
	}
	if q.multi && d.watchAmbiguous() {
		say(commandtest.Args("UNWATCH"))
	}
	if q.db != d.realDB {
		say(commandtest.Args("SELECT", strconv.Itoa(q.db)))
		d.realDB = q.db
	}
	s.got = d.run(q)
	if _, _, s.waits = commands.CutBlock(s.got); s.waits && d.watch != nil {
		say(commandtest.Args("UNWATCH"))
		d.watch = nil
	}
	if q.multi || s.waits {
		say(commandtest.Args("MULTI"))
	}
	theirs := make([][][]byte, len(q.calls))
	for i, call := range q.calls {
		d.setIDs = d.setIDs || isCommand(inner(call), "xsetid")
		theirs[i] = translated(call, d.ownReply(s, i))
		if isCommand(inner(call), "select") && !q.script {
			// a script's SELECT ends with it
			d.realDB = -1
		}
	}
	if q.script {
		theirs = [][][]byte{madeByScript(theirs)}
	}
	for _, call := range theirs {
		say(call)
	}
	if q.multi || s.waits {
		say(commandtest.Args("EXEC"))
	}
	if err := d.real.SendRaw(wire); err != nil {
		d.Fatal(err)
	}
	d.pending = append(d.pending, s)
	if d.calls++; q.several() {
		d.calls += len(q.calls) - 1
	}
	return wait, true
}

// comparable reports whether a request can be compared, and returns the time until what it makes
// expires.
func (d *differential) comparable(q request) (wait time.Duration, ok bool) {
	for _, call := range q.calls {
		ttl, ok := shortTTL(inner(call))
		if !ok || (!q.watch && d.uncomparable(q, call)) {
			return 0, false
		}
		wait = max(wait, ttl)
	}
	if wait > 0 && q.several() && slices.ContainsFunc(q.calls, func(call [][]byte) bool {
		return isCommand(inner(call), "dbsize", "memory")
	}) {
		return 0, false // on the real server they see expired keys
	}
	return wait, true
}

// run runs a request on the machine.
func (d *differential) run(q request) []byte {
	if q.watch {
		out := &commands.RESP{Proto: d.proto}
		for _, key := range q.calls[0][1:] {
			d.watch = append(d.watch, commands.WatchedKey{DB: q.db, Key: key,
				Changed: d.node.lastChange(q.db, key)})
		}
		out.Status("OK")
		return out.Buf
	}
	request := commands.Request{DB: q.db, Proto: d.proto, Multi: q.multi, Cmds: q.calls}
	if q.script {
		request.Cmds = [][][]byte{madeByScript(q.calls)}
	}
	if q.multi {
		request.Watch, d.watch = d.watch, nil
	}
	got, err := d.node.apply(commands.AppendRequest(nil, &request))
	if err != nil {
		d.Fatal(err)
	}
	return got
}

// ownReply is our reply to a call of a request; nil in a transaction that was not run.
func (d *differential) ownReply(s sent, i int) []byte {
	if !s.several() {
		return s.got
	}
	v, err := commandtest.Parse(s.got)
	if err != nil {
		d.Fatalf("%v: %s", err, callText(s.request))
	}
	if i >= len(v.Elems) {
		return nil
	}
	return v.Elems[i].Append(nil, d.proto)
}

// receive reads the pending replies of the real server and compares them.
func (d *differential) receive() {
	for _, s := range d.pending {
		var want []byte
		for range s.owed {
			var err error
			if want, err = d.real.Receive(); err != nil {
				d.Fatalf("the real server: %v after %s", err, callText(s.request))
			}
		}
		if d.failure == "" {
			d.compare(s, want)
		}
	}
	d.pending = d.pending[:0]
}

// compare compares the replies to a request, in a transaction one by one.
func (d *differential) compare(s sent, want []byte) {
	if !s.several() && !s.waits {
		d.compareReply(s.calls[0], s.got, want)
		return
	}
	theirs, err := commandtest.Parse(want)
	if err != nil {
		d.Fatal(err)
	}
	if s.waits {
		d.countSuccess(s.calls[0])
		if len(theirs.Elems) != 1 || !isNullReply(theirs.Elems[0]) {
			d.differs("our command waits, so the reply", s.calls[0], s.got, want)
		}
		return
	}
	got, err := commandtest.Parse(s.got)
	if err != nil {
		d.Fatalf("%v: %s", err, callText(s.request))
	}
	if isNullReply(got) && isNullReply(theirs) {
		d.unrun++
		return
	}
	if got.Kind != '*' || theirs.Kind != '*' || len(got.Elems) != len(s.calls) ||
		len(theirs.Elems) != len(s.calls) {
		d.differs("the transaction's shape", s.calls[0], s.got, want)
		return
	}
	for i, call := range s.calls {
		if d.failure == "" {
			d.compareReply(call, got.Elems[i].Append(nil, d.proto),
				theirs.Elems[i].Append(nil, d.proto))
		}
	}
}

func isNullReply(v commandtest.Value) bool { return v.Null || v.Kind == '_' }

// countSuccess counts a call without an error.
func (d *differential) countSuccess(call [][]byte) {
	if spec, err := d.table.Resolve(call); err == nil {
		d.seen[spec.FullName()]++
	}
}

func (d *differential) compareReply(call [][]byte, got, want []byte) {
	if got[0] != '-' {
		d.countSuccess(call)
	}
	equal, err := equalReplies(call, got, want)
	if err != nil {
		d.Fatalf("%v: %s", err, callText(request{calls: [][][]byte{call}}))
	}
	if equal {
		return
	}
	if line := d.knownDifference(call, got, want); line != "" {
		d.excused[line]++
		return
	}
	d.differs("the reply", call, got, want)
}
