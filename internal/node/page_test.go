package node

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// browser requests the page of a node as a browser does.
type browser struct {
	t    *testing.T
	base string
	http.Client
}

// startPage starts a node with the page, and a browser that has not been there.
func startPage(t *testing.T, change func(*Config)) (*Node, *redis.Client, *browser) {
	t.Helper()
	cfg := single(t.TempDir())
	cfg.HTTPListen = ports.Addr(t)
	change(&cfg)
	n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	wait.For(t, 10*time.Second, "users", func() bool {
		return c.Do(t.Context(), "ACL", "SETUSER", "seer", "on", ">see", "+ping",
			"+raft|status", "+raft|members", "+info", "+hello").Err() == nil
	})
	return n, c, newBrowser(t, cfg.HTTPListen)
}

func newBrowser(t *testing.T, addr string) *browser {
	jar, _ := cookiejar.New(nil) // never fails
	b := &browser{t: t, base: "http://" + addr, Client: http.Client{Jar: jar,
		Timeout: 20 * time.Second}}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// send sends a request as the page does, but for change, and returns the answer.
func (b *browser) send(method, path string, body any, change func(*http.Request)) (int, string) {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := http.NewRequest(method, b.base+path, bytes.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Coordd-Request", "1")
		r.Header.Set("Origin", b.base)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	change(r)
	answer, err := b.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, strings.TrimSpace(string(got))
}

func (b *browser) get(path string) (int, string) {
	b.t.Helper()
	return b.send(http.MethodGet, path, nil, func(*http.Request) {})
}

func (b *browser) post(path string, body any) (int, string) {
	b.t.Helper()
	return b.send(http.MethodPost, path, body, func(*http.Request) {})
}

type fields = map[string]string

// want checks an answer: its code, and words of its body.
func (b *browser) want(code int, words string) func(int, string) {
	b.t.Helper()
	return func(gotCode int, got string) {
		b.t.Helper()
		if gotCode != code || !strings.Contains(got, words) {
			b.t.Errorf("%d %.300s, want %d %s", gotCode, got, code, words)
		}
	}
}

// The page is for who has logged in, and does what that user may.
func TestPageRights(t *testing.T) {
	_, admin, b := startPage(t, func(*Config) {})
	ctx := t.Context()
	if err := admin.Do(ctx, "CONFIG", "SET", "requirepass", "all").Err(); err != nil {
		t.Fatal(err)
	}
	_ = admin.Close()
	b.want(200, `<main id="content"`)(b.get("/"))
	b.want(200, "text/javascript")(200, contentType(t, b, "/app.js"))
	for _, path := range []string{"/api/live", "/api/clients", "/api/slow"} {
		b.want(401, "log in")(b.get(path))
	}
	b.want(401, "log in")(b.post("/api/act", fields{"action": "snapshot"}))
	b.want(401, "NOAUTH")(b.post("/api/login", fields{}))
	b.want(401, "WRONGPASS")(b.post("/api/login", fields{"user": "seer", "password": "no"}))
	b.want(400, "not understood")(b.post("/api/login", fields{"name": "seer"}))

	b.want(200, `"seer"`)(b.post("/api/login", fields{"user": "seer", "password": "see"}))
	b.want(200, `"user":"seer"`)(b.get("/api/session"))
	b.want(403, "NOPERM")(b.get("/api/clients"))
	b.want(403, "NOPERM")(b.post("/api/act", fields{"action": "remove", "member": "n1"}))
	b.want(400, "no such action")(b.post("/api/act", fields{"action": "flush"}))
	b.want(200, "")(b.post("/api/logout", fields{}))
	b.want(401, "log in")(b.get("/api/clients"))

	b.want(200, "")(b.post("/api/login", fields{"user": "default", "password": "all"}))
	b.want(200, `"library":"coordd"`)(b.get("/api/clients"))
	b.want(200, `"calls":[`)(b.get("/api/slow"))
	b.want(200, "Background saving")(b.post("/api/act", fields{"action": "snapshot"}))
	b.want(409, "ERR")(b.post("/api/act", fields{"action": "remove", "member": "n7"}))
	b.want(409, "ERR")(b.post("/api/act", fields{"action": "promote", "member": "n7"}))
	b.want(409, "ERR")(b.post("/api/act", fields{"action": "transfer", "member": "n7"}))
	b.want(409, "ERR")(b.post("/api/act",
		fields{"action": "add", "member": "n8", "address": "nowhere"}))
}

func contentType(t *testing.T, b *browser, path string) string {
	t.Helper()
	answer, err := b.Get(b.base + path)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if policy := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy,
		"default-src 'none'; script-src 'self';") {
		t.Errorf("%s: policy %q", path, policy)
	}
	return answer.Header.Get("Content-Type")
}

// A page of another site cannot act for who has logged in here, and not look either.
func TestPageForgery(t *testing.T) {
	_, _, b := startPage(t, func(*Config) {})
	open := func(change func(*http.Request)) (int, string) {
		return b.send(http.MethodPost, "/api/login", fields{}, change)
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	// as on a name of another site that now resolves to the node
	rebound := func(r *http.Request) {
		r.Host = "example.org"
		r.Header.Set("Origin", "http://example.org")
	}
	b.want(403, "not under a name")(open(rebound))
	b.want(403, "Behind a proxy")(open(header("X-Forwarded-For", "192.0.2.1")))
	b.want(403, "Behind a proxy")(open(func(r *http.Request) {
		r.Host = "192.0.2.7:8080"
		r.Header.Set("Origin", "http://"+r.Host)
	}))
	b.want(200, `"default"`)(open(func(*http.Request) {}))
	for _, change := range []func(*http.Request){
		header("Origin", "http://example.org"), header("Origin", "null"),
		header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Site", "same-site"),
		header("Coordd-Request", ""), header("Content-Type", "text/plain"),
	} {
		b.want(403, "the request ")(b.send(http.MethodPost, "/api/act",
			fields{"action": "snapshot"}, change))
	}
	for _, path := range []string{"/api/live", "/api/clients", "/api/session"} {
		b.want(403, "another site")(b.send(http.MethodGet, path, nil,
			header("Sec-Fetch-Site", "cross-site")))
	}
	b.want(405, "")(b.get("/api/act"))
	b.want(200, "Background")(b.post("/api/act", fields{"action": "snapshot"}))
}

// What clients type arrives as text in JSON, without characters that could mislead.
func TestPageShowsHostileNames(t *testing.T) {
	_, c, b := startPage(t, func(*Config) {})
	ctx := t.Context()
	if err := c.Do(ctx, "CONFIG", "SET", "slowlog-log-slower-than", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(ctx, "<img src=x onerror=alert(1)>\u202e\x00\xff", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	b.want(200, "")(b.post("/api/login", fields{}))
	b.want(200, `\u003cimg src=x onerror=alert(1)\u003e\\u{202e}\\u{0}\\xff`)(b.get("/api/slow"))
}

// events reads the stream of a browser until f returns true for one.
func (b *browser) events(f func(name, data string) bool) {
	b.t.Helper()
	answer, err := b.Get(b.base + "/api/live")
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		if after, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = after
		} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && f(name, data) {
			return
		}
	}
	b.t.Fatalf("the stream ended: %v", lines.Err())
}

// The stream shows the load, lasts longer than other requests, and ends with the user's rights.
func TestPageStream(t *testing.T) {
	_, c, b := startPage(t, func(*Config) {})
	b.want(200, "")(b.post("/api/login", fields{"user": "seer", "password": "see"}))
	began, removed := time.Now(), false
	b.events(func(name, data string) bool {
		var s struct {
			Node   struct{ ID, State, Version string }
			Health struct{ Level, Text string }
			Denied []string
			Rates  *struct{ Entries float64 }
		}
		if name == "ended" {
			return true
		}
		if err := json.Unmarshal([]byte(data), &s); err != nil || name != "sample" ||
			s.Node.ID != "n1" || s.Health.Level != "ok" ||
			strings.Join(s.Denied, ",") != "LATENCY HISTOGRAM" {
			t.Fatalf("%s %s %v", name, data, err)
		}
		_ = c.Incr(t.Context(), "n").Err()
		if time.Since(began) > webTimeout+time.Second && !removed &&
			s.Rates != nil && s.Rates.Entries > 0 {
			removed = true
			if err := c.Do(t.Context(), "ACL", "DELUSER", "seer").Err(); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	if !removed {
		t.Error("the stream ended early")
	}
	b.want(401, "log in")(b.get("/api/clients"))
}

// A node that has heard from no leader since its start knows no password: the page says so, and
// shows without one, on the node's machine, what the node knows.
func TestPageThatNeverHadALeader(t *testing.T) {
	cfg := single(t.TempDir())
	cfg.HTTPListen = ports.Addr(t)
	cfg.Members = []cluster.Member{{ID: "n1", PeerAddr: ports.Addr(t)},
		{ID: "n2", PeerAddr: "127.0.0.1:1"}}
	cfg.PeerListen = cfg.Members[0].PeerAddr
	n, err := Start(cfg, Listeners{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	b := newBrowser(t, cfg.HTTPListen)
	b.want(503, "this node does not know the users yet")(b.post("/api/login",
		fields{"user": "default", "password": "any"}))
	b.want(200, "")(b.post("/api/login", fields{}))
	b.events(func(name, data string) bool {
		var s struct {
			Health     struct{ Level, Text, Next string }
			Members    []struct{ ID string }
			Unanswered []string
		}
		if err := json.Unmarshal([]byte(data), &s); err != nil || name != "sample" ||
			s.Health.Level != "down" || !strings.Contains(s.Health.Next, "start 1 of n2") ||
			len(s.Members) != 2 || len(s.Unanswered) != 1 {
			t.Errorf("%s %s %v", name, data, err)
		}
		return true
	})
}

// Who has another password now is out, though the connections of the session stay.
func TestPageEndsWithThePassword(t *testing.T) {
	tier.Check(t)
	_, c, b := startPage(t, func(*Config) {})
	b.want(200, "")(b.post("/api/login", fields{"user": "seer", "password": "see"}))
	b.want(403, "NOPERM")(b.get("/api/clients"))
	if err := c.Do(t.Context(), "ACL", "SETUSER", "seer", "resetpass", ">other").Err(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, 30*time.Second, "the session ends", func() bool {
		time.Sleep(time.Second / 2) // between two looks
		code, _ := b.get("/api/clients")
		return code == 401
	})
}

// A stopping node ends its streams: Close does not wait for browsers.
func TestPageStreamEnds(t *testing.T) {
	n, _, b := startPage(t, func(*Config) {})
	b.want(200, "")(b.post("/api/login", fields{}))
	answer, err := b.Get(b.base + "/api/live")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body) // until it ends
}

// from returns a browser whose connections come from another address of this machine.
func (b *browser) from(host string) *browser {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	other := newBrowser(b.t, strings.TrimPrefix(b.base, "http://"))
	other.Transport = &http.Transport{DialContext: d.DialContext}
	b.t.Cleanup(other.CloseIdleConnections)
	return other
}

// streams begins so many streams. It returns how many the node let in, and counts in ended those
// that end.
func (b *browser) streams(n int, ended *atomic.Int64) (began int) {
	b.t.Helper()
	for range n {
		answer, err := b.Get(b.base + "/api/live")
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = answer.Body.Close() })
		if answer.StatusCode == http.StatusOK {
			began++
		}
		go func() {
			_, _ = io.Copy(io.Discard, answer.Body)
			if answer.StatusCode == http.StatusOK {
				ended.Add(1)
			}
		}()
	}
	return began
}

// The streams of one user, of however many hosts, leave room for probes and for other users.
func TestPageStreamsLeaveRoom(t *testing.T) {
	_, c, b := startPage(t, func(*Config) {})
	for _, rules := range [][]any{{"nobody", "reset", "on", ">n", "-@all"},
		{"ops", "on", ">o", "+@all"}} {
		call := append([]any{"ACL", "SETUSER"}, rules...)
		if err := c.Do(t.Context(), call...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	var ended, lost atomic.Int64
	began := 0
	for _, host := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		crowd := b.from(host)
		crowd.want(200, "")(crowd.post("/api/login", fields{"user": "nobody", "password": "n"}))
		if got := crowd.streams(webSessions, &ended); got == 0 {
			t.Errorf("no streams of %s", host)
		} else {
			began += got
		}
	}
	if n := began - int(ended.Load()); n < webSessions {
		t.Errorf("%d streams of one user", n)
	}
	b.want(200, `"ready"`)(b.get("/readyz"))
	ops := b.from("127.0.0.9")
	ops.want(200, "")(ops.post("/api/login", fields{"user": "ops", "password": "o"}))
	ops.want(200, "")(ops.get("/api/clients"))
	if got := ops.streams(webSessions/2-1, &lost); got != webSessions/2-1 {
		t.Errorf("%d streams of another user", got)
	}
	crowd := b.from("127.0.0.2")
	crowd.want(200, "")(crowd.post("/api/login", fields{"user": "nobody", "password": "n"}))
	crowd.streams(webSessions, &ended)
	ops.want(200, "")(ops.get("/api/clients"))
	if n := lost.Load(); n > 0 {
		t.Errorf("%d streams of the other user ended", n)
	}
}

// share makes room at the cost of who holds most, and never of who holds no more than the others.
func TestSessionsAreShared(t *testing.T) {
	for _, test := range []struct {
		held string // user and host of each, the oldest first
		of   string
		gone int // index of the one that is closed; -1: none, and it is refused
	}{
		{"a1 a1 a1", "b1", 0},
		{"b1 a1 a1", "b2", -1},
		{"b1 a1 a2 a2", "b1", 2},
		{"a1 a2 a2 a2", "a1", 1},
		{"a1 a1 a2 a2", "a2", -1},
		{"a1 a1 a2 a2", "a3", 0},
		{"a1 b1 c1", "d1", -1},
		{"a1 a1 b1 b1 b2", "a2", 0},
		{"a1 a2 b1 b2 b2", "a1", -1},
	} {
		t.Run(test.held+" "+test.of, func(t *testing.T) {
			l := newWebListener(nil)
			of := func(text string) *webConn {
				here, _ := net.Pipe()
				return &webConn{Conn: here, of: l, user: text[:1],
					host: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, text[1]}), 32)}
			}
			var held []*webConn
			for _, text := range strings.Fields(test.held) {
				held = append(held, of(text))
				held[len(held)-1].in = &l.sessions
			}
			l.sessions = webPool{most: len(held), conns: slices.Clone(held)}
			c := of(test.of)
			if ok := l.sessions.share(c.user, c.host); ok != (test.gone >= 0) {
				t.Errorf("has room: %v", ok)
			}
			for i, other := range held {
				if gone := other.in == nil; gone != (i == test.gone) {
					t.Errorf("%d is gone: %v", i, gone)
				}
			}
		})
	}
}

// Who guesses passwords waits for each, and keeps nobody from another address from logging in.
func TestGuessersLeaveLogins(t *testing.T) {
	_, c, b := startPage(t, func(*Config) {})
	ctx, cancel := context.WithCancel(t.Context())
	var guessers sync.WaitGroup
	defer guessers.Wait()
	defer cancel()
	for i := range webLogins + webSessions {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%2))}}
		web := http.Client{Transport: &http.Transport{DialContext: d.DialContext,
			DisableKeepAlives: true}}
		guessers.Go(func() {
			for ctx.Err() == nil {
				q, _ := http.NewRequestWithContext(ctx, http.MethodPost, b.base+"/api/login",
					strings.NewReader(`{"user":"seer","password":"wrong"}`)) // is well-formed
				q.Header.Set("Content-Type", "application/json")
				q.Header.Set("Coordd-Request", "1")
				if answer, err := web.Do(q); err == nil {
					_ = answer.Body.Close()
				}
			}
		})
	}
	for range 5 {
		before := delayed(t, c)
		wait.For(t, 30*time.Second, "guessers wait", func() bool {
			return delayed(t, c) > before+webLogins+webSessions
		})
		b.want(200, `"seer"`)(b.post("/api/login", fields{"user": "seer", "password": "see"}))
		b.want(200, "")(b.post("/api/logout", fields{}))
	}
}

