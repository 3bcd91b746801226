//go:build !linux

// Without a limit on unacknowledged data, a connection over a broken network is used again, or
// given up, when TCP itself gets to it.

package cluster

import "net"

func limitUnacked(*net.TCPConn) {}
