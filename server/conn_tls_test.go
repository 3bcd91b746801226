// Tests of clients over TLS. With the flag -tls, those of other files run over TLS too.

package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/tier"
)

var overTLS = flag.Bool("tls", false, "clients of the tests use TLS")

// plainOnly skips a test with -tls: it is about addresses and ports, or about single reads.
func plainOnly(t *testing.T) {
	t.Helper()
	if *overTLS {
		t.Skip("with TLS it shows nothing")
	}
}

// nodeTLS is how the clients of a test use TLS.
type nodeTLS struct {
	addr   string
	client *tls.Config
}

// testCertificates are an authority's, a server's and a client's, for all tests.
var testCertificates = sync.OnceValue(func() (c struct {
	pool           *x509.CertPool
	server, client tls.Certificate
}) {
	a, err := certs.NewAuthority("test", time.Hour)
	pair := func(r certs.Request) tls.Certificate {
		p, issueErr := a.Issue(r)
		pair, pairErr := tls.X509KeyPair(p.Cert, p.Key)
		err = errors.Join(err, issueErr, pairErr)
		return pair
	}
	c.pool = x509.NewCertPool()
	c.pool.AppendCertsFromPEM(a.Cert)
	c.server = pair(certs.Request{Server: true, Hosts: []string{"127.0.0.1"}})
	c.client = pair(certs.Request{Client: true, CommonName: "app"})
	if err != nil {
		panic(err)
	}
	return c
})

// startSecure is start for a node that serves TLS too.
func startSecure(t testing.TB, change func(*Config)) *node {
	t.Helper()
	n := start(t, change)
	if !*overTLS {
		n.startTLS(t)
	}
	return n
}

func (n *node) startTLS(t testing.TB) {
	t.Helper()
	ln := ports.Listen(t)
	c := testCertificates()
	served := make(chan error, 1)
	go func() {
		served <- n.ServeTLS(ln, &tls.Config{Certificates: []tls.Certificate{c.server},
			ClientCAs: c.pool, ClientAuth: tls.VerifyClientCertIfGiven})
	}()
	t.Cleanup(func() {
		n.Close()
		if err := receive(t, "ServeTLS ends", served); err != nil {
			t.Errorf("ServeTLS: %v", err)
		}
	})
	n.tls = nodeTLS{ln.Addr().String(), &tls.Config{RootCAs: c.pool}}
	if *overTLS {
		n.fake.set(func() {
			for i := range n.fake.st.Members {
				m := &n.fake.st.Members[i]
				m.TLSAddr = m.ClientAddr
			}
		})
	}
}

func (n *node) dialTLS(t testing.TB) *client {
	t.Helper()
	conn, err := tls.Dial("tcp", n.tls.addr, n.tls.client)
	c := newClient(t, conn, err)
	n.sessionOf(c) // the client completes the handshake before the server
	return c
}

// hasClient reports whether there is a session with a client at an address.
func (n *node) hasClient(addr net.Addr) bool {
	return slices.ContainsFunc(n.all(), func(c *session) bool { return c.addr == addr.String() })
}

// TestPromisesHoldOverTLS runs the tests of what TLS comes in between of, with their clients over
// TLS: the graceful stop, the test whether a client is there, deadlines, limits, and half-close.
// Without make check, it runs one or two of each.
func TestPromisesHoldOverTLS(t *testing.T) {
	if *overTLS {
		t.Skip("this is that run")
	}
	words := []string{"TestCloseAnswersWhatCame", "TestCloseIsNotMissed", "TestCloseLetsClientsEnd",
		"TestRetire", "TestKill", "TestVanishedWaiterTakesNothing", "TestMuchBehindAWait",
		"TestSlowSubscriber", "TestSubscribeHasNoGap", "TestTimeoutOfClientsThatDoNotRead",
		"TestBackupBehindUnreadMessages", "TestMonitorIsBounded"}
	if tier.Soaking() {
		words = []string{"Clos", "Retire", "Kill", "Wait", "Limit", "Slow", "Pause", "Subscri",
			"Backup", "Monitor", "Session"}
	}
	out, err := osexec.Command(os.Args[0], "-tls", "-test.v", "-test.run", strings.Join(words, "|"),
		"-test.skip", "^Fuzz", "-test.timeout", "5m").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passed := regexp.MustCompile(`(?m)^--- PASS: \S+`).FindAllString(string(out), -1)
	for _, word := range words {
		if !slices.ContainsFunc(passed, func(line string) bool {
			return strings.Contains(line, word)
		}) {
			t.Errorf("no test about %s passed", word)
		}
	}
	t.Logf("%d tests", len(passed))
}

