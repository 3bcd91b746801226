// A RESP connection that returns replies as raw bytes, and a redis-server to compare with.

package commandtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// replyTimeout bounds the wait for one reply, so that a test that hangs fails. It is far more than
// the longest work takes with -race on a busy machine, which was 22 s.
const replyTimeout = 90 * time.Second

// Conn is a connection to a server that speaks the Redis protocol. It is a Target and a Messenger.
type Conn struct {
	nc net.Conn
	br *bufio.Reader
}

// Dial connects to a server; network is "unix" or "tcp".
func Dial(network, address string) (*Conn, error) {
	nc, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return NewConn(nc), nil
}

// NewConn uses an open connection.
func NewConn(nc net.Conn) *Conn { return &Conn{nc: nc, br: bufio.NewReader(nc)} }

// Close ends the connection.
func (c *Conn) Close() error { return c.nc.Close() }

// Do sends a call and reads its reply.
func (c *Conn) Do(args [][]byte) ([]byte, error) {
	if err := c.Send(args); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Send sends a call without waiting for a reply.
func (c *Conn) Send(args [][]byte) error { return c.SendRaw(resp.AppendCall(nil, args)) }

// SendRaw sends bytes as they are: pipelines, inline commands, broken ones.
func (c *Conn) SendRaw(b []byte) error {
	if err := c.nc.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	_, err := c.nc.Write(b)
	return err
}

// Receive reads one whole reply or push message. At the end of the stream the error is io.EOF,
// inside a reply io.ErrUnexpectedEOF.
func (c *Conn) Receive() ([]byte, error) {
	if err := c.nc.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return nil, err
	}
	return resp.NewReader(c.br).AppendRaw(nil)
}

// Ready reports whether something arrived within wait, and whether the stream is still open: if
// not, everything has been received.
func (c *Conn) Ready(wait time.Duration) (ready, open bool) {
	if err := c.nc.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return false, false
	}
	_, err := c.br.Peek(1)
	_ = c.nc.SetReadDeadline(time.Time{}) // a connection that has ended keeps it
	return err == nil, err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

// Args converts strings to the arguments of a call.
func Args(words ...string) [][]byte {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	return args
}

// RedisMissing is the log message of a test that needs a real server for its comparisons.
const RedisMissing = "SKIPPED: redis-server not found"

// guardian runs redis-server and kills it when its own input ends, even if the test process dies.
// Only the server holds the pipe of its log, so the log ends with it.
const guardian = `redis-server "$@" & server=$!; exec >/dev/null; cat; kill -9 $server; wait $server`

// StartRedis starts a redis-server without persistence on a unix socket, and stops it with the
// test. It returns the socket's path, or "" if no redis-server is installed. more are arguments of
// the server.
func StartRedis(t testing.TB, more ...string) (socket string) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		return ""
	}
	// t.TempDir would put the test's name in the path, and a socket's path has at most 107 bytes.
	dir, err := os.MkdirTemp("", "commandtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "redis.sock")
	args := []string{"-c", guardian, "sh", "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no"}
	cmd := exec.Command("sh", append(args, more...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		stdin.Close()
		<-drained
		_ = cmd.Wait() // the status of a killed server
	})
	ready := make(chan string, 1)
	go func() {
		defer close(drained)
		watchStart(out, ready)
	}()
	if log := <-ready; log != "" {
		t.Fatalf("redis-server did not start:\n%s", log)
	}
	return socket
}

// NeedRedis is StartRedis, but skips the test if no redis-server is installed.
func NeedRedis(t testing.TB, more ...string) (socket string) {
	t.Helper()
	if socket = StartRedis(t, more...); socket == "" {
		t.Skip(RedisMissing)
	}
	return socket
}

// DialRedis returns a connection to a redis-server of its own, or skips the test. Both end with the
// test.
func DialRedis(t testing.TB) *Conn {
	t.Helper()
	c, err := Dial("unix", NeedRedis(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// watchStart reads the server's log to its end. It reports once: "" when the server is ready, or
// the log if that ended before.
func watchStart(out io.Reader, ready chan<- string) {
	var log strings.Builder
	started := false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if started {
			continue
		}
		fmt.Fprintln(&log, lines.Text())
		if strings.Contains(lines.Text(), "ready to accept connections") {
			started = true
			ready <- ""
		}
	}
	if !started {
		ready <- log.String() + "(end of its log)"
	}
}
