package simnet

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// A connection breaks when data was not delivered for unacked, as cluster's connections do, and
	// an idle one after silent.
	unacked = 3 * time.Second
	silent  = 4 * time.Second
	// resent is when TCP sends a lost segment again.
	resent = 200 * time.Millisecond
)

// Network connects hosts. One mutex guards all of it; nobody waits while holding it.
type Network struct {
	// Trace, if set, gets a line for each segment.
	Trace func(format string, args ...any)

	mu        sync.Mutex
	lossy     float64 // share of segments that are lost once
	slow      time.Duration
	listeners map[string]*listener
	cuts      map[Route]int // how many faults cut it
	pipes     map[*pipe]bool
	dials     map[Route]uint64
	number    uint64 // number of the newest end of a connection
}

// Route is one direction between two hosts.
type Route struct{ From, To string }

// New returns a network that loses nothing, and takes some 0.2 ms for a segment.
func New() *Network {
	return &Network{listeners: map[string]*listener{}, cuts: map[Route]int{},
		pipes: map[*pipe]bool{}, dials: map[Route]uint64{}}
}

// NewRandom returns a network that is as slow, and loses as much, as a seed says.
func NewRandom(seed uint64) *Network {
	rnd := rand.New(rand.NewPCG(seed, 0x6e6574))
	n := New()
	n.lossy = []float64{0, 0, 0.001, 0.02}[rnd.IntN(4)]
	n.slow = []time.Duration{0, 200, 2000, 20_000}[rnd.IntN(4)] * time.Microsecond
	return n
}

// Cut cuts a route, by 1, or heals it, by -1. It is cut as long as somebody cuts it. Data on its
// way waits, and the connection breaks when that takes long.
func (n *Network) Cut(r Route, by int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cuts[r] += by; n.cuts[r] == 0 {
		delete(n.cuts, r)
	}
	for _, p := range n.sorted() {
		switch {
		case p.route != r || p.dead:
		case by > 0 && p.stalled.IsZero():
			p.stall()
		case n.cuts[r] == 0:
			p.stalled = time.Time{}
			p.watch.Stop()
			p.kick()
		}
	}
}

// Break breaks all connections of a host.
func (n *Network) Break(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.sorted() {
		if p.route.From == host {
			p.breaks(syscall.ECONNRESET)
		}
	}
}

// sorted returns the pipes in an order that is the same in every run.
func (n *Network) sorted() []*pipe {
	return slices.SortedFunc(maps.Keys(n.pipes), func(a, b *pipe) int {
		return cmp.Compare(a.number, b.number)
	})
}

// stall delivers nothing more until it is told otherwise, and breaks the connection in time.
func (p *pipe) stall() {
	p.stalled = time.Now()
	at := p.stalled
	p.watch = time.AfterFunc(silent, func() { p.expire(at) })
	if len(p.queue) > 0 {
		p.suspect()
	}
}

// Crash ends the run: what it does from now on has no effect. Its system may live on and tell the
// others, or not.
func (m *Machine) Crash(tells bool) {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	m.dead = true
	for addr, l := range m.n.listeners {
		if l.m == m {
			delete(m.n.listeners, addr)
		}
	}
	for _, c := range m.sorted() {
		if tells {
			c.close()
			continue
		}
		c.closed = true
		delete(m.ends, c)
		c.in.kick()
		for _, p := range []*pipe{c.in, c.out} {
			if p.dead = true; p.stalled.IsZero() {
				p.stall()
			}
		}
	}
}

// sorted returns the ends in an order that is the same in every run.
func (m *Machine) sorted() []*conn {
	return slices.SortedFunc(maps.Keys(m.ends), func(a, b *conn) int {
		return cmp.Compare(a.number, b.number)
	})
}

// host returns the name of the host of an address.
func host(addr string) string {
	h, _, _ := net.SplitHostPort(addr)
	return h
}

