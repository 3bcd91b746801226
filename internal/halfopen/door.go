package halfopen

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/simplelru"

	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/logging"
)

const (
	// At a time, and a second, so many hosts that use up theirs come in without delay.
	fullHosts = 4
	hosts     = 10_000 // remembered; the one that came longest ago is forgotten first
	// refusals are followed by a pause, in which connections wait in the kernel. A connection that
	// comes in and ends unidentified costs as much as some ten that are refused.
	refusals = 32
	pause    = 2 * time.Millisecond
	slowly   = time.Millisecond // a connection
)

// Rate is how many connections of a host come in, besides those that identify themselves: at once,
// and a second after that.
type Rate struct{ AtOnce, PerSecond int }

// Door decides which connections come in. A connection costs its host a token, which it gets back
// when the connection is identified: any number of peers that mean well come in. The connections of
// a host without tokens are reset, until it has new ones. Then chance decides who comes in: a peer
// that shares the address of a crowd has to try again.
type Door struct {
	rate     Rate
	warnings *logging.Limited
	refused  atomic.Uint64

	mu   lockorder.Mutex
	all  tokens
	from *simplelru.LRU // Host → *tokens
}

// NewDoor returns a door.
func NewDoor(r Rate, warnings *logging.Limited) *Door {
	d := &Door{rate: r, warnings: warnings}
	d.from, _ = simplelru.NewLRU(hosts, nil) // fails only without room
	return d
}

// Refused returns how many connections Admit has closed.
func (d *Door) Refused() uint64 { return d.refused.Load() }

// Admit reports whether a new connection comes in. If not, it is closed. While strangers cost too
// much, it waits before it returns, so that who accepts connections leaves them in the kernel.
func (d *Door) Admit(conn net.Conn) bool {
	host := Host(conn)
	if !host.IsValid() {
		return true
	}
	admitted, crowded := d.takeToken(host, time.Now())
	switch {
	case !admitted:
		reset(conn)
		if d.refused.Add(1)%refusals == 0 {
			d.warnings.Warn("refused connections: too many do not identify themselves", "from",
				host)
			time.Sleep(pause)
		}
	case crowded:
		time.Sleep(slowly)
	}
	return admitted
}

func (d *Door) takeToken(host netip.Prefix, now time.Time) (admitted, crowded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, found := d.from.Get(host)
	if !found {
		known = &tokens{}
		d.from.Add(host, known)
	}
	admitted = known.(*tokens).take(now, d.rate)
	return admitted, admitted &&
		!d.all.take(now, Rate{fullHosts * d.rate.AtOnce, fullHosts * d.rate.PerSecond})
}

// Identified gives the host of an admitted connection its token back. It is called once.
func (d *Door) Identified(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, found := d.from.Peek(Host(conn)); found {
		known.(*tokens).taken--
		d.all.taken--
	}
}

// tokens are those of a host.
type tokens struct {
	taken float64 // at a time; below 0 after a host was forgotten
	at    time.Time
}

// take takes a token if there is one.
func (t *tokens) take(now time.Time, r Rate) bool {
	back := now.Sub(t.at).Seconds() * float64(r.PerSecond)
	t.taken, t.at = max(t.taken-back, 0), now
	if t.taken+1 > float64(r.AtOnce) {
		return false
	}
	t.taken++
	return true
}

// reset closes a connection at the least cost: nothing stays in the kernel.
func reset(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = conn.Close()
}

// Host returns the address of a connection's peer. An IPv6 host has a whole /64 to itself. The peer
// of a Unix socket has none, and comes in whenever it likes.
func Host(conn net.Conn) netip.Prefix {
	a, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return Prefix(a.AddrPort().Addr())
}

// Prefix returns the host that has an address.
func Prefix(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	host, _ := addr.Prefix(bits) // the length is valid
	return host
}
