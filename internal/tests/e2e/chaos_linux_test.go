// Make chaos. Three processes, each in its own network namespace, suffer one fault after another,
// under clients whose replies are checked. COORDD_TEST_SEED repeats a schedule,
// COORDD_CHAOS_SECONDS sets its length, COORDD_CHAOS_FAULT selects the faults whose names contain
// these words.

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

const (
	// a node's data directory is a file system of its own; 80 MiB of log fill the disk repeatedly
	diskBytes = 1 << 30

	// fullDiskHold is how long a deposed leader may try to follow on a full disk.
	fullDiskHold = 3 * time.Second

	// maxFiles limits the open files of a node without clients.
	maxFiles = 60

	// serveLimit is how long a cluster may need after a fault until every node serves writes.
	serveLimit = 5 * time.Second
	// majorityLimit is how long a majority may need to serve majorityOperations during a fault, or
	// lossyOperations if a fifth of all packets is lost and each takes 50 ms: then all clients
	// together get 9 to 22 operations per second.
	majorityLimit      = 10 * time.Second
	majorityOperations = 100
	lossyOperations    = 30
)

// arena is a cluster with faults.
type arena struct {
	t   *testing.T
	w   *network
	ps  []*process
	rnd *rand.Rand
}

// fault happens to a cluster with the given leader. The function that begin returns ends it.
type fault struct {
	name     string
	majority bool // there is one that can continue
	lossy    bool // and it is slow, because packets are lost
	long     bool // TCP retransmits after long pauses when it is over
	begin    func(a *arena, lead int) (end func())
}

// follower returns one of the others.
func (a *arena) follower(lead int) int { return (lead + 1 + a.rnd.IntN(len(a.ps)-1)) % len(a.ps) }

// others calls f for each node except one.
func (a *arena) others(not int, f func(i int)) {
	for i := range a.ps {
		if i != not {
			f(i)
		}
	}
}

var faults = []fault{
	{name: "the leader is cut off from the others", majority: true,
		begin: func(a *arena, lead int) func() {
			a.others(lead, func(i int) { a.w.cut(lead, i) })
			return a.w.heal
		}},
	{name: "the leader is cut off from the others for long", majority: true, long: true,
		begin: func(a *arena, lead int) func() {
			a.others(lead, func(i int) { a.w.cut(lead, i) })
			return a.w.heal
		}},
	{name: "the others do not hear the leader, but it hears them", majority: true,
		begin: func(a *arena, lead int) func() {
			a.others(lead, func(i int) { a.w.set(lead, i, rule{lose: 1}) })
			return a.w.heal
		}},
	{name: "the leader does not hear the others, but they hear it", majority: true,
		begin: func(a *arena, lead int) func() {
			a.others(lead, func(i int) { a.w.set(i, lead, rule{lose: 1}) })
			return a.w.heal
		}},
	{name: "the leader and one of the others are cut off from each other", majority: true,
		begin: func(a *arena, lead int) func() {
			a.w.cut(lead, a.follower(lead))
			return a.w.heal
		}},
	{name: "a follower is cut off", majority: true, begin: func(a *arena, lead int) func() {
		f := a.follower(lead)
		a.others(f, func(i int) { a.w.cut(f, i) })
		return a.w.heal
	}},
	{name: "all are cut off from each other", majority: false,
		begin: func(a *arena, lead int) func() {
			for i := range a.ps {
				a.others(i, func(j int) { a.w.cut(i, j) })
			}
			return a.w.heal
		}},
	{name: "packets between nodes are lost and late", majority: true, lossy: true,
		begin: func(a *arena, lead int) func() {
			r := rule{lose: 0.05 + 0.15*a.rnd.Float64(), delay: 50 * time.Millisecond}
			for i := range a.ps {
				a.others(i, func(j int) { a.w.set(i, j, r) })
			}
			return a.w.heal
		}},
	{name: "packets between nodes are late", majority: true,
		begin: func(a *arena, lead int) func() {
			for i := range a.ps {
				a.others(i, func(j int) { a.w.set(i, j, rule{delay: 50 * time.Millisecond}) })
			}
			return a.w.heal
		}},
	{name: "the leader is killed", majority: true, begin: func(a *arena, lead int) func() {
		a.ps[lead].kill()
		return func() { a.revive(lead) }
	}},
	{name: "a follower is killed", majority: true, begin: func(a *arena, lead int) func() {
		f := a.follower(lead)
		a.ps[f].kill()
		return func() { a.revive(f) }
	}},
	{name: "all are killed at once", majority: false, begin: func(a *arena, _ int) func() {
		for _, p := range a.ps {
			p.signal(syscall.SIGSTOP) // none sees another die
		}
		for _, p := range a.ps {
			p.kill()
		}
		return func() { a.revive(0, 1, 2) }
	}},
	{name: "the leader is stopped and goes on", majority: true,
		begin: func(a *arena, lead int) func() {
			a.ps[lead].signal(syscall.SIGSTOP)
			return func() { a.ps[lead].signal(syscall.SIGCONT) }
		}},
	{name: "a follower is stopped and goes on", majority: true,
		begin: func(a *arena, lead int) func() {
			f := a.follower(lead)
			a.ps[f].signal(syscall.SIGSTOP)
			return func() { a.ps[f].signal(syscall.SIGCONT) }
		}},
	{name: "the leader runs by fits and starts", majority: true,
		begin: func(a *arena, lead int) func() {
			over, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				turn := time.NewTicker(100 * time.Millisecond)
				defer turn.Stop()
				for s := syscall.SIGSTOP; ; s = syscall.SIGSTOP + syscall.SIGCONT - s {
					_ = a.ps[lead].cmd.Process.Signal(s)
					select {
					case <-turn.C:
					case <-over:
						_ = a.ps[lead].cmd.Process.Signal(syscall.SIGCONT)
						return
					}
				}
			}()
			return func() { close(over); <-ended }
		}},
	{name: "leadership is handed over again and again", majority: true,
		begin: func(a *arena, lead int) func() {
			for range 5 {
				_, _ = a.ps[lead].raft("TRANSFER") // under load another change may be in progress
			}
			return func() {}
		}},
	{name: "the leader's disk is full", majority: true, begin: func(a *arena, lead int) func() {
		return a.fillDisk(lead)
	}},
	{name: "the leader is cut off, and its disk is full when it comes back", majority: true,
		begin: func(a *arena, lead int) func() {
			a.others(lead, func(i int) { a.w.cut(lead, i) }) // with entries that only it has
			end := a.fillDisk(lead)
			return func() {
				a.w.heal()
				select { // it must replace them, for which it has no room
				case <-a.ps[lead].done:
				case <-time.After(fullDiskHold):
				}
				end()
			}
		}},
	{name: "a follower's disk is full", majority: true, begin: func(a *arena, lead int) func() {
		return a.fillDisk(a.follower(lead))
	}},
}

