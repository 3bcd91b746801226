// Protected mode, as in Redis: while the default user needs no password, only clients on this
// machine are served.

package server

import (
	"net"

	"github.com/coordd/coordd/commands"
)

const errProtected commands.Error = "DENIED Redis is running in protected mode because protected " +
	"mode is enabled and no password is set for the default user. In this mode connections are " +
	"only accepted from the loopback interface. If you want to connect from external computers " +
	"to Redis you may adopt one of the following solutions: 1) Just disable protected mode " +
	"sending the command 'CONFIG SET protected-mode no' from the loopback interface by " +
	"connecting to Redis from the same host the server is running, however MAKE SURE Redis is " +
	"not publicly accessible from internet if you do so. Use CONFIG REWRITE to make this change " +
	"permanent. 2) Alternatively you can just disable the protected mode by editing the Redis " +
	"configuration file, and setting the protected mode option to 'no', and then restarting the " +
	"server. 3) If you started the server manually just for testing, restart it with the " +
	"'--protected-mode no' option. 4) Setup a an authentication password for the default user. " +
	"NOTE: You only need to do one of the above things in order for the server to start " +
	"accepting connections from the outside."

// outside reports whether a connection may come from another machine.
func outside(conn net.Conn) bool {
	a, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && !a.IP.IsLoopback()
}

// near reports whether a connection surely comes from this machine, if only from another of its
// addresses than the loopback: that to which it has connected. Such clients see the members as long
// as nobody is known; protected mode lets in the loopback alone, as in Redis.
func near(conn net.Conn) bool {
	from, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || from.IP.IsLoopback() {
		return true
	}
	to, ok := conn.LocalAddr().(*net.TCPAddr)
	return ok && from.IP.Equal(to.IP)
}

// protects reports whether connections from outside are to be closed. known is false while this
// node does not know the users: then a connection may stay, but nobody may use it.
func (s *Server) protects() (yes, known bool) {
	if !s.config.protected.Load() {
		return false, true
	}
	users := s.users()
	if users == nil || users == UsersAwaited {
		return false, false
	}
	return users.Default().NoPass(), true
}

// vetted reports whether the current command of a connection from outside may run. If not, it has
// been answered.
func (s *session) vetted(args [][]byte) bool {
	spec, err := s.srv.table.Resolve(args)
	if err == nil && s.founding(spec) != nil {
		return true // admitFounding decides
	}
	yes, known := s.srv.protects()
	if !known && err == nil && spec.Has(commands.Discovery|commands.NoAuth) && near(s.conn) {
		return true // servedUnknown and mayGreet decide
	}
	if !known && s.awaitUsers() {
		yes, known = s.srv.protects()
	}
	switch {
	case !known:
		s.refuse(nil, errUsersUnknown)
		return false
	case yes:
		s.srv.stats.protected.Add(1)
		s.refuse(nil, errProtected)
		s.quit = true
		return false
	}
	s.unvetted = false
	return true
}
