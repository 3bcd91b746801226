// This file holds how soon a connection to a peer is given up that takes what is sent and acknowledges nothing.
package cluster

import (
	"net"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of Linux (tcp(7)), which package syscall does not name.
const tcpUserTimeout = 0x12

// limitUnacked ends the connection when what was sent on it has not been acknowledged for maxUnacked. Otherwise TCP sends it again after ever
// longer pauses, up to two minutes, and does not notice for as long that a network is whole again; and nothing else ends a connection on
// which something is under way, keep-alive neither. A peer that is stopped acknowledges all the same.
func limitUnacked(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // where it cannot be set, peers are found later
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(maxUnacked.Milliseconds()))
	})
}
