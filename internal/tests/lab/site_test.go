//go:build linux

// A cluster of nodes with what faults need: networks that fail, disks of their own, certificates.

package lab

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/netns"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tlsconf"
)

const (
	// founding is how many nodes begin; one more has its place and no member.
	founding = 3
	// snapshotEntries is small, so that a node which was away needs a snapshot.
	snapshotEntries = 1500
	// maxIDs is how many ids there are: those of removed nodes are never used again.
	maxIDs = 12
	// diskBytes is the size of a node's file system where it has one of its own.
	diskBytes = 400 << 20
	// serveLimit is how long a cluster may need after its faults until every node serves writes.
	serveLimit = 30 * time.Second
	// equalLimit is how long its nodes may then need to reach equal states.
	equalLimit = 30 * time.Second
)

// site is a cluster and its surroundings.
type site struct {
	dir      string
	net      *netns.Network // nil: all nodes are on the loopback
	certs    string         // the directory of certificates; "": no TLS
	binary   func() (string, error)
	disks    []string // mounted
	founders string   // as --cluster names them
	all      []*node
	upgrades bool // of nodes of release 0.1
	systemd  *systemd
	traces   string // directory of what builds for tests record; "": nothing is

	mu       sync.Mutex
	nextID   int
	problems []string
	later    []func()
}

// systemd is the socket to which nodes say that they are alive. It kills none: what it is there for
// is that they ask themselves several times a second, whatever the faults do.
type systemd struct {
	*net.UnixConn
	alive atomic.Int64 // how often a node has said so
}

// watchdog is how long systemd would wait for that; a node looks three times as often.
const watchdog = 600 * time.Millisecond

func newSystemd(path string) (*systemd, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	s := &systemd{UnixConn: conn}
	go func() {
		for buf := make([]byte, 1024); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			if string(buf[:n]) == daemon.SdNotifyWatchdog {
				s.alive.Add(1)
			}
		}
	}()
	return s, nil
}

// env is what systemd gives to a process.
func (s *systemd) env() []string {
	return []string{"NOTIFY_SOCKET=" + s.LocalAddr().String(),
		fmt.Sprintf("WATCHDOG_USEC=%d", watchdog.Microseconds())}
}

// problem notes what must not be.
func (s *site) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// found returns the problems so far.
func (s *site) found() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// afterwards has f run when all faults have ended.
func (s *site) afterwards(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, f)
}

// newSite starts a cluster as the plan wants it.
func newSite(p *plan) (*site, error) {
	s := &site{binary: binaries.Coordd, nextID: founding + 1, upgrades: p.needs(oldRelease)}
	switch {
	case p.needs(smallLog):
		s.binary = binaries.Small
	case p.needs(testBuild), p.number%2 == 1:
		s.binary = binaries.Tests
	}
	if _, err := s.binary(); err != nil {
		return nil, err
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "coordd-lab-"); err != nil {
		return nil, err
	}
	if !p.needs(oldRelease) && (p.needs(smallLog) || p.needs(testBuild) || p.number%2 == 1) {
		s.traces = filepath.Join(s.dir, "traces")
		if err := os.Mkdir(s.traces, 0o700); err != nil {
			return s, err
		}
	}
	if s.systemd, err = newSystemd(filepath.Join(s.dir, "systemd")); err != nil {
		return s, err
	}
	if p.apart {
		if s.net, err = netns.New(p.seed, founding+1); err != nil {
			return s, err
		}
	}
	if err := s.place(p); err != nil {
		return s, err
	}
	if p.tls {
		s.certs = filepath.Join(s.dir, "certs")
		if err := s.renew(); err != nil {
			return s, err
		}
	}
	for _, n := range s.all[:founding] {
		n.start()
	}
	if err := s.serve(serveLimit); err != nil {
		return s, err
	}
	return s, s.level(serveLimit, p.needs(oldRelease))
}

