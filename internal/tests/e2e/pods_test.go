// Pods: nodes that lose their disks and change their addresses under load, with automatic ids,
// discovery by DNS, and removal of dead members. Once the cluster is founded, nobody touches
// anything.

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/tests/names"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// podSet is what a StatefulSet with a headless service is: pods with a name each, whose address in
// the service changes with each start.
type podSet struct {
	t    *testing.T
	dns  *names.Server
	port int
	ips  []string
	ps   []*process
}

const podService = "coordd.test"

// startPods starts pods with empty disks, all at once, and founds their cluster.
func startPods(t *testing.T, n int, flags ...string) *podSet {
	s := &podSet{t: t, dns: names.Start(t), ips: make([]string, n)}
	ports := freePorts(t, 2*n+1)
	s.port = ports[2*n]
	dir := t.TempDir()
	t.Cleanup(func() {
		for _, p := range s.ps {
			p.kill()
			if t.Failed() {
				t.Logf("log of %s:\n%s", p.id, p.log)
			}
		}
	})
	for i := range n {
		p := &process{t: t, id: fmt.Sprintf("pod-%d", i), addr: loopback(ports[2*i]),
			http: loopback(ports[2*i+1])}
		p.args = append([]string{"--id", "auto", "--listen", p.addr, "--http-listen", p.http,
			"--data-dir", filepath.Join(dir, p.id), "--peer-listen", "", "--discover",
			fmt.Sprintf("%s:%d", podService, s.port), "--discover-dns", s.dns.Addr,
			"--founders", fmt.Sprint(n), "--autoremove-after", "2s"}, flags...)
		s.ps = append(s.ps, p)
		s.move(i)
	}
	for _, p := range s.ps {
		p.start()
	}
	succeed(t, "found", "--addr", s.ps[0].addr)
	for _, p := range s.ps {
		p.waitReady()
	}
	return s
}

// move gives a pod that does not run another address.
func (s *podSet) move(i int) {
	s.t.Helper()
	s.ips[i] = freeAddress(s.t, s.port)
	s.ps[i].setFlag("--peer-listen", fmt.Sprintf("%s:%d", s.ips[i], s.port))
	var known []string
	for _, ip := range s.ips {
		if ip != "" {
			known = append(known, ip)
		}
	}
	s.dns.Set(podService, known...)
}

// addressesGiven counts the calls of freeAddress: each has an address of its own.
var addressesGiven atomic.Int64

// freeAddress returns an address of the loopback where the port is free.
func freeAddress(t *testing.T, port int) string {
	t.Helper()
	process := int64(os.Getpid())
	for range 100 {
		n := addressesGiven.Add(1)
		ip := fmt.Sprintf("127.%d.%d.%d", 1+(process/250+n/250)%250, process%250, 1+n%250)
		if ln, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, port)); err == nil {
			_ = ln.Close()
			return ip
		}
	}
	t.Skip("SKIPPED: no other addresses of the loopback")
	return ""
}

// name returns the id of a pod.
func (s *podSet) name(i int) string { return nodeOf(s.t, s.ps[i].dataDir()) }

// nodeOf returns the id that a data directory has.
func nodeOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nnode: ")
	id, _, _ := strings.Cut(rest, "\n")
	return id
}

// settle waits until the pods, and no others, are the voters.
func (s *podSet) settle() {
	s.t.Helper()
	var ids []string
	for i := range s.ps {
		ids = append(ids, s.name(i))
	}
	for _, p := range s.ps {
		p.waitReady()
	}
	s.ps[0].waitVoters(ids...)
}

// upset ends a pod, with kill -9 or not, and starts it elsewhere, without its disk, or both.
func (s *podSet) upset(i int, disk, move, kill bool) {
	s.t.Helper()
	before := s.name(i)
	if kill {
		s.ps[i].kill()
	} else {
		s.ps[i].stop()
	}
	if disk {
		if err := os.RemoveAll(s.ps[i].dataDir()); err != nil {
			s.t.Fatal(err)
		}
	}
	if move {
		s.move(i)
	}
	s.ps[i].start()
	s.ps[i].waitReady()
	if lost := s.name(i) != before; lost != disk {
		s.t.Errorf("%s was %s and is %s", s.ps[i].id, before, s.name(i))
	}
	s.settle()
}

