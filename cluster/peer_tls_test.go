// This file holds tests of TLS between nodes: clusters that use it, the way there, and nodes that
// claim to be others.

package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/tlsconf"
)

// testCA issues certificates for the nodes of a test.
type testCA struct {
	t   testing.TB
	dir string
	*certs.Authority
}

func newCA(t testing.TB) *testCA {
	t.Helper()
	a, err := certs.NewAuthority("peers", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &testCA{t, t.TempDir(), a}
}

// files writes a certificate that names nodes of a cluster, and returns its files, which are the
// same for the same names.
func (ca *testCA) files(cluster string, ids ...string) tlsconf.Files {
	r := certs.Request{}
	for _, id := range ids {
		r.URIs = append(r.URIs, &url.URL{Scheme: peerScheme, Host: cluster, Path: "/" + id})
	}
	return ca.write(cluster+"-"+strings.Join(ids, "-"), r)
}

func (ca *testCA) write(name string, r certs.Request) tlsconf.Files {
	ca.t.Helper()
	r.Server, r.Client = true, true
	p, err := ca.Issue(r)
	if err != nil {
		ca.t.Fatal(err)
	}
	path := func(suffix string) string { return filepath.Join(ca.dir, name+suffix) }
	f := tlsconf.Files{Cert: path(".crt"), Key: path(".key"), CA: path(".ca")}
	for path, text := range map[string][]byte{f.Cert: p.Cert, f.Key: p.Key, f.CA: ca.Cert} {
		writeFile(ca.t, path, text)
	}
	return f
}

func writeFile(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func peerTLS(t testing.TB, mode PeerTLSMode, files tlsconf.Files, id string) *PeerTLS {
	t.Helper()
	p, err := OpenPeerTLS(PeerTLSConfig{Mode: mode, Files: files}, id,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// useTLS has the nodes of a cluster use TLS.
func (ca *testCA) useTLS(mode PeerTLSMode) func(*Config) {
	return func(cfg *Config) { cfg.TLS = peerTLS(ca.t, mode, ca.files("prod", cfg.ID), cfg.ID) }
}

// TestClusterOverTLS writes on every node, changes the leader, and adds a member.
func TestClusterOverTLS(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ca := newCA(t)
		c := newCluster(t, 3, ca.useTLS(PeerTLSRequired))
		for _, m := range c.members {
			c.write(c.nodes[m.ID], "a")
			c.read(c.nodes[m.ID], "a")
		}
		if err := c.leader().TransferLeadership(""); err != nil {
			t.Fatal(err)
		}
		c.write(c.leader(), "b")
		if err := c.leader().Snapshot(); err != nil {
			t.Fatal(err)
		}
		n4 := c.joiner("n4", true)
		if err := c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: "n4",
			PeerAddr: n4.Status().PeerAddr}); err != nil {
			t.Fatal(err)
		}
		c.ready("n4")
		c.write(n4, "c")
		c.converged()
	})
}

// TestJoinAcrossTLS asks to add a node that has TLS to a cluster that has not, and the other way
// around: no member is left behind that nobody can talk to, and the node is added once it can.
func TestJoinAcrossTLS(t *testing.T) {
	for _, secure := range []bool{false, true} {
		simulated(t, func(t *testing.T) {
			with := newCA(t).useTLS(PeerTLSRequired)
			without := func(*Config) {}
			if secure {
				with, without = without, with
			}
			c := newCluster(t, 1, without)
			lead := c.leader()
			join := func() error {
				return lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n2",
					PeerAddr: c.nodes["n2"].Status().PeerAddr})
			}
			c.change = with
			c.joiner("n2", true)
			if err := join(); !errors.Is(err, ErrNotRun) ||
				!strings.Contains(err.Error(), "cannot talk to node n2") {
				t.Error(err)
			}
			if got := len(lead.configuration().Servers); got != 1 {
				t.Errorf("%d members", got)
			}
			c.close("n2")
			c.change = without
			c.joiner("n2", true)
			if err := join(); err != nil {
				t.Fatal(err)
			}
			c.ready("n2")
		})
	}
}

