// All clients of a cluster that connect at once, as after the loss of a node.

package e2e

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// fleet is what connects at once, from one address.
const (
	wholeFleet  = 2000 // in make attack
	smallFleet  = 300
	fleetWithin = 30 * time.Second
)

// TestFleetReconnects has a fleet of clients with a password connect to one node at once: those
// that do not identify themselves are limited, those that do are not. None is turned away.
func TestFleetReconnects(t *testing.T) {
	b := newSiege(t)
	secure := clientTLS(t, b.dir)
	secure.ServerName = "127.0.0.1"
	for _, c := range []struct {
		name, addr string
		dial       func(net.Conn) net.Conn
	}{
		{"plain", b.ports["client"], func(c net.Conn) net.Conn { return c }},
		{"TLS", b.ports["tls"], func(c net.Conn) net.Conn { return tls.Client(c, secure) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			took, tries := reconnect(t, c.addr, c.dial)
			t.Logf("%d clients: half are in after %v, 99%% after %v, all after %v; %d tries",
				len(took), took[len(took)/2], took[len(took)*99/100], took[len(took)-1], tries)
			if tries > int64(len(took)) {
				t.Errorf("%d clients needed %d tries", len(took), tries)
			}
		})
	}
}

// reconnect has a fleet connect and send a request each. It returns after what times the replies
// were there, in order, and how often clients tried in all.
func reconnect(t *testing.T, addr string, wrap func(net.Conn) net.Conn) (took []time.Duration,
	tries int64) {
	t.Helper()
	took = make([]time.Duration, smallFleet)
	if measured() {
		took = make([]time.Duration, wholeFleet)
	}
	var all, connected sync.WaitGroup
	var tried atomic.Int64
	connected.Add(len(took))
	began := time.Now()
	for i := range took {
		all.Go(func() {
			once := sync.OnceFunc(connected.Done)
			defer once()
			for time.Since(began) < fleetWithin {
				tried.Add(1)
				if use(addr, wrap, func() {
					took[i] = time.Since(began)
					once()
					connected.Wait() // they stay, as clients do
				}) {
					return
				}
			}
			t.Error("a client does not get in")
		})
	}
	all.Wait()
	slices.Sort(took)
	return took, tried.Load()
}

// use connects, authenticates, sends a request and calls f. It reports whether that succeeded.
func use(addr string, wrap func(net.Conn) net.Conn, f func()) bool {
	raw, err := net.DialTimeout("tcp", addr, fleetWithin)
	if err != nil {
		return false
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(fleetWithin))
	conn := wrap(raw)
	r := bufio.NewReader(conn)
	for _, call := range [][]string{{"AUTH", "app", appPassword}, {"SET", "k:fleet", "x"}} {
		if _, err := conn.Write(resp.AppendCommand(nil, call...)); err != nil {
			return false
		}
		reply := make([]byte, len("+OK\r\n"))
		if _, err := io.ReadFull(r, reply); err != nil || string(reply) != "+OK\r\n" {
			return false
		}
	}
	f()
	return true
}