// place gives each node its addresses and its disk.
func (s *site) place(p *plan) error {
	free, err := ports.Free(4 * (founding + 1))
	if err != nil {
		return err
	}
	var members []string
	for i := range founding + 1 {
		n := &node{site: s, number: i, named: fmt.Sprint("n", i+1), member: i < founding,
			joins: i >= founding, first: p.needs(oldRelease) && i < founding,
			disk:  filepath.Join(s.dir, fmt.Sprint("disk", i+1)),
			wall:  filepath.Join(s.dir, fmt.Sprint("wall", i+1)),
			syncs: filepath.Join(s.dir, fmt.Sprint("syncs", i+1))}
		at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
		n.addr, n.secure, n.peer = at(free[4*i]), at(free[4*i+1]), at(free[4*i+2])
		n.web = at(free[4*i+3])
		if s.net != nil {
			h := s.net.Hosts[i]
			n.namespace = h.Namespace
			n.addr, n.secure, n.peer = h.Addr+":6379", h.Addr+":6380", h.Addr+":7000"
			n.web = h.Addr + ":8001"
		}
		if err := os.Mkdir(n.disk, 0o700); err != nil {
			return err
		}
		if s.net != nil {
			if err := syscall.Mount("coordd-lab", n.disk, "tmpfs", 0,
				fmt.Sprintf("size=%d", diskBytes)); err != nil {
				return fmt.Errorf("mount: %w", err)
			}
			s.disks = append(s.disks, n.disk)
		}
		if i < founding {
			members = append(members, n.named+"="+n.peer)
		}
		s.all = append(s.all, n)
	}
	s.founders = strings.Join(members, ",")
	return nil
}

// renew makes new certificates, by the same authorities if there are some.
func (s *site) renew() error {
	path, err := s.binary()
	if err != nil {
		return err
	}
	var ids []string
	for i := range maxIDs {
		ids = append(ids, fmt.Sprint("n", i+1))
	}
	hosts := []string{"127.0.0.1"}
	if s.net != nil {
		for _, h := range s.net.Hosts {
			hosts = append(hosts, h.Addr)
		}
	}
	out, err := exec.Command(path, "certs", s.certs, "--cluster", "lab", "--nodes",
		strings.Join(ids, ","), "--hosts", strings.Join(hosts, ",")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("coordd certs: %w\n%s", err, out)
	}
	return nil
}

// clientFiles are the certificates of clients.
func (s *site) clientFiles() tlsconf.Files {
	return tlsconf.Files{Cert: filepath.Join(s.certs, "app.crt"),
		Key: filepath.Join(s.certs, "app.key"), CA: filepath.Join(s.certs, "ca.crt")}
}

// members returns the nodes that belong to the cluster.
func (s *site) members() []*node {
	var in []*node
	for _, n := range s.all {
		n.mu.Lock()
		if n.member {
			in = append(in, n)
		}
		n.mu.Unlock()
	}
	return in
}

// admin runs a command on a node as an operator does.
func (s *site) admin(n *node, limit time.Duration, args ...any) (any, error) {
	c := redis.NewClient(&redis.Options{Addr: n.addr, MaxRetries: -1, ReadTimeout: limit,
		DialTimeout: time.Second, DialerRetries: 1, PoolSize: 1, Protocol: 3})
	defer c.Close()
	return c.Do(context.Background(), args...).Result()
}

