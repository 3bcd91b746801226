// Connections over TLS: what a session needs of the socket below, and which addresses of members
// its client is given.

package server

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/audit"
	"github.com/coordd/coordd/internal/tlsconf"
)

// tlsBytes is what crypto/tls keeps for an idle connection, as measured: 8 KiB, and a part of the
// largest record that it has read.
const tlsBytes = 12 << 10

// ServeTLS is Serve with TLS. Handshakes are completed under limits before there is a session.
func (s *Server) ServeTLS(ln net.Listener, cfg *tls.Config) error {
	s.mu.Lock()
	if a, ok := ln.Addr().(*net.TCPAddr); ok && s.tlsPort == 0 {
		s.tlsPort = a.Port
	}
	s.mu.Unlock()
	return s.serve(tlsconf.NewListener(s.gate.Guard(ln, s.checkAddresses), cfg, s.door,
		s.warnings), s.gate)
}

// verifier checks a client's certificate with its chain, leaf first.
type verifier func(chain []*x509.Certificate) error

// CloseUnverified closes the connections of clients whose certificate is no longer valid. verify
// also checks those whose handshake is under way, and later ones.
func (s *Server) CloseUnverified(verify func(chain []*x509.Certificate) error) {
	s.mu.Lock()
	s.verify = verify
	s.mu.Unlock()
	for _, c := range s.all() {
		c.verifyAgain(verify)
	}
}

// verifyAgain ends the session if the client's certificate is no longer valid.
func (s *session) verifyAgain(verify verifier) {
	chain := s.certificates()
	if verify == nil || len(chain) == 0 {
		return
	}
	if err := verify(chain); err != nil {
		s.srv.warnings.Warn("closed a client: its certificate is no longer valid", "client", s.addr,
			"error", err)
		s.dismiss()
	}
}

// certificates returns the client's certificate with its chain, leaf first, which the handshake has
// verified; empty: it showed none.
func (s *session) certificates() []*x509.Certificate {
	if t, ok := s.conn.(*tls.Conn); ok {
		return t.ConnectionState().PeerCertificates
	}
	return nil
}

// authenticateByCertificate makes the user that the client's certificate names the session's, if
// there is such a user who is on. It fails while it cannot find out.
func (s *session) authenticateByCertificate() error {
	if s.certifiedAs == "" {
		return nil
	}
	users, err := s.knownUsers()
	if err != nil {
		return err
	}
	name := []byte(s.certifiedAs)
	created := uint64(0)
	err = commands.ErrWrongPass // below LevelSecond there is nobody
	if users.Level >= commands.LevelSecond {
		created, err = s.srv.askUser(s.id, []byte(commands.SystemUser), name)
	}
	switch err {
	case nil:
		former := s.user.Load()
		err = s.welcome(former, s.become(name, created))
		outcome := audit.OK
		if err != nil {
			outcome = string(codeOf(err.Error()))
		}
		s.auditCertificate(name, outcome)
		return err
	case commands.ErrWrongPass:
		s.certifiedAs = ""
		s.auditCertificate(name, "no such user is on")
		s.srv.warnings.Warn("a client's certificate names no user who is on", "client", s.addr,
			"user", string(name))
		return nil
	}
	return err
}

// socket returns the connection below TLS, or the connection itself.
func socket(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return tlsconf.Socket(t)
	}
	return conn
}

// takeDecrypted takes over input that TLS has read ahead, so that it counts as received. It waits
// for nothing.
func (s *session) takeDecrypted() {
	if _, ok := s.conn.(*tls.Conn); ok && len(s.in.ahead) == 0 {
		_ = s.conn.SetReadDeadline(past)
		_ = s.in.peek() // an error recurs
	}
}

// closeWrite says that nothing more is sent. Without TLS the system does so by itself.
func closeWrite(conn net.Conn) error {
	under := socket(conn)
	if t, ok := conn.(*tls.Conn); ok {
		limit := time.AfterFunc(lastWrites, func() { _ = under.Close() }) // its own limit is longer
		err := t.CloseWrite()
		limit.Stop()
		if err != nil {
			return err
		}
	}
	c, ok := under.(interface{ CloseWrite() error })
	if !ok {
		return net.ErrClosed
	}
	return c.CloseWrite()
}

// seesTLS reports whether a client reaches members at their TLS addresses: it uses TLS itself, or
// it is local and this node has no other address. The caller holds mu.
func (s *Server) seesTLS(conn net.Conn) bool {
	_, is := conn.(*tls.Conn)
	return is || s.port == 0 && s.tlsPort != 0
}

// seenBy returns the status with the addresses that a client can use: over TLS those for TLS.
func (st Status) seenBy(s *session) Status {
	if !s.seesTLS {
		return st
	}
	st.Members = slices.Clone(st.Members)
	for i := range st.Members {
		m := &st.Members[i]
		m.ClientAddr = m.TLSAddr
	}
	st.LeaderAddr = ""
	if leader := st.member(st.LeaderID); leader != nil {
		st.LeaderAddr = leader.ClientAddr
	}
	return st
}

// status returns the status as the session's client sees it.
func (s *session) status() Status { return s.srv.backend.Status().seenBy(s) }