// TestAddressesOverTLS asks for addresses over TLS and without it.
func TestAddressesOverTLS(t *testing.T) {
	plainOnly(t)
	n := startSecure(t, func(c *Config) { c.PresentAs = PresentCluster })
	n.fake.set(func() {
		for i, addr := range []string{"10.0.0.1:9001", "db2:9002", ""} {
			n.fake.st.Members[i].TLSAddr = addr
		}
	})
	plain, secure := n.dial(t), n.dialTLS(t)
	watchers := map[*client]string{plain: "10.0.0.2 7001", secure: "db2 9002"}
	for c := range watchers {
		c.call("SUBSCRIBE", "+switch-master")
	}
	n.follow(t)
	for c, to := range watchers {
		if got := c.next(); !strings.HasSuffix(got, " "+to+"\r\n") {
			t.Errorf("%q, want %s", got, to)
		}
		c.call("UNSUBSCRIBE")
	}
	for _, test := range []struct{ call, plain, secure string }{
		{"SET foo 1", "-MOVED 12182 10.0.0.2:7001\r\n", "-MOVED 12182 db2:9002\r\n"},
		{"CLUSTER SLOTS", ":7001\r\n", ":9002\r\n"},
		{"CLUSTER SHARDS", "$4\r\nport\r\n:7001\r\n", "$8\r\ntls-port\r\n:9002\r\n"},
		{"CLUSTER NODES", "10.0.0.2:7001@8001", "db2:9002@8001,db2"},
		{"SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", "$4\r\n7001", "$4\r\n9002"},
		{"SENTINEL REPLICAS mymaster", "10.0.0.1:7001", "10.0.0.1:9001"},
		{"SENTINEL SENTINELS mymaster", "10.0.0.2:7001", "db2:9002"},
		{"ROLE", ":7001\r\n", ":9002\r\n"},
		{"INFO replication", "master_port:7001", "master_port:9002"},
		{"RAFT STATUS", "10.0.0.2:7001", "db2:9002"},
		{"RAFT MEMBERS", "db2:9002", "10.0.0.2:7001"}, // both are for everybody
	} {
		words := strings.Fields(test.call)
		if got := plain.call(words...); !strings.Contains(got, test.plain) {
			t.Errorf("%s: %q, want %q", test.call, got, test.plain)
		}
		if got := secure.call(words...); !strings.Contains(got, test.secure) {
			t.Errorf("%s over TLS: %q, want %q", test.call, got, test.secure)
		}
	}
	// a leader without TLS is none for a client that uses it, and the node takes its commands
	n.fake.set(func() { n.fake.st.Members[1].TLSAddr = "" })
	n.fake.leaderChanged <- struct{}{}
	eventually(t, "the server notices", func() bool { return n.leader.Load().onTLS == "" })
	if got := secure.call("CLUSTER", "SLOTS"); !strings.HasPrefix(got, "-CLUSTERDOWN") {
		t.Errorf("%q", got)
	}
	if got := secure.call("SET", "foo", "1"); got != "+OK\r\n" {
		t.Errorf("%q", got)
	}
}

// TestDisconnectIsNoticedOverTLS: a client says goodbye in a record before it closes, which is
// unread input of the connection.
func TestDisconnectIsNoticedOverTLS(t *testing.T) {
	n := startSecure(t, nil)
	ln := ports.Listen(t)
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		raw, _ := ln.Accept()
		conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{
			testCertificates().server}})
		_ = conn.Handshake()
		accepted <- conn
	}()
	client, err := tls.Dial("tcp", ln.Addr().String(), n.tls.client)
	if err != nil {
		t.Fatal(err)
	}
	conn := receive(t, "a connection", accepted)
	defer conn.Close()
	if !clientConnected(conn) {
		t.Error("a client that is there is missed")
	}
	if _, err := client.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request arrives", func() bool { return inputPending(conn) })
	if !clientConnected(conn) {
		t.Error("a client that sends is missed")
	}
	_ = client.Close()
	eventually(t, "the disconnect is noticed", func() bool { return !clientConnected(conn) })
}

