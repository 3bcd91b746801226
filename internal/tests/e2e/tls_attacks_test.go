// This file holds a test of what strangers can do to clients over TLS: they may be slow, silent or
// many, and the others go on.

package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/wait"
)

// strangers do one thing to a node, many at once.
type strangers struct {
	addr   string
	good   *tls.Config  // of a client with a certificate
	opened atomic.Int64 // connections, for converse with a completed handshake
}

// tlsAttack is what each of some strangers does until ctx ends.
type tlsAttack struct {
	name string
	size int
	run  func(ctx context.Context, s *strangers)
}

// hold opens TCP connections one after the other, sends something on each, and waits until it is
// closed.
func hold(send string) func(context.Context, *strangers) {
	return func(ctx context.Context, s *strangers) {
		for ctx.Err() == nil {
			// from an address of their own, as strangers
			d := net.Dialer{Timeout: time.Second,
				LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
			conn, err := d.DialContext(ctx, "tcp", s.addr)
			if err != nil {
				continue
			}
			s.opened.Add(1)
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, send)
			_, _ = io.Copy(io.Discard, conn)
			stop()
			_ = conn.Close()
			select { // the test has the same processors as the node
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// converse opens TLS connections one after the other and does something on each. Without a
// certificate a handshake succeeds all the same, for the client: the node's refusal comes after it.
func converse(certificate bool, do func(ctx context.Context, conn *tls.Conn)) func(context.Context,
	*strangers) {
	return func(ctx context.Context, s *strangers) {
		cfg := s.good.Clone()
		if !certificate {
			cfg.Certificates = nil
		}
		for ctx.Err() == nil {
			conn, err := tls.Dial("tcp", s.addr, cfg)
			if err != nil {
				continue
			}
			s.opened.Add(1)
			stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
			do(ctx, conn)
			stop()
			_ = conn.NetConn().Close()
		}
	}
}

var tlsAttacks = []tlsAttack{
	{"silent connections", 1000, hold("")},
	{"half a record", 1000, hold("\x16\x03\x01\x02\x00\x01")},
	{"no TLS", 50, hold("PING\r\n")},
	{"a huge record", 50, hold("\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000))},
	{"handshakes without a certificate", 4, converse(false, func(context.Context, *tls.Conn) {})},
	{"handshakes", 4, converse(true, func(context.Context, *tls.Conn) {})},
	{"records of one byte", 4, converse(true, func(ctx context.Context, conn *tls.Conn) {
		for _, b := range resp.AppendCommand(nil, "SET", "a", strings.Repeat("x", 1<<14)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
		}
	})},
	{"garbage in a session", 20, converse(true, func(_ context.Context, conn *tls.Conn) {
		_, _ = io.WriteString(conn, strings.Repeat("\x00\xff*$", 1000)+"\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})},
	{"clients that do not read", 20, converse(true, func(ctx context.Context, conn *tls.Conn) {
		for range 100 {
			if _, err := conn.Write(resp.AppendCommand(nil, "GET", "big")); err != nil {
				return
			}
		}
		<-ctx.Done()
	})},
}

// begin has strangers attack a node, and returns when each has opened a connection, or as many were
// opened. end ends them.
func (a *tlsAttack) begin(t *testing.T, addr string, good *tls.Config) (s *strangers, end func()) {
	t.Helper()
	s = &strangers{addr: addr, good: good}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	end = func() { cancel(); wg.Wait() }
	t.Cleanup(end)
	for range a.size {
		wg.Go(func() { a.run(ctx, s) })
	}
	wait.For(t, 20*time.Second, "connections of "+a.name, func() bool {
		return s.opened.Load() >= int64(a.size)
	})
	return s, end
}

// TestTLSAttacks has a client of a node work while strangers do one thing after the other.
func TestTLSAttacks(t *testing.T) {
	dir, _ := certsDir(t)
	p := startProcessesWith(t, 1, func(p *process) {
		p.args = append(p.args, clientFlags(dir, p.id, p.addr)...)
		p.setFlag("--listen", "")
	})[0]
	good := clientTLS(t, dir)
	client := redis.NewClient(&redis.Options{Addr: p.addr, TLSConfig: good, MaxRetries: -1,
		ReadTimeout: 10 * time.Second, PoolSize: 1})
	defer client.Close()
	background := context.Background()
	if err := client.Set(background, "big", strings.Repeat("x", 1<<20), 0).Err(); err != nil {
		t.Fatal(err)
	}
	// measure returns the 99th percentile of requests for a while.
	measure := func(duration time.Duration) time.Duration {
		t.Helper()
		var took []time.Duration
		for began := time.Now(); time.Since(began) < duration; {
			at := time.Now()
			if err := client.Incr(background, "n").Err(); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(at))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	idle := measure(time.Second)
	for _, attack := range tlsAttacks {
		s, end := attack.begin(t, p.addr, good)
		under := measure(time.Second)
		// somebody else gets in meanwhile
		other := redis.NewClient(&redis.Options{Addr: p.addr, TLSConfig: good, MaxRetries: -1,
			DialTimeout: 10 * time.Second})
		if err := other.Ping(background).Err(); err != nil {
			t.Errorf("%s: another client: %v", attack.name, err)
		}
		_ = other.Close()
		end()
		t.Logf("%s: p99 %v, idle %v; %d connections", attack.name, under, idle, s.opened.Load())
		if under > time.Second { // strangers, clients and the node share the processors
			t.Errorf("%s: p99 of a client is %v, idle it is %v", attack.name, under, idle)
		}
	}
}
