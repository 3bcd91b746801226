// Certificates that clients show to a real node.

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// startCertified starts a node whose clients are the users that their certificates name.
func startCertified(t *testing.T, dir, auth string) *process {
	t.Helper()
	users := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(users, []byte(usersFile), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcessesWith(t, 1, func(p *process) {
		p.args = append(p.args, clientFlags(dir, p.id, loopback(freePorts(t, 1)[0]))...)
	}, "--users-file", users, "--tls-client-auth", auth, "--tls-auth-clients-user", "cn")[0]
	admin := as(t, p, "admin", adminPassword) // without TLS
	wait.For(t, 20*time.Second, "the first users", func() bool {
		return admin.Ping(context.Background()).Err() == nil
	})
	return p
}

// show dials with a certificate.
func (p *process) show(pair certs.Pair) (*tls.Conn, error) {
	shown := loaded(p.t, pair)
	conn, err := tls.Dial("tcp", p.flag("--tls-listen"), forced(&shown))
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return conn, err
}

// refuses fails unless a certificate is refused with that alert, and nothing else said.
func (p *process) refuses(pair certs.Pair, alert string) {
	p.t.Helper()
	conn, err := p.show(pair)
	var reply []byte
	if err == nil { // with TLS 1.3 the client is through before the node has seen its certificate
		defer conn.Close()
		reply, err = io.ReadAll(conn)
	}
	if err == nil || len(reply) > 0 || !strings.HasSuffix(err.Error(), "tls: "+alert) {
		p.t.Errorf("the client sees %q, %v, want %s", reply, err, alert)
	}
}

// admits dials with a certificate that the node takes.
func (p *process) admits(pair certs.Pair) *rawClient {
	p.t.Helper()
	conn, err := p.show(pair)
	if err != nil {
		p.t.Fatal(err)
	}
	c := &rawClient{p.t, commandtest.NewConn(conn)}
	p.t.Cleanup(func() { _ = c.Close() })
	if got := c.call("ACL", "WHOAMI"); got != "$5\r\nadmin\r\n" {
		p.t.Fatalf("the certificate is that of %q", got)
	}
	return c
}

// adminRequest is for the certificate of a client who may do everything.
var adminRequest = certs.Request{CommonName: "admin", Client: true}

// TestForgedClients: no certificate but the right one makes its bearer the administrator, or lets
// him in as somebody without a certificate. Both ends say why.
func TestForgedClients(t *testing.T) {
	dir, _ := certsDir(t)
	ca := authority(t, dir, "ca")
	expired, early := adminRequest, adminRequest
	expired.From, expired.To = time.Now().Add(-4*time.Minute), time.Now().Add(-time.Minute)
	early.From = time.Now().Add(time.Hour)
	other, err := certs.NewAuthority("coordd clients of prod", time.Hour) // the name is the same
	if err != nil {
		t.Fatal(err)
	}
	for _, auth := range []string{"required", "optional"} {
		p := startCertified(t, dir, auth)
		p.admits(issued(t, ca, adminRequest))
		for _, test := range []struct {
			name         string
			shows        certs.Pair
			hears, cause string
		}{
			{"expired", issued(t, ca, expired), "bad certificate", "is after"},
			{"not yet valid", issued(t, ca, early), "bad certificate", "is before"},
			{"of another authority", issued(t, other, adminRequest),
				"bad certificate", "x509: certificate signed by unknown authority"},
			{"self-signed", selfSigned(t, adminRequest), "bad certificate",
				"x509: certificate signed by unknown authority"},
			{"of a node", issued(t, authority(t, dir, "peer-ca"), adminRequest),
				"bad certificate", "x509: certificate signed by unknown authority"},
			{"for serving", issued(t, ca, certs.Request{CommonName: "admin", Server: true}),
				"bad certificate", "x509: certificate specifies an incompatible key usage"},
		} {
			t.Run(auth+", "+test.name, func(t *testing.T) {
				p.t = t
				before := len(p.log.String())
				p.refuses(test.shows, test.hears)
				wait.For(t, 20*time.Second, "the log to say why", func() bool {
					line := lines(p.log.String()[before:], "TLS handshake failed")
					return strings.Contains(line, test.cause)
				})
				t.Log(lines(p.log.String()[before:], "TLS handshake failed"))
			})
		}
		t.Run(auth+", redis-cli", func(t *testing.T) {
			p.t = t
			refusedCLI(t, p, dir, issued(t, ca, expired))
		})
	}
}

// refusedCLI has redis-cli write with an expired certificate.
func refusedCLI(t *testing.T, p *process, dir string, pair certs.Pair) {
	t.Helper()
	if missing("redis-cli") {
		t.Skip("SKIPPED: redis-cli not found")
	}
	own := filepath.Join(t.TempDir(), "cli")
	writePair(t, own, pair)
	_, port, _ := strings.Cut(p.flag("--tls-listen"), ":")
	out, err := exec.Command("redis-cli", "--tls", "--cacert", filepath.Join(dir, "ca.crt"),
		"--cert", own+".crt", "--key", own+".key", "-h", "127.0.0.1", "-p", port, "SET",
		"k:stranger", "x").CombinedOutput()
	if err == nil || string(out) != "Error: Server closed the connection\n" { // no more than that
		t.Errorf("redis-cli: %q %v", out, err)
	}
	admin := as(t, p, "admin", adminPassword)
	if n, err := admin.Exists(context.Background(), "k:stranger").Result(); n != 0 || err != nil {
		t.Errorf("a stranger wrote: %d %v", n, err)
	}
}

// TestClientCertificatesEnd: a certificate that expires ends no connection, also when the node
// loads its files. When its authority is gone, idle, blocked and subscribed clients are closed, and
// those of the new authority stay.
func TestClientCertificatesEnd(t *testing.T) {
	tier.Check(t)
	dir, _ := certsDir(t)
	old := authority(t, dir, "ca")
	p := startCertified(t, dir, "required")
	lasting := issued(t, old, adminRequest)
	idle, blocked, subscribed := p.admits(lasting), p.admits(lasting), p.admits(lasting)
	admin := as(t, p, "admin", adminPassword)
	if err := blocked.Send(commandtest.Args("BLPOP", "k:none", "0")); err != nil {
		t.Fatal(err)
	}
	subscribed.call("SUBSCRIBE", "ch:1")
	waitClients(t, admin, "cmd=blpop", "cmd=subscribe")

	var short certs.Pair
	var aged *rawClient
	for valid := 2 * time.Second; aged == nil; valid *= 2 { // a busy machine takes its time
		r := adminRequest
		r.To = time.Now().Add(valid)
		short = issued(t, old, r)
		if conn, err := p.show(short); err == nil {
			c := commandtest.NewConn(conn)
			if _, err := c.Do(commandtest.Args("PING")); err == nil {
				aged = &rawClient{t, c}
				defer aged.Close()
			}
		}
	}
	wait.For(t, time.Minute, "the end of the certificate", func() bool {
		return time.Now().After(loaded(t, short).Leaf.NotAfter)
	})
	p.refuses(short, "bad certificate")
	replace := func(a *certs.Authority) {
		t.Helper()
		p.reloads(func() {
			writePair(t, filepath.Join(dir, "n1"), issued(t, a, certs.Request{Server: true,
				Hosts: []string{"127.0.0.1"}}))
		})
	}
	replace(old)
	if got := aged.call("PING"); got != "+PONG\r\n" {
		t.Errorf("%q", got)
	}

	fresh, err := certs.NewAuthority("the new one", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	trust := func(authorities ...[]byte) {
		t.Helper()
		p.reloads(func() {
			replaceFile(t, filepath.Join(dir, "ca.crt"), bytes.Join(authorities, nil))
		})
	}
	trust(old.Cert, fresh.Cert)
	replace(fresh)
	stays := p.admits(issued(t, fresh, adminRequest))
	for name, c := range map[string]*rawClient{"the idle one": idle, "the aged one": aged} {
		if got := c.call("PING"); got != "+PONG\r\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	trust(fresh.Cert)
	for name, c := range map[string]*rawClient{"idle": idle, "aged": aged, "blocked": blocked,
		"subscribed": subscribed} {
		if got, err := c.Receive(); err != io.EOF {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if n := strings.Count(p.log.String(),
		"closed a client: its certificate is no longer valid"); n != 4 {
		t.Errorf("the log has %d clients that were closed", n)
	}
	if got := stays.call("PING"); got != "+PONG\r\n" {
		t.Errorf("a client of the new authority: %q", got)
	}
	p.refuses(lasting, "bad certificate")
	t.Log(lines(p.log.String(), "certificate"))
}

// waitClients waits until CLIENT LIST shows some words.
func waitClients(t *testing.T, admin *redis.Client, words ...string) {
	t.Helper()
	wait.For(t, 20*time.Second, fmt.Sprint(words), func() bool {
		list := admin.ClientList(context.Background()).Val()
		for _, word := range words {
			if !strings.Contains(list, word) {
				return false
			}
		}
		return true
	})
}