// leader returns the node that leads, or a random one if none says so.
func (s *site) leader(rnd *rand.Rand) *node {
	in := s.members()
	for range 20 {
		for _, n := range in {
			if s.role(n) == "master" {
				return n
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return in[rnd.IntN(len(in))]
}

// role returns the first word of ROLE, "" without an answer.
func (s *site) role(n *node) string {
	v, err := s.admin(n, 300*time.Millisecond, "ROLE")
	words, _ := v.([]any)
	if err != nil || len(words) == 0 {
		return ""
	}
	role, _ := words[0].(string)
	return role
}

// follower returns a member that is not the given one.
func (s *site) follower(lead *node, rnd *rand.Rand) *node {
	others := slices.DeleteFunc(s.members(), func(n *node) bool { return n == lead })
	return others[rnd.IntN(len(others))]
}

// await polls until a condition holds, for at most limit, and reports whether it does.
func await(limit time.Duration, condition func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// serve waits until every member takes a write.
func (s *site) serve(limit time.Duration) error {
	end := time.Now().Add(limit)
	for _, n := range s.members() {
		var err error
		if !await(time.Until(end), func() bool {
			_, err = s.admin(n, 3*time.Second, "SET", "lab:serves", n.id())
			return err == nil
		}) {
			return fmt.Errorf("%s takes no write %v after the faults: %w; its last words: %s",
				n.id(), limit, err, n.lastLine())
		}
	}
	return nil
}

// level waits for the newest feature level, unless the cluster begins with an old release.
func (s *site) level(limit time.Duration, old bool) error {
	if old || await(limit, func() bool {
		for _, n := range s.members() {
			v, err := s.admin(n, time.Second, "RAFT", "STATUS")
			status, _ := v.(map[any]any)
			if err != nil || status["feature-level"] != status["known-feature-level"] {
				return false
			}
		}
		return true
	}) {
		return nil
	}
	return errors.New("the nodes do not reach their feature level")
}

// contents returns what a snapshot file holds besides its first record, the place in the log and
// the time, and its fourth, the terms in which nodes waited: both change when a node starts again.
// (If nothing has waited the fourth is a key, which is not compared then.)
func contents(snapshot string) string {
	const magic = len("coordd snapshot\n") + 4 // and the version
	var held strings.Builder
	rest := []byte(snapshot[min(magic, len(snapshot)):])
	for i := 0; len(rest) > 8; i++ {
		size := int(binary.LittleEndian.Uint64(rest))
		if i != 0 && i != 3 {
			held.Write(rest[:8+size])
		}
		rest = rest[8+size:]
	}
	return held.String()
}

// lastRecords returns the last n records of what contents returned: those of n keys.
func lastRecords(contents string, n int) string {
	var ends []int // of records
	for at := 0; at+8 <= len(contents); {
		at += 8 + int(binary.LittleEndian.Uint64([]byte(contents[at:at+8])))
		ends = append(ends, at)
	}
	if ends = ends[:max(len(ends)-1, 0)]; len(ends) > n { // the last is empty
		return contents[ends[len(ends)-1-n]:]
	}
	return contents
}

// unmarked returns a snapshot file without what it says keys are used for: a node that has applied
// the first entries as release 0.1 has not seen that (docs/adr/0032).
func unmarked(snapshot string) string {
	const magic, marks = len("coordd snapshot\n") + 4, 0xc0
	b := []byte(snapshot)
	for rest := b[min(magic, len(b)):]; len(rest) > 8; {
		size := int(binary.LittleEndian.Uint64(rest))
		if size == 0 {
			clear(rest[8:]) // the checksum
			break
		}
		if size > 1 { // a key's record has its database, and then the kind of its value
			rest[9] &^= marks
		}
		rest = rest[8+size:]
	}
	return string(b)
}

// states returns the contents of every member, as soon as all states are equal.
func (s *site) states() (string, error) {
	hashes := map[string]string{} // by node
	held := ""
	if !await(equalLimit, func() bool {
		clear(hashes)
		all := map[string]bool{}
		for _, n := range s.members() {
			v, err := s.admin(n, 10*time.Second, "RAFT", "BACKUP")
			state, ok := v.(string)
			if err != nil || !ok {
				hashes[n.id()] = fmt.Sprint(err)
				all[n.id()] = true
				continue
			}
			if s.upgrades {
				state = unmarked(state)
			}
			hash := fmt.Sprintf("%x", sha256.Sum256([]byte(state)))
			hashes[n.id()], all[hash] = hash, true
			held = contents(state)
		}
		return len(all) == 1
	}) {
		return "", fmt.Errorf("the nodes do not reach equal states: %v", hashes)
	}
	return held, nil
}

// close ends all processes and removes everything.
func (s *site) close(keep bool) {
	for _, n := range s.all {
		n.signal(syscall.SIGCONT)
		n.kill()
	}
	if s.systemd != nil {
		_ = s.systemd.Close()
	}
	for _, disk := range s.disks {
		if keep {
			_ = os.CopyFS(disk+"-kept", os.DirFS(disk))
		}
		_ = syscall.Unmount(disk, 0)
	}
	if s.net != nil {
		s.net.Close()
	}
	if !keep && s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
