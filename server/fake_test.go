// What the tests run the server on: a machine without a log, and clients that speak raw RESP.

package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/locks"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/memnet"
	"github.com/coordd/coordd/internal/tests/ports"
	testwait "github.com/coordd/coordd/internal/tests/wait"
)

// fakeBackend runs requests directly on one machine, without a log.
type fakeBackend struct {
	table   *commands.Table
	deliver func([]commands.Event)

	mu              sync.Mutex
	machine         *fsm.Machine
	index           uint64
	clockMs         int64
	wants           fsm.Interest
	watched         bool
	calls           []string        // "write 3", "read 1", "local 2"
	fail            error           // the reply to everything
	failWrites      bool            // to writes only
	lost            error           // the reply to writes, which run
	scheduled       []Workload      // calls of Schedule
	lastLoad        Workload        // of Write
	computing       map[uint64]bool // the connections for which Schedule runs
	simulated       bool            // time passes only for those who wait
	gate            chan struct{}   // if set, Write waits for it
	begun           chan struct{}   // if set, Write signals its start
	after           func()          // if set, the next Write calls it before it returns
	turn            func()          // if set, the next Schedule calls it before it does anything
	st              Status
	replication     *Replication
	noIDs           bool                                    // giveIDs fails
	mute            bool                                    // a Write runs, and has no reply
	others          map[string]func(question []byte) []byte // nodes that AskOthers asks
	questions       int                                     // calls of Replication
	leaderChanged   chan struct{}
	replicationGate chan struct{} // if set, Replication and Barrier wait for it
	asking          atomic.Int64  // waiting calls of the two
	lastBatch       []byte        // of the newest Write
	users           atomic.Pointer[Users]
	lags            bool       // users stays as it is
	lagsScripts     bool       // until a barrier it knows no script
	founding        *acl.Users // of FoundingUsers
	level           uint64
	hidesWaits      bool      // Waits knows none
	term            uint64    // of the next entry, if that is a later one than the status says
	origin          uint64    // … the process that proposes it: this one is fakeOrigin
	began           time.Time // of n2's process; zero: unknown
	looks           int       // calls of Status
}

// testTable is the table of a node.
var testTable = sync.OnceValue(func() *commands.Table {
	return commands.NewTable(commands.Specs(), Specs())
})

func newFake() *fakeBackend {
	f := &fakeBackend{leaderChanged: make(chan struct{}, 1), level: commands.FeatureLevel,
		table: testTable()}
	f.st.Status = membership.Status{
		ID: "n1", Role: "leader", LeaderID: "n1", LeaderAddr: "10.0.0.1:7001", Ready: true,
		Term: 3, Commit: 100, Applied: 100, LastLog: 100, Level: 1, KnownLevel: 1,
		Members: []Member{
			{ID: "n1", PeerAddr: "10.0.0.1:8001", ClientAddr: "10.0.0.1:7001", Voter: true,
				KnownLevel: 1},
			{ID: "n2", PeerAddr: "10.0.0.2:8001", ClientAddr: "10.0.0.2:7001", Voter: true,
				Connected: true, LastLog: 100, Applied: 100, KnownLevel: 1},
			{ID: "n3", PeerAddr: "10.0.0.3:8001", Voter: true, LastLog: 90, Applied: 90},
		},
	}
	f.term = f.st.Term
	f.reset()
	return f
}

// fakeOrigin names this process in entries that it proposes.
const fakeOrigin = 7 << 50

// fakeEra is the era of the waits that nobody has dropped.
const fakeEra = 1

func (f *fakeBackend) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.machine, f.index, f.clockMs, f.calls = fsm.NewMachine(f.table), 1, 1000, nil
	f.machine.SetNode(f.st.ID)
	if _, err := f.machine.Apply(f.index, &fsm.Entry{ClockMs: f.clockMs, Term: f.term,
		Level: f.level}, false); err != nil {
		panic(err)
	}
	f.users.Store((*Users)(f.machine.Users()))
}

