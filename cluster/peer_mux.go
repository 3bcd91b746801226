// The peer port: one listener that tells Raft from forwarding by a connection's first byte, and the
// dialing of peers.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/logging"
)

const (
	handshakeTimeout = 2 * time.Second
	dialTimeout      = time.Second
	acceptPause      = 50 * time.Millisecond
	// maxUnidentified bounds the connections that have not identified themselves as a member's.
	maxUnidentified = 256
)

// strangers is how many connections of one host that do not identify themselves come in.
var strangers = halfopen.Rate{AtOnce: 2 * maxUnidentified, PerSecond: 64}

// maxUnacked is how long data to a peer may stay unacknowledged before the connection is given up.
// Until then TCP resends a lost packet four or five times.
const maxUnacked = 3 * time.Second

// dialFunc opens a TCP connection to a peer.
type dialFunc func(ctx context.Context, addr string) (net.Conn, error)

// keepAlive detects within seconds that an idle peer's machine is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second,
	Count: 3}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		limitUnacked(tcp)
	}
	return conn, err
}

// serveFunc serves a connection that another node opened. It calls known once the node is
// identified.
type serveFunc func(conn *stream, known func())

// mux owns the peer port and every connection on it. It is the raft.StreamLayer.
type mux struct {
	ln        net.Listener
	advertise advertised
	dial      dialFunc
	resolver  *resolver
	// serves a forwarding connection until it ends
	forward serveFunc
	admin   serveFunc // serves a connection for membership changes
	self    string    // the id that Raft connections must name
	// the cluster's id, which Raft connections name; empty: none
	cluster func() string
	// refuses a Raft connection for that incarnation and from that cluster
	admit    func(conn *stream, incarnation, cluster string) error
	logger   *slog.Logger
	warnings *logging.Limited // for what strangers cause
	tls      *PeerTLS         // nil: off
	// takes a Raft connection that another node opened over TLS
	certified func(conn *stream)

	ctx          context.Context
	cancel       context.CancelFunc
	raftConns    chan net.Conn
	door         *halfopen.Door
	unidentified *halfopen.Set
	wg           sync.WaitGroup

	mu    lockorder.Mutex
	conns map[net.Conn]*stream // as accepted or dialed; nil: not identified yet
	raft  map[net.Conn]bool    // those of Raft that other nodes opened
	// unnamed are Raft's connections to other nodes from before the cluster had an id.
	unnamed map[net.Conn]bool
	muted   bool // Raft receives nothing from others
}

// advertised is the address at which others reach this node. It stays text: a name must not be
// frozen into the address that it resolved to at start.
type advertised string

func (advertised) Network() string  { return "tcp" }
func (a advertised) String() string { return string(a) }

func newMux(ln net.Listener, self, advertise string, dial dialFunc, logger *slog.Logger) *mux {
	m := &mux{
		ln: ln, self: self, advertise: advertised(advertise), dial: dial, logger: logger,
		raftConns: make(chan net.Conn), conns: map[net.Conn]*stream{}, raft: map[net.Conn]bool{},
		unnamed: map[net.Conn]bool{}, warnings: logging.NewLimited(logger),
	}
	m.door = halfopen.NewDoor(strangers, m.warnings)
	m.unidentified = halfopen.New(halfopen.Limits{Most: maxUnidentified, Waiting: maxUnidentified,
		Grace: handshakeTimeout / 2})
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.resolver = newResolver()
	return m
}

// start begins to accept. Until then connections wait in the kernel.
func (m *mux) start(forward, admin serveFunc) {
	m.forward, m.admin = forward, admin
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
			m.warnings.Warn("accepting on the peer port failed", "error", err)
			select {
			case <-m.ctx.Done():
				return
			case <-time.After(acceptPause): // probably out of file descriptors
			}
			continue
		}
		if !m.door.Admit(conn) {
			continue
		}
		if !m.track(conn) {
			return
		}
		m.wg.Add(1)
		go m.greet(conn)
	}
}

