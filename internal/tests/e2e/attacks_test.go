// This file holds what strangers do to a cluster of three nodes over the network, and a client that
// works meanwhile. The strangers are another process of this test, of the lowest priority: they
// take the processors that the nodes leave, as if they had a machine of their own.

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// networkAttack is what each of some strangers does, again and again.
type networkAttack struct {
	name string
	size int    // strangers
	port string // of siege: client, tls or peer
	once func(s *strangers, conn net.Conn)
	// they have a password, and may stay
	trusted bool
}

// takeTurns is the attack of whose connections each gets a turn by chance, as has a client from
// their address: TestGuessersTakeTurns of server has one.
const takeTurns = "guessing passwords"

const (
	strangersHost = "127.0.0.2"
	pauseBetween  = 100 * time.Millisecond // of two connections of one stranger
	strangersStay = 20 * time.Second       // at most, once they are told to end
	mostTimesIdle = 10                     // the bound of the percentile, in make attack
	fewStrangers  = 1200                   // at most, elsewhere: more than a node lets in
	entersWithin  = 2 * time.Second        // a client that knows a password
	// … from the address of the strangers: it tries again
	neighborWithin = time.Minute
)

var networkAttacks = []networkAttack{
	{"10,000 connections that send nothing", 10_000, "client", say(""), false},
	{"half a request", 2000, "client", say("*2\r\n$4\r\nAUTH\r\n$100\r\nx"), false},
	{"half a request of 160 KiB", 700, "client",
		say("*10\r\n" + strings.Repeat("$16384\r\n"+strings.Repeat("x", 16384)+"\r\n", 9)), false},
	{"garbage", 50, "client", say(strings.Repeat("\x00\xff*$", 10_000)), false},
	{"a byte every 50 ms", 500, "client", drip("*2\r\n$4\r\nAUTH\r\n$9\r\nwhatever?\r\n"),
		false},
	{"requests before AUTH, replies unread", 50, "client",
		say(strings.Repeat("PING\r\n", 100_000)), false},
	{takeTurns, 50, "client", guess, false},
	{"10,000 connections that send nothing, TLS", 10_000, "tls", say(""), false},
	{"half a TLS record", 2000, "tls", say("\x16\x03\x01\x02\x00\x01"), false},
	{"no TLS", 50, "tls", say("PING\r\n"), false},
	{"TLS records of one byte before the handshake", 200, "tls",
		drip(strings.Repeat("\x16\x03\x01\x00\x01\x01", 1000)), false},
	{"handshakes without a certificate", 4, "tls", handshake("", nil), false},
	{"handshakes with a certificate", 4, "tls", handshake("app", nil), false},
	{"requests in TLS records of one byte", 4, "tls", handshake("app", tinyRecords), false},
	{"replies that nobody reads", 20, "client", unread, true},
	{"half a request of 100 kB by a user who may only ping", 700, "client",
		say(string(resp.AppendCommand(nil, "AUTH", "guest", appPassword)) +
			"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$100000\r\n" + strings.Repeat("x", 70_000)), true},
	{"10,000 connections that send nothing, peer port", 10_000, "peer", say(""), false},
	{"garbage, peer port", 50, "peer", say("F\xff\xff\xff\xff"), false},
	{"half a TLS record, peer port", 500, "peer", say("\x16\x03\x01\x02\x00\x01"), false},
	{"a client's certificate, peer port", 4, "peer", handshake("app", claimMember), false},
	{"another authority's certificate, peer port", 4, "peer", handshake("other", claimMember),
		false},
	{"another node's certificate, peer port", 4, "peer", handshake("n3-peer", claimMember),
		false},
}

// strangers are told what to do in the environment, in JSON.
type strangers struct {
	Attack string
	Size   int
	Addr   string
	Dir    string       // of certificates
	tried  atomic.Int64 // connections
	open   atomic.Int64
	done   atomic.Int64 // what guessing and the like achieved
}

const strangersEnv = "COORDD_TEST_STRANGERS"

// report is what the strangers say when they have ended.
type report struct{ Tried, Left, Done int64 }

