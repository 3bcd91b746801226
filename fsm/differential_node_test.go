// What lives here: a server of our own for TestDifferentialSessions, whose backend is one machine.

package fsm

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/server"
)

// soleNode is a cluster of one node without a log on disk. What TestDifferentialSessions leaves out (admin commands) has no method here.
type soleNode struct {
	server.Backend
	server *server.Server
	addr   string

	mu      sync.Mutex
	node    *scenarioNode
	now     func() int64 // the cluster clock, ms
	wants   Interest
	watched bool
}

// startNode serves clients until the test ends.
func startNode(t *testing.T, table *commands.Table) *soleNode {
	n := &soleNode{}
	n.reset(&scenarioNode{table: table, machine: newestMachine(table)}, func() int64 { return 1 })
	n.server = server.New(server.Config{Table: table, Backend: n})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
func (n *soleNode) reset(node *scenarioNode, now func() int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node, n.now = node, now
}

// lock keeps the machine as it is until the answer is called.
func (n *soleNode) lock() (unlock func()) {
	n.mu.Lock()
	return n.mu.Unlock
}

func (n *soleNode) Write(_ context.Context, _ server.Asker, run []byte, _ int) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node.clockMs = max(n.node.clockMs, n.now())
	n.node.index++
	n.node.machine.Observe(n.wants)
	n.node.machine.Watch(n.watched)
	entry := &Entry{Origin: 7, ClockMs: n.node.clockMs, WallUs: n.node.wallUs(), Groups: [][]byte{run}}
	result, err := n.node.machine.Apply(n.node.index, entry, true)
	if err != nil {
		return nil, err
	}
	n.server.Deliver(result.Events)
	return result.Replies[0], nil
}

func (n *soleNode) Share(_ server.Asker, f func()) error {
	f()
	return nil
}

func (n *soleNode) Read(_ context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	return n.ReadLocal(by, run, count)
}

func (n *soleNode) Try(_ context.Context, by server.Asker, run []byte, count int) ([]byte, error) {
	return n.ReadLocal(by, run, count)
}

// Holders implements server.Backend: there is no other node, so nobody else holds anything.
func (n *soleNode) Holders(context.Context) (server.Holders, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return server.Holders{Index: n.node.index}, nil
}

func (n *soleNode) ReadLocal(_ server.Asker, run []byte, _ int) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node.machine.Read(nil, run, n.node.clockMs, n.node.wallUs()), nil
}

func (n *soleNode) Observe(wants func(db int, key string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wants = wants
}

func (n *soleNode) Watch(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watched = on
}

func (n *soleNode) Status() server.Status {
	return server.Status{
		NodeID: "n1", Role: "leader", LeaderID: "n1", LeaderAddr: n.addr, Ready: true, Term: 1,
		Members: []server.Member{{ID: "n1", ClientAddr: n.addr, Voter: true}},
	}
}

func (n *soleNode) Stats() server.Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return server.Stats{Notify: n.node.machine.Stats().Notify}
}

func (n *soleNode) Role() string { return "leader" }

func (n *soleNode) WatchLeader() (<-chan struct{}, func()) { return make(chan struct{}), func() {} }
