package tlsconf

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/logging"
)

// Limits of the handshakes of a listener.
const (
	HandshakeTimeout = 5 * time.Second
	MaxHandshakes    = 512 // at a time
)

// Listener accepts connections and returns those whose TLS handshake is complete. At most
// MaxHandshakes are under way, each for at most HandshakeTimeout. Past the limit the oldest
// connection of the address with the most of them goes, see halfopen.Set.
type Listener struct {
	net.Listener
	cfg      *tls.Config
	warnings *logging.Limited

	ready   chan *tls.Conn
	closed  chan struct{}
	once    sync.Once
	waiting *halfopen.Set
	wg      sync.WaitGroup // handshakes

	failed chan error // of the inner listener, after the handshakes under way
}

// NewListener returns a Listener over ln, which it owns.
func NewListener(ln net.Listener, cfg *tls.Config, warnings *logging.Limited) *Listener {
	l := &Listener{Listener: ln, cfg: cfg, warnings: warnings, ready: make(chan *tls.Conn),
		closed: make(chan struct{}), failed: make(chan error),
		waiting: halfopen.New(MaxHandshakes)}
	go l.run()
	return l
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.ready:
		return conn, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// run accepts until the listener is closed. An error is returned by Accept after the connections
// that came before it.
func (l *Listener) run() {
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			l.wg.Add(1)
			go l.greet(conn)
			continue
		}
		if isTimeout(err) { // SetDeadline: no more connections
			_ = l.Listener.Close() // else they wait in the kernel, unanswered
			l.wg.Wait()
		}
		select {
		case l.failed <- err:
		case <-l.closed:
			l.wg.Wait()
			return
		}
	}
}

// greet completes the handshake of a connection.
func (l *Listener) greet(raw net.Conn) {
	defer l.wg.Done()
	if evicted := l.waiting.Add(raw); evicted != nil {
		_ = evicted.Close() // its handshake fails
	}
	ctx, cancel := context.WithTimeout(context.Background(), HandshakeTimeout)
	conn := tls.Server(raw, l.cfg)
	err := conn.HandshakeContext(ctx)
	cancel()
	known := l.waiting.Remove(raw)
	select {
	case <-l.closed:
		_ = raw.Close()
		return
	default:
	}
	if err != nil {
		_ = raw.Close()
		if known { // else this node closed it
			l.warnings.Warn("TLS handshake failed", "client", raw.RemoteAddr(), "error", err)
		}
		return
	}
	select {
	case l.ready <- conn:
	case <-l.closed:
		_ = raw.Close()
	}
}

// SetDeadline sets until when connections are accepted; the handshakes of those are completed. Then
// the port is closed.
func (l *Listener) SetDeadline(t time.Time) error {
	d, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return os.ErrNoDeadline
	}
	return d.SetDeadline(t)
}

// Close closes the listener and ends the handshakes under way.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	for _, conn := range l.waiting.Close() {
		_ = conn.Close()
	}
	return err
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}