// delayed returns how many calls of AUTH were delayed.
func delayed(t *testing.T, c *redis.Client) (n int) {
	t.Helper()
	_, after, _ := strings.Cut(c.Info(t.Context(), "coordd").Val(), "auth_delayed:")
	if _, err := fmt.Sscan(after, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// elsewhere is a listener whose connections seem to come from another machine.
type elsewhere struct{ net.Listener }

func (l elsewhere) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return fromElsewhere{conn}, err
}

type fromElsewhere struct{ net.Conn }

func (fromElsewhere) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4000}
}

// Without TLS, passwords come from this machine only, unless that is turned off. The default user
// without a password is shown to whom protected mode lets in.
func TestPageFromElsewhere(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		n, c, _ := startPage(t, func(c *Config) { c.HTTPInsecure = insecure })
		ln := loopback(t)
		far := newWeb(n.http.Handler, n.log)
		go func() {
			_ = far.Serve(newWebListener(elsewhere{ln}))
		}()
		defer far.Close()
		b := newBrowser(t, ln.Addr().String())
		b.want(403, "DENIED")(b.post("/api/login", fields{}))
		seer := fields{"user": "seer", "password": "see"}
		if !insecure {
			b.want(403, "--http-tls")(b.post("/api/login", seer))
			b.want(200, "--http-tls")(b.get("/api/session"))
			continue
		}
		b.want(403, "DENIED")(b.post("/api/login", seer)) // the default user has no password yet
		if err := c.Do(t.Context(), "CONFIG", "SET", "requirepass", "all").Err(); err != nil {
			t.Fatal(err)
		}
		b.want(200, `"seer"`)(b.post("/api/login", seer))
	}
}

