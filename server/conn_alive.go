// Checks of a connection that read nothing from it.

package server

import (
	"net"
	"syscall"
)

// clientConnected reports whether the client still has the connection open, as far as the system
// knows. It asks for the end itself: unread input hides that from who looks at the next byte. Where
// the system does not tell, input counts as a client.
func clientConnected(conn net.Conn) bool {
	under := socket(conn)
	if ended, known := endedByPeer(under); known {
		return !ended
	}
	n, err, ok := peek(under)
	return !ok || n > 0 || err == syscall.EAGAIN || err == syscall.EINTR
}

// inputPending reports whether the system holds unread input; false if that is unknown.
func inputPending(conn net.Conn) bool {
	n, _, ok := peek(socket(conn))
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
