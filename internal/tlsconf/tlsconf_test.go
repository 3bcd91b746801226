// This file holds tests with real files and real handshakes over the loopback.

package tlsconf_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/logging"
	"github.com/coordd/coordd/internal/tests/memnet"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/internal/tlsconf"
)

func newAuthority(t *testing.T) *certs.Authority {
	t.Helper()
	a, err := certs.NewAuthority("a test", 365*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *certs.Authority, r certs.Request) certs.Pair {
	t.Helper()
	r.Server, r.Client, r.Hosts = true, true, []string{"127.0.0.1"}
	p, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// in returns the files of a directory.
func in(dir string) tlsconf.Files {
	return tlsconf.Files{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		CA: filepath.Join(dir, "ca.crt")}
}

func writePair(t *testing.T, f tlsconf.Files, a *certs.Authority, p certs.Pair) {
	t.Helper()
	write(t, f.CA, a.Cert)
	write(t, f.Cert, p.Cert)
	write(t, f.Key, p.Key)
}

// logged is what a logger was given.
type logged struct{ wait.Buffer }

func (l *logged) count(what string) int { return strings.Count(l.String(), what) }

func open(t *testing.T, f tlsconf.Files) (*tlsconf.Store, *logged) {
	t.Helper()
	l := &logged{}
	s, err := tlsconf.Open(tlsconf.Config{Files: f, Name: "test",
		Logger: slog.New(slog.NewTextHandler(l, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

func name(s *tlsconf.Store) string { return s.Current().Pair.Leaf.Subject.CommonName }

// TestOldPairStays replaces files by what cannot be used, one after the other.
func TestOldPairStays(t *testing.T) {
	a, f := newAuthority(t), in(t.TempDir())
	first, second := issue(t, a, certs.Request{CommonName: "first"}), issue(t, a,
		certs.Request{CommonName: "second"})
	expired := issue(t, a, certs.Request{CommonName: "expired",
		From: time.Now().Add(-2 * time.Hour), To: time.Now().Add(-time.Hour)})
	writePair(t, f, a, first)
	s, log := open(t, f)
	for what, break_ := range map[string]func(){
		"another key":     func() { write(t, f.Key, second.Key) },
		"no certificate":  func() { write(t, f.Cert, []byte("garbage")) },
		"an expired one":  func() { writePair(t, f, a, expired) },
		"no authority":    func() { write(t, f.CA, nil) },
		"a missing file":  func() { _ = os.Remove(f.Key) },
		"a missing chain": func() { _ = os.Remove(f.Cert) },
	} {
		break_()
		for range 2 {
			if err := s.Reload(); err == nil || name(s) != "first" || s.Status()[0].Trouble == "" {
				t.Errorf("%s: %v, %s is in use", what, err, name(s))
			}
		}
		writePair(t, f, a, first)
		if err := s.Reload(); err != nil || s.Status()[0].Trouble != "" {
			t.Errorf("after %s: %v", what, err)
		}
	}
	if n := log.count("not usable"); n != 6 {
		t.Errorf("%d errors were logged for 6 reasons", n)
	}
	changes := 0
	s.OnChange(func() { changes++ })
	writePair(t, f, a, second)
	if err := s.Reload(); err != nil || name(s) != "second" || changes != 1 {
		t.Errorf("%v, %s, %d changes", err, name(s), changes)
	}
	if _, err := tlsconf.Open(tlsconf.Config{Files: in(t.TempDir()), Name: "client"}); err == nil ||
		!strings.HasPrefix(err.Error(), "client certificate: ") {
		t.Errorf("no files: %v", err)
	}
}

// TestNoAuthorityTrustsNobody opens files without authorities: the system's do not count.
func TestNoAuthorityTrustsNobody(t *testing.T) {
	a, f := newAuthority(t), in(t.TempDir())
	writePair(t, f, a, issue(t, a, certs.Request{}))
	f.CA = ""
	s, _ := open(t, f)
	if s.Current().CAs == nil {
		t.Error("the system's authorities verify clients")
	}
	cfg, err := s.Server(tls.RequireAndVerifyClientCert).GetConfigForClient(nil)
	if err != nil || cfg.ClientCAs == nil {
		t.Errorf("the system's authorities verify clients: %v", err)
	}
}

// TestExpiryIsKnown opens certificates that expire sooner or later.
func TestExpiryIsKnown(t *testing.T) {
	a, now := newAuthority(t), time.Now()
	for _, c := range []struct {
		to         time.Time
		soon, gone int
	}{{now.Add(31 * 24 * time.Hour), 0, 0}, {now.Add(29 * 24 * time.Hour), 1, 0},
		{now.Add(-time.Second), 0, 1}} {
		f := in(t.TempDir())
		writePair(t, f, a, issue(t, a, certs.Request{From: now.Add(-time.Hour), To: c.to}))
		s, log := open(t, f)
		if got := s.Status()[0].Expires; got.Unix() != c.to.Unix() {
			t.Errorf("expires %v, want %v", got, c.to)
		}
		if all := s.Status(); len(all) != 2 || all[1].Name != all[0].Name+"-authorities" ||
			all[1].Expires.Before(now.Add(364*24*time.Hour)) {
			t.Errorf("the authorities: %+v", all)
		}
		if soon, gone := log.count("expires soon"), log.count("certificate expired"); soon !=
			c.soon || gone != c.gone {
			t.Errorf("%v: %d and %d warnings", c.to, soon, gone)
		}
	}
}

// TestWatchFollowsLinks replaces files as editors, certbot and Kubernetes do.
// TestExpiryOfAuthorities: what counts is when the last one expires that the node's own certificate
// has. Another one beside it helps nobody until the certificates are replaced.
func TestExpiryOfAuthorities(t *testing.T) {
	old, err := certs.NewAuthority("old", 20*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	f, pair := in(t.TempDir()), certs.Request{From: time.Now().Add(-time.Hour),
		To: time.Now().Add(90 * 24 * time.Hour)}
	writePair(t, f, old, issue(t, old, pair))
	s, log := open(t, f)
	if days := time.Until(s.Status()[1].Expires) / (24 * time.Hour); days < 18 || days > 20 ||
		log.count("-authorities") != 1 {
		t.Errorf("%d days, %s", days, log.String())
	}
	next := newAuthority(t)
	both := append(append([]byte{}, old.Cert...), next.Cert...)
	for _, step := range []struct {
		why  string
		by   *certs.Authority
		long bool
	}{{"beside a new authority", old, false},
		{"after the certificate was replaced", next, true},
		{"of an authority that is not trusted here", newAuthority(t), true}} {
		writePair(t, f, step.by, issue(t, step.by, pair))
		write(t, f.CA, both)
		if err := s.Reload(); err != nil {
			t.Fatal(err)
		}
		if days := time.Until(s.Status()[1].Expires) / (24 * time.Hour); (days > 363) != step.long {
			t.Errorf("%s: %d days", step.why, days)
		}
	}
}

// TestExpiryOfTheClientsAuthority has clients of another authority than the node's, which expires
// soon: it counts once one of them was let in, and no more when it is not in the file.
func TestExpiryOfTheClientsAuthority(t *testing.T) {
	soon, err := certs.NewAuthority("clients", 3*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	own, f := newAuthority(t), in(t.TempDir())
	writePair(t, f, own, issue(t, own, certs.Request{}))
	write(t, f.CA, append(append([]byte{}, own.Cert...), soon.Cert...))
	s, _ := open(t, f)
	addr := listen(t, s, tls.RequireAndVerifyClientCert).Addr().String()
	days := func(why string, least, most time.Duration) {
		t.Helper()
		left := time.Until(s.Status()[1].Expires) / (24 * time.Hour)
		if left < least || left > most {
			t.Errorf("%s: %d days", why, left)
		}
	}
	show := func(by *certs.Authority) {
		t.Helper()
		pair := issue(t, by, certs.Request{To: time.Now().Add(time.Hour)})
		if err := echo(addr, clientOf(t, own, &pair)); err != nil {
			t.Error(err)
		}
	}
	days("nobody came", 363, 365)
	show(own)
	days("a client of the node's authority", 363, 365)
	show(soon)
	days("a client of another one", 1, 3)
	show(own)
	days("a client of each", 1, 3)
	write(t, f.CA, own.Cert)
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	days("it was removed", 363, 365)
}

func TestWatchFollowsLinks(t *testing.T) {
	a := newAuthority(t)
	version := func(name string) string {
		dir := t.TempDir()
		writePair(t, in(dir), a, issue(t, a, certs.Request{CommonName: name}))
		return dir
	}
	link := func(to, path string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, path+".new"), os.Rename(path+".new",
			path)); err != nil {
			t.Fatal(err)
		}
	}
	// as Kubernetes mounts a secret: the files are links through ..data, which is replaced
	dir := t.TempDir()
	link(version("v1"), filepath.Join(dir, "..data"))
	for _, path := range []string{"tls.crt", "tls.key", "ca.crt"} {
		link(filepath.Join("..data", path), filepath.Join(dir, path))
	}
	s, _ := open(t, in(dir))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() { s.Watch(ctx); close(ended) }()
	uses := func(want string) {
		t.Helper()
		wait.For(t, 10*time.Second, want+" in use", func() bool { return name(s) == want })
	}
	uses("v1")
	link(version("v2"), filepath.Join(dir, "..data"))
	uses("v2")
	last := version("v3")
	link(last, filepath.Join(dir, "..data"))
	uses("v3")
	// written in place, in the directory that the links lead to
	writePair(t, in(last), a, issue(t, a, certs.Request{CommonName: "v4"}))
	uses("v4")
	cancel()
	wait.Receive(t, 10*time.Second, "the end of Watch", ended)
}

// listen returns a listener whose connections echo.
func listen(t *testing.T, s *tlsconf.Store, auth tls.ClientAuthType) *tlsconf.Listener {
	t.Helper()
	inner := ports.Listen(t)
	return listenAt(t, inner, s, auth)
}

func listenAt(t *testing.T, inner net.Listener, s *tlsconf.Store,
	auth tls.ClientAuthType) *tlsconf.Listener {
	t.Helper()
	warnings := logging.NewLimited(slog.New(slog.DiscardHandler))
	door := halfopen.NewDoor(halfopen.Rate{AtOnce: 5000}, warnings)
	ln := tlsconf.NewListener(inner, s.Server(auth), door, warnings)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return ln
}

// echo dials, and reports whether a byte comes back.
func echo(addr string, cfg *tls.Config) error {
	raw, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	return echoOver(raw, cfg)
}

// echoOver is echo on a connection, which it closes.
func echoOver(raw net.Conn, cfg *tls.Config) error {
	cfg = cfg.Clone()
	cfg.ServerName = "127.0.0.1"
	conn := tls.Client(raw, cfg)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	var b [1]byte
	_, err := io.ReadFull(conn, b[:])
	return err
}

func clientOf(t *testing.T, a *certs.Authority, p *certs.Pair) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AppendCertsFromPEM(a.Cert)
	if p != nil {
		pair, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// TestHandshakes tries clients with and without a certificate, old versions of TLS, and a change of
// the authority.
func TestHandshakes(t *testing.T) {
	a, b, f := newAuthority(t), newAuthority(t), in(t.TempDir())
	writePair(t, f, a, issue(t, a, certs.Request{}))
	s, _ := open(t, f)
	none := listen(t, s, tls.NoClientCert).Addr().String()
	required := listen(t, s, tls.RequireAndVerifyClientCert).Addr().String()
	own, foreign := issue(t, a, certs.Request{}), issue(t, b, certs.Request{})
	expired := issue(t, a, certs.Request{From: time.Now().Add(-time.Hour),
		To: time.Now().Add(-time.Minute)})
	try := func(what, addr string, cfg *tls.Config, good bool) {
		t.Helper()
		if err := echo(addr, cfg); (err == nil) != good {
			t.Errorf("%s: %v", what, err)
		}
	}
	try("no certificate", none, clientOf(t, a, nil), true)
	try("no certificate where one is required", required, clientOf(t, a, nil), false)
	try("a certificate", required, clientOf(t, a, &own), true)
	try("a stranger's certificate", required, clientOf(t, a, &foreign), false)
	try("an expired certificate", required, clientOf(t, a, &expired), false)
	try("a client of another authority", none, clientOf(t, b, nil), false)
	old := clientOf(t, a, nil)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	try("TLS 1.1", none, old, false)
	old.MaxVersion = tls.VersionTLS12
	try("TLS 1.2", none, old, true)

	// with a cache, a client resumes sessions if the server lets it
	resuming := clientOf(t, a, &own)
	resuming.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	try("a client that resumes", required, resuming, true)
	writePair(t, f, b, issue(t, b, certs.Request{}))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	resuming.RootCAs.AppendCertsFromPEM(b.Cert)
	try("a client of the old authority", required, resuming, false)
	try("a client of the new authority", required, clientOf(t, b, &foreign), true)
}

// TestSilentConnections opens more connections than may be in a handshake: some say nothing, some
// half a record. Another address still gets in, and none of them stays.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f := newAuthority(t), in(t.TempDir())
		writePair(t, f, a, issue(t, a, certs.Request{}))
		s, _ := open(t, f)
		ln := memnet.Listen()
		listenAt(t, ln, s, tls.NoClientCert)
		ln.Clients = net.ParseIP("127.0.0.2")
		var silent []net.Conn
		for i := range tlsconf.MaxHandshakes + 20 {
			conn, err := ln.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if i%2 == 1 {
				_, _ = conn.Write([]byte{22, 3, 1, 2, 0, 1})
			}
			silent = append(silent, conn)
		}
		ln.Clients = nil
		conn, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if err := echoOver(conn, clientOf(t, a, nil)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, conn := range []net.Conn{silent[0], silent[19], silent[len(silent)-1]} {
			_ = conn.SetReadDeadline(began.Add(3 * tlsconf.HandshakeTimeout))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a silent connection stays open")
			}
		}
	})
}

// TestDeadlineLetsHandshakesEnd stops accepting while a handshake is under way.
func TestDeadlineLetsHandshakesEnd(t *testing.T) {
	a, f := newAuthority(t), in(t.TempDir())
	writePair(t, f, a, issue(t, a, certs.Request{}))
	s, _ := open(t, f)
	ln := listen(t, s, tls.NoClientCert)
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	// whoever was accepted before is served, so this one is accepted by then
	if err := echo(ln.Addr().String(), clientOf(t, a, nil)); err != nil {
		t.Fatal(err)
	}
	if err := ln.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	wait.For(t, 5*time.Second, "the port is closed", func() bool {
		late, err := net.Dial("tcp", ln.Addr().String())
		if err == nil {
			_ = late.Close()
		}
		return err != nil
	})
	cfg := clientOf(t, a, nil)
	cfg.ServerName = "127.0.0.1"
	conn := tls.Client(raw, cfg)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = conn.Write([]byte("x"))
	var b [1]byte
	if err == nil {
		_, err = io.ReadFull(conn, b[:])
	}
	if err != nil || b[0] != 'x' {
		t.Errorf("the handshake was cut off: %v", err)
	}
}

// TestExpiryEndsNoConnection: a certificate that has expired is refused, but not on a connection
// that is open, unless its authority is gone.
func TestExpiryEndsNoConnection(t *testing.T) {
	a, other, f := newAuthority(t), newAuthority(t), in(t.TempDir())
	writePair(t, f, a, issue(t, a, certs.Request{}))
	s, _ := open(t, f)
	now := time.Now()
	for what, r := range map[string]certs.Request{"valid": {},
		"expired":       {From: now.Add(-3 * time.Minute), To: now.Add(-time.Minute)},
		"not yet valid": {From: now.Add(time.Hour)}} {
		for _, by := range []*certs.Authority{a, other} {
			p := issue(t, by, r)
			pair, err := tls.X509KeyPair(p.Cert, p.Key)
			if err != nil {
				t.Fatal(err)
			}
			chain, use := []*x509.Certificate{pair.Leaf}, x509.ExtKeyUsageClientAuth
			err, openErr := s.Current().Verify(chain, use), s.Current().VerifyOpen(chain, use)
			if (err == nil) != (by == a && what == "valid") ||
				(openErr == nil) != (by == a && what != "not yet valid") {
				t.Errorf("%s, known %v: %v, on an open connection %v", what, by == a, err, openErr)
			}
		}
	}
}

// Handshakes compute in turn; those that wait for their clients hold up nobody.
func TestSlowHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f := newAuthority(t), in(t.TempDir())
		writePair(t, f, a, issue(t, a, certs.Request{CommonName: "test"}))
		s, _ := open(t, f)
		ln := memnet.Listen()
		listenAt(t, ln, s, tls.NoClientCert)
		for range 4 * runtime.GOMAXPROCS(0) {
			slow, err := ln.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			if _, err := slow.Write([]byte("\x16\x03\x01\x02\x00\x01")); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		began := time.Now()
		for range 50 {
			all.Go(func() {
				conn, err := ln.Dial()
				if err != nil {
					t.Error(err)
					return
				}
				if err := echoOver(conn, &tls.Config{InsecureSkipVerify: true}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("after %v", took)
		}
	})
}