// The page over TLS: the port takes passwords from anywhere, and the cookie stays on TLS.
func TestPageOverTLS(t *testing.T) {
	cert, key, pool := ownCertificate(t)
	n, _, plain := startPage(t, func(c *Config) {
		c.HTTPTLS, c.TLS.Cert, c.TLS.Key = true, cert, key
	})
	plain.want(400, "HTTP request to an HTTPS server")(plain.get("/readyz"))
	b := newBrowser(t, n.cfg.HTTPListen)
	b.base = "https://" + n.cfg.HTTPListen
	b.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	b.want(200, `"ready"`)(b.get("/readyz"))
	b.want(200, `"seer"`)(b.post("/api/login", fields{"user": "seer", "password": "see"}))
	b.want(200, `"user":"seer"`)(b.get("/api/session"))
	u, _ := url.Parse(b.base)
	for _, cookie := range b.Jar.Cookies(u) {
		if !strings.HasPrefix(cookie.Name, "__Host-coordd-") {
			t.Error(cookie.Name)
		}
	}
	streamed := false
	b.events(func(name, _ string) bool { streamed = name == "sample"; return true })
	if !streamed {
		t.Error("no sample")
	}
}

// ownCertificate writes a certificate for 127.0.0.1 and its key to files.
func ownCertificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	a, err := certs.NewAuthority("the page's", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue(certs.Request{CommonName: "n1", Server: true, Hosts: []string{"127.0.0.1"},
		To: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "n1.crt"), filepath.Join(dir, "n1.key")
	if err := errors.Join(os.WriteFile(cert, pair.Cert, 0o600),
		os.WriteFile(key, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Pair.Cert)
	return cert, key, pool
}

// Locks, windows and queues are found by what keys hold, and a lock is released or extended only
// while its token is the one that was shown.
func TestPageLocks(t *testing.T) {
	_, c, b := startPage(t, func(*Config) {})
	ctx := t.Context()
	wait.For(t, 10*time.Second, "LOCKS", func() bool {
		return c.Do(ctx, "LOCKS", "LIST").Err() == nil
	})
	// as Redisson's scripts do it
	const take = "if redis.call('exists', KEYS[1]) == 0 then for i = 1, #ARGV, 2 do " +
		"redis.call('hset', KEYS[1], ARGV[i], ARGV[i + 1]) end " +
		"redis.call('pexpire', KEYS[1], 60000) end return nil"
	for _, call := range [][]any{
		{"SET", "lock:1", "me", "NX", "PX", 60000}, {"SET", "lock:1", "you", "NX", "PX", 60000},
		{"SET", "lock:*", "you", "NX", "PX", 60000}, {"EVAL", take, 1, "lock:r", "id:1", 2},
		{"EVAL", take, 1, "lock:rw", "mode", "read", "id:1", 1, "id:2", 1},
		{"INCRBY", "w:count", 7}, {"PEXPIRE", "w:count", 60000},
		{"ZADD", "w:set", 1, "a", 2, "b"}, {"PEXPIRE", "w:set", 60000},
		{"CL.THROTTLE", "w:throttle", 5, 1, 60}, {"SET", "w:cached", 7, "PX", 60000},
		{"HSET", "lock:none", "name", "x"}, {"RPUSH", "q:list", 1, 2, 3},
		{"XADD", "q:stream", "*", "a", "b"}, {"SET", "text", "no lock"},
	} {
		if err := c.Do(ctx, call...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(call, err)
		}
	}
	b.want(200, "")(b.post("/api/login", fields{}))
	type entry struct {
		Key, ID, Kind, Owner, OwnerID, Token string
		Waiters, TTL, Size                   int64
	}
	list := func(query string) (all []entry) {
		t.Helper()
		code, body := b.get("/api/keys?" + query)
		var found struct {
			Shown  []entry
			Cursor string
		}
		if err := json.Unmarshal([]byte(body), &found); err != nil || code != 200 ||
			found.Cursor != "" {
			t.Fatalf("%s: %d %s %v", query, code, body, err)
		}
		return found.Shown
	}
	kinds := func(query string) string {
		var text []string
		for _, e := range list(query) {
			text = append(text, fmt.Sprintf("%s %s %s %d %d", e.Key, e.Kind, e.Owner, e.Waiters,
				e.Size))
		}
		return strings.Join(text, "\n")
	}
	for query, want := range map[string]string{
		"group=locks": "lock:* string you 0 0\nlock:1 string me 1 0\n" +
			"lock:r reentrant id:1 0 0\nlock:rw read-write id:1, id:2 0 0",
		"group=windows": "w:count fixed  0 7\nw:set sliding  0 2\n" +
			"w:throttle bucket  0 -1",
		"group=queues":               "q:list list  0 3\nq:stream stream  0 1",
		"group=locks&prefix=lock:*":  "lock:* string you 0 0",
		"group=all&prefix=t":         "text string  0 -1",
		"group=locks&prefix=x":       "",
		"group=locks&prefix=&db=1":   "",
		"group=queues&prefix=q:list": "q:list list  0 3",
	} {
		if got := kinds(query); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", query, got, want)
		}
	}
	b.want(400, "no group")(b.get("/api/keys?group=x"))
	b.want(409, "out of range")(b.get("/api/keys?group=all&db=77"))
	b.want(200, `"shown":[]`)(b.get("/api/keys?group=all&db=1"))

	lock := list("group=locks&prefix=lock:1")[0]
	act := func(action, token string) (int, string) {
		return b.post("/api/act", map[string]any{"action": action, "id": lock.ID,
			"owner": lock.OwnerID, "token": token, "ms": 500_000})
	}
	b.want(200, `"waiting":[{"owner":"you"`)(b.get("/api/lock?id=" + lock.ID))
	b.want(404, "nobody")(b.get("/api/lock?id=eA"))
	b.want(400, "no lock")(b.get("/api/lock?id=*"))
	b.want(409, "nothing was done")(act("release", "1"))
	b.want(409, "nothing was done")(act("extend", "1"))
	b.want(200, "")(act("extend", lock.Token))
	if ttl := c.PTTL(ctx, "lock:1").Val(); ttl < 400*time.Second {
		t.Error(ttl)
	}
	sub := c.Subscribe(ctx, "redisson_lock__channel:{lock:r}")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	b.want(200, "")(act("release", lock.Token))
	b.want(409, "nothing was done")(act("release", lock.Token))
	b.want(200, `"history":[{"owner":"me"`)(b.get("/api/lock?id=" + lock.ID))
	lock = list("group=locks&prefix=lock:r")[0] // not lock:rw, which comes after it
	b.want(200, "")(act("release", lock.Token))
	if _, err := sub.ReceiveMessage(ctx); err != nil {
		t.Error(err)
	}
	if n := c.Exists(ctx, "lock:1", "lock:r").Val(); n != 0 {
		t.Errorf("%d locks are still there", n)
	}
}
