// Clients that look for the leader, and a leader that its followers do not reach.

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/netns"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// startApart starts three nodes in network namespaces, whose connections a test can cut.
func startApart(t *testing.T) ([]*process, *netns.Network) {
	t.Helper()
	if why := netns.Missing(); why != "" {
		t.Skip(why)
	}
	w, err := netns.New(seeds.Of(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	hosts := map[string]*netns.Host{}
	var members []string
	for _, h := range w.Hosts[:3] {
		hosts[h.Name] = h
		members = append(members, fmt.Sprintf("%s=%s:7000", h.Name, h.Addr))
	}
	return startProcessesWith(t, 3, func(p *process) {
		h := hosts[p.id]
		p.in, p.addr, p.http = h.Namespace, h.Addr+":6379", h.Addr+":8080"
		p.setFlag("--listen", p.addr)
		p.setFlag("--http-listen", p.http)
		p.setFlag("--cluster", strings.Join(members, ","))
	}, "--protected-mode", "no", "--insecure-peers"), w
}

// TestChaosDiscovery cuts a leader off from the other nodes but not from its clients: those that
// look for the leader go to the next one.
func TestChaosDiscovery(t *testing.T) {
	if !chaos() {
		t.Skip("run by make chaos")
	}
	all := slices.DeleteFunc(append(clusterSeekers(t), sentinelSeekers(t)...),
		func(s *seeker) bool {
			// stays with a node while it can connect to it, whatever the replies
			return s.name == "node-redis createCluster"
		})
	ps, w := startApart(t)
	cuts := w.Faults()
	seekThrough(t, ps, all, func(old *process) {
		i := slices.Index(ps, old)
		for j := range ps {
			if j != i {
				cuts.Cut(i, j)
			}
		}
	})
}