// TestFromPlainToTLS restarts one node after the other, in each mode and back.
func TestFromPlainToTLS(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ca := newCA(t)
		mode := PeerTLSOff
		c := newCluster(t, 3, func(cfg *Config) { ca.useTLS(mode)(cfg) })
		for _, mode = range []PeerTLSMode{PeerTLSAccept, PeerTLSDial, PeerTLSRequired, PeerTLSDial,
			PeerTLSAccept, PeerTLSOff} {
			for _, m := range c.members {
				c.close(m.ID)
				c.write(c.leader(), "without "+m.ID)
				c.reopen(m.ID)
				c.ready(m.ID)
				c.write(c.nodes[m.ID], string(mode)+" on "+m.ID)
			}
		}
		if n := len(c.converged()); n != 36 {
			t.Errorf("%d writes, want 36", n)
		}
	})
}

// intruder opens connections to a node with a certificate.
type intruder struct {
	dial  dialFunc
	ended chan struct{} // closed by Close, if it is a transport's
	addr  string
	files tlsconf.Files
	first []byte
}

func (i intruder) config() *tls.Config {
	pair, err := tls.LoadX509KeyPair(i.files.Cert, i.files.Key)
	if err != nil {
		return &tls.Config{InsecureSkipVerify: true}
	}
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
}

// Dial implements raft.StreamLayer.
func (i intruder) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	tcp, err := i.dial(context.Background(), i.addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(tcp, i.config())
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = conn.Write(i.first)
	return conn, err
}

func (i intruder) Accept() (net.Conn, error) { <-i.ended; return nil, net.ErrClosed }
func (i intruder) Close() error              { close(i.ended); return nil }
func (intruder) Addr() net.Addr              { return &net.TCPAddr{} }

// hello sends a hello and returns the answer.
func (i intruder) hello(h hello) (hello, error) {
	conn, err := i.Dial("", 0)
	if err != nil {
		return hello{}, err
	}
	defer conn.Close()
	if _, err := conn.Write(appendHello(nil, h)); err != nil {
		return hello{}, err
	}
	return readHello(bufio.NewReader(conn))
}

