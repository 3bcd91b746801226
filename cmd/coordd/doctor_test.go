// coordd doctor, members and restart-wait in every state that a node names.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/observe"
	"github.com/coordd/coordd/internal/resp"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

// patient is a node of this process that can be restarted with the same flags.
type patient struct {
	t    *testing.T
	args []string
	open bool   // the default user has no password
	addr string // for clients
	end  context.CancelFunc
	done chan int
	log  wait.Buffer
}

// newPatient returns a node that is not started yet.
func newPatient(t *testing.T, id string, flags ...string) *patient {
	p := &patient{t: t, addr: ports.Addr(t)}
	p.args = append([]string{"--id", id, "--listen", p.addr, "--data-dir",
		filepath.Join(t.TempDir(), id)}, flags...)
	t.Cleanup(p.stop)
	return p
}

func (p *patient) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.end, p.done = cancel, make(chan int, 1)
	args := p.args
	if !p.open {
		args = append(slices.Clone(args), "--default-password-file", passwordFile(p.t))
	}
	go func() { p.done <- run(ctx, args, noEnv, &p.log, &p.log) }()
	// until it listens, doctor looks at its directory, and for so long the node could not have that
	wait.For(p.t, 30*time.Second, p.addr+" is listened on", func() bool {
		conn, err := net.Dial("tcp", p.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil || len(p.done) > 0
	})
}

// passwordFile returns a file with the password of the tests.
func passwordFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// flag returns the value of a flag, to change.
func (p *patient) flag(name string) *string { return &p.args[slices.Index(p.args, name)+1] }

func (p *patient) stop() {
	if p.end == nil {
		return
	}
	p.end()
	p.end = nil
	if code := exitCode(p.t, p.done); code != 0 {
		p.t.Errorf("%v: exit %d\n%s", p.args, code, p.log.String())
	}
}

// says runs a subcommand and returns its exit code and all that it prints.
func says(t *testing.T, args ...string) (int, string) {
	var out bytes.Buffer
	code := run(t.Context(), args, noEnv, &out, &out)
	return code, out.String()
}

// awaits runs a subcommand until it ends with code and prints all words.
func awaits(t *testing.T, code int, args []string, words ...string) string {
	t.Helper()
	said := ""
	wait.Explain(t, func() { t.Logf("%v: %s", args, said) })
	wait.For(t, 30*time.Second, strings.Join(words, ", "), func() bool {
		got := 0
		got, said = says(t, args...)
		return got == code && !slices.ContainsFunc(words, func(w string) bool {
			return !strings.Contains(said, w)
		})
	})
	return said
}

// threePatients returns a cluster of three nodes that are not started yet.
func threePatients(t *testing.T, flags ...string) (ps []*patient) {
	peers := []string{ports.Addr(t), ports.Addr(t), ports.Addr(t)}
	for i, id := range []string{"n1", "n2", "n3"} {
		ps = append(ps, newPatient(t, id, append([]string{"--peer-listen", peers[i], "--cluster",
			"n1=" + peers[0] + ",n2=" + peers[1] + ",n3=" + peers[2]}, flags...)...))
	}
	return ps
}

// explorer returns a node that is not started yet and discovers itself.
func explorer(t *testing.T, founders string) *patient {
	at := ports.Addr(t)
	return newPatient(t, "n1", "--peer-listen", at, "--discover", at, "--founders", founders)
}

// serving starts nodes and waits until all of them serve.
func serving(t *testing.T, password []string, ps ...*patient) {
	t.Helper()
	for _, p := range ps {
		p.start()
	}
	awaits(t, 0, slices.Concat([]string{"restart-wait", "--node", ps[0].addr, "--timeout", "9s"},
		password))
}

