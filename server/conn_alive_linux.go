package server

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// endedByPeer reports whether the other end of a connection has closed it, or its sending half,
// even if there is unread input. known is false if the connection does not tell.
func endedByPeer(conn net.Conn) (ended, known bool) {
	c, is := conn.(syscall.Conn)
	if !is {
		return false, false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false, false
	}
	_ = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(p, 0); err == nil {
			ended, known = p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0, true
		}
	})
	return ended, known
}
