// The receiving side of Raft over TLS: a node may send only what it signs with its own id.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/logging"
)

// certified receives Raft's messages over TLS. Hashicorp's transport does not tell which connection
// a message came from, so there is one for each identity, and each passes on the messages that name
// a node of that identity.
type certified struct {
	tls      *PeerTLS
	new      func(raft.StreamLayer) *raft.NetworkTransport
	addr     net.Addr
	warnings *logging.Limited
	stop     <-chan struct{}
	rpcs     chan raft.RPC // of all identities, to Raft

	mu        sync.Mutex
	layers    map[string]*certifiedLayer
	heartbeat func(raft.RPC)
}

// take hands a connection to the transport of its identity.
func (c *certified) take(conn *stream) {
	key := strings.Join(conn.who, " ")
	c.mu.Lock()
	l := c.layers[key]
	if l == nil {
		l = &certifiedLayer{addr: c.addr, closed: make(chan struct{}),
			conns: make(chan net.Conn)}
		c.layers[key] = l
		t := c.new(l)
		t.SetHeartbeatHandler(func(rpc raft.RPC) {
			c.mu.Lock()
			handle := c.heartbeat
			c.mu.Unlock()
			if c.check(conn.who, rpc) {
				handle(rpc)
			}
		})
		go c.pass(conn.who, t)
	}
	c.mu.Unlock()
	select {
	case l.conns <- conn:
	case <-c.stop:
		_ = conn.Close()
	}
}

// pass passes the messages of one identity to Raft.
func (c *certified) pass(who identity, t *raft.NetworkTransport) {
	defer t.Close()
	for {
		select {
		case rpc := <-t.Consumer():
			if c.check(who, rpc) {
				c.deliver(rpc)
			}
		case <-c.stop:
			return
		}
	}
}

func (c *certified) deliver(rpc raft.RPC) {
	select {
	case c.rpcs <- rpc:
	case <-c.stop:
	}
}

// check reports whether a message names a node of the identity. It refuses it otherwise.
func (c *certified) check(who identity, rpc raft.RPC) bool {
	id := ""
	if m, ok := rpc.Command.(raft.WithRPCHeader); ok {
		id = string(m.GetRPCHeader().ID)
	}
	if c.tls.names(who, id) {
		return true
	}
	c.warnings.Warn("Raft message refused: the certificate is another node's", "claimed", id,
		"certificate", strings.Join(who, " "))
	go func() { // ends with the connection at the latest
		if rpc.Reader != nil { // a snapshot, which precedes the answer
			_, _ = io.Copy(io.Discard, rpc.Reader)
		}
		rpc.Respond(nil, fmt.Errorf("node %q: %w", id, errNotTheirName))
	}()
	return false
}

// certifiedLayer gives a transport the connections of one identity.
type certifiedLayer struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *certifiedLayer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The mux closes the connections.
func (l *certifiedLayer) Close() error {
	close(l.closed)
	return nil
}

// Addr implements net.Listener.
func (l *certifiedLayer) Addr() net.Addr { return l.addr }

// Dial implements raft.StreamLayer.
func (l *certifiedLayer) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, errors.New("this transport only receives")
}

// receiveCertified has the transport receive over TLS too.
func (t *transport) receiveCertified() {
	m := t.n.mux
	if m.tls == nil {
		return
	}
	t.certified = &certified{tls: m.tls, new: t.n.newTransport, addr: m.Addr(),
		warnings: m.warnings, stop: m.ctx.Done(), rpcs: make(chan raft.RPC),
		layers: map[string]*certifiedLayer{}}
	m.certified = t.certified.take
	go func() { // without TLS
		for {
			select {
			case rpc := <-t.NetworkTransport.Consumer():
				t.certified.deliver(rpc)
			case <-m.ctx.Done():
				return
			}
		}
	}()
}

// Consumer returns the messages of other nodes.
func (t *transport) Consumer() <-chan raft.RPC {
	if t.certified != nil {
		return t.certified.rpcs
	}
	return t.NetworkTransport.Consumer()
}

// SetHeartbeatHandler sets what handles heartbeats, which do not wait for other messages.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	handle = t.whileFollowing(handle)
	if c := t.certified; c != nil {
		c.mu.Lock()
		c.heartbeat = handle
		c.mu.Unlock()
	}
	t.NetworkTransport.SetHeartbeatHandler(handle)
}

// whileFollowing keeps heartbeats from changing Raft's state. They are handled beside Raft's main
// goroutine, and in hashicorp/raft v1.7.3 one of a later term raises the term there: beside a vote
// in a still later term, which it can undo, or beside the logging of a leader's entry, which then
// has the other leader's term. The leader's other messages, which come every commitTimeout, raise
// the term where nothing else happens.
func (t *transport) whileFollowing(handle func(raft.RPC)) func(raft.RPC) {
	return func(rpc raft.RPC) {
		r := t.n.raft
		term, own := rpc.Command.(*raft.AppendEntriesRequest).Term, r.CurrentTerm()
		if term > own || term == own && r.State() != raft.Follower {
			rpc.Respond(&raft.AppendEntriesResponse{Term: own, LastLog: r.LastIndex()}, nil)
			return
		}
		handle(rpc)
	}
}