// greet reads the first byte of a connection, after a TLS handshake if it begins with one, and
// dispatches the connection.
func (m *mux) greet(raw net.Conn) {
	defer m.wg.Done()
	if evicted := m.unidentified.Add(raw); evicted != nil {
		evicted.Close() // its greet goroutine cleans up
	}
	known := func() {
		if m.unidentified.Remove(raw) {
			m.door.Identified(raw)
		}
	}
	defer m.unidentified.Remove(raw)
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // without it a dead peer is found later
		limitUnacked(tcp)
	}
	conn := &stream{Conn: raw, raw: raw, m: m}
	var first byte
	err := raw.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		first, err = m.receive(conn)
	}
	if err == nil && first == streamRaft {
		err = m.checkTarget(conn)
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	switch {
	case err != nil:
		conn.Close()
	case first == streamRaft && conn.who != nil:
		known()
		m.certified(conn)
	case first == streamRaft:
		known()
		select {
		case m.raftConns <- conn:
		case <-m.ctx.Done():
			conn.Close()
		}
	case first == streamForward:
		m.forward(conn, known)
		conn.Close()
	case first == streamAdmin:
		m.admin(conn, known)
		conn.Close()
	default:
		m.warnings.Warn("connection to the peer port is not from a peer", "from",
			conn.RemoteAddr(), "first-byte", first)
		conn.Close()
	}
}

// receive reads the first byte that says what a connection carries. TLS begins with another byte.
func (m *mux) receive(conn *stream) (first byte, err error) {
	var b [1]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return 0, err
	}
	switch secure := b[0] == recordHandshake; {
	case secure && m.tls == nil:
		err = errNoPeerTLS
	case secure:
		conn.Conn, conn.who, err = m.tls.accept(m.ctx, &replayed{conn.raw, b[:]})
		if err == nil {
			err = m.identified(conn)
		}
		if err == nil {
			_, err = io.ReadFull(conn, b[:])
		}
	case m.tls.requires():
		err = errPlainPeer
	}
	if err != nil && m.ctx.Err() == nil {
		m.warnings.Warn("peer connection refused", "from", conn.raw.RemoteAddr(), "error", err)
	}
	return b[0], err
}

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

// checkTarget reads which node a Raft connection is meant for, and who opened it. When an address
// passes to another node, or a node loses its disk, the new node's answers must not count as the
// old one's.
func (m *mux) checkTarget(conn *stream) error {
	var words [3]string
	for i := range words {
		var size [1]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return err
		}
		word := make([]byte, size[0])
		if _, err := io.ReadFull(conn, word); err != nil {
			return err
		}
		words[i] = string(word)
	}
	err := errWrongNode
	if words[0] == m.self {
		err = m.admit(conn, words[1], words[2])
	}
	if err != nil {
		m.logger.Debug("Raft connection refused", "from", conn.RemoteAddr(), "node", words[0],
			"error", err)
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, tracked := m.conns[conn.raw]; !tracked || m.muted {
		return net.ErrClosed
	}
	m.raft[conn.raw] = true
	return nil
}

var (
	errWrongNode = errors.New("the connection is meant for another node")
	errFounded   = errors.New("the connection predates the cluster")
)

// mute ends the Raft connections that other nodes opened, and accepts no more.
func (m *mux) mute() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.muted = true
	for conn := range m.raft {
		conn.Close()
	}
}

// track registers a connection for closing. If the mux is closed, it closes raw and returns false.
func (m *mux) track(raw net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		raw.Close()
		return false
	}
	m.conns[raw] = nil
	return true
}

// identified notes whose connection it is. It fails if the mux is closed, or if an authority was
// replaced during the handshake, in which closeUnverified missed the connection.
func (m *mux) identified(conn *stream) error {
	m.mu.Lock()
	_, tracked := m.conns[conn.raw]
	if tracked {
		m.conns[conn.raw] = conn
	}
	m.mu.Unlock()
	switch {
	case !tracked:
		return net.ErrClosed
	case !conn.verified():
		return errReplacedCA
	}
	return nil
}

func (m *mux) untrack(raw net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(raw)
}

