// Which addresses may connect: coordd-allow-from and coordd-http-allow-from. The page's connections
// to this server have the addresses of browsers, and come in by the gate of the HTTP port.

package server

import (
	"net"

	"github.com/coordd/coordd/internal/halfopen"
)

// GuardHTTP returns a listener for the HTTP port that accepts who may connect to it. It owns ln.
func (s *Server) GuardHTTP(ln net.Listener) net.Listener { return s.httpGate.Guard(ln) }

func addressesParam(name string, of func(*Server) *halfopen.Gate) param {
	return param{
		name: name,
		get:  func(s *Server) string { return of(s).Only().String() },
		choose: func(text string) (func(*Server), error) {
			only, err := halfopen.ParseAddresses(text)
			return func(s *Server) {
				of(s).Let(only)
				for _, c := range s.all() {
					c.checkAddress()
				}
			}, err
		},
	}
}

// checkAddress ends the session if its client may not connect any more. It is called once the
// session can be found, and after each change, so that none is missed.
func (s *session) checkAddress() {
	if s.gated && !s.srv.gate.Allows(s.conn) {
		s.srv.warnings.Warn("closed a client: its address may not connect any more", "client",
			s.addr)
		s.dismiss()
	}
}