// revive starts killed nodes again.
func (a *arena) revive(nodes ...int) {
	for _, i := range nodes {
		a.ps[i].start()
	}
}

// fillDisk fills a node's disk and writes until its log needs more. A node that exits because of
// that is started again when there is room.
func (a *arena) fillDisk(i int) (end func()) {
	p := a.ps[i]
	filler := filepath.Join(filepath.Dir(p.dataDir()), "filler")
	f, err := os.Create(filler)
	if err != nil {
		a.t.Fatal(err)
	}
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
	_ = f.Close()
	c := a.ps[(i+1)%len(a.ps)].client()
	big := strings.Repeat("x", 4<<20)
	for range 20 {
		// whether that could be written does not matter here
		_ = c.Set(context.Background(), "big", big, 0).Err()
	}
	return func() {
		if err := os.Remove(filler); err != nil {
			a.t.Fatal(err)
		}
		select {
		case <-p.done:
			a.t.Logf("%s had ended: %s", p.id, lastLine(p.log.String()))
			p.start()
		default:
		}
		wait.For(a.t, serveLimit, "the big key to be deleted", func() bool {
			return c.Del(context.Background(), "big").Err() == nil
		})
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// startArena starts three nodes in the namespaces n1, n2 and n3, each with its own disk. With an
// odd seed they use TLS between each other.
func startArena(t *testing.T, seed uint64) *arena {
	t.Helper()
	a := &arena{t: t, w: newNetwork(t, seed, 3), rnd: rand.New(rand.NewPCG(seed, 2))}
	between := func(string) []string { return []string{"--insecure-peers"} }
	if seed%2 == 1 {
		dir, _ := certsDir(t)
		between = func(id string) []string { return peerFlags(dir, id, "required") }
	}
	var members []string
	for i, h := range a.w.hosts[:3] {
		members = append(members, fmt.Sprintf("n%d=%s:7000", i+1, h.addr))
	}
	for _, h := range a.w.hosts[:3] {
		disk := t.TempDir()
		if err := syscall.Mount("coordd-chaos", disk, "tmpfs", 0,
			fmt.Sprintf("size=%d", diskBytes)); err != nil {
			t.Fatal(err)
		}
		p := &process{t: t, id: h.name, in: h.namespace, addr: h.addr + ":6379",
			http: h.addr + ":8080", log: &wait.Buffer{}}
		p.args = []string{
			"--id", p.id, "--listen", p.addr, "--http-listen", p.http, "--data-dir",
			filepath.Join(disk, "data"), "--cluster", strings.Join(members, ","),
			"--snapshot-entries", "2000", "--protected-mode", "no",
		}
		p.args = append(p.args, between(p.id)...)
		a.ps = append(a.ps, p)
		t.Cleanup(func() {
			p.kill()
			if err := syscall.Unmount(disk, 0); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Logf("log of %s:\n%s", p.id, p.log)
			}
		})
	}
	for _, p := range a.ps {
		p.start()
	}
	for _, p := range a.ps {
		p.waitReady()
	}
	return a
}

// leader returns the number of the leading node.
func (a *arena) leader() int {
	lead, _ := leader(a.t, a.ps)
	for i, p := range a.ps {
		if p == lead {
			return i
		}
	}
	return -1
}

// waitServing waits until each node takes a write, and returns the time of the slowest.
func (a *arena) waitServing(limit time.Duration) time.Duration {
	a.t.Helper()
	start := time.Now()
	for _, p := range a.ps {
		c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, ReadTimeout: time.Second,
			DialTimeout: time.Second})
		wait.For(a.t, max(limit-time.Since(start), time.Millisecond), "a write through "+p.id,
			func() bool {
				return c.Set(context.Background(), "serves", p.id, 0).Err() == nil
			})
		_ = c.Close()
	}
	return time.Since(start)
}

