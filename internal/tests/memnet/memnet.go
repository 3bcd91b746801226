package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Listener accepts what Dial connects.
type Listener struct {
	// Clients is the address that they seem to come from; nil: the loopback's.
	Clients net.IP

	conns  chan net.Conn
	closed chan struct{}

	mu   sync.Mutex
	port int // port of the newest client
}

// addr is of all listeners: each has its own clients.
var addr = net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}

// Listen returns a listener.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{}), port: addr.Port}
}

// Dial connects a client, and waits until it is accepted.
func (l *Listener) Dial() (net.Conn, error) {
	l.mu.Lock()
	l.port++
	client := addr
	client.Port = l.port
	if l.Clients != nil {
		client.IP = l.Clients
	}
	l.mu.Unlock()
	to, from := newHalf(), newHalf()
	select {
	case l.conns <- &conn{in: to, out: from, local: addr, remote: client}:
		return &conn{in: from, out: to, local: client, remote: addr}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return net.ErrClosed
	default:
		close(l.closed)
		return nil
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &addr }

// conn is one end of a connection.
type conn struct {
	in, out       *half
	local, remote net.TCPAddr
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *conn) LocalAddr() net.Addr         { return &c.local }
func (c *conn) RemoteAddr() net.Addr        { return &c.remote }

func (c *conn) Close() error {
	c.in.change(func(h *half) { h.unread = true })
	return c.CloseWrite()
}

// CloseWrite ends what is sent.
func (c *conn) CloseWrite() error {
	c.out.change(func(h *half) { h.ended = true })
	return nil
}

func (c *conn) SetDeadline(at time.Time) error {
	_ = c.SetReadDeadline(at)
	return c.SetWriteDeadline(at)
}

func (c *conn) SetReadDeadline(at time.Time) error {
	c.in.change(func(h *half) {
		h.deadline = at
		if !at.IsZero() {
			time.AfterFunc(time.Until(at), func() { h.change(func(*half) {}) })
		}
	})
	return nil
}

func (c *conn) SetWriteDeadline(at time.Time) error {
	c.out.change(func(h *half) { h.writeDeadline = at })
	return nil
}

// half is one direction. It takes all that is written: writers never wait.
type half struct {
	mu                      sync.Mutex
	changed                 *sync.Cond
	data                    []byte
	ended, unread           bool // by its writer, by its reader
	deadline, writeDeadline time.Time
}

func newHalf() *half {
	h := &half{}
	h.changed = sync.NewCond(&h.mu)
	return h
}

func (h *half) change(do func(*half)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do(h)
	h.changed.Broadcast()
}

func over(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.unread:
			return 0, net.ErrClosed
		case over(h.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(h.data) > 0:
			n := copy(p, h.data)
			h.data = h.data[n:]
			return n, nil
		case h.ended:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (h *half) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ended:
		return 0, net.ErrClosed
	case h.unread:
		return 0, syscall.EPIPE
	case over(h.writeDeadline):
		return 0, os.ErrDeadlineExceeded
	}
	h.data = append(h.data, p...)
	h.changed.Broadcast()
	return len(p), nil
}
