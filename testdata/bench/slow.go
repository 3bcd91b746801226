package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/tests/netns"
)

const (
	slowKeys = 10_000
	// replacedIn is when a slow leader is to be replaced, and what follows is measured apart.
	replacedIn = 2 * time.Second
	lossy      = 0.02 // of the packets
)

// slowness is a way in which one node of three is slow.
type slowness struct {
	name  string
	of    serverOf
	begin func(n *node) error
	// meanwhile runs for as long as the load; nil: what begin did lasts
	meanwhile func(n *node, work time.Duration) error
}

// delayed is a disk each sync of which takes longer, by ms.
func delayed(ms int) slowness {
	return slowness{name: fmt.Sprintf("disk syncs in %d ms", ms), of: slowable,
		begin: func(n *node) error { return n.delay(ms) }}
}

// halved is a processor that is stolen half of the time.
func halved(piece time.Duration) slowness {
	return slowness{name: fmt.Sprintf("stopped for %v of every %v", piece, 2*piece), of: slowable,
		begin: func(*node) error { return nil },
		meanwhile: func(n *node, work time.Duration) error {
			return n.halfOfTheTime(piece, work)
		}}
}

// onLoopback are those of nodes that reach each other by the loopback.
var onLoopback = []slowness{
	{name: "nothing", of: slowable, begin: func(*node) error { return nil }},
	delayed(20), delayed(100), delayed(500),
	halved(10 * time.Millisecond), halved(50 * time.Millisecond),
}

// onNetwork returns those of nodes on a network that loses packets.
func onNetwork(net *netns.Network) []slowness {
	of := func(s *servers) (*target, error) { return slowableApart(s, net) }
	f := net.Faults()
	return []slowness{
		{name: "nothing, packets carried by hand", of: of, begin: func(*node) error { return nil }},
		{name: "links lose 2 %", of: of, begin: func(n *node) error {
			own := slices.IndexFunc(net.Hosts, func(h *netns.Host) bool {
				return strings.HasPrefix(n.port, h.Addr+":")
			})
			f.Heal() // another node's
			for i := range net.Hosts[:len(net.Hosts)-1] {
				f.Set(own, i, netns.Rule{Lose: lossy})
				f.Set(i, own, netns.Rule{Lose: lossy})
			}
			return nil
		}},
	}
}

// delay has each sync of a node's disk take longer, by ms: see cluster/disk/slow_tests.go.
func (n *node) delay(ms int) error {
	file := strings.TrimPrefix(n.env[0], syncsEnv)
	if err := os.WriteFile(file+".new", []byte(strconv.Itoa(ms)), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

const syncsEnv = "COORDD_TEST_SYNC="

// slowable starts three nodes whose disks can be slowed down.
func slowable(s *servers) (*target, error) {
	return s.slowable("slowable", slices.Repeat([]string{"127.0.0.1"}, 3), func(*node, int) {})
}

// slowableApart starts them with a network namespace for each.
func slowableApart(s *servers, net *netns.Network) (*target, error) {
	var hosts []string
	for _, h := range net.Hosts[:3] {
		hosts = append(hosts, h.Addr)
	}
	return s.slowable("slowable, apart", hosts, func(n *node, i int) {
		n.args = append([]string{"ip", "netns", "exec", net.Hosts[i].Namespace},
			append(n.args, "--protected-mode", "no", "--insecure-peers")...)
	})
}

func (s *servers) slowable(name string, hosts []string, adapt func(n *node, i int)) (*target,
	error) {
	c, err := s.keep(name, func() (*cluster, error) {
		c, err := s.newCoordd(hosts)
		if err != nil {
			return nil, err
		}
		for i, n := range c.nodes {
			n.env = []string{syncsEnv + filepath.Join(s.dir, fmt.Sprint(name, s.started, i))}
			adapt(n, i)
		}
		return c, s.start(c)
	})
	if err != nil {
		return nil, err
	}
	leader, err := c.leader()
	if err != nil {
		return nil, err
	}
	return &target{name, leader.port, c}, nil
}

// slowRun is what was measured while one node was slow.
type slowRun struct {
	outcome
	replaced time.Duration // when another led; 0: none
	failed   int
}

// measureSlow measures all, on the leader and on a follower, and prints a table.
func measureSlow(s *servers, dir, only string, work time.Duration) error {
	net, err := netns.New(1, 3)
	if err != nil {
		return err
	}
	defer net.Close()
	fmt.Printf("Each case %v, the node is slow all the time; waits [ms]\n\n| node | how | "+
		"locks a second | p50 | p99 | p99.9 | longest | longest after %v | another leads after "+
		"[s] | errors |\n|---|---|---|---|---|---|---|---|---|---|\n",
		tailLasts*work, replacedIn)
	lines := [][]string{{"node", "slow", "second", "longest_ms"}}
	for _, all := range [][]slowness{onLoopback, onNetwork(net)} {
		rate, err := seventyPercent(s, all[0].of, work)
		if err != nil {
			return err
		}
		for i := range 2 * len(all) {
			how, which := all[i/2], []string{"leader", "follower"}[i%2]
			if !strings.Contains(which+": "+how.name, only) {
				continue
			}
			r, err := how.measure(s, i%2 == 0, rate, tailLasts*work)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", which, how.name, err)
			}
			r.print(which, how.name)
			for j, d := range r.longest {
				lines = append(lines, []string{which, how.name,
					strconv.FormatFloat(float64(j)*window.Seconds(), 'f', 1, 64),
					number(milliseconds(d))})
			}
		}
	}
	if only != "" {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, "slow.csv"))
	if err != nil {
		return err
	}
	return errors.Join(csv.NewWriter(f).WriteAll(lines), f.Close())
}

func (r *slowRun) print(which, how string) {
	ms := func(q float64) float64 { return milliseconds(r.wait(q)) }
	later := r.longest[min(int(replacedIn/window), len(r.longest)):]
	another := "none"
	if r.replaced > 0 {
		another = fmt.Sprintf("%.2g", r.replaced.Seconds())
	}
	fmt.Printf("| %s | %s | %.0f | %.3g | %.3g | %.3g | %.3g | %.3g | %s | %d |\n", which, how,
		r.value, ms(0.5), ms(0.99), ms(0.999), ms(1),
		milliseconds(slices.Max(append(later, 0))), another, r.failed)
}

// measure has a node be slow under load. The clients are connected to a node that is not.
func (how *slowness) measure(s *servers, leader bool, rate float64, work time.Duration) (slowRun,
	error) {
	var r slowRun
	c := tail{name: how.name, of: how.of, keys: slowKeys, follower: leader}
	c.meanwhile = func(d *disturbed, work time.Duration) error {
		n := d.another
		if leader {
			n = d.leader
		}
		time.Sleep(warmUp)
		if err := how.begin(n); err != nil {
			return err
		}
		began, ended := time.Now(), make(chan error, 1)
		if ended <- nil; how.meanwhile != nil {
			<-ended
			go func() { ended <- how.meanwhile(n, work-warmUp) }()
		}
		if leader {
			within(work-warmUp, func() bool {
				time.Sleep(window / 10)
				leads := n.role() == "master"
				if !leads {
					r.replaced = time.Since(began)
				}
				return !leads
			})
		}
		return <-ended
	}
	var err error
	r.outcome, r.failed, err = c.measure(s, rate, work)
	return r, err
}