// meet puts the cluster through one fault.
func (a *arena) meet(l *chaosLoad, f fault) {
	t := a.t
	l.more(t, "operations before: "+f.name, 200, serveLimit)
	l.stall()
	lead := a.leader()
	hold := time.Second + time.Duration(a.rnd.IntN(3000))*time.Millisecond
	if f.long {
		hold += 20 * time.Second
	}
	end := f.begin(a, lead)
	lasts := time.NewTimer(hold)
	if f.majority {
		wanted := int64(majorityOperations)
		if f.lossy {
			wanted = lossyOperations
		}
		l.more(t, "operations while "+f.name, wanted, majorityLimit)
	}
	<-lasts.C
	end()
	took := a.waitServing(serveLimit)
	l.more(t, "operations after: "+f.name, 200, serveLimit)
	stall := l.stall()

	l.gate.Lock()
	defer l.gate.Unlock()
	sameState(t, a.ps)
	c := a.ps[a.rnd.IntN(len(a.ps))].client()
	defer c.Close()
	n, elements := l.check(t, c)
	t.Logf("%-62s held %4.1f s, longest stall %4.2f s, all serve %4.2f s after it, %d operations "+
		"linearizable, %d elements queued", f.name, hold.Seconds(), stall.Seconds(), took.Seconds(),
		n, elements)
}

// end stops all nodes as an operator does.
func (a *arena) end() {
	for _, p := range a.ps {
		select {
		case <-p.done:
			a.t.Errorf("%s exited: %s", p.id, lastLine(p.log.String()))
			continue
		default:
		}
		// Anything that a fault leaks would be there many times by now: the clients are gone, and a
		// node has only a few connections to the others.
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)); err != nil ||
			len(open) > maxFiles {
			a.t.Errorf("%s has %d files open, %v", p.id, len(open), err)
		}
		p.signal(syscall.SIGTERM)
	}
	for i, p := range a.ps {
		wait.For(a.t, 20*time.Second, p.id+" to end", func() bool {
			select {
			case <-p.done:
				return true
			default:
				return false
			}
		})
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			a.t.Errorf("%s exited with %d", p.id, code)
		}
		if pids := processesIn(a.w.hosts[i].namespace); len(pids) > 0 {
			a.t.Errorf("processes remain in %s: %v", p.in, pids)
		}
	}
}

type silentLogger struct{}

func (silentLogger) Printf(context.Context, string, ...any) {}

// TestChaos is the long part of make chaos.
func TestChaos(t *testing.T) {
	if !chaos() {
		t.Skip("run by make chaos")
	}
	if why := noNamespaces(); why != "" {
		t.Skip(why)
	}
	lasts := 240 * time.Second
	if s := os.Getenv("COORDD_CHAOS_SECONDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		lasts = time.Duration(n) * time.Second
	}
	seed := testSeed(t)
	redis.SetLogger(silentLogger{}) // it would report every fault
	a := startArena(t, seed)
	l := startChaosLoad(a.ps, seed)
	t.Cleanup(func() { l.stop(); l.wg.Wait() })
	only := os.Getenv("COORDD_CHAOS_FAULT")
	met := 0
	for start := time.Now(); time.Since(start) < lasts; {
		for _, i := range a.rnd.Perm(len(faults)) {
			if strings.Contains(faults[i].name, only) && (met == 0 || time.Since(start) < lasts) {
				a.meet(l, faults[i])
				met++
			}
		}
	}
	l.stop()
	l.wg.Wait()
	a.end()
	t.Logf("%d faults", met)
}

// TestChaosDiscovery cuts a leader off from the other nodes but not from its clients: those that
// look for the leader go to the next one.
func TestChaosDiscovery(t *testing.T) {
	if !chaos() {
		t.Skip("run by make chaos")
	}
	if why := noNamespaces(); why != "" {
		t.Skip(why)
	}
	all := slices.DeleteFunc(append(clusterSeekers(t), sentinelSeekers(t)...),
		func(s *seeker) bool {
			// stays with a node while it can connect to it, whatever the replies
			return s.name == "node-redis createCluster"
		})
	a := startArena(t, testSeed(t))
	seekThrough(t, a.ps, all, func(old *process) {
		for i, p := range a.ps {
			if p == old {
				a.others(i, func(j int) { a.w.cut(i, j) })
			}
		}
	})
}
