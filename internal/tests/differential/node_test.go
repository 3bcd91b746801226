// The server under test of TestDifferentialSessions. Its backend is one machine.

package differential

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/server"
)

// node is a machine with its own log.
type node struct {
	table   *commands.Table
	machine *fsm.Machine
	index   uint64
	clockMs int64
	// The time of day at clockMs 0. 0: taken from the system's clock when first needed.
	beganMs int64
}

// newNode returns an empty node of the newest feature level.
func newNode(table *commands.Table) *node {
	n := &node{table: table, machine: fsm.NewMachine(table), index: 1, clockMs: 1}
	n.machine.SetNode("n1")
	if _, err := n.machine.Apply(1, &fsm.Entry{ClockMs: 1, Level: commands.FeatureLevel},
		false); err != nil {
		panic(err)
	}
	return n
}

// origin names the process in its entries.
const origin = 7

// wallUs is the time of day. It advances with the cluster clock, as a leader's does.
func (n *node) wallUs() int64 {
	if n.beganMs == 0 {
		n.beganMs = time.Now().UnixMilli() - n.clockMs
	}
	return (n.beganMs + n.clockMs) * 1000
}

// apply applies an entry with a batch and returns its replies.
func (n *node) apply(batch []byte) ([]byte, error) {
	n.index++
	entry := fsm.Entry{Origin: origin, ClockMs: n.clockMs, WallUs: n.wallUs(),
		Check: n.machine.Sum()}
	if batch != nil {
		entry.Batches = [][]byte{batch}
	}
	decoded, err := fsm.DecodeEntry(fsm.AppendEntry(nil, &entry))
	if err != nil {
		return nil, err
	}
	result, err := n.machine.Apply(n.index, decoded, true)
	if err != nil || batch == nil {
		return nil, err
	}
	return result.Replies[0], nil
}

// read runs a call that changes nothing.
func (n *node) read(db int, args [][]byte) commandtest.Value {
	batch := commands.AppendRequest(nil,
		&commands.Request{DB: db, Proto: 2, Cmds: [][][]byte{args}})
	v, err := commandtest.Parse(n.machine.Read(nil, batch, n.machine.ClockMs(), n.wallUs()))
	if err != nil {
		panic(err)
	}
	return v
}

// lastChange is the revision that last changed a key, as WATCH reads it.
func (n *node) lastChange(db int, key []byte) keyspace.Revision {
	changed, err := strconv.ParseInt(n.read(db, [][]byte{[]byte("WATCH"), key}).Elems[0].Text, 10,
		64)
	if err != nil {
		panic(err)
	}
	return keyspace.Revision(changed)
}

// singleNode is a cluster of one node without a log on disk. It has no methods for admin commands,
// which TestDifferentialSessions does not call.
type singleNode struct {
	server.Backend
	server *server.Server
	addr   string

	mu      sync.Mutex
	node    *node
	now     func() int64 // the cluster clock, ms
	wants   fsm.Interest
	watched bool
	users   atomic.Pointer[fsm.Users]
}

// AskOthers implements server.Backend.
func (*singleNode) AskOthers([]byte) (answers [][]byte, silent []string) { return nil, nil }

