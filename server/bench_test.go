// Stand-ins without cost, for benchmarks.

package server

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/coordd/coordd/commands"
)

// okBackend answers every write with OK.
type okBackend struct{ *fakeBackend }

var manyOK = bytes.Repeat([]byte("+OK\r\n"), maxBatchRequests)

func (okBackend) Write(_ context.Context, _ Workload, _ []byte,
	count int) (commands.Replies, error) {
	return commands.RepliesOf(manyOK[:5*count]), nil
}

// nullConn discards everything.
type nullConn struct{}

func (nullConn) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (nullConn) Write(b []byte) (int, error)      { return len(b), nil }
func (nullConn) Close() error                     { return nil }
func (nullConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (nullConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (nullConn) SetDeadline(time.Time) error      { return nil }
func (nullConn) SetReadDeadline(time.Time) error  { return nil }
func (nullConn) SetWriteDeadline(time.Time) error { return nil }
