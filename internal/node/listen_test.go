package node

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/logging"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/server"
)

// A node that is loading its data is alive, says so, and runs nothing.
func TestNodeThatLoads(t *testing.T) {
	n := &Node{cfg: Config{ID: "n1"}, log: slog.New(slog.DiscardHandler),
		opened: make(chan struct{}), stop: make(chan struct{})}
	table := commands.NewTable(commands.Specs(), server.Specs())
	n.adapter = fsm.NewAdapter(table, 1, func([]commands.Event) {}, func(error) {})
	n.server = server.New(server.Config{Table: table, Backend: backend{n}})
	ln := ports.Listen(t)
	n.client = ln
	n.serve(nil)
	defer n.server.Close()
	c := redis.NewClient(&redis.Options{Addr: ln.Addr().String(), MaxRetries: -1})
	defer c.Close()
	ctx := context.Background()
	for _, call := range [][]any{{"SET", "a", "b"}, {"GET", "a"}, {"RAFT", "SNAPSHOT"},
		{"RAFT", "BACKUP"},
		// its users are in the data, so nobody is an administrator yet
		{"CLIENT", "LIST"}, {"CONFIG", "GET", "maxclients"}, {"SLOWLOG", "GET"},
		{"LATENCY", "LATEST"}, {"SHUTDOWN"}, {"MONITOR"}, {"COMMAND", "COUNT"},
		{"PUBSUB", "CHANNELS"}, {"ACL", "CAT"}, {"MEMORY", "STATS"}, {"INFO"}, {"ROLE"},
		{"CLUSTER", "NODES"}, {"PING"}} {
		if err := c.Do(ctx, call...).Err(); err == nil ||
			!strings.Contains(err.Error(), "LOADING") {
			t.Errorf("%v: %v", call, err)
		}
	}
	for _, call := range [][]any{
		{"RAFT", "STATUS"}, {"SENTINEL", "MASTERS"}, {"HELLO", "3"},
	} { // what clients on its machine see without a cluster
		if err := c.Do(ctx, call...).Err(); err != nil {
			t.Errorf("%v: %v", call, err)
		}
	}
	for _, page := range []struct {
		path, says string
		code       int
	}{{"/healthz", `"loading"`, http.StatusOK},
		{"/readyz", "LOADING", http.StatusServiceUnavailable}} {
		w := httptest.NewRecorder()
		n.server.HealthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, page.path, nil))
		if w.Code != page.code || !strings.Contains(w.Body.String(), page.says) {
			t.Errorf("%s: %d %s", page.path, w.Code, w.Body)
		}
	}
}

