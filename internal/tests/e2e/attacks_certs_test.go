// Certificates that nodes must not let in: a member shows them to real nodes, in both directions,
// and gets neither data nor a vote.

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// impostor is the member n3 of a cluster whose other nodes require TLS. It shows the certificate
// that it is given and checks none: its process speaks plain text, and the ports in front of the
// nodes put what it sends and receives into TLS. What the others send each other passes unchanged.
type impostor struct {
	t      *testing.T
	dir    string // of the certificates of n1 and n2
	honest []*process
	*process
	shows    atomic.Pointer[tls.Certificate]
	attempts [2]atomic.Int64 // connections by it, and to it

	mu    sync.Mutex
	ends  map[string]int // how its connections ended
	conns map[net.Conn]bool
}

// newImpostor starts n1 and n2, and n3 with a certificate.
func newImpostor(t *testing.T, dir string, shows tls.Certificate) *impostor {
	t.Helper()
	ca := authority(t, dir, "peer-ca")
	im := &impostor{t: t, dir: dir, ends: map[string]int{}, conns: map[net.Conn]bool{}}
	im.shows.Store(&shows)
	free, data := freePorts(t, 9), t.TempDir()
	var members []string
	var ps []*process
	for i := range 3 {
		id, peer := fmt.Sprintf("n%d", i+1), loopback(free[3*i+1])
		ln := ports.Listen(t)
		t.Cleanup(func() { _ = ln.Close() })
		members = append(members, id+"="+ln.Addr().String())
		p := &process{t: t, id: id, addr: loopback(free[3*i]), http: loopback(free[3*i+2])}
		p.args = []string{"--id", id, "--listen", p.addr, "--http-listen", p.http, "--data-dir",
			filepath.Join(data, id), "--peer-listen", peer, "--heartbeat-timeout", "2s"}
		greet := im.asClient
		if id == "n3" {
			greet = im.asServer
		} else {
			p.args = append(p.args, peerFlags(dir, id, "required")...)
			own := filepath.Join(dir, id+"-peer-ca.crt") // authorities are replaced on each
			replaceFile(t, own, ca.Cert)
			p.setFlag("--peer-tls-ca", own)
		}
		go im.listen(ln, peer, greet)
		ps = append(ps, p)
	}
	im.honest, im.process = ps[:2], ps[2]
	t.Cleanup(func() {
		im.cut()
		for _, p := range ps {
			p.kill()
			if t.Failed() {
				t.Logf("log of %s:\n%s", p.id, p.log)
			}
		}
	})
	for _, p := range ps {
		p.args = append(p.args, "--cluster", strings.Join(members, ","))
		p.start()
	}
	for _, p := range im.honest {
		p.waitReady()
	}
	return im
}

// listen relays connections to a node, as greet opens and puts them into TLS.
func (im *impostor) listen(ln net.Listener, to string,
	greet func(from net.Conn, to string) (a, b net.Conn, err error)) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			a, b, err := greet(conn, to)
			if err != nil {
				im.note(err)
				return
			}
			defer b.Close()
			im.mu.Lock()
			im.conns[conn] = true
			im.mu.Unlock()
			go func() {
				defer b.Close()
				_, _ = io.Copy(b, a)
			}()
			_, err = io.Copy(a, b)
			im.note(err)
			im.mu.Lock()
			delete(im.conns, conn)
			im.mu.Unlock()
		}()
	}
}

// buffered is a connection of which something was read ahead.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// asClient opens the connection to another node: in TLS if what dials is n3, which sends plain
// text.
func (im *impostor) asClient(from net.Conn, to string) (a, b net.Conn, err error) {
	in := &buffered{from, bufio.NewReader(from)}
	first, err := in.r.Peek(1)
	if err != nil {
		return nil, nil, err
	}
	out, err := net.Dial("tcp", to)
	if err != nil || first[0] == 22 {
		return in, out, err
	}
	im.attempts[0].Add(1)
	return in, tls.Client(out, forced(im.shows.Load())), nil
}

// forced shows a certificate, whatever authorities the server names.
func forced(shows *tls.Certificate) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(
		*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return shows, nil
	}}
}

