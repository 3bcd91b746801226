// One forwarding connection, either end, with its writer goroutine.

package cluster

import (
	"bufio"
	"net"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// writeTimeout bounds one write, of at most maxWrite bytes, to a peer that reads nothing.
const (
	writeTimeout = 5 * time.Second
	maxWrite     = 1 << 20
)

// peerConn sends frames over one connection. Frames queue in memory and one goroutine writes them,
// many per system call, so that a slow peer never blocks a sender (the completer, the read loop).
type peerConn struct {
	conn   net.Conn
	reader *bufio.Reader

	scratch []byte // the writer's, to join small frames

	mu     lockorder.Mutex
	bufs   [][]byte
	sent   []*sentFrame // frames among bufs
	bytes  int
	closed bool
	wake   chan struct{}
	done   chan struct{} // closed when the writer has ended
}

func newPeerConn(conn net.Conn, reader *bufio.Reader) *peerConn {
	w := &peerConn{conn: conn, reader: reader, wake: make(chan struct{}, 1),
		done: make(chan struct{})}
	go w.write()
	return w
}

// send queues one encoded frame; it returns false when the connection is closed. f, if not nil,
// learns when writing begins.
func (w *peerConn) send(buf []byte, f *sentFrame) bool {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return false
	}
	idle := len(w.bufs) == 0
	w.bufs = append(w.bufs, buf)
	w.bytes += len(buf)
	if f != nil {
		w.sent = append(w.sent, f)
	}
	w.mu.Unlock()
	if idle {
		kick(w.wake)
	}
	return true
}

// backlog returns the bytes that wait to be written.
func (w *peerConn) backlog() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

// ended reports whether the connection is closed.
func (w *peerConn) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// write is the writer goroutine. A frame counts as begun from before the write that carries it,
// unless that write failed before any byte left.
func (w *peerConn) write() {
	defer close(w.done)
	for {
		w.mu.Lock()
		bufs, frames := w.bufs, w.sent
		w.bufs, w.sent, w.bytes = nil, nil, 0
		closed := w.closed
		if !closed {
			for _, f := range frames {
				f.begun = true
			}
		}
		w.mu.Unlock()
		if closed {
			return
		}
		if len(bufs) == 0 {
			<-w.wake
			continue
		}
		if n, err := w.writeAll(bufs); err != nil {
			if n == 0 {
				w.mu.Lock()
				for _, f := range frames {
					f.begun = false
				}
				w.mu.Unlock()
			}
			w.close()
			return
		}
	}
}

// writeAll joins small frames into one call, and splits large ones.
func (w *peerConn) writeAll(bufs [][]byte) (written int64, err error) {
	const most = 64 << 10
	for len(bufs) > 0 {
		out := bufs[0]
		bufs = bufs[1:]
		if len(bufs) > 0 && len(out)+len(bufs[0]) <= most {
			w.scratch = append(w.scratch[:0], out...)
			for len(bufs) > 0 && len(w.scratch)+len(bufs[0]) <= most {
				w.scratch = append(w.scratch, bufs[0]...)
				bufs = bufs[1:]
			}
			out = w.scratch
		}
		for len(out) > 0 {
			if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
				return written, err
			}
			n, err := w.conn.Write(out[:min(len(out), maxWrite)])
			written += int64(n)
			out = out[n:]
			if err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// close closes both directions; the reader's next read fails.
func (w *peerConn) close() {
	w.mu.Lock()
	closed := w.closed
	w.closed = true
	w.mu.Unlock()
	if !closed {
		w.conn.Close()
		kick(w.wake)
	}
}