// check fails unless every acknowledged write is there, while the writers go on.
func (w *writers) check(t *testing.T, p *process) {
	t.Helper()
	w.mu.Lock()
	acked := w.acked[:len(w.acked):len(w.acked)]
	w.mu.Unlock()
	c := p.client()
	for len(acked) > 0 {
		k := min(len(acked), 1000)
		n, err := c.Exists(context.Background(), acked[:k]...).Result()
		if err != nil || int(n) != k {
			t.Fatalf("%d of %d acknowledged writes are there, %v", n, k, err)
		}
		acked = acked[k:]
	}
}

// TestPodsLoseDisksAndMove has pods that all started at once with empty disks, and upsets one after
// the other.
func TestPodsLoseDisksAndMove(t *testing.T) {
	tier.Check(t)
	rounds := [][3]bool{{true, true, true}, {true, false, true}, {false, true, false}}
	if tier.Soaking() {
		rnd := rand.New(rand.NewPCG(seeds.Of(t), 0))
		for range 20 {
			k := rnd.IntN(8)
			rounds = append(rounds, [3]bool{k&1 == 0, k&2 == 0, k&4 == 0})
		}
	}
	s := startPods(t, 3, "--snapshot-entries", "4096") // or empty nodes replay all
	s.settle()
	if n := strings.Count(s.ps[0].log.String()+s.ps[1].log.String()+s.ps[2].log.String(),
		"it founds a new cluster"); n != 1 {
		t.Errorf("%d nodes founded a cluster", n)
	}
	w := startWriters(s.ps, 1)
	for k, what := range rounds {
		from := w.count.Load()
		s.upset(k%3, what[0], what[1], what[2])
		w.check(t, s.ps[(k+1)%3])
		wait.For(t, 20*time.Second, "more writes", func() bool { return w.count.Load() > from+100 })
	}
	w.finish(t, s.ps[0].client())
	sameState(t, s.ps)
}

// TestPodsOverTLS has a pod lose its disk where members require certificates: one that names the
// host is valid for whatever ids its nodes make, and one that names another host is not.
func TestPodsOverTLS(t *testing.T) {
	tier.Check(t)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	id, err := cluster.AutoID(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	host, dir := id[:strings.LastIndex(id, ".")], t.TempDir()
	succeed(t, "certs", dir, "--cluster", "prod", "--nodes", host+",other")
	s := startPods(t, 3, peerFlags(dir, host, "required")...)
	s.settle()
	w := startWriters(s.ps, 1)
	s.upset(0, true, true, true)
	w.check(t, s.ps[1])
	w.finish(t, s.ps[0].client())

	s.ps[1].kill()
	if err := os.RemoveAll(s.ps[1].dataDir()); err != nil {
		t.Fatal(err)
	}
	s.ps[1].args = append(s.ps[1].args, peerFlags(dir, "other", "required")...)
	s.ps[1].start()
	s.ps[1].waitRefusal("it does not name this node by a URI coordd://CLUSTER/" + host)
}

// TestPodRemovedWhileAway keeps a pod away until it is removed: it comes back under a new id when
// it is started again, as a supervisor does.
func TestPodRemovedWhileAway(t *testing.T) {
	tier.Check(t)
	s := startPods(t, 4, "--leader-priority", "100")
	s.settle()
	id := s.name(3)
	s.ps[3].kill()
	wait.For(t, 20*time.Second, "it is removed", func() bool {
		return !strings.Contains(fmt.Sprint(s.ps[0].members()), id)
	})
	s.ps[3].start()
	s.ps[3].waitRefusal("when it is started again, its files are set aside")
	s.ps[3].start()
	s.ps[3].waitReady()
	s.settle()
	if _, err := os.Stat(filepath.Join(s.ps[3].dataDir(), "removed-"+id, "VERSION")); err != nil {
		t.Error(err)
	}
}
