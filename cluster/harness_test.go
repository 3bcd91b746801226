// The test cluster: nodes in one process, with links that can be cut and clocks that can be moved.
// Tests run it in a bubble of testing/synctest: time passes only while nobody has anything to do,
// and the network is simulated. The disks are real.

package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/cluster/trace"
	"github.com/coordd/coordd/internal/tests/wait"
)

// Segments are small: a node that starts reads its log to the end of the last one.
func init() {
	const scale = 16
	segmentSize = 64 << 20 / scale
	segmentBytes, earlyGrowth, shortTrailingBytes = segmentBytes/scale, earlyGrowth/scale,
		shortTrailingBytes/scale
}

// testClock is a Clock whose readings can be shifted. In a bubble it shows the bubble's time.
type testClock struct {
	began time.Time
	mu    sync.Mutex
	mono  time.Duration // added to the time since it began
	wall  time.Duration
}

func newTestClock() *testClock { return &testClock{began: time.Now()} }

func (c *testClock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.began) + c.mono
}

func (c *testClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.wall)
}

func (c *testClock) shift(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mono += d
	c.wall += d
}

func (c *testClock) shiftWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall += d
}

// gate is a mutex whose waiters let the time of a bubble pass. Those of a sync.Mutex do not.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

type testCluster struct {
	t       testing.TB
	net     *network
	dir     string
	members []Member
	nodes   map[string]*Node
	toys    map[string]*toy
	clocks  map[string]*testClock
	change  func(*Config)
	machine func(*toy) Machine // nil: the toy itself
	trace   trace.To
	ca      *testCA // with -tls
}

var overTLS = flag.Bool("tls", false, "nodes of the tests dial TLS")

// simulated runs a test in a bubble. What callPool holds has a channel of the place it was made in.
func simulated(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	empty := func() { callPool = sync.Pool{New: callPool.New} }
	empty()
	defer empty()
	synctest.Test(t, test)
}

// runSimulated runs a subtest in a bubble.
func runSimulated(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { simulated(t, test) })
}

// newCluster opens size nodes n1, n2, … and waits until every one is ready.
func newCluster(t testing.TB, size int, change func(*Config)) *testCluster {
	t.Helper()
	c := openCluster(t, size, change)
	for _, m := range c.members {
		c.ready(m.ID)
	}
	return c
}

// openCluster is newCluster without waiting.
func openCluster(t testing.TB, size int, change func(*Config)) *testCluster {
	t.Helper()
	c := emptyCluster(t)
	c.openNodes(size, change)
	return c
}

// newRealCluster is newCluster over TCP, for tests that run outside of bubbles.
func newRealCluster(t testing.TB, size int, change func(*Config)) *testCluster {
	t.Helper()
	c := emptyCluster(t)
	c.net.sim = nil
	c.openNodes(size, change)
	for _, m := range c.members {
		c.ready(m.ID)
	}
	return c
}

// emptyCluster returns a cluster without nodes.
func emptyCluster(t testing.TB) *testCluster {
	t.Helper()
	c := &testCluster{t: t, net: newNetwork(), dir: t.TempDir(), trace: traced(t),
		nodes: map[string]*Node{}, toys: map[string]*toy{}, clocks: map[string]*testClock{}}
	if *overTLS {
		c.ca = newCA(t)
	}
	t.Cleanup(c.closeAll)
	return c
}

func (c *testCluster) openNodes(size int, change func(*Config)) {
	c.t.Helper()
	c.change = change
	lns := map[string]net.Listener{}
	for i := 1; i <= size; i++ {
		id := fmt.Sprintf("n%d", i)
		lns[id] = c.net.listen(c.t, id, "")
		c.members = append(c.members, Member{ID: id, PeerAddr: lns[id].Addr().String()})
	}
	for _, m := range c.members {
		c.open(m.ID, lns[m.ID])
	}
}

// clock returns the clock of a node, which goes on over its restarts.
func (c *testCluster) clock(id string) *testClock {
	if c.clocks[id] == nil {
		c.clocks[id] = newTestClock()
	}
	return c.clocks[id]
}

