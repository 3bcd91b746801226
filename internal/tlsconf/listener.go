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
	maxWaiting       = 1500
	grace            = 2 * time.Second
)

// Listener accepts connections and returns those whose TLS handshake is complete. At most
// MaxHandshakes are under way, each for at most HandshakeTimeout. Past the limit the oldest
// connection of the host with the most of them goes, see halfopen.Set. A halfopen.Door refuses
// crowds before any work for TLS; who accepts a connection calls its Identified.
type Listener struct {
	net.Listener
	cfg      *tls.Config
	door     *halfopen.Door
	turns    turns
	warnings *logging.Limited

	ready   chan *tls.Conn
	closed  chan struct{}
	once    sync.Once
	waiting *halfopen.Set
	wg      sync.WaitGroup // handshakes

	failed chan error // the inner listener's error, after the handshakes under way
}

// NewListener returns a Listener over ln, which it owns.
func NewListener(ln net.Listener, cfg *tls.Config, door *halfopen.Door,
	warnings *logging.Limited) *Listener {
	l := &Listener{Listener: ln, cfg: cfg, door: door, turns: newTurns(), warnings: warnings,
		ready: make(chan *tls.Conn), closed: make(chan struct{}), failed: make(chan error),
		waiting: halfopen.New(halfopen.Limits{Most: MaxHandshakes, Waiting: maxWaiting,
			Grace: grace})}
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
			if l.door.Admit(conn) {
				l.wg.Add(1)
				go l.greet(conn)
			}
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
		if evicted == raw {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), HandshakeTimeout)
	conn, err := l.handshake(ctx, raw)
	cancel()
	if err != nil {
		_ = raw.Close()
		if l.waiting.Remove(raw) { // else this node closed it
			l.warnings.Warn("TLS handshake failed", "client", raw.RemoteAddr(), "error", err)
		}
		return
	}
	l.waiting.Remove(raw)
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
