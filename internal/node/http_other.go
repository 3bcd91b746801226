//go:build !linux

// Without a limit on unacknowledged data, TCP gives up a browser whose machine is gone when it gets
// to it.

package node

import (
	"net"
	"time"
)

func limitUnacked(net.Conn, time.Duration) {}
