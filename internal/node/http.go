package node

import (
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coordd/internal/logging"
)

// The HTTP port may be open to anyone: it accepts few connections, for a short time each.
const (
	webConnections = 32
	webTimeout     = 5 * time.Second // of a request, and of its response
	webHeaderBytes = 8 << 10
)

// newWeb returns an HTTP server with limits.
func newWeb(pages http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           http.MaxBytesHandler(pages, webHeaderBytes),
		ErrorLog:          stdlog.New(webLog{logging.NewLimited(log)}, "", 0),
		ReadHeaderTimeout: webTimeout, ReadTimeout: webTimeout, WriteTimeout: webTimeout,
		IdleTimeout: webTimeout, MaxHeaderBytes: webHeaderBytes,
	}
}

// webLog passes what net/http logs to the node's log, limited: clients cause it.
type webLog struct{ *logging.Limited }

// Write implements io.Writer.
func (l webLog) Write(line []byte) (int, error) {
	l.Warn("HTTP request failed", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}

// webListener limits connections. Past the limit it closes the oldest: requests take milliseconds,
// so that one is idle, and probes always get through.
type webListener struct {
	net.Listener
	most int

	mu    sync.Mutex
	conns []*webConn // by age
}

// Accept implements net.Listener.
func (l *webListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &webConn{Conn: conn, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) >= l.most {
		_ = l.conns[0].Conn.Close()
		l.conns = slices.Delete(l.conns, 0, 1)
	}
	l.conns = append(l.conns, c)
	return c, nil
}

type webConn struct {
	net.Conn
	of *webListener
}

// Close implements net.Conn.
func (c *webConn) Close() error {
	c.of.mu.Lock()
	if i := slices.Index(c.of.conns, c); i >= 0 {
		c.of.conns = slices.Delete(c.of.conns, i, i+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
