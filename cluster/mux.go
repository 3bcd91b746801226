// This file holds the peer port: one listener that tells Raft connections from forwarding by their first byte, and
// the dialing of peers.
package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	handshakeTimeout = 2 * time.Second
	dialTimeout      = time.Second
	maxStrangers     = 256 // connections that have not said yet what they carry
	acceptPause      = 50 * time.Millisecond
)

// dialFunc opens a TCP connection to a peer.
type dialFunc func(ctx context.Context, addr string) (net.Conn, error)

// keepAlive finds a peer whose machine is gone within seconds, when nothing else is being sent to it.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 3}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	return d.DialContext(ctx, "tcp", addr)
}

// mux owns the peer port and every connection on it. It is the raft.StreamLayer.
type mux struct {
	ln        net.Listener
	advertise advertised
	dial      dialFunc
	forward   func(conn net.Conn) // serves a forwarding connection until it ends
	logger    *slog.Logger

	ctx       context.Context
	cancel    context.CancelFunc
	raftConns chan net.Conn
	strangers chan struct{}
	wg        sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// advertised is the address that others reach this node at. It is kept as text: a name must not be frozen into the
// address that it resolved to at start.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

func newMux(ln net.Listener, advertise string, dial dialFunc, logger *slog.Logger) *mux {
	m := &mux{
		ln: ln, advertise: advertised(advertise), dial: dial, logger: logger,
		raftConns: make(chan net.Conn), strangers: make(chan struct{}, maxStrangers), conns: map[net.Conn]struct{}{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// start begins to accept. Until then connections wait in the kernel.
func (m *mux) start(forward func(net.Conn)) {
	m.forward = forward
	m.wg.Add(1)
	go m.acceptLoop()
}

func (m *mux) acceptLoop() {
	defer m.wg.Done()
	for {
		conn, err := m.ln.Accept()
		if err != nil {
			if m.ctx.Err() != nil {
				return
			}
			m.logger.Warn("the peer port cannot accept a connection", "error", err)
			select {
			case <-m.ctx.Done():
				return
			case <-time.After(acceptPause): // out of file descriptors, most likely
			}
			continue
		}
		select {
		case m.strangers <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		if !m.track(conn) {
			return
		}
		m.wg.Add(1)
		go m.greet(conn)
	}
}

// greet reads the first byte of a connection and hands it on.
func (m *mux) greet(conn net.Conn) {
	defer m.wg.Done()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // without it a dead peer is found later
	}
	var first [1]byte
	err := conn.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		_, err = io.ReadFull(conn, first[:])
	}
	<-m.strangers
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	switch {
	case err != nil:
		m.drop(conn)
	case first[0] == streamRaft:
		select {
		case m.raftConns <- &trackedConn{conn, m}:
		case <-m.ctx.Done():
			m.drop(conn)
		}
	case first[0] == streamForward:
		m.forward(conn)
		m.drop(conn)
	default:
		m.logger.Warn("a connection to the peer port is no peer's", "from", conn.RemoteAddr(), "first-byte", first[0])
		m.drop(conn)
	}
}

// track remembers conn for closing; it closes conn and returns false when the mux is closed.
func (m *mux) track(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		conn.Close()
		return false
	}
	m.conns[conn] = struct{}{}
	return true
}

func (m *mux) drop(conn net.Conn) {
	m.mu.Lock()
	delete(m.conns, conn)
	m.mu.Unlock()
	conn.Close()
}

// trackedConn leaves the mux's books when it is closed.
type trackedConn struct {
	net.Conn
	m *mux
}

func (c *trackedConn) Close() error {
	c.m.mu.Lock()
	delete(c.m.conns, c.Conn)
	c.m.mu.Unlock()
	return c.Conn.Close()
}

// open dials addr and sends the first byte. The connection is tracked.
func (m *mux) open(addr string, stream byte, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(m.ctx, min(timeout, dialTimeout))
	defer cancel()
	conn, err := m.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if !m.track(conn) {
		return nil, net.ErrClosed
	}
	err = conn.SetWriteDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		_, err = conn.Write([]byte{stream})
	}
	if err == nil {
		err = conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		m.drop(conn)
		return nil, err
	}
	return &trackedConn{conn, m}, nil
}

// Accept gives Raft its incoming connections.
func (m *mux) Accept() (net.Conn, error) {
	select {
	case conn := <-m.raftConns:
		return conn, nil
	case <-m.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Dial opens a Raft connection.
func (m *mux) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return m.open(string(addr), streamRaft, timeout)
}

// Addr is the address that this node is known by.
func (m *mux) Addr() net.Addr { return m.advertise }

// Close ends the port and every connection; wait waits for what served them.
func (m *mux) Close() error {
	m.mu.Lock()
	m.cancel()
	conns := m.conns
	m.conns = map[net.Conn]struct{}{}
	m.mu.Unlock()
	err := m.ln.Close()
	for conn := range conns {
		conn.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (m *mux) wait() { m.wg.Wait() }