// listener accepts connections at an address.
type listener struct {
	m      *Machine
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen accepts connections at an address, whatever its host.
func (m *Machine) Listen(addr string) net.Listener {
	l := &listener{m: m, addr: addr, conns: make(chan net.Conn, 256), closed: make(chan struct{})}
	m.n.mu.Lock()
	m.n.listeners[addr] = l
	m.n.mu.Unlock()
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.m.n.mu.Lock()
		if l.m.n.listeners[l.addr] == l {
			delete(l.m.n.listeners, l.addr)
		}
		l.m.n.mu.Unlock()
		for {
			select {
			case c := <-l.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.addr) }

func address(a string) net.Addr {
	tcp, err := net.ResolveTCPAddr("tcp", a)
	if err != nil {
		panic(err)
	}
	return tcp
}

// Machine is one run of a host: what it has open ends with it.
type Machine struct {
	n    *Network
	Host string
	dead bool // guarded by n.mu
	// its ends of connections
	ends map[*conn]bool
}

// Boot begins a run of a host.
func (n *Network) Boot(host string) *Machine {
	return &Machine{n: n, Host: host, ends: map[*conn]bool{}}
}

// Dial opens a connection.
func (m *Machine) Dial(ctx context.Context, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(addr), Err: err}
	}
	n := m.n
	to := Route{m.Host, host(addr)}
	n.mu.Lock()
	n.dials[to]++
	rnd := rand.New(rand.NewPCG(n.dials[to], hashOf(to.From+to.To)))
	delay := 2 * n.delay(rnd)
	n.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return fail(os.ErrDeadlineExceeded)
		case <-time.After(delay):
		}
		n.mu.Lock()
		if m.dead {
			n.mu.Unlock()
			return fail(syscall.ENETDOWN)
		}
		if n.cuts[to] > 0 || n.cuts[Route{to.To, to.From}] > 0 {
			n.mu.Unlock()
			delay = resent
			continue
		}
		break
	}
	defer n.mu.Unlock()
	l := n.listeners[addr]
	if l == nil {
		return fail(syscall.ECONNREFUSED)
	}
	local := net.JoinHostPort(m.Host, "40000")
	out, in := n.pipe(to, rnd), n.pipe(Route{to.To, to.From}, rnd)
	n.number += 2
	here := &conn{n: n, number: n.number, in: in, out: out, local: local, remote: addr, of: m}
	there := &conn{n: n, number: n.number + 1, in: out, out: in, local: addr, remote: local,
		of: l.m}
	in.other, out.other = out, in
	select {
	case l.conns <- there:
	default:
		return fail(syscall.ECONNREFUSED)
	}
	m.ends[here], l.m.ends[there] = true, true
	return here, nil
}

// delay returns how long a segment takes. The caller holds mu.
func (n *Network) delay(rnd *rand.Rand) time.Duration {
	d := 50*time.Microsecond + time.Duration(rnd.ExpFloat64()*float64(100*time.Microsecond+n.slow))
	if rnd.Float64() < n.lossy {
		d += resent
	}
	return d
}