// beStrangers attacks until the input ends, then waits for the node to end the connections.
func beStrangers(task string) error {
	var s strangers
	if err := json.Unmarshal([]byte(task), &s); err != nil {
		return err
	}
	i := slices.IndexFunc(networkAttacks, func(a networkAttack) bool { return a.name == s.Attack })
	a := networkAttacks[i]
	var last atomic.Bool
	var going atomic.Int64 // those that connect or are connected
	for range s.Size {
		going.Add(1)
		go func() {
			defer going.Add(-1)
			for !last.Load() {
				s.connect(a.once)
				time.Sleep(pauseBetween)
			}
		}()
	}
	if !soon(func() bool { return s.tried.Load() >= int64(s.Size) }) {
		return fmt.Errorf("%d of %d connections", s.tried.Load(), s.Size)
	}
	fmt.Println("begun")
	_, _ = io.Copy(io.Discard, os.Stdin)
	last.Store(true)
	if !a.trusted {
		soon(func() bool { return going.Load() == 0 })
	}
	return json.NewEncoder(os.Stdout).Encode(report{s.tried.Load(), s.open.Load(),
		s.done.Load()})
}

// soon waits for a condition, up to strangersStay.
func soon(condition func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !condition(); <-tick.C {
		if time.Since(began) > strangersStay {
			return false
		}
	}
	return true
}

func (s *strangers) connect(once func(*strangers, net.Conn)) {
	d := net.Dialer{Timeout: 5 * time.Second,
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(strangersHost)}}
	conn, err := d.Dial("tcp", s.Addr)
	s.tried.Add(1)
	if err != nil { // the node may have reset it already
		return
	}
	s.open.Add(1)
	once(s, conn)
	_ = conn.Close()
	s.open.Add(-1)
}

// say sends a text and waits for the end.
func say(text string) func(*strangers, net.Conn) {
	return func(_ *strangers, conn net.Conn) {
		if _, err := io.WriteString(conn, text); err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
	}
}

func drip(text string) func(*strangers, net.Conn) {
	return func(_ *strangers, conn net.Conn) {
		for i := range len(text) {
			if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		_, _ = io.Copy(io.Discard, conn)
	}
}

// guess tries passwords until the connection ends.
func guess(s *strangers, conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		_, err := conn.Write(resp.AppendCommand(nil, "AUTH", "app", "wrong"))
		if err == nil {
			_, err = r.ReadString('\n')
		}
		if err != nil {
			return
		}
		s.done.Add(1)
	}
}

// unread asks for more than the sockets hold, and reads nothing.
func unread(_ *strangers, conn net.Conn) {
	request := resp.AppendCommand(nil, "AUTH", "app", appPassword)
	for range 100 {
		request = resp.AppendCommand(request, "GET", "k:big")
	}
	_, _ = conn.Write(request)
	select {} // until this process ends
}

// handshake completes a handshake, with a certificate or without, and does something.
func handshake(name string, then func(*tls.Conn)) func(*strangers, net.Conn) {
	return func(s *strangers, conn net.Conn) {
		cfg := &tls.Config{InsecureSkipVerify: true}
		if name != "" {
			path := filepath.Join(s.Dir, name)
			pair, err := tls.LoadX509KeyPair(path+".crt", path+".key")
			if err != nil {
				panic(err)
			}
			cfg.Certificates = []tls.Certificate{pair}
		}
		secure := tls.Client(conn, cfg)
		if err := secure.Handshake(); err == nil && then != nil {
			then(secure)
		}
	}
}

func tinyRecords(conn *tls.Conn) {
	for _, b := range resp.AppendCommand(nil, "AUTH", "app", strings.Repeat("x", 2000)) {
		if _, err := conn.Write([]byte{b}); err != nil {
			return
		}
	}
}