// asServer opens the connection to n3 for a node that dials TLS.
func (im *impostor) asServer(from net.Conn, to string) (a, b net.Conn, err error) {
	im.attempts[1].Add(1)
	in := tls.Server(from, &tls.Config{Certificates: []tls.Certificate{*im.shows.Load()}})
	if err := in.Handshake(); err != nil {
		return nil, nil, err
	}
	out, err := net.Dial("tcp", to)
	return in, out, err
}

// note keeps how a connection ended.
func (im *impostor) note(err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if remote := new(net.OpError); errors.As(err, &remote) && remote.Op == "remote error" {
		im.ends[remote.Error()]++
	}
}

// heard returns what the nodes told the impostor.
func (im *impostor) heard() []string {
	im.mu.Lock()
	defer im.mu.Unlock()
	return slices.Sorted(maps.Keys(im.ends))
}

// cut ends the connections of all nodes.
func (im *impostor) cut() {
	im.mu.Lock()
	defer im.mu.Unlock()
	for conn := range im.conns {
		_ = conn.Close()
	}
}

// tries waits until n3 has dialed, and was dialed, some more times.
func (im *impostor) tries() {
	im.t.Helper()
	times := int64(3)
	if measured() {
		times = 30
	}
	for i := range im.attempts {
		had := im.attempts[i].Load()
		wait.For(im.t, time.Minute, "further attempts", func() bool {
			return im.attempts[i].Load() >= had+times
		})
	}
}

// write writes a secret to the honest nodes.
func (im *impostor) write(secret string) {
	im.t.Helper()
	if v, err := im.honest[0].steady("SET", "k", secret); v != "OK" {
		im.t.Fatal(v, err)
	}
}

// has reports whether the disk of n3 has a secret.
func (im *impostor) has(secret string) (found bool) {
	_ = filepath.WalkDir(im.dataDir(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, _ := os.ReadFile(path) // a file that is gone meanwhile has moved
			found = found || bytes.Contains(text, []byte(secret))
		}
		return nil
	})
	return found
}

// gets waits until n3 has received what is written.
func (im *impostor) gets(secret string) {
	im.t.Helper()
	im.write(secret)
	wait.For(im.t, 20*time.Second, "n3 to receive "+secret, func() bool { return im.has(secret) })
}

// votes stops the leader of the honest nodes, and reports whether the other can lead with n3.
func (im *impostor) votes(want bool) {
	im.t.Helper()
	lead, rest := im.honest[0], im.honest[1]
	lead.lead()                 // n3 may have
	im.write("before the stop") // the other has it once it answers
	if v, err := rest.steady("GET", "k"); v != "before the stop" {
		im.t.Fatal(v, err)
	}
	lead.signal(syscall.SIGSTOP)
	defer lead.signal(syscall.SIGCONT)
	role := func() string {
		status, _ := rest.raft("STATUS")
		s, _ := status.(map[any]any)
		return fmt.Sprint(s["role"])
	}
	if want {
		wait.For(im.t, 20*time.Second, "a leader by the vote of n3", func() bool {
			return role() == "leader" || im.role() == "master"
		})
		return
	}
	wait.For(im.t, 20*time.Second, rest.id+" to ask for votes", func() bool {
		return role() == "candidate"
	})
	im.tries()
	if role := role(); role == "leader" || im.role() == "master" {
		im.t.Errorf("%s is %s, n3 is %s", rest.id, role, im.role())
	}
}

// logs waits until a line of an honest node's log says why n3 is refused.
func (im *impostor) logs(message, reason string) {
	im.t.Helper()
	for _, p := range im.honest {
		wait.For(im.t, 20*time.Second, fmt.Sprintf("%s to log %q", p.id, reason), func() bool {
			return slices.ContainsFunc(strings.Split(p.log.String(), "\n"), func(l string) bool {
				return strings.Contains(l, message) && strings.Contains(l, reason)
			})
		})
	}
}

// authority is one of those that coordd certs made: ca for clients, peer-ca for nodes.
func authority(t *testing.T, dir, name string) *certs.Authority {
	t.Helper()
	cert, certErr := os.ReadFile(filepath.Join(dir, name+".crt"))
	key, keyErr := os.ReadFile(filepath.Join(dir, name+".key"))
	a, err := certs.LoadAuthority(certs.Pair{Cert: cert, Key: key})
	if err := errors.Join(certErr, keyErr, err); err != nil {
		t.Fatal(err)
	}
	return a
}

