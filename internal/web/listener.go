package web

import (
	"context"
	"net"
	"sync"
)

// Listener is where connections of the page come in: the server accepts them like those of any
// client.
type Listener struct {
	conns chan net.Conn
	end   chan struct{}
	once  sync.Once
}

// NewListener returns a listener.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), end: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.end) })
	return nil
}

// Addr implements net.Listener.
func (*Listener) Addr() net.Addr { return pageAddr{} }

// pageAddr is the address of the listener, which no other process reaches.
type pageAddr struct{}

// Network implements net.Addr.
func (pageAddr) Network() string { return "page" }

// String implements net.Addr.
func (pageAddr) String() string { return "page" }

// dial connects to the server. The server sees the browser's address, and applies to it what it
// applies to clients from there.
func (l *Listener) dial(ctx context.Context, remote, local net.Addr) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- conn{theirs, remote, local}:
		return ours, nil
	case <-l.end:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// conn is the server's end of a connection.
type conn struct {
	net.Conn
	remote, local net.Addr
}

// RemoteAddr implements net.Conn.
func (c conn) RemoteAddr() net.Addr { return c.remote }

// LocalAddr implements net.Conn.
func (c conn) LocalAddr() net.Addr { return c.local }
