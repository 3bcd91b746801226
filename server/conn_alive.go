package server

// This file holds looks at a connection that take nothing out of it.

import (
	"net"
	"syscall"
)

// clientThere says whether the client has not closed the connection, as far as the system knows. Bytes that wait to be read hide it.
func clientConnected(conn net.Conn) bool {
	n, err, ok := peek(conn)
	return !ok || n > 0 || err == syscall.EAGAIN || err == syscall.EINTR
}

// inputWaits says whether the client has sent something, as far as the system knows; false where that cannot be found out.
func inputPending(conn net.Conn) bool {
	n, _, ok := peek(conn)
	return ok && n > 0
}

// peek looks for the next byte without waiting, also where the deadline has passed. ok is false for a connection that cannot be looked at.
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
