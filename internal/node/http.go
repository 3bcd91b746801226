package node

import (
	"context"
	"crypto/tls"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/logging"
	"github.com/coordd/coordd/internal/web"
)

// webTimeout bounds a request to the HTTP port, and its response. The tests lower it.
var webTimeout = 5 * time.Second

// The HTTP port may be open to anyone: it accepts few connections, for a short time each. Attempts
// to log in and requests of sessions may last longer, and have connections of their own. So neither
// keeps the other or a probe out.
const (
	webConnections = 32 // connections that have not logged in, and do not try to
	webLogins      = 16
	webSessions    = 24 // shared by users, and those of a user by hosts
	webHeaderBytes = 8 << 10
	// webUnacked is how long a browser may leave data unacknowledged: its machine is gone then
	webUnacked = 15 * time.Second
)

// warnOfPlainHTTP warns of passwords and metrics that cross a network in plain text.
func warnOfPlainHTTP(cfg *Config, addr net.Addr, log *slog.Logger) {
	if a, ok := addr.(*net.TCPAddr); ok && !a.IP.IsLoopback() && !cfg.HTTPTLS {
		log.Warn("the HTTP port may be reached from other machines in plain text: see --http-tls",
			"address", a)
	}
}

// openWeb prepares what the HTTP port serves: the page, if it is wanted, and the pages for probes.
func (n *Node) openWeb(ln net.Listener) *webListener {
	l := newWebListener(ln)
	l.guard(n.server.HTTPGate())
	warnOfPlainHTTP(&n.cfg, ln.Addr(), n.log)
	pages := http.NewServeMux()
	health := n.server.HealthHandler()
	pages.Handle("/healthz", health)
	pages.Handle("/readyz", health)
	pages.Handle("GET /metrics", n.metricsHandler())
	if !n.cfg.HTTPNoPage {
		n.pageConns = web.NewListener()
		n.page = web.New(web.Config{NodeID: n.cfg.ID, Server: n.pageConns, TLS: n.cfg.HTTPTLS,
			Insecure: n.cfg.HTTPInsecure, Hold: hold, May: n.server.MayRun})
		pages.Handle("/", n.page)
		pages.Handle("POST /api/login", logIn(n.page))
	}
	n.http = newWeb(pages, n.log)
	return l
}

// serveWeb answers on HTTP until the node stops.
func (n *Node) serveWeb(l *webListener) error {
	if !n.cfg.HTTPTLS {
		return n.http.Serve(l)
	}
	n.http.TLSConfig = n.certs.client.Server(tls.NoClientCert)
	return n.http.ServeTLS(l, "", "")
}

// newWeb returns an HTTP server with limits.
func newWeb(pages http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           http.MaxBytesHandler(pages, webHeaderBytes),
		ErrorLog:          stdlog.New(webLog{logging.NewLimited(log)}, "", 0),
		ReadHeaderTimeout: webTimeout, ReadTimeout: webTimeout, WriteTimeout: webTimeout,
		IdleTimeout: webTimeout, MaxHeaderBytes: webHeaderBytes,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, webConnKey{}, conn)
		},
	}
}

// webLog passes what net/http logs to the node's log, limited: clients cause it.
type webLog struct{ *logging.Limited }

// Write implements io.Writer.
func (l webLog) Write(line []byte) (int, error) {
	l.Warn("HTTP request failed", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}

// webListener limits connections. Past a limit it closes the oldest one of the host with the most:
// requests take milliseconds, so that one is idle, and a crowd of one host keeps out nobody else.
type webListener struct {
	net.Listener
	gate *halfopen.Gate // nil: all may connect

	mu       lockorder.Mutex
	open     webPool // who they are is not known: probes, too
	logins   webPool // attempts to log in: a wrong password may take long
	sessions webPool // requests of who has logged in
}

func newWebListener(ln net.Listener) *webListener {
	return &webListener{Listener: ln, open: webPool{most: webConnections},
		logins: webPool{most: webLogins}, sessions: webPool{most: webSessions}}
}

// guard has the listener accept what comes in by the gate, and close it once that is narrower.
func (l *webListener) guard(gate *halfopen.Gate) {
	l.gate = gate
	l.Listener = gate.Guard(l.Listener, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range [...]*webPool{&l.open, &l.logins, &l.sessions} {
			for _, c := range slices.Clone(p.conns) {
				c.checkAddress()
			}
		}
	})
}

