// Checks of a connection that read nothing from it.

package server

import (
	"net"
	"syscall"
)

// clientConnected reports whether the client still has the connection open, as far as the system
// knows. Unread input hides a disconnect.
func clientConnected(conn net.Conn) bool {
	n, err, ok := peek(conn)
	return !ok || n > 0 || err == syscall.EAGAIN || err == syscall.EINTR
}

// inputPending reports whether there is unread input; false if that is unknown.
func inputPending(conn net.Conn) bool {
	n, _, ok := peek(conn)
	return ok && n > 0
}

// peek looks at the next byte without blocking, even after the deadline. ok is false if the
// connection does not support it.
func peek(conn net.Conn) (n int, err error, ok bool) {
	c, is := conn.(syscall.Conn)
	if !is {
		return 0, nil, false
	}
	raw, rawErr := c.SyscallConn()
	if rawErr != nil {
		return 0, nil, false
	}
	_ = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ok = true
	})
	return n, err, ok
}