func (c *testCluster) open(id string, ln net.Listener) {
	c.t.Helper()
	if err := c.tryOpen(id, ln); err != nil {
		c.t.Fatalf("open %s: %v", id, err)
	}
}

// tryOpen returns Open's error.
func (c *testCluster) tryOpen(id string, ln net.Listener) error {
	c.t.Helper()
	cfg := Config{
		ID: id, ClientAddr: "client-" + id + ":1", DataDir: filepath.Join(c.dir, id),
		PeerListener: ln, Members: c.members, Clock: c.clock(id), dial: c.net.dialer(id),
		Logger: testLogger(), Trace: c.trace,
	}
	if len(c.members) == 1 {
		cfg.Members = nil
	}
	for _, m := range c.members {
		if m.ID == id {
			cfg.PeerListen = m.PeerAddr
		}
	}
	if *overTLS {
		c.ca.useTLS(PeerTLSDial)(&cfg)
	}
	if c.change != nil {
		c.change(&cfg)
	}
	if ln == nil {
		ln = c.net.listen(c.t, id, cfg.PeerListen)
	}
	cfg.PeerListener = stallListener{ln, c.net, id}
	toy := newToy()
	var m Machine = toy
	if c.machine != nil {
		m = c.machine(toy)
	}
	n, err := Open(cfg, m)
	if err == nil {
		c.nodes[id], c.toys[id] = n, toy
	}
	return err
}

// reopen starts a closed node again on its directory and address.
func (c *testCluster) reopen(id string) {
	c.t.Helper()
	c.open(id, nil)
}

func (c *testCluster) close(id string) {
	c.t.Helper()
	if err := c.nodes[id].Close(); err != nil {
		c.t.Errorf("close %s: %v", id, err)
	}
	delete(c.nodes, id)
}

func (c *testCluster) closeAll() {
	for _, m := range c.members {
		c.net.resume(m.ID)
	}
	var wg sync.WaitGroup
	for id, n := range c.nodes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := n.Close(); err != nil {
				c.t.Errorf("close %s: %v", id, err)
			}
		}()
	}
	wg.Wait()
	c.nodes = map[string]*Node{}
	for id, toy := range c.toys {
		toy.mu.Lock()
		if toy.Decrease {
			c.t.Errorf("%s applied a stamp lower than the one before", id)
		}
		toy.mu.Unlock()
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	wait.For(t, 20*time.Second, what, ok)
}

// settled waits until a leader has nothing left to do for its members: nothing is logged, and
// nothing wakes who waits for a change of roles. It returns the latter.
func settled(t testing.TB, lead *Node) (roles <-chan struct{}) {
	t.Helper()
	eventually(t, "the cluster has settled", func() bool {
		last := lead.raft.LastIndex()
		roles = lead.roles.next()
		select {
		case <-roles:
			return false
		case <-time.After(5 * followerTick):
			return lead.raft.LastIndex() == last
		}
	})
	return roles
}

// received returns what comes from a channel, for tests outside of bubbles: in one, a receive that
// nobody answers ends the test.
func received[T any](t testing.TB, what string, ch <-chan T) (got T) {
	t.Helper()
	eventually(t, what, func() bool {
		select {
		case got = <-ch:
			return true
		default:
			return false
		}
	})
	return got
}

func (c *testCluster) ready(id string) {
	c.t.Helper()
	eventually(c.t, id+" is ready", func() bool { return c.nodes[id].Status().Ready })
}

// leader waits until one open node, not isolated, leads and is ready, and returns it.
func (c *testCluster) leader() *Node {
	c.t.Helper()
	var lead *Node
	eventually(c.t, "a leader is ready", func() bool {
		for id, n := range c.nodes {
			c.net.mu.Lock()
			cut := c.net.cut[id]
			c.net.mu.Unlock()
			if s := n.Status(); !cut && s.Role == membership.Leader && s.Ready {
				lead = n
				return true
			}
		}
		return false
	})
	return lead
}

// followers returns the open nodes that do not lead, in the order of their ids.
func (c *testCluster) followers() []*Node {
	lead := c.leader()
	var out []*Node
	for _, m := range c.members {
		if n := c.nodes[m.ID]; n != nil && n != lead {
			out = append(out, n)
		}
	}
	return out
}

