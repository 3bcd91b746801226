package halfopen

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/logging"
)

// Addresses are the networks that may connect.
type Addresses []netip.Prefix

// ParseAddresses parses addresses and networks, such as 10.1.0.0/16 or fd00::7, separated by commas
// or spaces. Without any, the text is empty.
func ParseAddresses(text string) (all Addresses, err error) {
	for _, word := range strings.Fields(strings.ReplaceAll(text, ",", " ")) {
		network, err := netip.ParsePrefix(word)
		if addr, no := netip.ParseAddr(word); no == nil && addr.Zone() == "" {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err != nil || network.Addr().Is4In6():
			return nil, fmt.Errorf("%q is no network such as 10.1.0.0/16 or fd00::/8", word)
		case network != network.Masked():
			return nil, fmt.Errorf("%q has more bits than its length: the network is %v", word,
				network.Masked())
		}
		all = append(all, network)
	}
	if len(all) == 0 && text != "" { // nothing would let everyone in
		return nil, fmt.Errorf("%q names no network such as 10.1.0.0/16 or fd00::/8", text)
	}
	return all, nil
}

// String returns the networks, separated by commas.
func (a Addresses) String() string {
	words := make([]string, len(a))
	for i, network := range a {
		words[i] = network.String()
		if network.IsSingleIP() {
			words[i] = network.Addr().String()
		}
	}
	return strings.Join(words, ",")
}

// Gate turns away connections by their addresses, before anything is read. It lets in those of the
// same machine, so that nobody locks himself out.
type Gate struct {
	name     string // name of the option
	before   *Gate  // whose addresses count while this gate has none; nil: all come in then
	warnings *logging.Limited
	only     atomic.Pointer[Addresses]
	refused  atomic.Uint64

	mu       lockorder.Mutex
	watchers []func()
}

// NewGate returns a gate whose addresses are those of an option. While it has none, those of before
// count, if that is not nil.
func NewGate(name string, only Addresses, before *Gate, warnings *logging.Limited) *Gate {
	g := &Gate{name: name, before: before, warnings: warnings}
	g.only.Store(&only)
	if before != nil {
		before.Watch(g.changed)
	}
	return g
}

// Let changes the addresses that may connect, and has those that came in before checked again.
func (g *Gate) Let(only Addresses) {
	g.only.Store(&only)
	g.changed()
}

// Watch has changed called after each change of the addresses that count.
func (g *Gate) Watch(changed func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers = append(g.watchers, changed)
}

func (g *Gate) changed() {
	g.mu.Lock()
	watchers := slices.Clone(g.watchers)
	g.mu.Unlock()
	for _, changed := range watchers {
		changed()
	}
}

// Only returns the addresses that may connect; empty: the gate has none of its own.
func (g *Gate) Only() Addresses { return *g.only.Load() }

// Refused returns how many connections were turned away.
func (g *Gate) Refused() uint64 { return g.refused.Load() }

// Allows reports whether a connection may come in.
func (g *Gate) Allows(conn net.Conn) bool {
	a, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return true
	}
	addr := a.AddrPort().Addr().Unmap().WithZone("")
	only := g.deciding().Only()
	if len(only) == 0 || addr.IsLoopback() {
		return true
	}
	for _, network := range only {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// deciding returns the gate whose addresses count.
func (g *Gate) deciding() *Gate {
	for len(g.Only()) == 0 && g.before != nil {
		g = g.before
	}
	return g
}

// Guard returns a listener that accepts what comes in by the gate. It owns ln. changed is called
// after each change of the addresses that count: it ends those that came in and that the gate does
// not allow any more. It blocks for nothing.
func (g *Gate) Guard(ln net.Listener, changed func()) net.Listener {
	g.Watch(changed)
	return &guarded{ln, g}
}

type guarded struct {
	net.Listener
	gate *Gate
}

// Accept implements net.Listener. A crowd that is turned away leaves time for others, see Door.
func (l *guarded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.gate.Allows(conn) {
			return conn, err
		}
		reset(conn)
		if n := l.gate.refused.Add(1); n%refusals == 1 {
			l.gate.warnings.Warn("refused connections: their address may not connect", "option",
				l.gate.deciding().name, "from", Host(conn))
			time.Sleep(pause)
		}
	}
}

// SetDeadline ends Accept at a time, as that of a net.TCPListener does.
func (l *guarded) SetDeadline(t time.Time) error {
	d, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return net.ErrClosed
	}
	return d.SetDeadline(t)
}
