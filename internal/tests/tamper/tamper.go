package tamper

import (
	"net"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// Kind is what happens at a place in a stream.
type Kind uint8

// The kinds of edits.
const (
	Cut       Kind = iota // nothing more is sent
	Insert                // a text is sent before it
	Overwrite             // a text replaces as many bytes
	Drop                  // as many bytes as the text has are left out
	Kinds
)

// Edit is one change of what a connection sends: at an offset from the start.
type Edit struct {
	Kind Kind
	At   int
	Text []byte
}

// Conn sends what is written to it with one edit. From then on it waits only until patience is over
// for what it reads: the other end may wait for bytes that never come.
type Conn struct {
	net.Conn
	edit     Edit
	patience time.Duration
	sent     int // bytes written to the Conn so far
	begun    bool
}

// New returns a Conn over conn.
func New(conn net.Conn, edit Edit, patience time.Duration) *Conn {
	return &Conn{Conn: conn, edit: edit, patience: patience}
}

// Begun reports whether the edit was reached: whatever was sent before is unchanged.
func (c *Conn) Begun() bool { return c.begun }

// Write implements net.Conn. It reports all of p as written.
func (c *Conn) Write(p []byte) (int, error) {
	from := c.sent
	c.sent += len(p)
	if c.sent <= c.edit.At {
		return c.Conn.Write(p)
	}
	out := append([]byte{}, p[:max(c.edit.At-from, 0)]...)
	if !c.begun {
		c.begun = true
		_ = c.SetReadDeadline(time.Now().Add(c.patience))
		if c.edit.Kind == Insert {
			out = append(out, c.edit.Text...)
		}
	}
	for i := len(p) - (c.sent - max(c.edit.At, from)); i < len(p); i++ {
		into := from + i - c.edit.At
		switch {
		case c.edit.Kind == Cut, c.edit.Kind == Drop && into < len(c.edit.Text):
		case c.edit.Kind == Overwrite && into < len(c.edit.Text):
			out = append(out, c.edit.Text[into])
		default:
			out = append(out, p[i])
		}
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

var dialed atomic.Uint32

// Dial connects as a stranger does, from one of many hosts of the loopback: nodes refuse a host
// whose connections come often.
func Dial(addr string) (net.Conn, error) {
	host := net.IPv4(127, 0, 2, byte(dialed.Add(1)))
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: host}}).Dial("tcp", addr)
}

// Allocated returns how many bytes this process has allocated so far.
func Allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
