// The connections of all nodes of a cluster, as each of them lists and ends them.

package e2e

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

// TestClientsOfAllNodes has a worker on each of three nodes. Every node lists all, and ends any. No
// id comes twice, also after nodes were killed and all were started again.
func TestClientsOfAllNodes(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3)
	worker := func(p *process) *redis.Conn {
		t.Helper()
		c := p.client().Conn()
		t.Cleanup(func() { _ = c.Close() })
		if err := c.ClientSetName(ctx, "worker").Err(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// workers returns the ids of the workers with their nodes, as p lists them.
	workers := func(p *process) map[string]string {
		list, err := p.client().Do(ctx, "CLIENT", "LIST", "NAME", "worker").Text()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, m := range regexp.MustCompile(`(?m)^id=(\d+) .* node=(\w+)$`).
			FindAllStringSubmatch(list, -1) {
			found[m[1]] = m[2]
		}
		return found
	}
	nodes := func(found map[string]string) string {
		return strings.Join(slices.Sorted(maps.Values(found)), " ")
	}
	known := map[string]bool{}
	expect := func(want string) {
		t.Helper()
		for _, p := range ps {
			if got := nodes(workers(p)); got != want {
				t.Errorf("%s lists workers on %s, want %s", p.id, got, want)
			}
		}
	}
	fresh := func() {
		t.Helper()
		for id := range workers(ps[0]) {
			if known[id] {
				t.Errorf("id %s was of another connection before", id)
			}
			known[id] = true
		}
	}
	var conns []*redis.Conn
	for _, p := range ps {
		conns = append(conns, worker(p))
	}
	expect("n1 n2 n3")
	fresh()
	for i, p := range ps {
		far, id := ps[(i+1)%3], conns[(i+1)%3].ClientID(ctx).Val()
		if n, err := p.client().Do(ctx, "CLIENT", "KILL", "ID", id).Int(); n != 1 || err != nil {
			t.Errorf("%s ends %d of %s: %v", p.id, n, far.id, err)
		}
		conns[(i+1)%3] = worker(far)
	}
	expect("n1 n2 n3")

	_, rest := leader(t, ps)
	hung, asked := rest[0], rest[1]
	hung.signal(syscall.SIGSTOP)
	err := asked.client().Do(ctx, "CLIENT", "KILL", "ID", "4294967295").Err()
	if err == nil || err.Error() != "ERR no answer from "+hung.id+", done on the other nodes: 0" {
		t.Errorf("while %s hangs: %v", hung.id, err)
	}
	if got := nodes(workers(asked)); strings.Contains(got, hung.id) || len(got) != 5 {
		t.Errorf("while %s hangs, %s lists workers on %s", hung.id, asked.id, got)
	}
	hung.signal(syscall.SIGCONT)
	wait.For(t, 10*time.Second, "all again", func() bool {
		return nodes(workers(asked)) == "n1 n2 n3"
	})
	for _, p := range ps {
		p.kill()
	}
	for _, p := range ps {
		p.start()
	}
	for _, p := range ps {
		p.waitReady()
		worker(p)
	}
	expect("n1 n2 n3")
	fresh()
	if len(known) != 6 {
		t.Errorf("%d ids", len(known))
	}
}
