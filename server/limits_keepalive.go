// tcp-keepalive, as in Redis: TCP finds out that a silent client's machine is gone. Otherwise its
// connection would stay, and if the client waits for an element, take one.

package server

import (
	"net"
	"time"
)

// keepAliveProbes is how many questions without an answer end a connection, as in Redis.
const keepAliveProbes = 3

// keepAlive applies the setting to a new connection.
func (s *Server) keepAlive(conn net.Conn) {
	c, ok := socket(conn).(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	})
	if !ok {
		return // a Unix socket
	}
	idle := time.Duration(s.config.keepAlive.Load()) * time.Second
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: idle > 0, Idle: idle,
		Interval: max(idle/keepAliveProbes, time.Second), Count: keepAliveProbes})
}
