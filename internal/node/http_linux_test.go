package node

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A connection to the HTTP port ends soon after its other end is gone, whatever is in flight.
func TestHTTPPortGivesUpTheDead(t *testing.T) {
	l := newWebListener(loopback(t))
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	raw, err := accepted.(*webConn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ms := 0
	if err := raw.Control(func(fd uintptr) {
		ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); err != nil || time.Duration(ms)*time.Millisecond != webUnacked {
		t.Errorf("data may stay unacknowledged for %d ms", ms)
	}
}
