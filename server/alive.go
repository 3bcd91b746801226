package server

// This file holds a look at a connection that takes nothing out of it.

import (
	"net"
	"syscall"
)

// clientThere says whether the client has not closed the connection, as far as the system knows. Bytes that wait to be read hide it.
func clientThere(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	there := true
	_ = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		there = n > 0 || err == syscall.EAGAIN || err == syscall.EINTR
		return true
	})
	return there
}
