package main

import (
	"container/heap"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coordd/coordd/internal/resp"
)

// loop serves all connections of a load from one thread, as redis-benchmark does: the load shares
// the processors with the servers, and should take as little of them as it can.
type loop struct {
	epoll  int
	timer  int // a timerfd: epoll's own timeout has milliseconds
	conns  map[int32]*conn
	timers timers
	buf    []byte
	err    error // ends run
}

func newLoop() (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	l := &loop{epoll: epoll, timer: timer, conns: map[int32]*conn{}, buf: make([]byte, 256<<10)}
	return l, l.watch(unix.EPOLL_CTL_ADD, timer, unix.EPOLLIN)
}

// close closes all connections.
func (l *loop) close() {
	for _, c := range l.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(l.timer)
	_ = unix.Close(l.epoll)
}

func (l *loop) watch(op, fd int, events uint32) error {
	return unix.EpollCtl(l.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

// fail ends run with an error.
func (l *loop) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// run serves the connections until done, or until one of them fails.
func (l *loop) run(done func() bool) error {
	events := make([]unix.EpollEvent, 512)
	for !done() && l.err == nil {
		if err := l.arm(); err != nil {
			return err
		}
		n, err := unix.EpollWait(l.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:n] {
			if int(e.Fd) == l.timer {
				continue
			}
			l.conns[e.Fd].serve(e.Events)
		}
		for len(l.timers) > 0 && !time.Now().Before(l.timers[0].at) && l.err == nil {
			heap.Pop(&l.timers).(timer).run()
		}
	}
	return l.err
}

// runFor serves the connections for a while.
func (l *loop) runFor(d time.Duration) error {
	over := false
	l.at(time.Now().Add(d), func() { over = true })
	return l.run(func() bool { return over })
}

// arm sets the timer to the first of the timers.
func (l *loop) arm() error {
	var spec unix.ItimerSpec
	if len(l.timers) > 0 {
		spec.Value = unix.NsecToTimespec(max(1, int64(time.Until(l.timers[0].at))))
	}
	return unix.TimerfdSettime(l.timer, 0, &spec, nil)
}

// at calls f at a time.
func (l *loop) at(t time.Time, f func()) { heap.Push(&l.timers, timer{t, f}) }

type timer struct {
	at  time.Time
	run func()
}

type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }

func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// conn is a connection. reply is called with each reply, which is valid during the call.
type conn struct {
	l     *loop
	fd    int
	in    []byte // the start of a reply
	out   []byte // what the socket did not take
	reply func(reply []byte)
}

// dial connects to a port of the loopback, or to an address.
func (l *loop) dial(port string) (*conn, error) {
	to, err := netip.ParseAddrPort(address(port))
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c := &conn{l: l, fd: fd, reply: func([]byte) {}}
	addr := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	if err := errors.Join(
		unix.Connect(fd, addr),
		unix.SetNonblock(fd, true),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		l.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN),
	); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("port %s: %w", port, err)
	}
	l.conns[int32(fd)] = c
	return c, nil
}

func (c *conn) close() {
	delete(c.l.conns, int32(c.fd))
	_ = unix.Close(c.fd)
}

// send sends b, or keeps what the socket does not take until it does.
func (c *conn) send(b []byte) {
	if len(c.out) == 0 {
		n, err := unix.Write(c.fd, b)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			c.l.fail(fmt.Errorf("write: %w", err))
			return
		}
		if b = b[max(n, 0):]; len(b) == 0 {
			return
		}
		if err := c.l.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN|unix.EPOLLOUT); err != nil {
			c.l.fail(err)
		}
	}
	c.out = append(c.out, b...)
}

// serve handles what epoll tells of the connection.
func (c *conn) serve(events uint32) {
	if c == nil { // closed by an earlier event
		return
	}
	if events&unix.EPOLLOUT != 0 {
		b := c.out
		c.out = nil
		if err := c.l.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN); err != nil {
			c.l.fail(err)
		}
		c.send(b)
	}
	if events&^unix.EPOLLOUT == 0 {
		return
	}
	n, err := unix.Read(c.fd, c.l.buf)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return
	case err != nil:
		c.l.fail(fmt.Errorf("read: %w", err))
		return
	case n == 0:
		c.l.fail(errors.New("the server closed a connection"))
		return
	}
	b := c.l.buf[:n]
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	for len(b) > 0 && c.l.err == nil {
		size := resp.Len(b)
		if size == 0 {
			break
		}
		c.reply(b[:size])
		b = b[size:]
	}
	c.in = append(c.in[:0], b...)
}