// forget is untrack for a caller that holds mu.
func (m *mux) forget(raw net.Conn) {
	delete(m.conns, raw)
	delete(m.raft, raw)
	delete(m.unnamed, raw)
}

// closeUnverified closes the connections whose certificate is no longer valid, except some.
func (m *mux) closeUnverified(except map[net.Conn]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for raw, conn := range m.conns {
		if conn != nil && !except[raw] && !conn.verified() {
			raw.Close()
			m.forget(raw) // Raft closes a connection that it keeps for later when it uses it
		}
	}
}

// noAnswer is why there is no connection to an address.
type noAnswer struct{ error }

// Unwrap returns the cause.
func (e noAnswer) Unwrap() error { return e.error }

// open dials the node id, or whichever node is there if id is empty, at addr, and sends the first
// bytes. The connection is tracked.
func (m *mux) open(id, addr string, first []byte, timeout time.Duration) (*stream, error) {
	raw, err := m.dialAny(addr, min(timeout, dialTimeout))
	if err != nil {
		return nil, noAnswer{err}
	}
	if !m.track(raw) {
		return nil, net.ErrClosed
	}
	conn := &stream{Conn: raw, raw: raw, m: m}
	err = raw.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil && m.tls.Dials() {
		conn.Conn, conn.who, err = m.tls.dial(m.ctx, raw, id)
		if err == nil {
			err = m.identified(conn)
		}
	}
	if err == nil {
		_, err = conn.Write(first)
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// maxReach is how many addresses of one name are tried.
const maxReach = 4

// dialAny resolves addr and dials its addresses in turn, each for up to timeout.
func (m *mux) dialAny(addr string, timeout time.Duration) (net.Conn, error) {
	addrs, err := m.resolver.resolve(addr)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs[:min(len(addrs), maxReach)] {
		ctx, cancel := context.WithTimeout(m.ctx, timeout)
		var conn net.Conn
		conn, err = m.dial(ctx, a)
		cancel()
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// Accept returns Raft's next incoming connection.
func (m *mux) Accept() (net.Conn, error) {
	select {
	case conn := <-m.raftConns:
		return conn, nil
	case <-m.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Dial opens a Raft connection to an address made by raftAddr.
func (m *mux) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	who, addr, ok := strings.Cut(string(to), "@")
	if !ok {
		// Raft falls back to the configuration's address if none is known
		return nil, fmt.Errorf("%s has no node id", to)
	}
	id, incarnation, _ := strings.Cut(who, "/")
	cluster := m.cluster()
	first := []byte{streamRaft}
	for _, word := range []string{id, incarnation, cluster} {
		first = append(append(first, byte(len(word))), word...)
	}
	conn, err := m.open(id, addr, first, timeout)
	if err != nil {
		return nil, err
	}
	if cluster == "" {
		m.mu.Lock()
		m.unnamed[conn.raw] = true
		m.mu.Unlock()
		if m.cluster() != "" { // learned meanwhile, and closeUnnamed may have missed this one
			conn.Close()
			return nil, errFounded
		}
	}
	return conn, nil
}

// closeUnnamed closes Raft's connections to other nodes from before the cluster had an id: they did
// not name their origin. The id is known by now, so Dial names it on later ones.
func (m *mux) closeUnnamed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for conn := range m.unnamed {
		conn.Close()
	}
	clear(m.unnamed)
}

// raftAddr is the form in which Raft's transport gets addresses: the node's id, which contains
// neither '@' nor '/', its known incarnation (empty: none), and the address.
func raftAddr(id, incarnation, addr string) raft.ServerAddress {
	return raft.ServerAddress(id + "/" + incarnation + "@" + addr)
}

// Addr is this node's advertised address.
func (m *mux) Addr() net.Addr { return m.advertise }

// Close closes the port and every connection; wait waits for the goroutines that served them.
func (m *mux) Close() error {
	m.mu.Lock()
	m.cancel()
	conns := m.conns
	m.conns = map[net.Conn]*stream{}
	m.mu.Unlock()
	err := m.ln.Close()
	m.unidentified.Close()
	m.resolver.close()
	for conn := range conns {
		conn.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (m *mux) wait() { m.wg.Wait() }