// TestClaimedIDs has nodes and strangers open all kinds of connections under names that their
// certificates do not give them.
func TestClaimedIDs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ca, otherCA := newCA(t), newCA(t)
		c := newCluster(t, 3, ca.useTLS(PeerTLSRequired))
		victim, peer := c.nodes["n1"], c.nodes["n2"]
		addr, dial := victim.Status().PeerAddr, c.net.dialer("stranger")
		outdated := ca.write("outdated", certs.Request{URIs: []*url.URL{{Scheme: peerScheme,
			Host: "prod", Path: "/n2"}}, From: time.Now().Add(-2 * time.Hour),
			To: time.Now().Add(-time.Hour)})
		h := peer.hello("n1", "")
		for what, test := range map[string]struct {
			files tlsconf.Files
			id    string
			says  string // the refusal; empty: the connection ends without an answer
		}{
			"its own":                 {ca.files("prod", "n2"), "n2", "accepted"},
			"one for two nodes":       {ca.files("prod", "n3", "n2"), "n2", "accepted"},
			"another node's":          {ca.files("prod", "n3"), "n2", "does not name that node"},
			"another cluster's":       {ca.files("test", "n2"), "n2", ""},
			"none":                    {tlsconf.Files{}, "n2", ""},
			"an expired one":          {outdated, "n2", ""},
			"another authority's":     {otherCA.files("prod", "n2"), "n2", ""},
			"a client's":              {ca.write("app", certs.Request{CommonName: "n2"}), "n2", ""},
			"a name that begins like": {ca.files("prod", "n22"), "n2", "does not name that node"},
		} {
			for _, kind := range []byte{streamForward, streamAdmin} {
				h.id = test.id
				got, err := intruder{dial, nil, addr, test.files, []byte{kind}}.hello(h)
				switch {
				case test.says == "accepted":
					if err != nil || got.refusal != "" {
						t.Errorf("%s, %c: %q %v", what, kind, got.refusal, err)
					}
				case test.says == "" && err == nil, !strings.Contains(got.refusal, test.says):
					t.Errorf("%s, %c: %q %v, want %q", what, kind, got.refusal, err, test.says)
				}
			}
		}

		first := []byte{streamRaft}
		for _, word := range []string{"n1", victim.incarnation, victim.clusterID()} {
			first = append(append(first, byte(len(word))), word...)
		}
		ask := func(files tlsconf.Files, id string) error {
			trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
				Stream:  intruder{dial, make(chan struct{}), addr, files, first},
				Timeout: 10 * time.Second,
				Logger:  newRaftLogger(testLogger())})
			defer trans.Close()
			header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
				Addr: []byte(id)}
			// of an old term: nothing comes of them
			votes := trans.RequestVote("n1", "", &raft.RequestVoteRequest{RPCHeader: header,
				Term: 1},
				&raft.RequestVoteResponse{})
			beats := trans.AppendEntries("n1", "", &raft.AppendEntriesRequest{RPCHeader: header,
				Term: 1}, &raft.AppendEntriesResponse{})
			const size = 100_000
			snapshot := trans.InstallSnapshot("n1", "",
				&raft.InstallSnapshotRequest{RPCHeader: header,
					SnapshotVersion: 1, Term: 1, Size: size}, &raft.InstallSnapshotResponse{},
				io.LimitReader(zeroReader{}, size))
			if (votes == nil) != (beats == nil) || (votes == nil) != (snapshot == nil) {
				t.Errorf("%s: %v, %v, %v", id, votes, beats, snapshot)
			}
			return errors.Join(votes, beats, snapshot)
		}
		if err := ask(ca.files("prod", "n2"), "n2"); err != nil {
			t.Errorf("a member is refused: %v", err)
		}
		for _, id := range []string{"n3", "n1", "n2x", ""} {
			if err := ask(ca.files("prod", "n2"), id); err == nil ||
				strings.Count(err.Error(), "does not name that node") != 3 {
				t.Errorf("n2 sends as %q: %v", id, err)
			}
		}
		if err := ask(ca.files("test", "n2"), "n2"); err == nil {
			t.Error("a node of another cluster is heard")
		}
		c.write(victim, "still here")
		c.converged()
	})
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestDialedNodesAreChecked dials addresses where another node, or a stranger, answers.
func TestDialedNodesAreChecked(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ca, otherCA := newCA(t), newCA(t)
		own, w := peerTLS(t, PeerTLSRequired, ca.files("prod", "n1"), "n1"), newNetwork()
		for what, test := range map[string]struct {
			files tlsconf.Files
			id    string
			good  bool
		}{
			"the node":          {ca.files("prod", "n2"), "n2", true},
			"any node":          {ca.files("prod", "n2"), "", true},
			"another node":      {ca.files("prod", "n3"), "n2", false},
			"another cluster":   {ca.files("test", "n2"), "n2", false},
			"another authority": {otherCA.files("prod", "n2"), "n2", false},
		} {
			pair, err := tls.LoadX509KeyPair(test.files.Cert, test.files.Key)
			if err != nil {
				t.Fatal(err)
			}
			ln := tls.NewListener(w.listen(t, "n2", ""), &tls.Config{
				ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{pair}})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if conn, err := ln.Accept(); err == nil {
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				}
			}()
			conn := w.connect(t, "n1", ln.Addr().String())
			_, _, err = own.dial(context.Background(), conn, test.id)
			_ = conn.Close()
			<-ended
			_ = ln.Close()
			if (err == nil) != test.good {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestReplacedAuthorityUnderLoad replaces the authority while clients write on every node. No
// outcome becomes unknown.
func TestReplacedAuthorityUnderLoad(t *testing.T) {
	simulated(t, func(t *testing.T) {
		old, fresh := newCA(t), newCA(t)
		fresh.dir = old.dir
		tls := old.useTLS(PeerTLSRequired)
		c := newCluster(t, 3, func(cfg *Config) {
			tls(cfg)
			cfg.HeartbeatTimeout = 2 * time.Second // a busy machine keeps its leader
		})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		defer func() { cancel(); wg.Wait() }()
		var done atomic.Int64
		for _, n := range c.nodes {
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						_, err := n.Write(context.Background(), fair.Workload{}, []byte("a"), 1)
						switch {
						case err == nil:
							done.Add(1)
						case !errors.Is(err, ErrNotRun):
							t.Errorf("on %s: %v", n.cfg.ID, err)
							return
						}
					}
				})
			}
		}
		both := append(append([]byte{}, old.Cert...), fresh.Cert...)
		for _, step := range []func(id string, ca string){
			func(_ string, ca string) { writeFile(t, ca, both) },
			func(id string, ca string) { fresh.files("prod", id); writeFile(t, ca, both) },
			func(_ string, ca string) { writeFile(t, ca, fresh.Cert) },
		} {
			for _, m := range c.members {
				step(m.ID, filepath.Join(old.dir, "prod-"+m.ID+".ca"))
				if err := c.nodes[m.ID].cfg.TLS.Reload(); err != nil {
					t.Fatal(err)
				}
				had := done.Load()
				eventually(t, "the load goes on", func() bool { return done.Load() > had+100 })
			}
		}
		for _, n := range c.nodes {
			eventually(t, n.cfg.ID+" has connections, none of the old authority", func() bool {
				n.mux.mu.Lock()
				defer n.mux.mu.Unlock()
				identified := 0
				for _, conn := range n.mux.conns {
					switch {
					case conn == nil:
					case !conn.verified():
						return false
					default:
						identified++
					}
				}
				return identified > 0
			})
		}
		cancel()
		wg.Wait()
		c.converged()
	})
}