// checkAddress closes the connection if its address may not connect any more. It is called once
// the connection is in a pool, and after each change, so that none is missed. The caller holds mu.
func (c *webConn) checkAddress() {
	if gate := c.of.gate; gate != nil && !gate.Allows(c.Conn) {
		c.displace()
	}
}

// Accept implements net.Listener.
func (l *webListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	limitUnacked(conn, webUnacked)
	c := &webConn{Conn: conn, of: l, host: halfopen.Host(conn)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open.add(c)
	c.checkAddress()
	return c, nil
}

// webPool holds connections, by age. It is guarded by the listener's mu.
type webPool struct {
	most  int
	conns []*webConn
}

// add adds a connection, and closes another one if there is no room.
func (p *webPool) add(c *webConn) {
	if len(p.conns) >= p.most {
		crowd(p.conns, hostOf)[0].displace()
	}
	p.conns = append(p.conns, c)
	c.in = p
}

// share makes room for a connection of a user: it closes one of the user who holds most, or else of
// that user's host that holds most. It fails if they would hold less than whom it makes room for.
func (p *webPool) share(user string, host netip.Prefix) bool {
	if len(p.conns) < p.most {
		return true
	}
	var mine []*webConn
	for _, c := range p.conns {
		if c.user == user {
			mine = append(mine, c)
		}
	}
	from := crowd(p.conns, func(c *webConn) string { return c.user })
	if len(from) <= len(mine)+1 {
		here := 0
		for _, c := range mine {
			if c.host == host {
				here++
			}
		}
		if from = crowd(mine, hostOf); len(from) <= here+1 {
			return false
		}
	}
	crowd(from, hostOf)[0].displace()
	return true
}

// crowd returns the most connections that are of the same, the oldest first.
func crowd[T comparable](conns []*webConn, of func(*webConn) T) (most []*webConn) {
	groups := map[T][]*webConn{}
	for _, c := range conns {
		groups[of(c)] = append(groups[of(c)], c)
	}
	for _, c := range conns {
		if g := groups[of(c)]; len(g) > len(most) {
			most = g
		}
	}
	return most
}

func hostOf(c *webConn) netip.Prefix { return c.host }

type webConn struct {
	net.Conn
	of   *webListener
	host netip.Prefix

	// guarded by of.mu
	in     *webPool // nil: it is closed
	user   string   // whose request it has or had
	cancel func()   // ends its attempt to log in; nil: there is none
}

// Close implements net.Conn.
func (c *webConn) Close() error {
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// leave removes the connection from its pool. The caller holds mu.
func (c *webConn) leave() {
	if c.in != nil {
		i := slices.Index(c.in.conns, c)
		c.in.conns = slices.Delete(c.in.conns, i, i+1)
		c.in = nil
	}
}

// displace closes the connection, and ends its attempt to log in, if any. It never blocks. The
// caller holds mu.
func (c *webConn) displace() {
	c.leave()
	if c.cancel != nil {
		c.cancel()
	}
	_ = c.Conn.Close()
}

// move moves the connection to another pool, until back is called. The caller holds mu.
func (c *webConn) move(to *webPool) (back func()) {
	c.leave()
	to.add(c)
	return func() {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.cancel = nil
		if c.in != nil {
			c.leave()
			c.of.open.add(c)
		}
	}
}

// webConnKey is the key of a request's connection in its context.
type webConnKey struct{}

// connOf returns the connection of a request; nil: it is not one of a webListener.
func connOf(r *http.Request) *webConn {
	conn, _ := r.Context().Value(webConnKey{}).(net.Conn)
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn()
	}
	c, _ := conn.(*webConn)
	return c
}

// logIn passes on attempts to log in. One that is displaced ends.
func logIn(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r); c != nil {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			c.of.mu.Lock()
			if c.in == nil {
				c.of.mu.Unlock()
				return
			}
			c.cancel = cancel
			back := c.move(&c.of.logins)
			c.of.mu.Unlock()
			defer back()
			r = r.WithContext(ctx)
		}
		page.ServeHTTP(w, r)
	})
}

// hold keeps the connection of a user's request from being closed for requests of nobody, until
// release is called. It fails if there is no room for it. An attempt to log in has its connection
// from logIn.
func hold(r *http.Request, user string) (release func(), ok bool) {
	c := connOf(r)
	if c == nil {
		return nil, false
	}
	l := c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.in == &l.logins:
		return func() {}, true
	case c.in == nil, !l.sessions.share(user, c.host):
		return nil, false
	}
	c.user = user
	return c.move(&l.sessions), true
}
