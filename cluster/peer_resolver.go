// Name resolution of peers.

package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// lookupTimeout bounds a lookup. It leaves time for the second name server of a machine whose
	// first one is dead, which is asked after 5 s.
	lookupTimeout = 12 * time.Second
	// lookupPatience is how long a lookup may take before the last known addresses are used. It
	// continues meanwhile.
	lookupPatience = 200 * time.Millisecond
)

// resolver resolves host names. It keeps the last known addresses for when the name servers are
// slow or gone.
type resolver struct {
	ctx    context.Context // ends lookups
	cancel context.CancelFunc
	wg     sync.WaitGroup // lookups under way
	lookup func(ctx context.Context, host string) (addrs []string, err error)

	mu    lockorder.Mutex
	hosts map[string]*lookedUp
}

// lookedUp is what is known of a host.
type lookedUp struct {
	addrs   []string      // result of the last successful lookup
	err     error         // why the last lookup failed; nil: it did not
	pending chan struct{} // closed when the current lookup ends; nil: there is none
}

func newResolver() *resolver {
	r := &resolver{lookup: net.DefaultResolver.LookupHost, hosts: map[string]*lookedUp{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// close ends current lookups and refuses later ones.
func (r *resolver) close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
}

// resolve returns addr (host:port) once for each address of the host, in the resolver's order.
func (r *resolver) resolve(addr string) ([]string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{addr}, nil
	}
	ips, err := r.find(host)
	addrs := make([]string, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, net.JoinHostPort(ip, port))
	}
	return addrs, err
}

func (r *resolver) find(host string) ([]string, error) {
	known, pending, err := r.begin(host)
	if err != nil {
		return nil, err
	}
	patience := lookupTimeout
	if len(known) > 0 {
		patience = lookupPatience
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-pending:
	case <-timer.C:
		if len(known) > 0 {
			return known, nil
		}
	case <-r.ctx.Done():
		return nil, net.ErrClosed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch h := r.hosts[host]; {
	case len(h.addrs) > 0:
		return h.addrs, nil
	case h.err != nil:
		return nil, h.err
	default:
		return nil, errors.New("looking up " + host + " takes too long")
	}
}

// begin starts a lookup unless one is running, and returns the addresses known so far.
func (r *resolver) begin(host string) (known []string, pending <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, nil, net.ErrClosed
	}
	h := r.hosts[host]
	if h == nil {
		h = &lookedUp{}
		r.hosts[host] = h
	}
	if h.pending == nil {
		h.pending = make(chan struct{})
		r.wg.Add(1)
		go r.run(host, h)
	}
	return h.addrs, h.pending, nil
}

func (r *resolver) run(host string, h *lookedUp) {
	defer r.wg.Done()
	ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
	defer cancel()
	addrs, err := r.lookup(ctx, host)
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.err = err; err == nil && len(addrs) > 0 {
		h.addrs = addrs
	}
	close(h.pending)
	h.pending = nil
}