// TestReplacedAuthority changes the authority on all nodes, as an operator does: both, then the new
// certificates, then the new one alone. A node that is left behind is cut off.
func TestReplacedAuthority(t *testing.T) {
	simulated(t, func(t *testing.T) {
		old, fresh := newCA(t), newCA(t)
		fresh.dir = old.dir
		c := newCluster(t, 3, old.useTLS(PeerTLSRequired))
		both := append(append([]byte{}, old.Cert...), fresh.Cert...)
		write := func(id string) {
			t.Helper()
			eventually(t, "a write on "+id, func() bool {
				_, err := c.nodes[id].Write(context.Background(), fair.Workload{}, []byte("a"), 1)
				return err == nil
			})
		}
		step := func(id string, change func(f tlsconf.Files)) {
			t.Helper()
			path := func(suffix string) string { return filepath.Join(old.dir, "prod-"+id+suffix) }
			change(tlsconf.Files{Cert: path(".crt"), Key: path(".key"), CA: path(".ca")})
			if err := c.nodes[id].cfg.TLS.Reload(); err != nil {
				t.Fatal(err)
			}
		}
		trust := func(text []byte) func(tlsconf.Files) {
			return func(f tlsconf.Files) { writeFile(t, f.CA, text) }
		}
		for _, m := range c.members {
			step(m.ID, trust(both))
			write(m.ID)
		}
		for _, m := range c.members[:2] {
			step(m.ID, func(f tlsconf.Files) { fresh.files("prod", m.ID); trust(both)(f) })
			write(m.ID)
		}
		// a certificate that the new authority alone does not know stays out of use
		trust(fresh.Cert)(tlsconf.Files{CA: filepath.Join(old.dir, "prod-n3.ca")})
		if err := c.nodes["n3"].cfg.TLS.Reload(); err == nil {
			t.Error("a node took an authority that does not know its certificate")
		}
		for _, m := range c.members[:2] {
			step(m.ID, trust(fresh.Cert)) // n3 may lead now, which the first of them cannot reach
		}
		for _, id := range []string{"n1", "n2"} {
			eventually(t, id+" closes its connections to n3", func() bool {
				return !c.nodes[id].link("n3").up()
			})
		}
		write("n1")
		fresh.files("prod", "n3")
		if err := c.nodes["n3"].cfg.TLS.Reload(); err != nil {
			t.Fatal(err)
		}
		c.ready("n3")
		c.write(c.nodes["n3"], "c")
		c.converged()
	})
}

