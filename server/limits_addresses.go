// Which addresses may connect: coordd-allow-from and coordd-http-allow-from. The page's connections
// to this server have the addresses of browsers, and come in by the gate of the HTTP port.

package server

import "github.com/coordd/coordd/internal/halfopen"

// HTTPGate returns the gate of the HTTP port.
func (s *Server) HTTPGate() *halfopen.Gate { return s.httpGate }

func addressesParam(name string, of func(*Server) *halfopen.Gate) param {
	return param{
		name: name,
		get:  func(s *Server) string { return of(s).Only().String() },
		choose: func(text string) (func(*Server), error) {
			only, err := halfopen.ParseAddresses(text)
			return func(s *Server) { of(s).Let(only) }, err
		},
	}
}

// checkAddresses ends the sessions whose clients may not connect any more.
func (s *Server) checkAddresses() {
	for _, c := range s.all() {
		c.checkAddress()
	}
}

// checkAddress ends the session if its client may not connect any more. It is called once the
// session can be found, and after each change, so that none is missed.
func (s *session) checkAddress() {
	if !s.killed.Load() && !s.gate.Allows(s.conn) {
		s.srv.warnings.Warn("closed a client: its address may not connect any more", "client",
			s.addr)
		s.dismiss()
	}
}
