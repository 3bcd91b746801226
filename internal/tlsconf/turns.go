package tlsconf

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
)

// turns let half of the processors compute handshakes at a time: thousands of clients that come at
// once do not hold up those that are there.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// handshaking is a connection during its handshake, which has a turn except while it waits for the
// client.
type handshaking struct {
	net.Conn
	turns turns
	done  bool
}

// Read implements net.Conn.
func (h *handshaking) Read(b []byte) (int, error) {
	if h.done {
		return h.Conn.Read(b)
	}
	<-h.turns
	n, err := h.Conn.Read(b)
	h.turns <- struct{}{}
	return n, err
}

// handshake serves a handshake on raw.
func (l *Listener) handshake(ctx context.Context, raw net.Conn) (*tls.Conn, error) {
	h := &handshaking{Conn: raw, turns: l.turns}
	conn := tls.Server(h, l.cfg)
	l.turns <- struct{}{}
	err := conn.HandshakeContext(ctx)
	<-l.turns
	h.done = true
	return conn, err
}

// Socket returns the connection below TLS.
func Socket(conn *tls.Conn) net.Conn {
	if h, ok := conn.NetConn().(*handshaking); ok {
		return h.Conn
	}
	return conn.NetConn()
}