// TestDoctorInEveryState brings a node into each state in which it does not serve, restarts it, so
// that it has heard from no leader and knows no user, and asks the commands for three in the
// morning, with the password and without it: they show what the node knows, and the next act.
func TestDoctorInEveryState(t *testing.T) {
	password := []string{"--password-file", passwordFile(t)}
	for name, test := range map[string]struct {
		bring func(t *testing.T) *patient // stopped
		says  []string                    // by doctor
		rows  int                         // of the table of members
	}{
		"no majority": {func(t *testing.T) *patient {
			ps := threePatients(t)
			serving(t, password, ps...)
			for _, p := range ps {
				p.stop()
			}
			return ps[0]
		}, []string{"■ state           no leader is reachable",
			"Next: start 1 of n2, n3 on their data directories", "connection refused"}, 3},
		"nobody to join": {func(t *testing.T) *patient {
			return newPatient(t, "n1", "--peer-listen", ports.Addr(t), "--join",
				"127.0.0.1:1")
		}, []string{"waiting to join a cluster: 127.0.0.1:1 does not add it: dial",
			"connection refused", "Next: look at the member that refuses it"}, 0},
		"too few founders": {func(t *testing.T) *patient {
			return explorer(t, "3")
		}, []string{"1 of the 3 nodes of --founders are found: n1",
			"Next: start the others, on their data directories if they have any"}, 0},
		"to be founded": {func(t *testing.T) *patient {
			return explorer(t, "1")
		}, []string{"1 empty nodes are found: n1",
			"Next: if there never was a cluster here: coordd found"}, 0},
		"a silent address": {func(t *testing.T) *patient {
			p := explorer(t, "1")
			*p.flag("--discover") += ",127.0.0.1:1"
			return p
		}, []string{"127.0.0.1:1 (dial", "a node there may have data",
			"Next: start the nodes there, on their data directories"}, 0},
		"refetched": {func(t *testing.T) *patient {
			ps := threePatients(t)
			serving(t, password, ps...)
			for _, p := range ps {
				p.stop()
			}
			p := ps[0]
			awaits(t, 0, []string{"refetch", "--data-dir", *p.flag("--data-dir")})
			return p
		}, []string{"it waits for its cluster's leader",
			"Next: start a majority of the other voters", "this node knows no members yet"}, 0},
		"beside another cluster": {func(t *testing.T) *patient {
			other := ports.Addr(t)
			serving(t, password, newPatient(t, "m1", "--peer-listen", other))
			p := explorer(t, "1")
			p.start()
			awaits(t, 0, append([]string{"found", "--addr", p.addr}, password...))
			p.stop()
			*p.flag("--discover") += "," + other
			return p
		}, []string{"node m1 of another cluster", "Next: stop the nodes of the wrong cluster"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a node lets a password wait while it knows no users
			p := test.bring(t)
			p.start()
			for _, as := range [][]string{nil, password} {
				if name == "beside another cluster" && as == nil {
					continue // it leads, and knows its users
				}
				words := append(slices.Clone(test.says), "✓ node            n1 answers at",
					"■ verdict")
				if test.rows > 0 {
					words = append(words, "(this node)")
				}
				said := awaits(t, 1, slices.Concat([]string{"doctor"}, p.args, as), words...)
				if strings.Contains(said, "say who asks") {
					t.Errorf("doctor %v: %s", as, said)
				}
				said = awaits(t, 0, slices.Concat([]string{"members", "--node", p.addr}, as),
					"MEMBER")
				if got := strings.Count(said, "\nn"); got < test.rows {
					t.Errorf("members %v: %d rows, want %d: %s", as, got, test.rows, said)
				}
				said = awaits(t, 1, slices.Concat([]string{"restart-wait", "--node", p.addr,
					"--timeout", "1ms"}, as), "restart no other node yet")
				if strings.Contains(said, "may be restarted") {
					t.Errorf("restart-wait %v: %s", as, said)
				}
			}
		})
	}
}

// TestDoctorOverTLS asks nodes that serve TLS alone and ask clients for certificates, and has one
// join: with what coordd certs makes; with certificates for servers, as it made before, which are
// said to lack a usage; and with one that nobody trusts, whose refusal is an answer.
func TestDoctorOverTLS(t *testing.T) {
	dir, foreign := filepath.Join(t.TempDir(), "certs"), filepath.Join(t.TempDir(), "certs")
	makeCerts(t, dir, "--nodes", "n1,n2")
	makeCerts(t, foreign)
	issueFor(t, dir, "old", certs.Request{CommonName: "n1", Hosts: []string{"127.0.0.1"},
		Server: true})
	flags := func(name string) []string {
		f := filesOf(dir, name, "ca")
		return []string{"--tls-ca", f.CA, "--tls-cert", f.Cert, "--tls-key", f.Key}
	}
	as := func(dir, name string) []string {
		f := filesOf(dir, name, "ca")
		return []string{"--user-cert", f.Cert, "--user-key", f.Key}
	}
	start := func(id, cert string, more ...string) *patient {
		p := newPatient(t, id, append(flags(cert), more...)...)
		p.args = append(p.args, "--tls-listen", p.addr, "--peer-listen", ports.Addr(t))
		*p.flag("--listen"), p.open = "", true
		p.start()
		return p
	}
	doctor := func(p *patient, more ...string) []string {
		return slices.Concat([]string{"doctor"}, p.args, more)
	}
	n1 := start("n1", "n1")
	awaits(t, 0, doctor(n1), "✓ verdict         Serving")
	awaits(t, 0, doctor(n1, as(dir, "app")...), "✓ verdict         Serving")
	awaits(t, 1, doctor(n1, as(foreign, "app")...), "answers: remote error: tls: ",
		"Next: show a certificate for clients")
	const lacks = "lacks the usage clientAuth"
	join := []string{"--join", "rediss://" + n1.addr}
	n2 := start("n2", "n2", join...)
	awaits(t, 0, doctor(n2), "✓ verdict         All 2 members are well")
	old := start("n3", "old", join...)
	awaits(t, 1, doctor(old), "answers: ", lacks, "Next: show a certificate for clients")
	awaits(t, 1, doctor(old, as(dir, "app")...), "waiting to join a cluster", "does not add it",
		lacks)
	optional := start("n4", "old", "--tls-client-auth", "optional")
	awaits(t, 0, doctor(optional), "✓ verdict         Serving")
}

