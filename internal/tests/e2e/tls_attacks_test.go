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
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/resp"
)

// tlsAttack is something that strangers do until ctx ends. It returns when it has ended.
type tlsAttack struct {
	name string
	run  func(ctx context.Context, addr string, good *tls.Config)
}

// crowd runs what one stranger does, many times at once.
func crowd(size int, one func(ctx context.Context, addr string, good *tls.Config)) func(
	context.Context, string, *tls.Config) {
	return func(ctx context.Context, addr string, good *tls.Config) {
		var wg sync.WaitGroup
		for range size {
			wg.Go(func() { one(ctx, addr, good) })
		}
		wg.Wait()
	}
}

// hold opens TCP connections one after the other, sends something on each, and waits until it is
// closed.
func hold(send string) func(context.Context, string, *tls.Config) {
	return func(ctx context.Context, addr string, _ *tls.Config) {
		for ctx.Err() == nil {
			// from an address of their own, as strangers
			d := net.Dialer{Timeout: time.Second,
				LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				continue
			}
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

// converse opens TLS connections one after the other and does something on each.
func converse(good bool, do func(ctx context.Context, conn *tls.Conn)) func(context.Context, string,
	*tls.Config) {
	return func(ctx context.Context, addr string, cfg *tls.Config) {
		if !good {
			cfg = &tls.Config{InsecureSkipVerify: true}
		}
		for ctx.Err() == nil {
			conn, err := tls.Dial("tcp", addr, cfg)
			if err != nil {
				continue
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
			do(ctx, conn)
			stop()
			_ = conn.NetConn().Close()
		}
	}
}

var tlsAttacks = []tlsAttack{
	{"silent connections", crowd(1000, hold(""))},
	{"half a record", crowd(1000, hold("\x16\x03\x01\x02\x00\x01"))},
	{"no TLS", crowd(50, hold("PING\r\n"))},
	{"a huge record", crowd(50, hold("\x16\x03\x01\xff\xff"+strings.Repeat("x", 70000)))},
	{"handshakes without a certificate", crowd(4, converse(false,
		func(context.Context, *tls.Conn) {}))},
	{"handshakes", crowd(4, converse(true, func(context.Context, *tls.Conn) {}))},
	{"records of one byte", crowd(4, converse(true, func(ctx context.Context, conn *tls.Conn) {
		for _, b := range resp.AppendCommand(nil, "SET", "a", strings.Repeat("x", 1<<14)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
		}
	}))},
	{"garbage in a session", crowd(20, converse(true, func(_ context.Context, conn *tls.Conn) {
		_, _ = io.WriteString(conn, strings.Repeat("\x00\xff*$", 1000)+"\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))},
	{"clients that do not read", crowd(20, converse(true,
		func(ctx context.Context, conn *tls.Conn) {
			for range 100 {
				if _, err := conn.Write(resp.AppendCommand(nil, "GET", "big")); err != nil {
					return
				}
			}
			<-ctx.Done()
		}))},
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
		ctx, cancel := context.WithCancel(background)
		ended := make(chan struct{})
		go func() { attack.run(ctx, p.addr, good); close(ended) }()
		under := measure(time.Second)
		// somebody else gets in meanwhile
		other := redis.NewClient(&redis.Options{Addr: p.addr, TLSConfig: good, MaxRetries: -1,
			DialTimeout: 10 * time.Second})
		if err := other.Ping(background).Err(); err != nil {
			t.Errorf("%s: another client: %v", attack.name, err)
		}
		_ = other.Close()
		cancel()
		<-ended
		t.Logf("%s: p99 %v, idle %v", attack.name, under, idle)
		if under > time.Second { // strangers, clients and the node share the processors
			t.Errorf("%s: p99 of a client is %v, idle it is %v", attack.name, under, idle)
		}
	}
}