// restart empties the machine, at a feature level.
func (f *fakeBackend) restart(level uint64) {
	f.level = level
	f.reset()
}

func (f *fakeBackend) Users() *Users { return f.users.Load() }

// set changes the fake under its lock.
func (f *fakeBackend) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// takeCalls returns the batches since its last call.
func (f *fakeBackend) takeCalls() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.calls, ", ")
	f.calls = nil
	return s
}

func (f *fakeBackend) Write(ctx context.Context, load Workload, batch []byte,
	count int) (commands.Replies, error) {
	if bytes.Contains(batch, []byte(commands.SystemClientIDs)) {
		return f.giveIDs(batch) // no test is about when the server asks for them
	}
	f.mayWait(load)
	f.mu.Lock()
	gate, begun, after := f.gate, f.begun, f.after
	f.after = nil
	f.lastBatch, f.lastLoad = slices.Clone(batch), load
	f.mu.Unlock()
	stopped := &Error{Unknown, "UNKNOWN stopped"}
	if begun != nil {
		select {
		case begun <- struct{}{}:
		case <-ctx.Done():
			return commands.Replies{}, stopped
		}
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return commands.Replies{}, stopped
		}
	}
	if counted := requests(batch); counted != count {
		return commands.Replies{}, fmt.Errorf("a batch of %d requests announces %d", counted, count)
	}
	replies, err := f.run("write", batch, true)
	if after != nil {
		after()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mute {
		replies = nil
	}
	return commands.RepliesOf(replies), err
}

func (f *fakeBackend) giveIDs(batch []byte) (commands.Replies, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.noIDs {
		return commands.Replies{}, &Error{NoLeader, "CLUSTERDOWN"}
	}
	replies, err := f.apply(batch)
	if err != nil {
		return commands.Replies{}, err
	}
	return commands.RepliesOf(replies[0]), nil
}

func (f *fakeBackend) Read(_ context.Context, load Workload,
	batch []byte) (commands.Replies, error) {
	f.mayWait(load)
	replies, err := f.run("read", batch, false)
	return commands.RepliesOf(replies), err
}

func (f *fakeBackend) DryRun(_ context.Context, _ Workload,
	batch []byte) (commands.Replies, error) {
	replies, err := f.run("dry run", batch, false)
	return commands.RepliesOf(replies), err
}

func (f *fakeBackend) ReadLocal(_ Workload, batch []byte) (commands.Replies, error) {
	replies, err := f.run("local", batch, false)
	return commands.RepliesOf(replies), err
}

func (f *fakeBackend) Schedule(load Workload, do func()) error {
	f.mu.Lock()
	f.scheduled = append(f.scheduled, load)
	if f.computing == nil {
		f.computing = map[uint64]bool{}
	}
	f.computing[load.Conn] = true
	simulated, turn := f.simulated, f.turn
	f.turn = nil
	f.mu.Unlock()
	if turn != nil {
		turn()
	}
	began := time.Now()
	do()
	if simulated && time.Now() != began {
		panic("a session waits in what it schedules")
	}
	f.set(func() { delete(f.computing, load.Conn) })
	return nil
}

// mayWait panics if what Schedule runs asks the cluster: others would wait for that too, and it
// could wait for itself.
func (f *fakeBackend) mayWait(load Workload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.computing[load.Conn] {
		panic("a session asks the cluster in what it schedules")
	}
}

func (f *fakeBackend) ValueBytes(db int, keys [][]byte) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.ValueBytes(db, keys), true
}

func (f *fakeBackend) ScriptFlags(s commands.Script) (commands.FunctionFlags, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lagsScripts {
		return 0, false
	}
	return f.machine.ScriptFlags(s)
}

func (f *fakeBackend) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.st
	st.Members = slices.Clone(st.Members) // tests change the fake's in place
	if f.looks++; !f.began.IsZero() {
		st.Members[1].Uptime = time.Since(f.began)
	}
	return st
}