func hashOf(s string) (h uint64) {
	h = 14695981039346656037
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// pipe is one direction of a connection.
type pipe struct {
	n        *Network
	number   uint64
	rnd      *rand.Rand
	route    Route
	other    *pipe
	queue    []segment
	last     time.Time // when the newest segment arrives
	ended    bool      // the writer has closed it
	gone     bool      // the reader has
	err      error     // it is broken
	deadline time.Time // deadline for reads
	wake     chan struct{}
	stalled  time.Time // since when nothing is delivered; zero: it is
	dead     bool      // for good: one end has lost power
	watch    *time.Timer
}

// segment is data on its way; nil is the end of the stream.
type segment struct {
	at   time.Time
	data []byte
}

// pipe makes a pipe; the caller holds mu.
func (n *Network) pipe(r Route, rnd *rand.Rand) *pipe {
	n.number++
	p := &pipe{n: n, number: n.number, rnd: rnd, route: r, wake: make(chan struct{}, 1)}
	n.pipes[p] = true
	return p
}

func (p *pipe) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// suspect breaks the connection if what is on its way is still not delivered after unacked. The
// caller holds mu.
func (p *pipe) suspect() {
	at := p.stalled
	time.AfterFunc(unacked, func() { p.expire(at) })
}

// expire breaks a connection that has been stalled since a time.
func (p *pipe) expire(since time.Time) {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	if p.stalled.Equal(since) && !p.stalled.IsZero() {
		p.breaks(syscall.ETIMEDOUT)
	}
}

// breaks breaks both directions; the caller holds mu.
func (p *pipe) breaks(err error) {
	for _, q := range []*pipe{p, p.other} {
		if q.err == nil {
			q.err = err
		}
		q.queue = nil
		delete(p.n.pipes, q)
		if q.watch != nil {
			q.watch.Stop()
		}
		q.kick()
	}
}

// conn is one end of a connection.
type conn struct {
	n             *Network
	in, out       *pipe
	local, remote string
	of            *Machine // whose end it is
	number        uint64   // in the order of dialing
	closed        bool
}

func (c *conn) LocalAddr() net.Addr  { return address(c.local) }
func (c *conn) RemoteAddr() net.Addr { return address(c.remote) }

func (c *conn) Read(b []byte) (int, error) {
	var timer *time.Timer
	for {
		n, wait, err := c.receive(b)
		if n > 0 || err != nil || len(b) == 0 {
			if timer != nil {
				timer.Stop()
			}
			return n, err
		}
		if wait < 0 {
			<-c.in.wake
			continue
		}
		if timer == nil {
			timer = time.NewTimer(wait)
		} else {
			timer.Reset(wait)
		}
		select {
		case <-c.in.wake:
		case <-timer.C:
		}
	}
}

// receive takes what has arrived, or returns how long to wait; <0: until there is news.
func (c *conn) receive(b []byte) (n int, wait time.Duration, err error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	p := c.in
	now := time.Now()
	arrived := func() bool {
		return len(p.queue) > 0 && p.stalled.IsZero() && !p.queue[0].at.After(now)
	}
	switch {
	case c.closed:
		return 0, 0, c.failed("read", net.ErrClosed)
	case !p.deadline.IsZero() && !now.Before(p.deadline):
		return 0, 0, c.failed("read", os.ErrDeadlineExceeded)
	}
	for arrived() && n < len(b) && p.queue[0].data != nil {
		k := copy(b[n:], p.queue[0].data)
		n += k
		if p.queue[0].data = p.queue[0].data[k:]; len(p.queue[0].data) == 0 {
			p.queue = p.queue[1:]
		}
	}
	switch {
	case n > 0:
		return n, 0, nil
	case p.err != nil:
		return 0, 0, c.failed("read", p.err)
	case arrived() && p.queue[0].data == nil:
		return 0, 0, io.EOF
	}
	wait = -1
	if len(p.queue) > 0 && p.stalled.IsZero() {
		wait = p.queue[0].at.Sub(now)
	}
	if !p.deadline.IsZero() {
		if d := p.deadline.Sub(now); wait < 0 || d < wait {
			wait = d
		}
	}
	return 0, wait, nil
}

func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// Write never waits: what it is given is on its way.
func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	p := c.out
	switch {
	case c.closed:
		return 0, c.failed("write", net.ErrClosed)
	case p.err != nil:
		return 0, c.failed("write", p.err)
	case p.gone:
		return 0, c.failed("write", syscall.EPIPE)
	case len(b) > 0:
		c.put(append([]byte{}, b...))
	}
	return len(b), nil
}

// put sends data, or the end; the caller holds mu.
func (c *conn) put(data []byte) {
	p := c.out
	at := time.Now().Add(c.n.delay(p.rnd))
	if at.Before(p.last) {
		at = p.last
	}
	p.last = at
	if c.n.Trace != nil {
		c.n.Trace("%v %s > %s (%d): %d bytes %x", time.Now().UnixMicro(), c.local, c.remote,
			p.number, len(data), hashOf(string(data)))
	}
	if p.queue = append(p.queue, segment{at, data}); !p.stalled.IsZero() && len(p.queue) == 1 {
		p.suspect()
	}
	p.kick()
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.close()
	return nil
}

// close closes the end; the caller holds mu.
func (c *conn) close() {
	c.closed = true
	delete(c.of.ends, c)
	if c.out.err == nil && !c.out.ended {
		c.out.ended = true
		c.put(nil)
	}
	c.in.gone = true
	if c.in.queue = nil; c.out.gone { // both ends are closed
		c.in.breaks(net.ErrClosed)
	}
	c.in.kick()
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return c.failed("set", net.ErrClosed)
	}
	c.in.deadline = t
	c.in.kick()
	return nil
}

// SetWriteDeadline does nothing: no write waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
