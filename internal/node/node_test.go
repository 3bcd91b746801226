package node

import (
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/cluster/clock"
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

func init() { webTimeout = 2 * time.Second }

// single configures one node alone on free ports.
func single(dataDir string) Config {
	return Config{
		ID: "n1", Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", DataDir: dataDir,
		SnapshotThreshold: 64,
	}
}

// startSingle starts one node in this process.
func startSingle(t *testing.T, dir string) (*Node, *redis.Client) {
	t.Helper()
	n, err := Start(single(dir), Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close(); _ = n.Close() })
	return n, c
}

// skewedClock is the system's clock with a wall clock that can jump.
type skewedClock struct {
	clock.Clock
	mu   sync.Mutex
	skew time.Duration
}

func (c *skewedClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Wall().Add(c.skew)
}

func (c *skewedClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += d
}

// startThree starts a cluster of three nodes in this process, whose wall clocks can jump, and a
// client of each.
func startThree(t *testing.T) (nodes []*Node, clocks []*skewedClock, clients []*redis.Client) {
	t.Helper()
	bound := make([]Listeners, 3)
	members := make([]cluster.Member, len(bound))
	for i := range bound {
		bound[i] = Listeners{Client: loopback(t), Peer: loopback(t)}
		members[i] = cluster.Member{ID: "n" + strconv.Itoa(i+1),
			PeerAddr: bound[i].Peer.Addr().String()}
	}
	dir := t.TempDir()
	for i, m := range members {
		cfg := single(filepath.Join(dir, m.ID))
		clock := &skewedClock{Clock: clock.System{}}
		cfg.ID, cfg.Members, cfg.Clock = m.ID, members, clock
		cfg.HeartbeatTimeout = 5 * time.Second // a busy machine keeps its leader
		cfg.Advertise = bound[i].Client.Addr().String()
		n, err := Start(cfg, bound[i], slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		nodes, clocks = append(nodes, n), append(clocks, clock)
	}
	for _, n := range nodes {
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait.For(t, 20*time.Second, "the feature level", func() bool {
			return n.cluster.Status().Level >= commands.LevelSecond
		})
		c := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1, PoolSize: 60})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return nodes, clocks, clients
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := Listen(ports.Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	return ln
}