func (f *fakeBackend) Stats() commands.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.machine.Stats()
	for i := range st.Databases {
		st.Databases[i].MeanTTL = 0 // as in Redis at first, which samples it
	}
	return st
}

func (f *fakeBackend) Watch(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched = on
}

func (f *fakeBackend) TransferLeadership(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "transfer to "+id)
	return f.fail
}

// AskOthers asks f.others.
func (f *fakeBackend) AskOthers(question []byte) (answers [][]byte, silent []string) {
	f.mu.Lock()
	others := f.others
	f.mu.Unlock()
	for id, answer := range others {
		if a := answer(question); a != nil {
			answers = append(answers, a)
		} else {
			silent = append(silent, id)
		}
	}
	return answers, silent
}

func (f *fakeBackend) Barrier(ctx context.Context) error {
	f.set(func() { f.lagsScripts = false })
	_, err := f.Replication(ctx)
	return err
}

func (f *fakeBackend) Backup() Backup {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "backup")
	return f.machine.Snapshot()
}

// Replication reports what the members of the status hold, unless set otherwise.
func (f *fakeBackend) Replication(context.Context) (Replication, error) {
	f.mu.Lock()
	f.questions++
	if gate := f.replicationGate; gate != nil {
		f.mu.Unlock()
		f.asking.Add(1)
		<-gate
		f.asking.Add(-1)
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	if f.replication != nil {
		return *f.replication, f.fail
	}
	h := Replication{Index: f.st.Commit}
	for _, m := range f.st.Members {
		if m.Voter && m.ID != f.st.LeaderID {
			h.Others = append(h.Others, m.Applied)
		}
	}
	return h, f.fail
}

func (f *fakeBackend) Snapshot() error {
	f.mu.Lock()
	gate, begun := f.gate, f.begun
	f.mu.Unlock()
	if begun != nil {
		begun <- struct{}{}
	}
	if gate != nil {
		<-gate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "snapshot")
	return f.fail
}

func (f *fakeBackend) ChangeMembers(c MemberChange) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.TrimSpace(c.Kind+" "+c.ID+" "+c.PeerAddr))
	if f.fail == nil && c.ID == "n0" {
		return commands.Error("ERR there is no member n0")
	}
	return f.fail
}

func (f *fakeBackend) Found() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "found")
	f.founding = nil
	return "3c9a", f.fail
}

func (f *fakeBackend) FoundingUsers() *acl.Users {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.founding
}

func (f *fakeBackend) LeaderMembers() ([]Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st.Members, f.fail
}

func (f *fakeBackend) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "stop")
}

// WatchLeader implements Backend: leaderChanged sends the token.
func (f *fakeBackend) WatchLeader() (<-chan struct{}, func()) { return f.leaderChanged, func() {} }

func (f *fakeBackend) Role() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st.Role
}

// requests counts the requests in a batch.
func requests(batch []byte) (count int) {
	var rd commands.RequestReader
	for rd.Reset(batch); rd.More(); count++ {
		if _, err := rd.Next(); err != nil {
			panic(err)
		}
	}
	return count
}

func (f *fakeBackend) run(kind string, batch []byte, write bool) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, kind+" "+formatInt(int64(requests(batch))))
	if f.fail != nil && (write || !f.failWrites) {
		return nil, f.fail
	}
	if !write {
		return f.machine.Read(nil, batch, f.clockMs, fakeWallUs), nil
	}
	replies, err := f.apply(batch)
	switch {
	case err != nil:
		return nil, err
	case f.lost != nil:
		return nil, f.lost
	}
	return replies[0], nil
}

// setUser changes a user, as another node does.
func (f *fakeBackend) setUser(t testing.TB, name string, rules ...string) {
	t.Helper()
	words := append([]string{"ACL", "SETUSER", name}, rules...)
	q := commands.Request{Proto: 2, User: commands.UserID{Name: []byte(userDefault)},
		Cmds: [][][]byte{commandtest.Args(words...)}}
	reply, err := f.run("write", commands.AppendRequest(nil, &q), true)
	if err != nil || string(reply) != "+OK\r\n" {
		t.Fatalf("%q, %v", reply, err)
	}
}

