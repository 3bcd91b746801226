package server

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/ports"
)

// farListener shows its clients as if they came from another address.
type farListener struct {
	net.Listener
	from net.IP
	own  bool // they connect to that address, too: it is this machine's
}

type farConn struct {
	*net.TCPConn
	from net.TCPAddr
	own  bool
}

func (l *farListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	far := &farConn{conn.(*net.TCPConn), *conn.RemoteAddr().(*net.TCPAddr), l.own}
	far.from.IP = l.from
	return far, nil
}

func (c *farConn) RemoteAddr() net.Addr { return &c.from }

func (c *farConn) LocalAddr() net.Addr {
	if c.own {
		return &net.TCPAddr{IP: c.from.IP, Port: 6379}
	}
	return c.TCPConn.LocalAddr()
}

// listenFrom makes the node serve clients that it sees come from an address, and returns where.
func (n *node) listenFrom(t *testing.T, address string) string {
	t.Helper()
	return n.listenAs(t, &farListener{from: net.ParseIP(address)})
}

func (n *node) listenAs(t *testing.T, far *farListener) string {
	t.Helper()
	ln := ports.Listen(t)
	far.Listener = ln
	served := make(chan error, 1)
	go func() { served <- n.Serve(far) }()
	t.Cleanup(func() {
		n.Retire()
		if err := receive(t, "Serve ends", served); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func dialAt(t testing.TB, addr string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	return newClient(t, conn, err)
}

// setPassword sets the password of the default user; "": none.
func (n *node) setPassword(t *testing.T, password string) {
	t.Helper()
	var changed string
	n.fake.set(func() {
		changed = strconv.FormatUint(uint64(n.fake.machine.Users().Changed), 10)
	})
	words := commandtest.Args(commands.SettingDefaultUser, changed, "resetpass", "nopass")
	if password != "" {
		words[3] = []byte("#" + acl.Hash([]byte(password)))
	}
	q := commands.Request{Proto: 2, System: true, Cmds: [][][]byte{words}}
	reply, err := n.fake.run("write", commands.AppendRequest(nil, &q), true)
	if err != nil || string(reply) != "+OK\r\n" {
		t.Fatalf("%q, %v", reply, err)
	}
}

const deniedReply = "-" + string(errProtected) + "\r\n"

func TestProtectedMode(t *testing.T) {
	n := start(t, nil)
	near, far := n.dial(t), n.listenFrom(t, "192.0.2.7")
	denied := func() {
		t.Helper()
		c := dialAt(t, far)
		c.want(deniedReply)
		c.ended()
	}
	denied()
	if info := near.call("INFO", "stats"); !strings.Contains(info, "rejected_connections:1\r\n") {
		t.Error(info)
	}
	near.call("CONFIG", "SET", "protected-mode", "no")
	served := dialAt(t, far)
	if got := served.call("PING"); got != "+PONG\r\n" {
		t.Error(got)
	}
	if limit, protected := n.stats.rejected.Load(), n.stats.protected.Load(); limit != 0 ||
		protected != 1 {
		t.Errorf("%d count as refused by maxclients, %d by protected mode", limit, protected)
	}
	near.call("CONFIG", "SET", "protected-mode", "yes")
	if got := served.call("PING"); got != "+PONG\r\n" {
		t.Errorf("%s to a connection of before", got)
	}
	denied()

	n.setPassword(t, "secret")
	c := dialAt(t, far)
	if got := c.call("PING"); got != "-"+string(commands.ErrNoAuth)+"\r\n" {
		t.Error(got)
	}
	if got := c.call("AUTH", "secret"); got != "+OK\r\n" {
		t.Error(got)
	}
	n.setPassword(t, "")
	denied()
}

// A node that does not know the users yet keeps connections, but nobody from outside may use them.
func TestProtectedModeBeforeTheUsersAreKnown(t *testing.T) {
	n := start(t, nil)
	far := n.listenFrom(t, "192.0.2.7")
	known := n.fake.users.Load()
	n.fake.set(func() { n.fake.st.Loading = true }) // clients do not wait
	for _, unknown := range []*Users{nil, UsersAwaited} {
		n.fake.users.Store(unknown)
		c := dialAt(t, far)
		for range 2 {
			got := c.call("PING") + c.call("GET", "k") + c.call("NOSUCH")
			if strings.Count(got, "-LOADING ") != 3 {
				t.Error(got)
			}
		}
		n.fake.users.Store(known)
		if got := c.call("PING"); got != deniedReply {
			t.Error(got)
		}
		c.ended()
	}
	if limit, protected := n.stats.rejected.Load(), n.stats.protected.Load(); limit != 0 ||
		protected != 2 {
		t.Errorf("%d count as refused by maxclients, %d by protected mode", limit, protected)
	}

	n.fake.users.Store(nil)
	c := dialAt(t, far)
	c.call("PING")
	n.setPassword(t, "secret")
	if got := c.call("PING"); got != "-"+string(commands.ErrNoAuth)+"\r\n" {
		t.Error(got)
	}
}

func TestProtectedModeIsOff(t *testing.T) {
	n := start(t, func(c *Config) { c.Unprotected = true })
	n.fake.users.Store(nil)
	got := dialAt(t, n.listenFrom(t, "192.0.2.7")).call("GET", "k")
	if got != "$-1\r\n" { // the machine decides
		t.Error(got)
	}
}

func TestLoopbackIsNotProtected(t *testing.T) {
	n := start(t, nil)
	for _, address := range []string{"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"} {
		if got := dialAt(t, n.listenFrom(t, address)).call("PING"); got != "+PONG\r\n" {
			t.Errorf("%s: %s", address, got)
		}
	}
	for _, address := range []string{"10.0.0.1", "::2", "fe80::1", "::ffff:10.0.0.1"} {
		dialAt(t, n.listenFrom(t, address)).want(deniedReply)
	}
}
