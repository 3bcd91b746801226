// Lock programs in several languages over TLS, as a user who may touch the keys lock:* alone, while
// the leader dies and certificates and their authority are replaced.

package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// reportChecks is for make clients, see testdata/clients/libraries.
var reportChecks = flag.Bool("report", false, "print a line of JSON for each client program")

// lockUser has the rights that a client of locks needs: the first rules are for all, and redis-py
// asks Sentinels.
const lockUser = "user locker on >" + appPassword + " ~lock:* resetchannels +@all -@admin " +
	"-@dangerous +sentinel\n"

// holding is one time that a program held a lock: its fencing token, and what it made of the lock's
// counter.
type holding struct{ fence, count int64 }

// lockProgram is a program that takes locks.
type lockProgram struct {
	program
	library string // as docs/clients.md names it
	reloads bool   // the library reads certificates only when a client is made

	mu      sync.Mutex
	version string
	denied  string
	held    map[string][]holding // by lock
	count   int                  // of all
	kept    []string             // the fencing token of its own lock, each time
	lost    []string
	errs    []string
	ended   bool
}

func lockPrograms(t *testing.T) []*lockProgram {
	locks := func(kind string) []string {
		return []string{"node", "testdata/clients/node/locks.js", kind}
	}
	return []*lockProgram{
		{library: "redis/go-redis/v9", program: program{name: "go-redis", needs: needGo,
			args: goProgram(t, "locks", "go-redis-cluster")}},
		{library: "redis/rueidis", program: program{name: "rueidis", needs: needGo,
			args: goProgram(t, "locks", "rueidis-cluster")}},
		{library: "ioredis", reloads: true, program: program{name: "ioredis", needs: needNode,
			args: locks("ioredis-cluster")}},
		{library: "redis", reloads: true, program: program{name: "node-redis", needs: needNode,
			args: locks("redis-cluster")}},
		{library: "python3-redis", program: program{name: "redis-py", needs: []string{"redis-py"},
			args: []string{debianPy, "testdata/clients/python/locks.py", "sentinel"}}},
		{library: "redis-cli", program: program{name: "redis-cli", needs: []string{"redis-cli"},
			args: []string{"sh", "testdata/clients/cli/locks.sh"}}},
	}
}

func (l *lockProgram) note(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "version":
		l.version = strings.TrimPrefix(rest, "v")
	case "denied":
		l.denied = rest
	case "held":
		var lock string
		var h holding
		if _, err := fmt.Sscan(rest, &lock, &h.fence, &h.count); err != nil {
			l.errs = append(l.errs, line)
			return
		}
		l.held[lock] = append(l.held[lock], h)
		l.count++
	case "kept":
		l.kept = append(l.kept, rest)
	case "lost":
		l.lost = append(l.lost, rest)
	case "end":
		l.ended = true
	default:
		l.errs = append(l.errs, line)
	}
}

// done returns how often the program has held locks, and how often it found that it has its own.
func (l *lockProgram) done() (held, kept int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, len(l.kept)
}

// check judges what the program printed.
func (l *lockProgram) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		t.Error("it exited early")
	}
	if !strings.Contains(l.denied, "NOPERM this user has no permissions to access one of the") &&
		!strings.Contains(l.denied, "NoPermissionError") {
		t.Errorf("SET other:1: %q", l.denied)
	}
	if len(l.lost) > 0 {
		t.Errorf("it lost %v", l.lost)
	}
	if tokens := slices.Compact(slices.Clone(l.kept)); len(tokens) != 1 {
		t.Errorf("its own lock had the tokens %v", tokens)
	}
	t.Logf("version %s: held locks %d times, renewed its own %d times; %d errors: %.300q",
		l.version, l.count, len(l.kept), len(l.errs), l.errs[:min(3, len(l.errs))])
}

// report prints a line for make clients.
func (l *lockProgram) report(t *testing.T) {
	if !*reportChecks {
		return
	}
	line := map[string]any{"library": l.library, "version": l.version, "ok": !t.Failed(),
		"check": "over TLS, as a user of the keys lock:* alone: locks are neither lost nor " +
			"doubled while the leader is killed and certificates and their authority are replaced"}
	if t.Failed() {
		line["error"] = "go test -run TestLocksOverTLS ./internal/tests/e2e says why"
	}
	text, _ := json.Marshal(line)
	fmt.Printf("\n%s\n", text)
}