// fakeWallUs is the fake's wall clock.
const fakeWallUs = 1_700_000_000_123_456

// apply applies an entry of batches and delivers its events, as a node does.
func (f *fakeBackend) apply(batches ...[]byte) ([][]byte, error) {
	f.index++
	f.machine.Observe(f.wants)
	f.machine.Watch(f.watched)
	result, err := f.machine.Apply(f.index, &fsm.Entry{ClockMs: f.clockMs, WallUs: fakeWallUs,
		Term: max(f.term, f.st.Term), Origin: f.origin, Batches: batches}, true)
	if err != nil {
		return nil, err
	}
	if !f.lags {
		f.users.Store((*Users)(f.machine.Users()))
	}
	f.deliver(result.Events)
	return result.Replies, nil
}

// Level implements Backend.
func (f *fakeBackend) Level() uint64 {
	if users := f.users.Load(); users != nil {
		return users.Level
	}
	return 0
}

// ClockMs implements Backend.
func (f *fakeBackend) ClockMs() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clockMs
}

// Waits implements Backend.
func (f *fakeBackend) Waits(number uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.hidesWaits && f.machine.Waits(number)
}

// LockTokens implements Backend. Only Deliver calls it, while the fake is locked.
func (f *fakeBackend) LockTokens(of []commands.HeldLock) (tokens []uint64, newest uint64) {
	return f.machine.LockTokens(of)
}

// ScriptVerdicts implements Backend.
func (f *fakeBackend) ScriptVerdicts() []commands.ScriptVerdict {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.ScriptVerdicts()
}

// WaitsHeld implements Backend.
func (f *fakeBackend) WaitsHeld() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.Held()
}

// SubscribedNodes implements Backend.
func (f *fakeBackend) SubscribedNodes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.SubscribedNodes()
}

// HolderNodes implements Backend.
func (f *fakeBackend) HolderNodes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.HolderNodes()
}

// WaitingNodes implements Backend.
func (f *fakeBackend) WaitingNodes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.WaitingNodes()
}

// FirstWait implements Backend.
func (f *fakeBackend) FirstWait() uint64 { return fsm.FirstWait(fakeOrigin) }

// OwnWaits implements Backend.
func (f *fakeBackend) OwnWaits() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machine.OwnWaits()
}

