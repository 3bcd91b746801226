// The network of the test cluster, simulated or TCP, and its faults.

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/simnet"
)

// network knows the links between nodes by their addresses and can cut them.
type network struct {
	sim   *simnet.Network // nil: TCP on the loopback
	mu    sync.Mutex
	hosts map[string]string        // node id → IP address, on sim
	cut   map[string]bool          // node ids that are isolated
	dead  map[[2]string]bool       // links, from and to, that the other end refuses
	stall map[string]chan struct{} // node ids that are paused; closed when they go on
	owner map[string]string        // peer address → node id
	conns map[net.Conn][2]string
}

func newNetwork() *network {
	return &network{sim: simnet.New(), hosts: map[string]string{}, cut: map[string]bool{},
		dead: map[[2]string]bool{}, stall: map[string]chan struct{}{},
		owner: map[string]string{}, conns: map[net.Conn][2]string{}}
}

var errCut = errors.New("the link is cut")

// host returns the host of a node, or of somebody else.
func (w *network) host(id string) *simnet.Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hosts[id] == "" {
		w.hosts[id] = fmt.Sprintf("10.0.0.%d", len(w.hosts)+1)
	}
	return w.sim.Boot(w.hosts[id])
}

// listen opens the peer port of a node; the address "" is a new one.
func (w *network) listen(t testing.TB, id, addr string) net.Listener {
	t.Helper()
	var ln net.Listener
	if w.sim == nil {
		var err error
		if addr == "" {
			addr = ports.Addr(t)
		}
		if ln, err = net.Listen("tcp", addr); err != nil {
			t.Fatal(err)
		}
	} else {
		host := w.host(id)
		w.mu.Lock()
		new := fmt.Sprintf("%s:%d", host.Host, 7000+len(w.owner))
		w.mu.Unlock()
		ln = host.Listen(cmp.Or(addr, new))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner[ln.Addr().String()] = id
	return ln
}

func (w *network) dialer(from string) dialFunc {
	dial := dialFunc(dialTCP)
	if w.sim != nil {
		dial = w.host(from).Dial
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		w.mu.Lock()
		to := w.owner[addr]
		bad, dead := w.cut[from] || w.cut[to], w.dead[[2]string{from, to}]
		w.mu.Unlock()
		switch {
		case bad:
			return nil, errCut
		case dead:
			return nil, syscall.ECONNREFUSED
		}
		conn, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cut[from] || w.cut[to] {
			conn.Close()
			return nil, errCut
		}
		w.conns[conn] = [2]string{from, to}
		return &stallConn{Conn: conn, w: w, node: from, closed: make(chan struct{})}, nil
	}
}

// stallConn is one end of a connection, of a node that can be paused: then it neither reads nor
// writes, and what the other end sends waits, as for a stopped process.
type stallConn struct {
	net.Conn
	w      *network
	node   string
	once   sync.Once
	closed chan struct{}
}

func (c *stallConn) wait() {
	c.w.mu.Lock()
	stalled := c.w.stall[c.node]
	c.w.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-c.closed:
		}
	}
}

func (c *stallConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wait()
	return n, err
}

func (c *stallConn) Write(p []byte) (int, error) {
	c.wait()
	return c.Conn.Write(p)
}

func (c *stallConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// stallListener wraps what a node accepts.
type stallListener struct {
	net.Listener
	w    *network
	node string
}

func (l stallListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stallConn{Conn: conn, w: l.w, node: l.node, closed: make(chan struct{})}, nil
}

// connect opens a connection from a host, and says something.
func (w *network) connect(t testing.TB, host, addr string, say ...byte) net.Conn {
	t.Helper()
	conn, err := w.dialer(host)(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(say); err != nil {
		t.Fatal(err)
	}
	return conn
}

// pause stops all traffic of a node without closing anything; resume lets it go on.
func (w *network) pause(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stall[id] = make(chan struct{})
}

func (w *network) resume(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch := w.stall[id]; ch != nil {
		close(ch)
		delete(w.stall, id)
	}
}

// isolate cuts all links of a node; heal joins it again.
func (w *network) isolate(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[id] = true
	for conn, ends := range w.conns {
		if ends[0] == id || ends[1] == id {
			conn.Close()
			delete(w.conns, conn)
		}
	}
}

// refuse breaks the connections from one node to another, which refuses new ones.
func (w *network) refuse(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[[2]string{from, to}] = true
	for conn, ends := range w.conns {
		if ends == [2]string{from, to} {
			conn.Close()
			delete(w.conns, conn)
		}
	}
}

func (w *network) heal(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.cut, id)
}