// What most tests call: batches of no known workload.

func (n *Node) write(ctx context.Context, batch []byte, count int) ([]byte, error) {
	return n.Write(ctx, fair.Workload{}, batch, count)
}

func (n *Node) read(ctx context.Context, batch []byte) ([]byte, error) {
	return n.Read(ctx, fair.Workload{}, batch)
}

func (n *Node) dryRun(ctx context.Context, batch []byte) ([]byte, error) {
	return n.DryRun(ctx, fair.Workload{}, batch)
}

func (n *Node) readLocal(batch []byte) ([]byte, error) {
	return n.ReadLocal(fair.Workload{}, batch)
}

// write writes one batch and fails the test on any error.
func (c *testCluster) write(n *Node, batch string) string {
	c.t.Helper()
	reply, err := n.write(context.Background(), []byte(batch), 1)
	if err != nil {
		c.t.Fatalf("write %q on %s: %v", batch, n.cfg.ID, err)
	}
	return string(reply)
}

func (c *testCluster) read(n *Node, batch string) string {
	c.t.Helper()
	reply, err := n.read(context.Background(), []byte(batch))
	if err != nil {
		c.t.Fatalf("read %q on %s: %v", batch, n.cfg.ID, err)
	}
	return string(reply)
}

// converged waits until all open nodes have applied the same list, and returns it.
func (c *testCluster) converged() []string {
	c.t.Helper()
	var list []string
	eventually(c.t, "all nodes have the same list", func() bool {
		first := true
		for id := range c.nodes {
			have := c.toys[id].batches()
			if first {
				list, first = have, false
			} else if fmt.Sprint(have) != fmt.Sprint(list) {
				return false
			}
		}
		return true
	})
	return list
}

// load writes distinct batches on nodes until it is ended.
type load struct {
	c     *testCluster
	next  atomic.Int64
	stop  chan struct{}
	ended sync.WaitGroup

	mu            sync.Mutex
	acked, unsure map[string]bool
	notRun        error // why a write did not run, the newest time
}

// startLoad has several callers write on each node.
func (c *testCluster) startLoad(callers int) *load {
	l := &load{c: c, stop: make(chan struct{}), acked: map[string]bool{}, unsure: map[string]bool{}}
	for _, n := range c.nodes {
		l.on(n, callers)
	}
	return l
}

// on has callers write on a node until it closes.
func (l *load) on(n *Node, callers int) {
	for range callers {
		l.ended.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				batch := fmt.Sprintf("%s-%d", n.cfg.ID, l.next.Add(1))
				_, err := n.write(context.Background(), []byte(batch), 1)
				l.note(batch, err)
				if errors.Is(err, errStopping) {
					return
				}
			}
		})
	}
}

func (l *load) note(batch string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.acked[batch] = true
	case errors.Is(err, ErrUnknown):
		l.unsure[batch] = true
	case errors.Is(err, ErrNotRun):
		l.notRun = err
	default:
		l.c.t.Errorf("write: %v", err)
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// advance waits for so many more acknowledged writes.
func (l *load) advance(writes int, what string) {
	l.c.t.Helper()
	at := l.count()
	eventually(l.c.t, "writes "+what, func() bool { return l.count() >= at+writes })
}

// finish ends the load, and checks that what was acknowledged is there once, and nothing else
// except what may have run.
func (l *load) finish() {
	l.c.t.Helper()
	close(l.stop)
	l.ended.Wait()
	have := map[string]int{}
	for _, batch := range l.c.converged() {
		have[batch]++
	}
	for batch := range l.acked {
		if have[batch] != 1 {
			l.c.t.Errorf("acknowledged %s is there %d times", batch, have[batch])
		}
	}
	for batch, k := range have {
		if k != 1 || !l.acked[batch] && !l.unsure[batch] {
			l.c.t.Errorf("%s is there %d times; acknowledged %v, unknown %v", batch, k,
				l.acked[batch], l.unsure[batch])
		}
	}
}

func testLogger() *slog.Logger {
	if os.Getenv("CLUSTER_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
