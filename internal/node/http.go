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
	"sync"
	"time"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/logging"
	"github.com/coordd/coordd/internal/web"
)

// webTimeout bounds a request to the HTTP port, and its response. The tests lower it.
var webTimeout = 5 * time.Second

// The HTTP port may be open to anyone: it accepts few connections, for a short time each. Those of
// operators who use the page may last longer; enough are left for the others.
const (
	webConnections = 32
	webHeaderBytes = 8 << 10
	// webUnacked is how long a browser may leave data unacknowledged: its machine is gone then
	webUnacked = 15 * time.Second
)

// openWeb prepares what the HTTP port serves: the page, if it is wanted, and the pages for probes.
func (n *Node) openWeb(ln net.Listener) *webListener {
	l := &webListener{Listener: ln, most: webConnections, heldBy: map[netip.Prefix]int{}}
	pages := http.NewServeMux()
	health := n.server.HealthHandler()
	pages.Handle("/healthz", health)
	pages.Handle("/readyz", health)
	pages.Handle("GET /metrics", n.metricsHandler())
	if !n.cfg.HTTPNoPage {
		n.pageConns = web.NewListener()
		n.page = web.New(web.Config{NodeID: n.cfg.ID, Server: n.pageConns, TLS: n.cfg.HTTPTLS,
			Insecure: n.cfg.HTTPInsecure, Hold: hold})
		pages.Handle("/", n.page)
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

// webListener limits connections. Past the limit it closes the oldest that is not held: requests
// take milliseconds, so that one is idle, and probes always get through.
type webListener struct {
	net.Listener
	most int

	mu     sync.Mutex
	conns  []*webConn // those that are not held, by age
	held   int
	heldBy map[netip.Prefix]int // by host
}

// mostHeld is how many connections may be held, and those of one host.
func (l *webListener) mostHeld() (all, ofHost int) { return l.most * 3 / 4, l.most / 2 }

// Accept implements net.Listener.
func (l *webListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	limitUnacked(conn, webUnacked)
	c := &webConn{Conn: conn, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns)+l.held >= l.most {
		_ = l.conns[0].Conn.Close()
		l.conns = slices.Delete(l.conns, 0, 1)
	}
	l.conns = append(l.conns, c)
	return c, nil
}

type webConn struct {
	net.Conn
	of     *webListener
	closed bool // guarded by of.mu
}

// Close implements net.Conn.
func (c *webConn) Close() error {
	c.of.mu.Lock()
	c.closed = true
	c.forget()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// forget removes the connection from those that are not held. It reports whether it was there. The
// caller holds mu.
func (c *webConn) forget() bool {
	i := slices.Index(c.of.conns, c)
	if i >= 0 {
		c.of.conns = slices.Delete(c.of.conns, i, i+1)
	}
	return i >= 0
}

// webConnKey is the key of a request's connection in its context.
type webConnKey struct{}

// hold keeps the connection of a request from being closed to make room, until release is called.
// It fails if too many are held.
func hold(r *http.Request) (release func(), ok bool) {
	conn, _ := r.Context().Value(webConnKey{}).(net.Conn)
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn()
	}
	c, is := conn.(*webConn)
	if !is {
		return nil, false
	}
	l, host := c.of, halfopen.Host(c.Conn)
	all, ofHost := l.mostHeld()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held >= all || l.heldBy[host] >= ofHost || !c.forget() {
		return nil, false
	}
	l.held++
	l.heldBy[host]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held--
		if l.heldBy[host]--; l.heldBy[host] == 0 {
			delete(l.heldBy, host)
		}
		if !c.closed {
			l.conns = append(l.conns, c)
		}
	}, true
}