// TestCloseAnswersWhatTLSHolds: TLS may have read more records of a client than the session. They
// count as received when the server closes.
func TestCloseAnswersWhatTLSHolds(t *testing.T) {
	n := startSecure(t, nil)
	raw, err := net.Dial("tcp", n.tls.addr)
	if err != nil {
		t.Fatal(err)
	}
	joined := &joiner{Conn: raw}
	cfg := n.tls.client.Clone()
	cfg.ServerName = "127.0.0.1"
	conn := tls.Client(joined, cfg)
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	begun, gate := make(chan struct{}), make(chan struct{})
	n.fake.set(func() { n.fake.begun, n.fake.gate = begun, gate })
	// three requests, each in a record of its own, in one packet: TLS reads them at once
	joined.hold = true
	for range 3 {
		if _, err := conn.Write([]byte("INCR a\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := joined.release(); err != nil {
		t.Fatal(err)
	}
	receive(t, "the first request runs", begun)
	wait := n.closeBehind(t)
	n.fake.set(func() { n.fake.begun, n.fake.gate = nil, nil })
	close(gate)
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	all, err := io.ReadAll(conn)
	if string(all) != ":1\r\n:2\r\n:3\r\n" || err != nil {
		t.Errorf("%q, %v", all, err)
	}
	wait()
}

// joiner holds back what is written, to send it in one packet.
type joiner struct {
	net.Conn
	hold bool
	held []byte
}

func (j *joiner) Write(p []byte) (int, error) {
	if j.hold {
		j.held = append(j.held, p...)
		return len(p), nil
	}
	return j.Conn.Write(p)
}

func (j *joiner) release() error {
	j.hold = false
	_, err := j.Conn.Write(j.held)
	return err
}

// TestRecordsOfOneByte sends requests in records of one byte.
func TestRecordsOfOneByte(t *testing.T) {
	n := startSecure(t, nil)
	conn, err := tls.Dial("tcp", n.tls.addr, n.tls.client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, b := range []byte(calls("SET a 1", "GET a")) {
		if _, err := conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	want := "+OK\r\n$1\r\n1\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEndsOverTLS: a client over TLS sees the orderly end of a connection, and a client that does
// not read keeps no session for long.
func TestEndsOverTLS(t *testing.T) {
	n := startSecure(t, nil)
	conn, err := tls.Dial("tcp", n.tls.addr, n.tls.client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("QUIT\r\n")); err != nil {
		t.Fatal(err)
	}
	// without the goodbye of TLS, this would be an unexpected end
	if all, err := io.ReadAll(conn); string(all) != "+OK\r\n" || err != nil {
		t.Errorf("%q, %v", all, err)
	}

	n.dial(t).call("SET", "big", strings.Repeat("x", 8<<20))
	stuck, err := tls.Dial("tcp", n.tls.addr, n.tls.client)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if _, err := stuck.Write([]byte("GET big\r\n")); err != nil {
		t.Fatal(err)
	}
	admin := n.dial(t)
	eventually(t, "it does not read", func() bool {
		for _, c := range n.all() {
			if c.state.Load() == waitsForOutput && c.addr == stuck.LocalAddr().String() {
				return true
			}
		}
		return false
	})
	began := time.Now()
	if got := admin.call("CLIENT", "KILL", stuck.LocalAddr().String()); got != "+OK\r\n" {
		t.Fatal(got)
	}
	eventually(t, "its session ends", func() bool { return !n.hasClient(stuck.LocalAddr()) })
	if took := time.Since(began); took > 4*lastWrites { // TLS alone would wait for five seconds
		t.Errorf("a client that does not read was closed after %v", took)
	}
}

// TestCertificatesAreCheckedAgain closes the clients whose certificate a new authority does not
// know.
func TestCertificatesAreCheckedAgain(t *testing.T) {
	n := startSecure(t, nil)
	without := n.dialTLS(t)
	n.tls.client.Certificates = []tls.Certificate{testCertificates().client}
	with := n.dialTLS(t)
	with.call("PING")
	without.call("PING")
	n.CloseUnverified(func(chain []*x509.Certificate) error {
		if name := chain[0].Subject.CommonName; name != "app" {
			t.Errorf("the certificate of %q", name)
		}
		return nil
	})
	with.call("PING")
	n.CloseUnverified(func([]*x509.Certificate) error { return errors.New("unknown authority") })
	with.ended()
	without.call("PING")
}

// TestAuthorityReplacedDuringHandshake replaces the authority when a client has yet to show its
// certificate: the handshake goes on with the old one.
func TestAuthorityReplacedDuringHandshake(t *testing.T) {
	n := startSecure(t, nil)
	cfg, shown := n.tls.client.Clone(), testCertificates().client
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		n.CloseUnverified(func([]*x509.Certificate) error { return errors.New("unknown") })
		return &shown, nil
	}
	conn, err := tls.Dial("tcp", n.tls.addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = conn.Write([]byte("PING\r\n"))
	if reply, err := io.ReadAll(conn); len(reply) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q %v", reply, err)
	}
}

// TestSilentClientsWithCertificate has clients with the certificate of a user say nothing: they
// stay if there is that user.
func TestSilentClientsWithCertificate(t *testing.T) {
	n := startSecure(t, func(c *Config) {
		byHand(c)
		c.TLSUsers, c.AuthTimeout = true, time.Minute
	})
	n.setPassword(t, "pw")
	n.tls.client.Certificates = []tls.Certificate{testCertificates().client}
	n.fake.setUser(t, "app", "on", "+@all")
	app := n.dialTLS(t)
	eventually(t, "app is in", func() bool {
		return slices.ContainsFunc(n.all(), func(s *session) bool { return s.userName() == "app" })
	})
	n.fake.setUser(t, "app", "off")
	silent := n.dialTLS(t)
	for _, after := range []time.Duration{0, time.Minute} {
		for _, s := range n.all() {
			n.checkIdle(s, time.Now().Add(after))
		}
	}
	silent.ended()
	if got := app.call("PING"); got != "+PONG\r\n" {
		t.Error(got)
	}
	if got := n.stats.unauthenticatedClosed.Load(); got != 1 {
		t.Errorf("%d closed", got)
	}
}

// Those whose certificates name their user have its limit, and places of the reserve.
func TestMaxUserClientsWithCertificate(t *testing.T) {
	n := startSecure(t, func(c *Config) {
		c.TLSUsers, c.MaxUserClients, c.MaxClients = true, 1, 2
	})
	n.tls.client.Certificates = []tls.Certificate{testCertificates().client}
	n.fake.setUser(t, "app", "on", "~*", "+@all", "-@admin")
	connect := func() *client {
		conn, err := tls.Dial("tcp", n.tls.addr, n.tls.client)
		return newClient(t, conn, err)
	}
	for range 2 {
		app := connect()
		if got := app.call("PING"); got != "+PONG\r\n" {
			t.Fatal(got)
		}
		late := connect()
		late.want("-ERR max number of clients of user 'app' reached, which is 1\r\n")
		late.ended()
		_ = app.Close()
		eventually(t, "app has left", func() bool { return len(n.all()) == 0 })
	}
	n.fake.setUser(t, "app", "+@all")
	for i := range 2 + reserveClients {
		if got := connect().call("PING"); got != "+PONG\r\n" {
			t.Fatalf("%d: %s", i, got)
		}
	}
	connect().want("-" + string(errMaxClients) + "\r\n")
}

// TestCertificateNamesUser connects with the certificate of a user, before and after the user is
// there and on.
func TestCertificateNamesUser(t *testing.T) {
	n := startSecure(t, func(c *Config) { c.TLSUsers = true })
	set := func(rules ...string) {
		t.Helper()
		n.fake.setUser(t, "app", rules...)
	}
	connect := func() *client {
		n.tls.client = n.tls.client.Clone()
		n.tls.client.Certificates = []tls.Certificate{testCertificates().client}
		return n.dialTLS(t)
	}
	is := func(c *client, user string) {
		t.Helper()
		if got := c.call("ACL", "WHOAMI"); !strings.Contains(got, "\r\n"+user+"\r\n") {
			t.Errorf("%q, want %s", got, user)
		}
	}
	is(connect(), "default")
	set("on", "~lock:*", "+@all", "-echo")
	app := connect()
	is(app, "app")
	if got := app.call("ECHO", "a"); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("%q", got)
	}
	before := n.fake.Users()
	set("off")
	is(connect(), "default")
	now := n.fake.users.Swap(before) // a node that lags asks the others
	is(connect(), "default")
	n.fake.users.Store(now)

	// a node that does not know the users yet answers nothing, and finds the user afterwards
	set("on")
	users := n.fake.users.Swap(nil)
	n.fake.set(func() { n.fake.st.Loading = true }) // the client does not wait
	early := connect()
	if got := early.call("ECHO", "a"); !strings.HasPrefix(got, "-LOADING") {
		t.Errorf("%q", got)
	}
	n.fake.users.Store(users)
	is(early, "app")
}