// secureCluster is a cluster that serves over TLS alone, has TLS between its nodes, and has users.
type secureCluster struct {
	t     *testing.T
	certs string // the directory of the certificates in use
	renew func() // makes new certificates by the same authorities
	ps    []*process
}

func startSecureCluster(t *testing.T, users string) *secureCluster {
	t.Helper()
	c := &secureCluster{t: t}
	c.certs, c.renew = certsDir(t)
	file := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(file, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	// A busy machine must not cause another failover.
	c.ps = startProcessesWith(t, 3, func(p *process) {
		p.args = append(p.args, clientFlags(c.certs, p.id, p.addr)...)
		p.args = append(p.args, peerFlags(c.certs, p.id, "required")...)
		p.setFlag("--listen", "")
	}, "--users-file", file, "--heartbeat-timeout", "2s")
	for _, p := range c.ps {
		admin := c.admin(p)
		wait.For(t, 20*time.Second, "the first users", func() bool {
			return admin.Ping(context.Background()).Err() == nil
		})
	}
	return c
}

// admin returns a client of a node with all rights, and the certificates of now.
func (c *secureCluster) admin(p *process) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: p.addr, Username: "admin",
		Password: adminPassword, TLSConfig: clientTLS(c.t, c.certs), MaxRetries: -1, PoolSize: 1,
		ReadTimeout: 10 * time.Second})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// leader returns the process that leads.