// issueFor writes a certificate of the authority for clients in dir.
func issueFor(t *testing.T, dir, name string, r certs.Request) {
	t.Helper()
	f := filesOf(dir, name, "ca")
	authority, err := (&certWriter{dir: dir}).load("ca")
	var pair certs.Pair
	if err == nil {
		pair, err = authority.Issue(r)
	}
	if err == nil {
		err = os.WriteFile(f.Cert, pair.Cert, 0o600)
	}
	if err == nil {
		err = os.WriteFile(f.Key, pair.Key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNextAfter: what a node answers decides what is next, and only who does not get in is told to
// say who asks.
func TestNextAfter(t *testing.T) {
	const who, another = "say who asks", "another program has the port"
	for _, test := range []struct {
		err  error
		says string
	}{
		{observe.ReplyError("NOAUTH Authentication required."), who},
		{observe.ReplyError("WRONGPASS invalid username-password pair"), who},
		{observe.ReplyError("NOPERM this user has no permissions"), who},
		{observe.ReplyError("DENIED Redis is running in protected mode"), "protected mode"},
		{observe.ReplyError("ERR max number of clients reached"), "raise --max-clients"},
		{observe.ReplyError("ERR unknown command 'RAFT'"), another},
		{fmt.Errorf("reading: %w", resp.ErrMalformed), another},
		{observe.ReplyError("LOADING the data"), "wait, and ask again"},
		{observe.ReplyError("BUSY a script runs"), "wait, and ask again"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)},
			"ask as the user of the node"},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, "--user-cert"},
		{context.DeadlineExceeded, "start it again if it hangs"},
	} {
		if got := nextAfter(test.err); !strings.Contains(got, test.says) {
			t.Errorf("%v: %q, want %q", test.err, got, test.says)
		}
	}
}

// A file of the node that this user may not read is no reason to mend the configuration.
func TestDoctorOfAnotherUser(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("SKIPPED: root reads all files")
	}
	file := writeConfig(t, "id n1")
	if err := os.Chmod(file, 0); err != nil {
		t.Fatal(err)
	}
	awaits(t, 1, []string{"doctor", "--config", file}, "ask as the user of the node")
}

// TestDoctorMeetsAnotherProgram has another program listen where the node is configured to.
func TestDoctorMeetsAnotherProgram(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	awaits(t, 1, []string{"doctor", "--listen", web.Listener.Addr().String(), "--data-dir",
		t.TempDir()}, "answers: ", "Next: another program has the port")
}