// startNode serves clients until the test ends.
func startNode(t *testing.T, table *commands.Table) *singleNode {
	n := &singleNode{}
	n.reset(newNode(table), func() int64 { return 1 })
	n.server = server.New(server.Config{Table: table, Backend: n,
		Options: server.Options{RedisVersion: commands.RedisVersion}})
	ln := ports.Listen(t)
	n.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(ln) }()
	t.Cleanup(func() {
		n.server.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return n
}

// reset gives the server an empty machine and a clock.
func (n *singleNode) reset(node *node, now func() int64) {
	n.mu.Lock()
	n.node, n.now = node, now
	n.users.Store(node.machine.Users())
	n.mu.Unlock()
	if n.server != nil {
		n.server.Deliver([]commands.Event{{Kind: commands.StateReplaced}})
	}
}

// Users implements server.Backend.
func (n *singleNode) Users() *server.Users { return (*server.Users)(n.users.Load()) }

// Level implements server.Backend.
func (n *singleNode) Level() uint64 { return n.users.Load().Level }

// Waits implements server.Backend.
func (n *singleNode) Waits(number uint64) bool {
	defer n.lock()()
	return n.node.machine.Waits(number)
}

// SubscribedNodes implements server.Backend.
func (n *singleNode) SubscribedNodes() []string {
	defer n.lock()()
	return n.node.machine.SubscribedNodes()
}

// HolderNodes implements server.Backend.
func (n *singleNode) HolderNodes() []string {
	defer n.lock()()
	return n.node.machine.HolderNodes()
}

// WaitingNodes implements server.Backend.
func (n *singleNode) WaitingNodes() []string {
	defer n.lock()()
	return n.node.machine.WaitingNodes()
}

// FirstWait implements server.Backend.
func (n *singleNode) FirstWait() uint64 { return fsm.FirstWait(origin) }

// OwnWaits implements server.Backend.
func (n *singleNode) OwnWaits() []uint64 {
	defer n.lock()()
	return n.node.machine.OwnWaits()
}

// ScriptVerdicts implements server.Backend.
func (n *singleNode) ScriptVerdicts() []commands.ScriptVerdict { return nil }

// WaitsHeld implements server.Backend.
func (n *singleNode) WaitsHeld() bool {
	defer n.lock()()
	return n.node.machine.Held()
}

// lock keeps the machine as it is until unlock is called.
func (n *singleNode) lock() (unlock func()) {
	n.mu.Lock()
	return n.mu.Unlock
}

func (n *singleNode) Write(_ context.Context, _ server.Workload, batch []byte,
	_ int) (commands.Replies, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node.clockMs = max(n.node.clockMs, n.now())
	n.node.index++
	n.node.machine.Observe(n.wants)
	n.node.machine.Watch(n.watched)
	entry := &fsm.Entry{Origin: origin, ClockMs: n.node.clockMs, WallUs: n.node.wallUs(),
		Batches: [][]byte{batch}}
	result, err := n.node.machine.Apply(n.node.index, entry, true)
	if err != nil {
		return commands.Replies{}, err
	}
	n.users.Store(n.node.machine.Users())
	n.server.Deliver(result.Events)
	return commands.RepliesOf(result.Replies[0]), nil
}

func (n *singleNode) Schedule(_ server.Workload, f func()) error {
	f()
	return nil
}

func (n *singleNode) Read(_ context.Context, load server.Workload,
	batch []byte) (commands.Replies, error) {
	return n.ReadLocal(load, batch)
}

func (n *singleNode) DryRun(_ context.Context, load server.Workload,
	batch []byte) (commands.Replies, error) {
	return n.ReadLocal(load, batch)
}

// Barrier implements server.Backend. There is no other node.
func (n *singleNode) Barrier(context.Context) error { return nil }

// Replication implements server.Backend. There is no other node.
func (n *singleNode) Replication(context.Context) (server.Replication, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return server.Replication{Index: n.node.index}, nil
}

func (n *singleNode) ReadLocal(_ server.Workload, batch []byte) (commands.Replies, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return commands.RepliesOf(n.node.machine.Read(nil, batch, n.node.clockMs, n.node.wallUs())), nil
}

func (n *singleNode) ValueBytes(db int, keys [][]byte) (bytes int, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node.machine.ValueBytes(db, keys), true
}

func (n *singleNode) Observe(wants func(db int, key string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wants = wants
}

func (n *singleNode) Watch(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watched = on
}

func (n *singleNode) Status() server.Status {
	return server.Status{Status: membership.Status{
		ID: "n1", Role: "leader", LeaderID: "n1", LeaderAddr: n.addr, Ready: true, Term: 1,
		Members: []server.Member{{ID: "n1", ClientAddr: n.addr, Voter: true}},
	}}
}

func (n *singleNode) Stats() commands.Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return commands.Stats{Notify: n.node.machine.Stats().Notify}
}

func (n *singleNode) Role() string { return "leader" }

func (n *singleNode) WatchLeader() (<-chan struct{}, func()) {
	return make(chan struct{}), func() {}
}
