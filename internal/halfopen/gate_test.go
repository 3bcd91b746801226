package halfopen_test

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/logging"
)

func newGate(t *testing.T, only string, before *halfopen.Gate) *halfopen.Gate {
	t.Helper()
	list, err := halfopen.ParseAddresses(only)
	if err != nil {
		t.Fatal(err)
	}
	return halfopen.NewGate("allow-from", list, before,
		logging.NewLimited(slog.New(slog.DiscardHandler)))
}

func TestGateAllows(t *testing.T) {
	clients := newGate(t, "10.1.0.0/16, 192.0.2.7 fd00:1::/32", nil)
	for addr, want := range map[string]bool{"10.1.255.1:1": true, "10.2.0.1:1": false,
		"192.0.2.7:1": true, "192.0.2.8:1": false, "[fd00:1:2::3]:1": true, "[fd00:2::1]:1": false,
		"[::ffff:10.1.0.9]:1": true, "127.0.0.9:1": true, "[::1]:1": true} {
		if got := clients.Allows(from(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if !clients.Allows(&net.UnixConn{}) {
		t.Error("a Unix socket is refused")
	}
	if !newGate(t, "", nil).Allows(from("192.0.2.8:1")) {
		t.Error("a gate without addresses refuses")
	}
	pages := newGate(t, "", clients)
	if pages.Allows(from("192.0.2.8:1")) || !pages.Allows(from("192.0.2.7:1")) {
		t.Error("the addresses of the gate before do not count")
	}
	if pages.Let(halfopen.Addresses{}); pages.Allows(from("192.0.2.8:1")) {
		t.Error("the addresses of the gate before do not count any more")
	}
	pages = newGate(t, "192.0.2.8", clients)
	if !pages.Allows(from("192.0.2.8:1")) || pages.Allows(from("192.0.2.7:1")) {
		t.Error("the addresses of the gate before count, too")
	}
}

func TestParseAddresses(t *testing.T) {
	for text, want := range map[string]string{"": "", "10.0.0.0/8": "10.0.0.0/8",
		"10.0.0.1,fd00::7/128 ::/0": "10.0.0.1,fd00::7,::/0"} {
		if got, err := halfopen.ParseAddresses(text); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"10.0.0.0/33":         `"10.0.0.0/33" is no network`,
		"10.0.0.0/8,nowhere":  `"nowhere" is no network`,
		"10.0.0.1/8":          "the network is 10.0.0.0/8",
		"::ffff:10.0.0.0/104": "is no network",
		"fe80::1%eth0":        "is no network",
		",":                   `"," names no network`,
		" ":                   `" " names no network`,
	} {
		if _, err := halfopen.ParseAddresses(text); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// pipeListener accepts what it is given.
type pipeListener struct {
	net.Listener
	conns chan net.Conn
}

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

// A refusal names the option whose addresses count.
func TestRefusalNamesItsOption(t *testing.T) {
	for _, test := range []struct{ clients, pages, option string }{
		{"10.0.0.0/8", "", "allow-from"},
		{"10.0.0.0/8", "10.1.0.0/16", "http-allow-from"},
		{"", "10.1.0.0/16", "http-allow-from"},
	} {
		var lines strings.Builder
		warnings := logging.NewLimited(slog.New(slog.NewTextHandler(&lines, nil)))
		clients, err := halfopen.ParseAddresses(test.clients)
		pages, err2 := halfopen.ParseAddresses(test.pages)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		g := halfopen.NewGate("http-allow-from", pages,
			halfopen.NewGate("allow-from", clients, nil, warnings), warnings)
		l := pipeListener{conns: make(chan net.Conn, 1)}
		l.conns <- from("192.0.2.1:1")
		close(l.conns)
		_, _ = g.Guard(l, func() {}).Accept()
		if !strings.Contains(lines.String(), " option="+test.option+" ") {
			t.Errorf("%+v: %s", test, lines.String())
		}
	}
}

// Whoever may not connect is reset, and the next one is accepted.
func TestGuard(t *testing.T) {
	g := newGate(t, "10.0.0.0/8", nil)
	l := pipeListener{conns: make(chan net.Conn, 3)}
	stranger, friend := from("192.0.2.1:1"), from("10.0.0.1:1")
	l.conns <- stranger
	l.conns <- friend
	close(l.conns)
	changes := 0
	ln := g.Guard(l, func() { changes++ })
	if conn, err := ln.Accept(); conn != friend || err != nil {
		t.Errorf("%v, %v", conn, err)
	}
	if !stranger.closed || stranger.linger != 0 || friend.closed || g.Refused() != 1 {
		t.Errorf("%+v, %+v, %d refused", stranger, friend, g.Refused())
	}
	if _, err := ln.Accept(); err != net.ErrClosed {
		t.Error(err)
	}
	next := halfopen.NewGate("http-allow-from", nil, g, nil)
	next.Guard(l, func() { changes += 10 })
	if next.Let(nil); changes != 10 {
		t.Errorf("a change of the next gate: %d", changes)
	}
	if g.Let(nil); changes != 21 {
		t.Errorf("a change that counts for both: %d", changes)
	}
}