// TestDoctorFindsADamagedLog: the next act is the one that the error names.
func TestDoctorFindsADamagedLog(t *testing.T) {
	p := newPatient(t, "n1")
	serving(t, []string{"--password-file", passwordFile(t)}, p)
	p.stop()
	segments, err := filepath.Glob(filepath.Join(*p.flag("--data-dir"), "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("%v %v", segments, err)
	}
	text, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	text[64] ^= 1 // in the first batch
	if err := os.WriteFile(segments[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	awaits(t, 1, slices.Concat([]string{"doctor"}, p.args), `operations.md, "Damaged files"`,
		"Next: operations.md, Damaged files")
}

// TestNodeBesideItsCluster: a node that was started before it had --join leads a cluster of its
// own. It says so, and one that --join names as well does not.
func TestNodeBesideItsCluster(t *testing.T) {
	ps := []*patient{newPatient(t, "n1"), newPatient(t, "n2")}
	for _, p := range ps {
		p.open, p.args = true, append(p.args, "--peer-listen", ports.Addr(t))
		serving(t, nil, p)
	}
	for _, p := range ps {
		p.stop()
		p.args = append(p.args, "--join", ps[0].addr)
		p.start()
	}
	awaits(t, 1, append([]string{"doctor"}, ps[1].args...), "n2 is not ready: this node is a "+
		"cluster of its own, and "+ps[0].addr+" of --join is of another one, which node n1 leads",
		"Next: stop it. If nothing of its data is needed, empty its data directory")
	awaits(t, 0, append([]string{"doctor"}, ps[0].args...), "Serving, as a single node")

	// what a member says of itself counts, though the leader knows nothing of it
	d := &doctor{console: console{getenv: noEnv}, cfg: &config{}}
	members := []observe.Member{{ID: "n0"}, {ID: "n1", Client: ps[0].addr},
		{ID: "n2", Client: ps[1].addr}, {ID: "n3"}}
	if _, ill := d.askAll(t.Context(), "n0", members); !slices.Equal(ill, []string{"n2"}) {
		t.Errorf("not ready are %q, want n2", ill)
	}
	s := &observe.Sample{Health: observe.Health{Level: observe.OK}}
	if besideTheLeader(s, nil); s.Health.Level != observe.OK {
		t.Errorf("all are ready: %+v", s.Health)
	}
	if besideTheLeader(s, []string{"n2"}); s.Health.Level != observe.Warn ||
		s.Health.Next != "coordd doctor, on the machine of n2" {
		t.Errorf("n2 is not ready: %+v", s.Health)
	}
}

// TestDoctorAsksWhomItMeans: who answers where a member should be is not taken for it.
func TestDoctorAsksWhomItMeans(t *testing.T) {
	p := newPatient(t, "n1")
	p.open = true
	serving(t, nil, p)
	d := &doctor{console: console{getenv: noEnv}, cfg: &config{}}
	for id, want := range map[string]string{"n1": "leads, term ", "n2": "n1 answers at " + p.addr} {
		if got, _ := d.ask(t.Context(), id, p.addr); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// TestDoctorOfEachDirectory brings the directory of a node that does not run into each state in
// which it is refused: each has its own act. That of an interrupted refetch is in the test of
// coordd refetch.
func TestDoctorOfEachDirectory(t *testing.T) {
	p := newPatient(t, "n1")
	serving(t, []string{"--password-file", passwordFile(t)}, p)
	p.stop()
	waits := newPatient(t, "n1", "--peer-listen", ports.Addr(t), "--join", "127.0.0.1:1")
	waits.start()
	waits.stop()
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	version := func(change func(text string) string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			file := filepath.Join(dir, "VERSION")
			text, err := os.ReadFile(file)
			if err == nil {
				body, _, _ := strings.Cut(change(string(text)), "checksum:")
				sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
				err = os.WriteFile(file, fmt.Appendf(nil, "%schecksum: %08x\n", body, sum), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		from   *patient // nil: the directory is empty
		change func(t *testing.T, dir string)
		next   string
		flags  []string
	}{
		"well": {p, func(*testing.T, string) {},
			"start it: systemctl start coordd. If", nil},
		"never joined": {waits, func(*testing.T, string) {}, "start it: it joins a cluster then",
			nil},
		"empty": {nil, func(*testing.T, string) {}, "start it: it has no data yet", nil},
		"no volume": {nil, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
				t.Fatal(err)
			}
		}, "mount the volume of ", nil},
		"no LOCK":    {p, remove("LOCK"), "if no process uses the directory, make the file", nil},
		"no VERSION": {p, remove("VERSION"), "operations.md, Damaged files", nil},
		"half restore": {nil, func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "RESTORING"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "coordd restore, again with the same backup", nil},
		"half recovery": {p, func(t *testing.T, dir string) {
			for _, name := range []string{"epoch-1.new", "before-epoch-1"} {
				err := os.Mkdir(filepath.Join(dir, name), 0o700)
				if err == nil {
					err = os.Link(filepath.Join(dir, "VERSION"),
						filepath.Join(dir, name, "VERSION"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			remove("VERSION")(t, dir)
		}, "coordd recover --data-dir ", nil},
		"later format": {p, version(func(text string) string {
			return strings.Replace(text, "format: 1", "format: 2", 1)
		}), "start it with the version of coordd that wrote", nil},
		"later level": {p, version(func(text string) string {
			_, rest, _ := strings.Cut(text, "\nlevel: ")
			level, _, _ := strings.Cut(rest, "\n")
			return strings.Replace(text, "level: "+level, "level: 99", 1)
		}), "upgrade coordd on this machine", nil},
		"started too early": {p, func(*testing.T, string) {}, "if it was started before its " +
			"flags were complete", []string{"--cluster",
			"n1=127.0.0.1:1,n2=127.0.0.1:2,n3=127.0.0.1:3", "--peer-listen", "127.0.0.1:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "volume", "n1")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if test.from != nil {
				if err := os.CopyFS(dir, os.DirFS(*test.from.flag("--data-dir"))); err != nil {
					t.Fatal(err)
				}
			}
			test.change(t, dir)
			args := slices.Concat([]string{"doctor"}, p.args, []string{"--data-dir", dir},
				test.flags)
			if code, said := says(t, args...); code != 1 ||
				!strings.Contains(said, "Next: "+test.next) {
				t.Errorf("exit %d: %s", code, said)
			}
		})
	}
}
