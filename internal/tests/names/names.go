package names

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// SRV is a target of SRV records.
type SRV struct {
	Target string
	Port   uint16
}

// Server answers by UDP. It knows the names that Set and SetSRV gave it, and no others.
type Server struct {
	Addr string // host:port

	mu      sync.Mutex
	failing bool
	hosts   map[string][]netip.Addr
	srvs    map[string][]SRV
}

// Start starts a server, which ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: conn.LocalAddr().String(), hosts: map[string][]netip.Addr{},
		srvs: map[string][]SRV{}}
	done := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1<<12)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := s.answer(buf[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return s
}

// Set sets the addresses of a host name; none: it does not exist.
func (s *Server) Set(name string, addrs ...string) {
	var ips []netip.Addr
	for _, a := range addrs {
		ips = append(ips, netip.MustParseAddr(a))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[name+"."] = ips
}

// SetSRV sets the SRV records of a name.
func (s *Server) SetSRV(name string, targets ...SRV) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.srvs[name+"."] = targets
}

// Fail makes every answer a failure of the server, or not.
func (s *Server) Fail(failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = failing
}

func (s *Server) answer(query []byte) []byte {
	var q dnsmessage.Message
	if q.Unpack(query) != nil || len(q.Questions) != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := q.Questions[0]
	name := strings.ToLower(asked.Name.String())
	a := dnsmessage.Message{Questions: q.Questions, Header: dnsmessage.Header{ID: q.ID,
		Response: true, Authoritative: true, RCode: dnsmessage.RCodeSuccess}}
	add := func(body dnsmessage.ResourceBody) {
		a.Answers = append(a.Answers, dnsmessage.Resource{Body: body,
			Header: dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class}})
	}
	switch {
	case s.failing:
		a.RCode = dnsmessage.RCodeServerFailure
	case len(s.hosts[name])+len(s.srvs[name]) == 0:
		a.RCode = dnsmessage.RCodeNameError
	case asked.Type == dnsmessage.TypeSRV:
		for _, srv := range s.srvs[name] {
			add(&dnsmessage.SRVResource{Port: srv.Port,
				Target: dnsmessage.MustNewName(srv.Target + ".")})
		}
	}
	for _, ip := range s.hosts[name] {
		switch {
		case s.failing:
		case ip.Is4() && asked.Type == dnsmessage.TypeA:
			add(&dnsmessage.AResource{A: ip.As4()})
		case ip.Is6() && asked.Type == dnsmessage.TypeAAAA:
			add(&dnsmessage.AAAAResource{AAAA: ip.As16()})
		}
	}
	answer, err := a.Pack()
	if err != nil {
		return nil
	}
	return answer
}