// Whoever may not connect is turned away on all ports, without an answer.
func TestAllowFrom(t *testing.T) {
	const far = "192.0.2.7"
	listen := func() net.Listener {
		ln, err := Listen(ports.Addr(t))
		if err != nil {
			t.Fatal(err)
		}
		return farListener{ln, net.TCPAddr{IP: net.ParseIP(far), Port: 1234}}
	}
	clients, pages := listen(), listen()
	cfg := single(t.TempDir())
	cfg.Unprotected, cfg.ListenAlso = true, []string{ports.Addr(t)}
	n, err := Start(cfg, Listeners{Client: clients}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	port := n.openWeb(pages)
	n.http.ReadTimeout, n.http.IdleTimeout = time.Hour, time.Hour // who ends is ended
	go func() { served <- n.serveWeb(port) }()
	defer func() { _ = n.http.Close(); <-served }()
	near := redis.NewClient(&redis.Options{Addr: cfg.ListenAlso[0], MaxRetries: -1})
	defer near.Close()
	get := func() error {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := c.Get("http://" + pages.Addr().String() + "/healthz")
		if err == nil {
			_ = answer.Body.Close()
		}
		return err
	}
	for _, test := range []struct {
		clients, pages string
		client, page   bool
	}{{"", "", true, true}, {far, "", true, true}, {"192.0.2.255", "", false, false},
		{"192.0.2.255", far, false, true}, {far, "192.0.2.255", true, false},
		{"192.0.2.255", "192.0.2.255", false, false}} {
		if err := near.ConfigSet(t.Context(), "coordd-allow-from", test.clients).Err(); err != nil {
			t.Fatal(err)
		}
		if err := near.ConfigSet(t.Context(), "coordd-http-allow-from",
			test.pages).Err(); err != nil {
			t.Fatal(err)
		}
		c := redis.NewClient(&redis.Options{Addr: clients.Addr().String(), MaxRetries: -1})
		if err := c.Ping(t.Context()).Err(); (err == nil) != test.client {
			t.Errorf("%+v: the client: %v", test, err)
		}
		_ = c.Close()
		if err := get(); (err == nil) != test.page {
			t.Errorf("%+v: the page: %v", test, err)
		}
	}
	for _, narrowed := range []string{"coordd-http-allow-from", "coordd-allow-from"} {
		for _, option := range []string{"coordd-http-allow-from", "coordd-allow-from"} {
			if err := near.ConfigSet(t.Context(), option, "").Err(); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := net.Dial("tcp", pages.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: n1\r\n\r\n")
		r := bufio.NewReader(conn)
		if _, err := http.ReadResponse(r, nil); err != nil {
			t.Fatal(err)
		}
		if err := near.ConfigSet(t.Context(), narrowed, "192.0.2.255").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err = io.Copy(io.Discard, r); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a connection of the HTTP port stays open", narrowed)
		}
		_ = conn.Close()
	}
	info := near.Info(t.Context(), "coordd").Val()
	if strings.Contains(info, "address_refused:0\r\n") || !strings.Contains(info, "address_ref") {
		t.Error(info)
	}
}

// A narrower gate closes what it refuses in all pools: also streams, and attempts to log in.
func TestNarrowerGateClosesAll(t *testing.T) {
	gate := halfopen.NewGate("http-allow-from", nil, nil,
		logging.NewLimited(slog.New(slog.DiscardHandler)))
	l := newWebListener(nil)
	l.guard(gate)
	add := func(p *webPool, from string) *webConn {
		_, theirs := net.Pipe()
		c := &webConn{Conn: farConn{theirs, &net.TCPAddr{IP: net.ParseIP(from)}}, of: l}
		p.add(c)
		return c
	}
	canceled := 0
	for _, p := range []*webPool{&l.open, &l.logins, &l.sessions} {
		for range 3 {
			add(p, "192.0.2.7").cancel = func() { canceled++ }
		}
		add(p, "10.0.0.1")
		add(p, "127.0.0.1")
	}
	only, err := halfopen.ParseAddresses("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	gate.Let(only)
	for _, p := range []*webPool{&l.open, &l.logins, &l.sessions} {
		if len(p.conns) != 2 {
			t.Errorf("%d are left", len(p.conns))
		}
	}
	if canceled != 9 {
		t.Errorf("%d were told", canceled)
	}
	c := add(&l.open, "192.0.2.7") // it came in just before the change
	if c.checkAddress(); c.in != nil {
		t.Error("one that came in during the change stays")
	}
}

// farListener accepts connections that seem to come from another machine.
type farListener struct {
	net.Listener
	from net.TCPAddr
}

func (l farListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return farConn{conn, &l.from}, nil
}

type farConn struct {
	net.Conn
	from *net.TCPAddr
}

func (c farConn) RemoteAddr() net.Addr { return c.from }

// Probes do not wait for the machine.
func TestProbesWhileTheMachineIsBusy(t *testing.T) {
	cfg := single(t.TempDir())
	n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The machine is busy for as long as this function runs, which it asks about a key.
	done := make(chan struct{})
	n.adapter.SetInterest(func(int, string) bool { <-done; return false })
	defer n.adapter.SetInterest(nil)
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
	defer c.Close()
	answered := make(chan error, 1)
	go func() { answered <- c.Set(context.Background(), "a", "b", 0).Err() }()
	for _, path := range []string{"/healthz", "/readyz"} {
		w := httptest.NewRecorder()
		served := make(chan struct{})
		go func() {
			n.server.HealthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			close(served)
		}()
		select {
		case <-served:
		case <-time.After(10 * time.Second):
			t.Errorf("%s waits for the machine", path)
		}
	}
	close(done)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "coordd-") // a path of a test may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false) // as a process that was killed leaves it
	_ = left.Close()
	cfg := single(filepath.Join(dir, "d"))
	cfg.ListenAlso = []string{"127.0.0.1:0"}
	cfg.UnixSocket, cfg.UnixSocketPerm, cfg.IdleTimeout = path, 0o700, time.Hour
	n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for i, at := range []struct{ network, addr string }{{"unix", path}, {"tcp", n.Addr()},
		{"tcp", n.others[0].Addr().String()}} {
		c := redis.NewClient(&redis.Options{Network: at.network, Addr: at.addr, MaxRetries: -1})
		defer c.Close()
		if got, err := c.Incr(ctx, "n").Result(); err != nil || got != int64(i+1) {
			t.Fatalf("%s: %d, %v", at.addr, got, err)
		}
		if at.network == "unix" {
			checkUnixClient(t, c, path)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info, err)
	}
	if _, err := listenUnix(path, 0); err == nil ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second listener: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket remains: %v", err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path, 0); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("in the place of a file: %v", err)
	}
}

// checkUnixClient checks what a client on the socket sees of it.
func checkUnixClient(t *testing.T, c *redis.Client, path string) {
	t.Helper()
	info := c.Do(t.Context(), "CLIENT", "INFO").Val().(string)
	if !strings.Contains(info, " addr="+path+":0 laddr="+path+":0 ") ||
		!strings.Contains(info, " flags=U ") {
		t.Error(info)
	}
	for name, want := range map[string]string{"unixsocket": path, "unixsocketperm": "700",
		"timeout": "3600"} {
		if got := c.ConfigGet(t.Context(), name).Val()[name]; got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

// net/http logs to the node's log, limited.
func TestWebLog(t *testing.T) {
	var lines wait.Buffer
	ln := ports.Listen(t)
	w := newWeb(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("a page fails")
	}), slog.New(slog.NewJSONHandler(&lines, nil)))
	go func() { _ = w.Serve(ln) }()
	defer w.Close()
	for range 30 {
		resp, err := http.Get("http://" + ln.Addr().String())
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	wait.For(t, 5*time.Second, "a line", func() bool {
		return strings.Contains(lines.String(),
			`"level":"WARN","msg":"HTTP request failed","error":"http: panic serving`)
	})
	if n := strings.Count(lines.String(), "\n"); n > 15 {
		t.Errorf("%d lines", n)
	}
}

// Past the limit an idle connection makes room for a new one.
func TestWebListener(t *testing.T) {
	inner := ports.Listen(t)
	w := newWeb(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "yes")
	}), slog.New(slog.DiscardHandler))
	ln := newWebListener(inner)
	ln.open.most = 3
	go func() { _ = w.Serve(ln) }()
	defer w.Close()
	for range 10 {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	resp, err := http.Get("http://" + inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "yes" {
		t.Errorf("%q, %v", text, err)
	}
	_ = resp.Body.Close()
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if n := len(ln.open.conns); n > 3 {
		t.Errorf("%d connections", n)
	}
}

// A node says that others may read what its HTTP port sends.
func TestPlainHTTPBeyondLoopback(t *testing.T) {
	for _, c := range []struct {
		host  string
		tls   bool
		warns bool
	}{{"127.0.0.1", false, false}, {"0.0.0.0", false, true}, {"0.0.0.0", true, false}} {
		var lines bytes.Buffer
		warnOfPlainHTTP(&Config{HTTPTLS: c.tls}, &net.TCPAddr{IP: net.ParseIP(c.host), Port: 80},
			slog.New(slog.NewTextHandler(&lines, nil)))
		if warns := strings.Contains(lines.String(), "in plain text"); warns != c.warns {
			t.Errorf("%+v: %q", c, lines.String())
		}
	}
}

// A crowd of one host does not end the connection of another one's probe.
func TestCrowdLeavesProbes(t *testing.T) {
	inner := ports.Listen(t)
	w := newWeb(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "yes")
	}), slog.New(slog.DiscardHandler))
	w.ReadHeaderTimeout = 0 // nothing else ends them
	w.ReadTimeout, w.IdleTimeout = 0, 0
	ln := newWebListener(inner)
	go func() { _ = w.Serve(ln) }()
	defer w.Close()
	dial := func(host string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		conn, err := d.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	probe := dial("127.0.0.1")
	const crowd = 2 * webConnections
	ended := make(chan struct{}, crowd)
	for range crowd {
		conn := dial("127.0.0.2")
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			ended <- struct{}{}
		}()
	}
	for range crowd - (webConnections - 1) { // all have come
		wait.Receive(t, 30*time.Second, "the end of one of the crowd", ended)
	}
	if _, err := io.WriteString(probe, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = probe.SetReadDeadline(time.Now().Add(30 * time.Second))
	if text, err := io.ReadAll(probe); err != nil || !strings.HasSuffix(string(text), "yes") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestCheckDisturbsNobody: a node can listen at an address while others check whether it could.
func TestCheckDisturbsNobody(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "localhost", "", "0.0.0.0", "[::]", "[::1]"} {
		_, port, _ := net.SplitHostPort(ports.Addr(t))
		addr := host + ":" + port
		if ln, err := Listen(addr); err != nil {
			t.Logf("SKIPPED: %v", err)
			continue
		} else if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		var checking sync.WaitGroup
		done := make(chan struct{})
		for range 4 {
			checking.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					if err := checkListen(addr); err != nil {
						t.Errorf("%s: %v", addr, err)
						return
					}
				}
			})
		}
		for range 200 {
			ln, err := Listen(addr)
			if err != nil {
				t.Error(err)
				break
			}
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
		}
		close(done)
		checking.Wait()
	}
	if err := checkListen("192.0.2.1:80"); err == nil {
		t.Error("an address of another machine can be listened on")
	}
}
