package halfopen_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/internal/halfopen"
	"github.com/coordd/coordd/internal/logging"
)

// peer is a connection from an address.
type peer struct {
	net.Conn
	addr   net.TCPAddr
	linger int
	closed bool
}

func from(addr string) *peer {
	return &peer{addr: *net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)), linger: -1}
}

func (p *peer) RemoteAddr() net.Addr        { return &p.addr }
func (p *peer) SetLinger(seconds int) error { p.linger = seconds; return nil }
func (p *peer) Close() error                { p.closed = true; return nil }

func newDoor() *halfopen.Door {
	return halfopen.NewDoor(halfopen.Rate{AtOnce: 500, PerSecond: 500},
		logging.NewLimited(slog.New(slog.DiscardHandler)))
}

// newSet returns a set in which as many connections may wait as it holds.
func newSet(most int) *halfopen.Set {
	return halfopen.New(halfopen.Limits{Most: most, Waiting: most, Grace: time.Second})
}

// A host whose connections end unidentified is refused, for a while. Others come in.
func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		for i := range 500 {
			if p := from("192.0.2.1:1"); !d.Admit(p) || p.closed {
				t.Fatalf("connection %d is refused", i)
			}
		}
		p := from("192.0.2.1:1")
		if d.Admit(p) || !p.closed || p.linger != 0 {
			t.Errorf("%+v", p)
		}
		if n := d.Refused(); n != 1 {
			t.Errorf("%d refused", n)
		}
		if !d.Admit(from("192.0.2.2:1")) {
			t.Error("another host is refused")
		}
		time.Sleep(2 * time.Millisecond)
		if !d.Admit(from("192.0.2.1:1")) {
			t.Error("the host gets no new tokens")
		}
	})
}

// Identified connections cost nothing, however many come.
func TestDoorForFleets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := newDoor()
		for i := range 10_000 {
			p := from("192.0.2.1:1")
			if !d.Admit(p) {
				t.Fatalf("connection %d is refused", i)
			}
			d.Identified(p)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("after %v", took)
		}
	})
}

// A crowd of one host comes in as often as it may. The goroutine that accepts connections pauses.
func TestCrowdOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		tries, admitted := 0, 0
		for began := time.Now(); time.Since(began) < 10*time.Second; tries++ {
			if d.Admit(from("192.0.2.1:1")) {
				admitted++
			}
		}
		if admitted < 5450 || admitted > 5550 {
			t.Errorf("%d of %d came in", admitted, tries)
		}
		if tries > 350_000 {
			t.Errorf("%d tries", tries)
		}
	})
}

// Crowds of many hosts come in slowly, and nobody is refused.
func TestCrowdOfManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		const many = 10_000
		began := time.Now()
		for i := range many {
			if p := from(fmt.Sprintf("192.0.%d.%d:1", i%100, i%7)); !d.Admit(p) {
				t.Fatalf("%d is refused", i)
			}
		}
		if took := time.Since(began); took < 2*time.Second || took > 10*time.Second {
			t.Errorf("%d took %v", many, took)
		}
	})
}

// The oldest connection of the host with the most goes.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newSet(4)
		var in []net.Conn
		add := func(addr string, want net.Conn) {
			t.Helper()
			p := from(addr)
			in = append(in, p)
			if got := s.Add(p); got != want {
				t.Errorf("%v goes for %s, want %v", got, addr, want)
			}
		}
		add("192.0.2.1:1", nil)
		add("192.0.2.2:1", nil)
		add("192.0.2.2:2", nil)
		add("192.0.2.3:1", nil)
		add("192.0.2.4:1", in[1])
		add("192.0.2.3:2", in[0]) // now all have one, and the oldest goes
		s.Remove(in[2])
		if took := time.Since(began); took > 0 {
			t.Errorf("after %v", took)
		}
		add("192.0.2.3:3", nil)
		add("192.0.2.3:4", in[3]) // its own host has the most
		if took := time.Since(began); took != time.Second {
			t.Errorf("after %v", took)
		}
		if s.Remove(in[0]) || !s.Remove(in[7]) || s.Len() != 3 {
			t.Errorf("%d are left", s.Len())
		}
		if got := s.Close(); !slices.Equal(got, []net.Conn{in[4], in[5], in[6]}) {
			t.Errorf("%v", got)
		}
		if p := from("192.0.2.1:2"); s.Add(p) != p || s.Len() != 0 {
			t.Error("a closed set takes a connection")
		}
	})
}

// The connections of a host wait for those that are about to identify themselves, in order.
func TestFleetOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newSet(10)
		fleet := make([]*peer, 21)
		gone := make([]net.Conn, len(fleet))
		for i := range fleet {
			fleet[i] = from("192.0.2.1:1")
			go func() { gone[i] = s.Add(fleet[i]) }()
			synctest.Wait()
		}
		if gone[20] != fleet[20] {
			t.Error("more than ten wait")
		}
		for _, p := range fleet[:20] {
			s.Remove(p)
			synctest.Wait()
		}
		if i := slices.IndexFunc(gone[:20], func(c net.Conn) bool { return c != nil }); i >= 0 {
			t.Errorf("%v went for connection %d", gone[i], i)
		}
		if n, took := s.Len(), time.Since(began); n != 0 || took > 0 {
			t.Errorf("%d are left after %v", n, took)
		}
	})
}

// A crowd that waits displaces its own connections one by one, and others at once.
func TestCrowdWaitsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := newSet(10)
		var mu sync.Mutex
		var last time.Time
		for range 20 {
			go func() {
				if s.Add(from("192.0.2.1:1")) == nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if since := time.Since(last); since < 100*time.Millisecond {
					t.Errorf("%v after the one before", since)
				}
				last = time.Now()
			}()
		}
		synctest.Wait()
		if s.Add(from("192.0.2.2:1")) == nil || time.Since(began) > 0 {
			t.Error("another host waits")
		}
		time.Sleep(3 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if took := last.Sub(began); took < 1900*time.Millisecond {
			t.Errorf("after %v", took)
		}
	})
}

// Who waits does so no longer when the set is closed.
func TestCloseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(1)
		s.Add(from("192.0.2.1:1"))
		p := from("192.0.2.1:2")
		began := time.Now()
		go func() {
			if got := s.Add(p); got != p || time.Since(began) > 0 {
				t.Errorf("%v after %v", got, time.Since(began))
			}
		}()
		synctest.Wait()
		s.Close()
	})
}

func TestHost(t *testing.T) {
	for _, pair := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"[2001:db8::1]:1", "[2001:db8::ffff:0:0:1]:2", true},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
	} {
		if (halfopen.Host(from(pair.a)) == halfopen.Host(from(pair.b))) != pair.same {
			t.Errorf("%+v", pair)
		}
	}
	unix, other := net.Pipe()
	defer unix.Close()
	defer other.Close()
	if halfopen.Host(unix).IsValid() || !newDoor().Admit(unix) {
		t.Error("a connection without an address is refused")
	}
}