// TestAuthorityReplacedDuringHandshake replaces the authority when a node that dials has yet to
// show its certificate: the handshake goes on with the old one.
func TestAuthorityReplacedDuringHandshake(t *testing.T) {
	simulated(t, func(t *testing.T) {
		old, fresh := newCA(t), newCA(t)
		fresh.dir = old.dir
		c := newCluster(t, 1, old.useTLS(PeerTLSRequired))
		n := c.nodes["n1"]
		files := old.files("prod", "n2")
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(c.net.connect(t, "stranger", n.Status().PeerAddr),
			&tls.Config{InsecureSkipVerify: true,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					fresh.files("prod", "n1")
					return &pair, n.cfg.TLS.Reload()
				}})
		h := n.hello("n1", "")
		h.id = "n2"
		_, _ = conn.Write(appendHello([]byte{streamForward}, h))
		if answer, err := readHello(bufio.NewReader(conn)); err == nil ||
			errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("answered %+v, %v", answer, err)
		}
	})
}

// TestOwnCertificate opens certificates that are not the node's, and DNS names in place of URIs.
func TestOwnCertificate(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	wrong := ca.files("prod", "n1")
	wrong.CA = other.files("prod", "n2").CA
	names := ca.write("names", certs.Request{Hosts: []string{"n1.Example.org", "n2.example.org"}})
	serverOnly, err := ca.Issue(certs.Request{Server: true, URIs: []*url.URL{{Scheme: peerScheme,
		Host: "prod", Path: "/n1"}}})
	if err != nil {
		t.Fatal(err)
	}
	half := ca.files("prod", "half")
	writeFile(t, half.Cert, serverOnly.Cert)
	writeFile(t, half.Key, serverOnly.Key)
	for what, test := range map[string]struct {
		files tlsconf.Files
		name  string
		says  string
	}{
		"another node's":       {ca.files("prod", "n2"), "", "URI coordd://CLUSTER/n1"},
		"no node's":            {names, "", "URI coordd://CLUSTER/n1"},
		"another authority's":  {wrong, "", "unknown authority"},
		"for serving alone":    {half, "", "incompatible key usage"},
		"another name's":       {names, "{id}.example.com", "DNS name n1.example.com"},
		"its own by DNS names": {names, "{id}.example.org", ""},
	} {
		p, err := OpenPeerTLS(PeerTLSConfig{Mode: PeerTLSRequired, Files: test.files,
			Name: test.name}, "n1", slog.New(slog.DiscardHandler))
		if test.says == "" {
			who, idErr := p.identityOf(p.Current().Pair.Leaf)
			if err != nil || idErr != nil || !p.names(who, "n2") || p.names(who, "n3") {
				t.Errorf("%s: %v %v %v", what, who, err, idErr)
			}
			other := &x509.Certificate{DNSNames: []string{"n2.example.com"}}
			if _, err := p.identityOf(other); err == nil {
				t.Error("another domain names a node")
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", what, err, test.says)
		}
	}
}
