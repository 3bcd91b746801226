// Tests of the peer port: strangers on it, and names of peers.

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
)

// startMux returns a mux whose forwarding connections echo a byte once they are known.
func startMux(t *testing.T, w *network) *mux {
	t.Helper()
	ln := w.listen(t, "n1", "")
	m := newMux(ln, "n1", ln.Addr().String(), w.dialer("n1"), testLogger())
	m.start(func(conn *stream, known func()) {
		var b [1]byte
		if _, err := io.ReadFull(conn, b[:]); err == nil {
			known()
			_, _ = conn.Write(b[:])
			_, _ = io.Copy(io.Discard, conn)
		}
	}, nil)
	t.Cleanup(func() {
		m.Close()
		m.wait()
	})
	return m
}

// TestStrangersKeepNobodyOut opens more connections than the peer port admits: some send nothing,
// some the first byte alone. As many of them are closed, an earlier member stays, and a later one
// is served. TestSet says which ones: here their order is chance.
func TestStrangersKeepNobodyOut(t *testing.T) {
	simulated(t, func(t *testing.T) {
		w := newNetwork()
		m := startMux(t, w)
		addr := m.Addr().String()
		echo := func(conn net.Conn) {
			t.Helper()
			var b [1]byte
			if _, err := io.ReadFull(conn, b[:]); err != nil || b[0] != 'x' {
				t.Fatalf("a member is not served: %q, %v", b, err)
			}
		}
		early := w.connect(t, "member", addr, streamForward, 'x')
		echo(early)
		const surplus = 10
		ends := make(chan error, maxUnidentified+surplus)
		for i := range cap(ends) {
			conn := w.connect(t, "stranger", addr, bytes.Repeat([]byte{streamForward}, i%2)...)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				ends <- err
			}()
		}
		late := w.connect(t, "member", addr, streamForward, 'x')
		echo(late)
		for range surplus {
			switch err := <-ends; {
			case err == nil:
				t.Error("a stranger was answered")
			case errors.Is(err, os.ErrDeadlineExceeded):
				t.Fatal("strangers stay")
			}
		}
		if n := m.unidentified.Len(); n > maxUnidentified {
			t.Errorf("%d strangers", n)
		}
	})
}

// nameServer answers lookups as the test decides.
type nameServer struct {
	mu      sync.Mutex
	addrs   []string
	err     error
	hang    chan struct{}
	lookups int
}

func (s *nameServer) lookup(ctx context.Context, _ string) ([]string, error) {
	s.mu.Lock()
	addrs, err, hang := s.addrs, s.err, s.hang
	s.lookups++
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return addrs, err
}

func (s *nameServer) set(addrs []string, err error, hang chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs, s.err, s.hang = addrs, err, hang
}

func (s *nameServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups
}

// TestResolverKeepsTheLastGoodAddress has the name servers answer, fail, and hang.
func TestResolverKeepsTheLastGoodAddress(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := &nameServer{err: errors.New("no such host")}
		r := newResolver()
		r.lookup = s.lookup
		want := func(addr, wanted string) {
			t.Helper()
			got, err := r.resolve(addr)
			if text := fmt.Sprint(got, err); text != wanted {
				t.Errorf("%s: %s, want %s", addr, text, wanted)
			}
		}
		want("127.0.0.1:7001", "[127.0.0.1:7001] <nil>")
		want("[::1]:7001", "[[::1]:7001] <nil>")
		if n := s.asked(); n != 0 {
			t.Errorf("%d lookups of addresses that are no names", n)
		}
		want("peer:7001", "[] no such host")
		s.set([]string{"10.0.0.1", "fd00::1"}, nil, nil)
		want("peer:7001", "[10.0.0.1:7001 [fd00::1]:7001] <nil>")
		s.set(nil, errors.New("server failure"), nil)
		want("peer:7001", "[10.0.0.1:7001 [fd00::1]:7001] <nil>")
		hang := make(chan struct{})
		s.set([]string{"10.0.0.2"}, nil, hang)
		want("peer:7001", "[10.0.0.1:7001 [fd00::1]:7001] <nil>")
		want("peer:7002",
			"[10.0.0.1:7002 [fd00::1]:7002] <nil>") // the same lookup is still under way
		if n := s.asked(); n != 4 {
			t.Errorf("%d lookups, want 4", n)
		}
		close(hang)
		r.wg.Wait()
		s.set([]string{"10.0.0.2"}, nil, make(chan struct{}))
		want("peer:7001", "[10.0.0.2:7001] <nil>")
		r.close()
		if _, err := r.resolve("peer:7001"); err == nil {
			t.Error("a closed resolver answers")
		}
	})
}

// TestNamesOfPeersAreTriedInOrder dials a name with a dead address before the live one, within one
// call.
func TestNamesOfPeersAreTriedInOrder(t *testing.T) {
	simulated(t, func(t *testing.T) {
		m := startMux(t, newNetwork())
		host, port, _ := net.SplitHostPort(m.Addr().String())
		m.resolver.lookup = (&nameServer{addrs: []string{"10.0.9.9", host}}).lookup
		var dialed []string
		dial := m.dial
		m.dial = func(ctx context.Context, addr string) (net.Conn, error) {
			dialed = append(dialed, addr)
			return dial(ctx, addr)
		}
		conn, err := m.open("", "peer:"+port, []byte{streamForward}, dialTimeout)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if want := []string{"10.0.9.9:" + port, host + ":" + port}; !slices.Equal(dialed, want) {
			t.Errorf("dialed %q, want %q", dialed, want)
		}
	})
}