// claimMember says hello as the node n2, and waits for the end.
func claimMember(conn *tls.Conn) {
	if _, err := io.WriteString(conn, "F\x06\x00\x00\x00\x01\x02n2\x00\x00"); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// siege is a cluster under attack.
type siege struct {
	t       *testing.T
	victim  *process
	ports   map[string]string
	dir     string
	measure time.Duration
	honest  *rawClient
	calm    time.Duration // the lowest idle percentile; 0: none was measured
}

// newSiege starts a cluster with users, TLS for clients and TLS between nodes.
func newSiege(t *testing.T) *siege {
	t.Helper()
	dir, _ := certsDir(t)
	writeForeign(t, dir)
	users := filepath.Join(t.TempDir(), "users.acl")
	guest := "user guest on >" + appPassword + " +ping\n"
	if err := os.WriteFile(users, []byte(usersFile+guest), 0o600); err != nil {
		t.Fatal(err)
	}
	secure := map[string]string{}
	ps := startProcessesWith(t, 3, func(p *process) {
		secure[p.id] = loopback(freePorts(t, 1)[0])
		p.args = append(p.args, clientFlags(dir, p.id, secure[p.id])...)
		p.args = append(p.args, peerFlags(dir, p.id, "required")...)
	}, "--users-file", users, "--auth-timeout", "2s", "--heartbeat-timeout", "3s")
	b := &siege{t: t, dir: dir, measure: 100 * time.Millisecond}
	if measured() {
		b.measure = time.Second
	}
	admin := as(t, ps[0], "admin", adminPassword)
	wait.For(t, 20*time.Second, "the first users", func() bool {
		return admin.Set(context.Background(), "k:big", strings.Repeat("x", 1<<20), 0).Err() == nil
	})
	wait.For(t, 20*time.Second, "a leader", func() bool {
		for _, p := range ps {
			c := as(t, p, "admin", adminPassword)
			role, err := c.Do(context.Background(), "ROLE").Slice()
			if err == nil && role[0] == "master" {
				b.victim = p
			}
		}
		return b.victim != nil
	})
	i := int(b.victim.id[1] - '1')
	_, peer, _ := strings.Cut(strings.Split(b.victim.flag("--cluster"), ",")[i], "=")
	b.ports = map[string]string{"client": b.victim.addr, "tls": secure[b.victim.id], "peer": peer}
	b.honest = b.login()
	return b
}

// writeForeign adds a node's certificate by an authority of another cluster.
func writeForeign(t *testing.T, dir string) {
	t.Helper()
	a, err := certs.NewAuthority("other", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Issue(certs.Request{CommonName: "n2", Client: true, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	for suffix, text := range map[string][]byte{".crt": p.Cert, ".key": p.Key} {
		if err := os.WriteFile(filepath.Join(dir, "other"+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// measured reports whether times are asserted: make attack.
func measured() bool { return os.Getenv("COORDD_ATTACK") != "" }

func (b *siege) login() *rawClient {
	b.t.Helper()
	c := dialRaw(b.t, b.victim.addr)
	if got := c.call("AUTH", "app", appPassword); got != "+OK\r\n" {
		b.t.Fatalf("AUTH: %s", got)
	}
	return c
}

// percentile has the honest client take and release a lock, again and again at a steady rate, and
// returns the 99th percentile of its requests.
func (b *siege) percentile() time.Duration {
	b.t.Helper()
	var took []time.Duration
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < b.measure; <-tick.C {
		for _, call := range [][2]string{{"SET k:lock me NX PX 60000", "+OK\r\n"},
			{"DEL k:lock", ":1\r\n"}} {
			at := time.Now()
			got, err := b.honest.Do(commandtest.Args(strings.Fields(call[0])...))
			if took = append(took, time.Since(at)); err != nil || string(got) != call[1] {
				b.t.Fatalf("%s: %q %v", call[0], got, err)
			}
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// idle returns the percentile once what the last attack has left behind is over.
func (b *siege) idle() (p time.Duration) {
	b.t.Helper()
	wait.For(b.t, strangersStay, "the cluster is calm again", func() bool {
		p = b.percentile()
		if b.calm == 0 || p < b.calm {
			b.calm = p
		}
		return !measured() || p <= 3*b.calm
	})
	return p
}

// enter returns how long it takes a client on host to get in, with as many tries as it needs.
func (b *siege) enter(host string, within time.Duration) time.Duration {
	b.t.Helper()
	began := time.Now()
	wait.For(b.t, within, "a client from "+host+" gets in", func() bool {
		d := net.Dialer{Timeout: within, LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		conn, err := d.Dial("tcp", b.victim.addr)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(began.Add(within))
		_, err = conn.Write(resp.AppendCommand(nil, "AUTH", "app", appPassword))
		if err != nil {
			return false
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		return line == "+OK\r\n"
	})
	return time.Since(began)
}

// large returns how long it takes to set 100 kB, which needs room that all connections share.
func (b *siege) large() time.Duration {
	b.t.Helper()
	began := time.Now()
	if got := b.honest.call("SET", "k:large", strings.Repeat("x", 100_000)); got != "+OK\r\n" {
		b.t.Fatalf("100 kB: %.100q", got)
	}
	return time.Since(began)
}

// files returns how many files the victim has open.
func (b *siege) files() int {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.victim.cmd.Process.Pid))
	if err != nil {
		b.t.Skip("SKIPPED: no /proc")
	}
	return len(open)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// run runs one attack.
func (b *siege) run(a *networkAttack) string {
	b.t.Helper()
	files := b.files()
	size := a.size
	if !measured() {
		size = min(size, fewStrangers)
	}
	task, err := json.Marshal(&strangers{Attack: a.name, Size: size, Addr: b.ports[a.port],
		Dir: b.dir})
	if err != nil {
		b.t.Fatal(err)
	}
	idle := b.idle()
	cmd := exec.Command("nice", "-n", "19", os.Args[0])
	cmd.Env = append(os.Environ(), strangersEnv+"="+string(task))
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil || cmd.Start() != nil {
		b.t.Fatalf("%v %v", inErr, outErr)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	opening := b.percentile()
	said := bufio.NewReader(out)
	if line, err := said.ReadString('\n'); line != "begun\n" {
		b.t.Fatalf("the strangers: %q %v", line, err)
	}
	began := time.Now()
	under := b.percentile()
	large := b.large()
	if measured() && large > entersWithin {
		b.t.Errorf("100 kB took %v", large)
	}
	entered := b.enter("127.0.0.1", entersWithin)
	lasted := time.Since(began)
	neighbor := "by chance"
	if a.name != takeTurns {
		neighbor = fmt.Sprintf("%.0f ms", ms(b.enter(strangersHost, neighborWithin)))
	}
	_ = in.Close()
	var r report
	if err := json.NewDecoder(said).Decode(&r); err != nil {
		b.t.Fatalf("the strangers: %v", err)
	}
	if r.Left > 0 && !a.trusted {
		b.t.Errorf("%d of %d connections stay", r.Left, r.Tried)
	}
	_ = cmd.Process.Kill()
	wait.For(b.t, strangersStay, "the files of the connections to be closed", func() bool {
		return b.files() <= files+20
	})
	mib, ok := b.victim.peakMiB()
	if ok && mib > 1024 {
		b.t.Errorf("the node took %d MiB", mib)
	}
	times := float64(under) / float64(idle)
	if measured() && times > mostTimesIdle {
		b.t.Errorf("the 99th percentile is %v, idle %v", under, idle)
	}
	line := fmt.Sprintf("| %s | %d | %.1f ms | %.1f ms | %.1f ms | %.1f | %.0f ms | %.0f ms | %s |",
		a.name, r.Tried, ms(idle), ms(opening), ms(under), times, ms(large), ms(entered), neighbor)
	b.t.Logf("the node has taken up to %d MiB", mib)
	if r.Done > 0 {
		rate := float64(r.Done) / lasted.Seconds()
		line += fmt.Sprintf(" %.0f tries a second: a million take %v", rate,
			time.Duration(1e6/rate*float64(time.Second)).Round(time.Minute))
	}
	return line
}

// TestAttacks has a client take and release locks while strangers do one thing after the other. All
// its requests succeed, the strangers' connections end, and the node returns what they took. With
// COORDD_ATTACK, as in make attack, the strangers are all that an attack names, and the client's
// 99th percentile stays below ten times its idle one.
func TestAttacks(t *testing.T) {
	tier.Check(t)
	b := newSiege(t)
	lines := []string{"| what the strangers do | connections | idle | first second | then | " +
		"times idle | 100 kB | a client enters | a neighbor enters |",
		"|---|---|---|---|---|---|---|---|---|"}
	for i := range networkAttacks {
		a := &networkAttacks[i]
		t.Run(a.name, func(t *testing.T) {
			b.t = t
			lines = append(lines, b.run(a))
		})
	}
	b.t = t
	t.Logf("99th percentiles\n%s", strings.Join(lines, "\n"))
}
