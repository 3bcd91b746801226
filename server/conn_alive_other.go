//go:build !linux

package server

import "net"

// endedByPeer is known on Linux only.
func endedByPeer(net.Conn) (ended, known bool) { return false, false }
