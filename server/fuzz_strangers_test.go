// Fuzz targets of what strangers reach: requests before AUTH, and TLS that is changed on its way.

package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/tamper"
)

const (
	// What one stranger may allocate, in bytes, besides strangerShare times the input.
	strangerAlloc = 4 << 20
	strangerShare = 256 // a reply to three bytes
	strangerEnds  = 20 * time.Second
)

// fromStranger has do send something, and returns what a server answers until it ends the
// connection. It fails if that costs more than the input explains.
func fromStranger(t *testing.T, input int, dial func() (net.Conn, error),
	do func(net.Conn)) []byte {
	t.Helper()
	before := tamper.Allocated()
	nc, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	do(nc)
	_ = nc.SetReadDeadline(time.Now().Add(strangerEnds))
	got, err := io.ReadAll(nc)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection stays")
	}
	if used := tamper.Allocated() - before; used > uint64(strangerAlloc+strangerShare*input) {
		t.Errorf("%d bytes cost %d", input, used)
	}
	return got
}

// FuzzBeforeAuth sends bytes to a server whose users need a password. Nothing that such a client
// sends writes, reads more than whether a password is right, or is told what a key holds.
func FuzzBeforeAuth(f *testing.F) {
	for _, s := range hostileStreams {
		f.Add([]byte(s))
	}
	for some := range slices.Chunk(newFake().table.All(), freeRequests/2) {
		var all strings.Builder
		for _, spec := range some {
			words := strings.Split(spec.Name, "|")
			all.WriteString(pipeline(words, append(words, "secret", "1")))
		}
		f.Add([]byte(all.String()))
	}
	for _, s := range []string{
		"GET secret\r\nSET a b\r\n", "MULTI\r\nGET secret\r\nSET a b\r\nEXEC\r\n",
		"AUTH a\r\nAUTH default a\r\nHELLO 3 AUTH default a\r\nGET secret\r\n",
		strings.Repeat("AUTH a\r\n", 20), "QUIT\r\nGET secret\r\n",
		"RESET\r\nGET secret\r\nREADONLY\r\nGET secret\r\n", "SUBSCRIBE a\r\nMONITOR\r\n",
		"EVAL \"return redis.call('get','secret')\" 0\r\nFLUSHALL\r\n",
	} {
		f.Add([]byte(s))
	}
	const hidden = "what-nobody-may-read"
	try := func(t *testing.T, sent []byte) {
		// ends clients whose passwords are delayed
		n := startSimulated(t, func(c *Config) { c.AuthTimeout = 200 * time.Millisecond })
		n.dial(t).call("SET", "secret", hidden)
		n.setPassword(t, "5d407c116af320cf6e06aa31")
		n.fake.takeCalls()
		got := fromStranger(t, len(sent), n.mem.Dial, func(c net.Conn) {
			_, _ = c.Write(sent)
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
		})
		if strings.Contains(string(got), hidden) {
			t.Errorf("%q was answered %q", sent, got)
		}
		if _, err := commandtest.ParseAll(got); err != nil {
			t.Errorf("%q was answered %q: %v", sent, got, err)
		}
		if calls := n.fake.takeCalls(); strings.Contains(calls, "write") ||
			strings.Contains(calls, "dry") || strings.Contains(calls, "local") ||
			strings.Count(calls, "read") > strings.Count(string(got), "WRONGPASS")+1 {
			t.Errorf("%q ran %s", sent, calls)
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) > 1<<16 {
			t.Skip("longer than what a fuzzer can do much with")
		}
		synctest.Test(t, func(t *testing.T) { try(t, sent) })
	})
}

// FuzzTLSHandshake has a client over TLS set a key, while somebody changes what it sends, or sends
// something else. The server runs what the client sent, or nothing.
func FuzzTLSHandshake(f *testing.F) {
	for _, at := range []uint16{0, 1, 3, 4, 5, 9, 11, 43, 44, 76, 200, 300, 1000, 1500, 2000} {
		for kind := range tamper.Kinds + 1 {
			f.Add(byte(kind), at, []byte{0})
			f.Add(byte(kind), at, []byte{20, 3, 3, 0, 1, 1})
		}
	}
	for _, raw := range []string{"PING\r\n", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff",
		strings.Repeat("\x16\x03\x01\x00\x01\x01", 500), "\x80\x2e\x01\x00\x02"} {
		f.Add(byte(tamper.Kinds), uint16(0), []byte(raw))
	}
	n := startSecure(f, nil)
	cfg := n.tls.client.Clone()
	cfg.ServerName, cfg.Certificates = "127.0.0.1", []tls.Certificate{testCertificates().client}
	set := []byte(pipeline([]string{"INCR", "a"}))
	f.Fuzz(func(t *testing.T, kind byte, at uint16, text []byte) {
		if len(text) > 1<<14 {
			t.Skip("longer than what a fuzzer can do much with")
		}
		n.fake.takeCalls()
		kind %= byte(tamper.Kinds) + 1
		untouched := false
		dial := func() (net.Conn, error) { return tamper.Dial(n.tls.addr) }
		fromStranger(t, len(text)+4096, dial, func(nc net.Conn) {
			defer nc.(*net.TCPConn).CloseWrite()
			if kind == byte(tamper.Kinds) {
				_, _ = nc.Write(text)
				return
			}
			c := tamper.New(nc, tamper.Edit{Kind: tamper.Kind(kind), At: int(at), Text: text},
				10*time.Millisecond)
			secure := tls.Client(c, cfg)
			if _, err := secure.Write(set); err == nil {
				_, _ = secure.Read(make([]byte, 100))
			}
			untouched = !c.Begun()
		})
		calls := n.fake.takeCalls()
		if calls != "write 1" && (calls != "" || untouched) {
			t.Errorf("the server ran %q, untouched: %v", calls, untouched)
		}
		if kind == byte(tamper.Kinds) && calls != "" {
			t.Errorf("%q ran %s", text, calls)
		}
		eventually(t, "the session ends", func() bool { return len(n.all()) == 0 })
	})
}

// TestFragmentedHello sends a ClientHello in TLS records of one byte each.
func TestFragmentedHello(t *testing.T) {
	n := startSecure(t, nil)
	nc, err := net.Dial("tcp", n.tls.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	cfg := n.tls.client.Clone()
	cfg.ServerName = "127.0.0.1"
	c := tls.Client(&fragmenting{Conn: nc}, cfg)
	_ = c.SetDeadline(time.Now().Add(strangerEnds))
	got := make([]byte, 7)
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "+PONG\r\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// fragmenting splits the first record that it sends into records of one byte.
type fragmenting struct {
	net.Conn
	done bool
}

func (f *fragmenting) Write(p []byte) (int, error) {
	if f.done {
		return f.Conn.Write(p)
	}
	f.done = true
	const head = 5 // type, version and length
	var b bytes.Buffer
	for _, x := range p[head:] {
		b.Write(append(p[:3:3], 0, 1, x))
	}
	_, err := f.Conn.Write(b.Bytes())
	return len(p), err
}