// nodeRequest is for a certificate that names a node of a cluster.
func nodeRequest(cluster, id string) certs.Request {
	return certs.Request{CommonName: id, Server: true, Client: true, URIs: []*url.URL{{
		Scheme: "coordd", Host: cluster, Path: "/" + id}}}
}

func issued(t *testing.T, a *certs.Authority, r certs.Request) certs.Pair {
	t.Helper()
	p, err := a.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// selfSigned makes a certificate that is its own authority.
func selfSigned(t *testing.T, r certs.Request) certs.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), URIs: r.URIs,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	c.Subject.CommonName = r.CommonName
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return certs.Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})}
}

func loaded(t *testing.T, p certs.Pair) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// startRefused starts n3 as an honest node with a certificate, and returns its last words; empty if
// it runs.
func startRefused(t *testing.T, dir string, p certs.Pair) string {
	t.Helper()
	binary, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	writePair(t, filepath.Join(own, "tls"), p)
	ports := freePorts(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "--id", "n3", "--listen", "127.0.0.1:0", "--data-dir",
		filepath.Join(own, "data"), "--cluster", fmt.Sprintf("n3=%s,n1=%s", loopback(ports[0]),
			loopback(ports[1])), "--peer-tls-cert", filepath.Join(own, "tls.crt"),
		"--peer-tls-key", filepath.Join(own, "tls.key"), "--peer-tls-ca",
		filepath.Join(dir, "peer-ca.crt"))
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("it starts: %v\n%s", err, out)
	}
	return string(out)
}

func writePair(t *testing.T, path string, p certs.Pair) {
	t.Helper()
	replaceFile(t, path+".key", p.Key)
	replaceFile(t, path+".crt", p.Cert)
}

// replaceFile gives a file its content at once.
func replaceFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new",
		path)); err != nil {
		t.Fatal(err)
	}
}

// reloads changes certificate files of a process, and waits until it uses them.
func (p *process) reloads(change func()) {
	p.t.Helper()
	const line = "certificate reloaded"
	had := strings.Count(p.log.String(), line)
	change()
	wait.For(p.t, 20*time.Second, p.id+" to load its certificate files", func() bool {
		return strings.Count(p.log.String(), line) > had
	})
}

// renew gives the honest nodes new certificates.
func (im *impostor) renew(ca *certs.Authority) {
	im.t.Helper()
	for _, p := range im.honest {
		p.reloads(func() {
			writePair(im.t, filepath.Join(im.dir, p.id+"-peer"), issued(im.t, ca,
				nodeRequest("prod", p.id)))
		})
	}
}

// TestForgedNodes: whoever shows a certificate that is not that of the node n3 of this cluster gets
// no data and has no vote. Both ends say why.
func TestForgedNodes(t *testing.T) {
	tier.Check(t)
	dir, _ := certsDir(t)
	ca, own := authority(t, dir, "peer-ca"), nodeRequest("prod", "n3")
	expired, early := own, own
	expired.From, expired.To = time.Now().Add(-4*time.Minute), time.Now().Add(-time.Minute)
	early.From = time.Now().Add(time.Hour)
	const (
		outOfTime = "x509: certificate has expired or is not yet valid: current time "
		stranger  = "x509: certificate signed by unknown authority"
	)
	for _, test := range []struct {
		name  string
		shows certs.Pair
		says  string   // the log of the others
		hears []string // what n3 is told in TLS
		start string   // the last words of a node that is to use it itself; empty: it starts
	}{
		{"of another cluster", issued(t, ca, nodeRequest("test", "n3")),
			`the certificate of \"n3\" names no node of this cluster`,
			[]string{"bad certificate"}, ""},
		{"of another node", issued(t, ca, nodeRequest("prod", "n2")),
			`node \"n3\": the certificate does not name that node`, []string{"bad certificate"},
			"it does not name this node by a URI coordd://CLUSTER/n3"},
		{"expired", issued(t, ca, expired), outOfTime, []string{"bad certificate"}, outOfTime},
		{"not yet valid", issued(t, ca, early), outOfTime, []string{"bad certificate"}, outOfTime},
		{"self-signed", selfSigned(t, own), stranger, []string{"bad certificate"}, stranger},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.start != "" {
				line := startRefused(t, dir, test.shows)
				if !strings.HasPrefix(line, "coordd: peer certificate: ") ||
					!strings.Contains(line, test.start) {
					t.Errorf("a node that is to use it says %q, want %q", line, test.start)
				}
			}
			im := newImpostor(t, dir, loaded(t, test.shows))
			secret := "secret of " + test.name
			im.write(secret)
			im.tries()
			im.logs("peer connection refused", test.says)
			im.votes(false)
			for _, id := range []string{"n1", "n2"} {
				line := `"no connection to member","member":"` + id
				wait.For(t, 20*time.Second, "n3 to log "+line, func() bool {
					return strings.Contains(im.log.String(), line)
				})
			}
			im.write("done")
			if im.has(secret) || httpStatus(im.http, "/readyz") == 200 {
				t.Error("n3 is a member of the cluster")
			}
			for _, want := range test.hears {
				if heard := im.heard(); !slices.Contains(heard, "remote error: tls: "+want) {
					t.Errorf("n3 heard %q, want %q", heard, want)
				}
			}
			t.Logf("the node says:\n%s", lines(im.log.String(), "no connection to member"))
			t.Logf("%s says:\n%s", im.honest[0].id, lines(im.honest[0].log.String(), "n3"))
			t.Log(im.heard())
		})
	}
}