func (c *secureCluster) leader() (found *process) {
	c.t.Helper()
	wait.For(c.t, 10*time.Second, "a leader", func() bool {
		for _, p := range c.ps {
			v, err := c.admin(p).Do(context.Background(), "ROLE").Slice()
			if err == nil && v[0] == "master" {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// serves waits until each node answers a handshake with the certificate in its files.
func (c *secureCluster) serves() {
	c.t.Helper()
	for _, p := range c.ps {
		pair, err := tls.LoadX509KeyPair(filepath.Join(c.certs, p.id+".crt"),
			filepath.Join(c.certs, p.id+".key"))
		if err != nil {
			c.t.Fatal(err)
		}
		wait.For(c.t, 20*time.Second, p.id+" with its new certificate", func() bool {
			conn, err := tls.Dial("tcp", p.addr, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return false
			}
			defer conn.Close()
			return conn.ConnectionState().PeerCertificates[0].Equal(pair.Leaf)
		})
	}
}

// admits waits until every node takes, or refuses, the certificate of a client.
func (c *secureCluster) admits(dir string, want bool) {
	c.t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "app.crt"), filepath.Join(dir, "app.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range c.ps {
		wait.For(c.t, 20*time.Second, fmt.Sprintf("%s to take %s: %v", p.id, dir, want),
			func() bool {
				client := redis.NewClient(&redis.Options{Addr: p.addr, Username: "admin",
					Password: adminPassword, MaxRetries: -1,
					TLSConfig: &tls.Config{InsecureSkipVerify: true,
						Certificates: []tls.Certificate{pair}}})
				defer client.Close()
				err := client.Ping(context.Background()).Err()
				return (err == nil) == want && (want ||
					strings.Contains(err.Error(), "bad certificate"))
			})
	}
}

// replace gives files the content of those in other directories, as a renewal does: each at once.
// Authorities of several directories are joined.
func (c *secureCluster) replace(names []string, dirs ...string) {
	c.t.Helper()
	for _, name := range names {
		var text []byte
		for _, dir := range dirs {
			part, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				c.t.Fatal(err)
			}
			text = append(text, part...)
		}
		path := filepath.Join(c.certs, name)
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			c.t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			c.t.Fatal(err)
		}
	}
}

// The files of certsDir: the authorities, and the certificates by them with their keys.
var (
	authorityFiles = []string{"ca.crt", "peer-ca.crt"}
	pairFiles      = []string{"n1.crt", "n1.key", "n2.crt", "n2.key", "n3.crt", "n3.key",
		"n1-peer.crt", "n1-peer.key", "n2-peer.crt", "n2-peer.key", "n3-peer.crt", "n3-peer.key",
		"app.crt", "app.key"}
)

// TestLocksOverTLS: no lock is lost or doubled, and each program goes on by itself.
func TestLocksOverTLS(t *testing.T) {
	tier.Check(t)
	c := startSecureCluster(t, usersFile+lockUser)
	programs := c.startLockPrograms()
	goOn := func(what string) { t.Helper(); goOn(t, programs, what) }
	reload := func() {
		for _, l := range programs {
			if l.reloads {
				_ = l.cmd.Process.Signal(syscall.SIGHUP)
			}
		}
	}
	goOn("at the start")

	c.renew()
	c.serves()
	for _, p := range c.ps { // who connects again sees the new certificates
		if err := c.admin(p).Do(context.Background(), "CLIENT", "KILL", "USER",
			"locker").Err(); err != nil {
			t.Fatal(err)
		}
	}
	goOn("with new certificates of the same authority")

	old := c.leader()
	old.kill()
	goOn("after the death of the leader")
	old.start()
	old.waitReady()

	before, fresh := t.TempDir(), ""
	if err := os.CopyFS(before, os.DirFS(c.certs)); err != nil {
		t.Fatal(err)
	}
	fresh, _ = certsDir(t)
	c.replace(authorityFiles, before, fresh)
	reload()
	c.admits(fresh, true)
	goOn("with both authorities")
	c.replace(pairFiles, fresh)
	reload()
	c.serves()
	goOn("with certificates of the new authority")
	c.replace(authorityFiles, fresh)
	reload()
	c.admits(before, false)
	goOn("with the new authority alone")

	for _, l := range programs {
		t.Run(l.name, func(t *testing.T) {
			l.end(t)
			l.check(t)
			l.report(t)
		})
	}
	c.checkLocks(programs)
	for _, p := range c.ps {
		info := c.admin(p).Info(context.Background(), "coordd").Val()
		if strings.Count(info, "last_reload=ok") != 4 { // and of their authorities
			t.Errorf("the certificates of %s:\n%s", p.id, info)
		}
	}
}

// startLockPrograms starts all programs whose requirements are there.
func (c *secureCluster) startLockPrograms() (running []*lockProgram) {
	c.t.Helper()
	var addrs []string
	for _, p := range c.ps {
		addrs = append(addrs, p.addr)
	}
	f := clientFiles(c.certs)
	env := append(os.Environ(), "COORDD_ADDRS="+strings.Join(addrs, ","), "COORDD_USER=locker",
		"COORDD_PASSWORD="+appPassword, "COORDD_TLS_CA="+f.CA, "COORDD_TLS_CERT="+f.Cert,
		"COORDD_TLS_KEY="+f.Key)
	for _, l := range lockPrograms(c.t) {
		if i := slices.IndexFunc(l.needs, lacks); i >= 0 {
			c.t.Run(l.name, func(t *testing.T) { t.Skipf("SKIPPED: %s not found", l.needs[i]) })
			continue
		}
		l.held = map[string][]holding{}
		l.begin(c.t, env, l.note)
		running = append(running, l)
	}
	return running
}

// goOn waits until each program has held locks again, and renewed its own.
func goOn(t *testing.T, programs []*lockProgram, what string) {
	t.Helper()
	began := time.Now()
	held, kept := make([]int, len(programs)), make([]int, len(programs))
	for i, l := range programs {
		held[i], kept[i] = l.done()
	}
	for i, l := range programs {
		wait.For(t, seekerLimit, l.name+" to go on "+what, func() bool {
			h, k := l.done()
			return h >= held[i]+3 && k >= kept[i]+1
		})
	}
	t.Logf("%s: all after %v", what, time.Since(began).Round(time.Millisecond))
}

// checkLocks compares all that the programs did with their locks: in the order of the fencing
// tokens, each holder has seen what the one before it wrote.
func (c *secureCluster) checkLocks(programs []*lockProgram) {
	c.t.Helper()
	all := map[string][]holding{}
	for _, l := range programs {
		for lock, held := range l.held {
			all[lock] = append(all[lock], held...)
		}
	}
	admin := c.admin(c.ps[0])
	for lock, held := range all {
		slices.SortFunc(held, func(a, b holding) int { return cmp.Compare(a.fence, b.fence) })
		for i, h := range held {
			if h.count != int64(i+1) || i > 0 && h.fence == held[i-1].fence {
				c.t.Errorf("%s: holder %d has %+v, after %+v", lock, i+1, h, held[max(i-1, 0)])
				break
			}
		}
		n, err := admin.Get(context.Background(), lock+":counter").Int()
		if err != nil || n != len(held) {
			c.t.Errorf("the counter of %s is %d (%v) after %d holders", lock, n, err, len(held))
		}
		c.t.Logf("%s: %d holders", lock, len(held))
	}
	if n, err := admin.Exists(context.Background(), "other:1").Result(); n != 0 || err != nil {
		c.t.Errorf("other:1 exists: %d, %v", n, err)
	}
}