func (f *fakeBackend) Observe(wants func(db int, key string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wants = wants
}

// node is a server under test.
type node struct {
	*Server
	fake *fakeBackend
	addr string
	mem  *memnet.Listener // of a node in simulated time
	tls  nodeTLS
}

// start runs a server until the test ends.
func start(t testing.TB, change func(*Config)) *node {
	t.Helper()
	ln := ports.Listen(t)
	n := startAt(t, ln, change)
	if *overTLS {
		n.startTLS(t)
	}
	return n
}

// startSimulated is start in a bubble of testing/synctest: nobody really waits, and what takes time
// takes just that.
func startSimulated(t testing.TB, change func(*Config)) *node {
	t.Helper()
	ln := memnet.Listen()
	n := startAt(t, ln, change)
	n.mem = ln
	n.fake.set(func() { n.fake.simulated = true })
	return n
}

// spareLocks are observers that no node has. One takes 3 MB, which costs more than most tests.
var spareLocks struct {
	mu   sync.Mutex
	list []*locks.Observer
}

// lendLocks returns an observer for the node of a test. It may have the counts of earlier nodes.
func lendLocks(t testing.TB) *locks.Observer {
	t.Helper()
	rules, err := locks.ParseRules("")
	if err != nil {
		t.Fatal(err)
	}
	spareLocks.mu.Lock()
	defer spareLocks.mu.Unlock()
	if len(spareLocks.list) == 0 {
		spareLocks.list = append(spareLocks.list, locks.New(rules))
	}
	last := len(spareLocks.list) - 1
	o := spareLocks.list[last]
	spareLocks.list = spareLocks.list[:last]
	o.SetRules(rules)
	t.Cleanup(func() {
		spareLocks.mu.Lock()
		defer spareLocks.mu.Unlock()
		spareLocks.list = append(spareLocks.list, o)
	})
	return o
}

func startAt(t testing.TB, ln net.Listener, change func(*Config)) *node {
	t.Helper()
	f := newFake()
	cfg := Config{Table: f.table, Backend: f, Version: "test",
		Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	cfg.Locks = lendLocks(t)
	s := New(cfg)
	f.deliver = s.Deliver
	s.machineWaits.knows(fakeEra)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	n := &node{Server: s, fake: f, addr: ln.Addr().String()}
	t.Cleanup(func() {
		f.set(func() {
			if f.gate != nil {
				close(f.gate)
				f.gate = nil
			}
		})
		if !s.closing.Load() {
			s.cfg.DrainTimeout = 10 * time.Millisecond // for nobody
		}
		s.Close()
		if err := receive(t, "Serve ends", served); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return n
}

// client is a connection of a test.
type client struct {
	*commandtest.Conn
	t     testing.TB
	local string // its address
}

func newClient(t testing.TB, conn net.Conn, err error) *client {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{commandtest.NewConn(conn), t, conn.LocalAddr().String()}
}

func (n *node) dial(t testing.TB) *client {
	t.Helper()
	if n.mem != nil {
		conn, err := n.mem.Dial()
		return newClient(t, conn, err)
	}
	if *overTLS {
		return n.dialTLS(t)
	}
	return dialAt(t, n.addr)
}

// sessionOf returns the session of a client, which need not have sent anything.
func (n *node) sessionOf(c *client) (s *session) {
	c.t.Helper()
	eventually(c.t, "the session begins", func() bool {
		all := n.all()
		i := slices.IndexFunc(all, func(s *session) bool { return s.addr == c.local })
		if i >= 0 {
			s = all[i]
		}
		return i >= 0
	})
	return s
}

// call sends a line of words and returns the reply.
func (c *client) call(words ...string) string {
	c.t.Helper()
	if err := c.Send(commandtest.Args(words...)); err != nil {
		c.t.Fatal(err)
	}
	return c.next()
}

// next returns the next reply or message.
func (c *client) next() string {
	c.t.Helper()
	if ready, open := c.Ready(waitLimit); !ready && open {
		c.t.Fatalf("no reply in %v", waitLimit)
	}
	raw, err := c.Receive()
	if err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	return string(raw)
}

// raw sends bytes unchanged.
func (c *client) raw(s string) {
	c.t.Helper()
	if err := c.SendRaw([]byte(s)); err != nil {
		c.t.Fatal(err)
	}
}

// want fails unless these are the next replies.
func (c *client) want(replies ...string) {
	c.t.Helper()
	for i, w := range replies {
		if got := c.next(); got != w {
			c.t.Fatalf("reply %d: %q, want %q", i, got, w)
		}
	}
}

// ended fails unless the connection ends now.
func (c *client) ended() {
	c.t.Helper()
	if raw, err := c.Receive(); err == nil {
		c.t.Fatalf("%q came, not the end", raw)
	} else if err != io.EOF && !strings.Contains(err.Error(), "reset") &&
		!strings.Contains(err.Error(), "broken pipe") {
		c.t.Fatalf("%v, not the end", err)
	}
}

// eventually waits for a condition caused by another goroutine.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testwait.For(t, waitLimit, what, ok)
}

// waitLimit is how long a test waits for what another goroutine does.
const waitLimit = 30 * time.Second

// receive waits for what another goroutine sends, or for its end.
func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	return testwait.Receive(t, waitLimit, what, from)
}

func pipeline(calls ...[]string) string {
	var b []byte
	for _, c := range calls {
		b = resp.AppendCall(b, commandtest.Args(c...))
	}
	return string(b)
}