// lines returns the lines of a log that contain a word.
func lines(log, word string) string {
	var found []string
	for line := range strings.SplitSeq(log, "\n") {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "\n")
}

// TestRevokedNode: a member has data and a vote until its authority is replaced. Then its
// connections end, and its certificate is worth as much as a stranger's.
func TestRevokedNode(t *testing.T) {
	tier.Check(t)
	dir, _ := certsDir(t)
	old := authority(t, dir, "peer-ca")
	im := newImpostor(t, dir, loaded(t, issued(t, old, nodeRequest("prod", "n3"))))
	im.waitReady()
	im.gets("secret of the members")
	im.votes(true)
	for _, p := range im.honest {
		p.waitReady()
	}

	fresh, err := certs.NewAuthority("the new one", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	trust := func(authorities ...[]byte) {
		t.Helper()
		for _, p := range im.honest {
			p.reloads(func() {
				replaceFile(t, p.flag("--peer-tls-ca"), bytes.Join(authorities, nil))
			})
		}
	}
	trust(old.Cert, fresh.Cert)
	im.renew(fresh)
	im.gets("secret before the end")
	trust(fresh.Cert)
	im.logs("connection renewed: the certificate of the member is no longer valid", "n3")
	im.logs("peer connection refused", "x509: certificate signed by unknown authority")
	im.write("secret after the end")
	im.tries()
	im.votes(false)
	if im.has("secret after the end") {
		t.Error("n3 receives data after its authority was replaced")
	}
	t.Log(lines(im.honest[0].log.String(), "n3"))
}

// TestNodeCertificateExpires: a member whose certificate expires keeps the connections that it has,
// also while the others load certificates, and gets no new ones.
func TestNodeCertificateExpires(t *testing.T) {
	tier.Check(t)
	dir, _ := certsDir(t)
	ca := authority(t, dir, "peer-ca")
	im := newImpostor(t, dir, loaded(t, issued(t, ca, nodeRequest("prod", "n3"))))
	im.gets("secret of the members")
	var end time.Time
	for valid := 3 * time.Second; ; valid *= 2 { // a busy machine takes its time to connect
		short := nodeRequest("prod", "n3")
		short.To = time.Now().Add(valid)
		pair := loaded(t, issued(t, ca, short))
		im.shows.Store(&pair)
		im.cut()
		im.gets("secret for a while")
		if end = pair.Leaf.NotAfter; time.Now().Before(end.Add(-time.Second)) {
			break
		}
	}
	wait.For(t, time.Minute, "the end of the certificate", func() bool {
		return time.Now().After(end)
	})
	im.renew(ca)
	im.gets("secret after the end")
	im.cut()
	im.logs("peer connection refused", "x509: certificate has expired")
	im.write("secret for others")
	im.tries()
	if im.has("secret for others") {
		t.Error("n3 receives data after its certificate has expired")
	}
}
