// When to give up a connection to a peer that accepts data and acknowledges nothing.

package cluster

import (
	"net"
	"syscall"
)

// tcpUserTimeout is Linux's TCP_USER_TIMEOUT (tcp(7)), which package syscall does not name.
const tcpUserTimeout = 0x12

// limitUnacked ends the connection when sent data stays unacknowledged for maxUnacked. Otherwise
// TCP resends after ever longer pauses, up to two minutes, and notices a healed network that late;
// keep-alive does not apply while data is in flight. A stopped peer still acknowledges.
func limitUnacked(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // if it cannot be set, dead peers are found later
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout,
			int(maxUnacked.Milliseconds()))
	})
}
