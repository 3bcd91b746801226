// When the HTTP port gives up a browser that acknowledges nothing: its machine is gone.

package node

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacked ends the connection when sent data stays unacknowledged for so long. A stream of the
// page writes little, which fits into the socket's buffer for many minutes, and keep-alive does not
// apply while data is in flight.
func limitUnacked(conn net.Conn, most time.Duration) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // if it cannot be set, TCP gives up later
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(most.Milliseconds()))
	})
}
