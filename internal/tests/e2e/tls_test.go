// This file holds tests of processes that use TLS: from plain text to TLS under load, a failover
// and a renewal of all certificates under load, and the tools that dial nodes.

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
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

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
	"github.com/coordd/coordd/internal/tlsconf"
)

// certsDir has coordd certs make certificates, and returns a function that does so again.
func certsDir(t *testing.T) (dir string, again func()) {
	t.Helper()
	path, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "certs")
	again = func() {
		t.Helper()
		out, err := exec.Command(path, "certs", dir, "--cluster", "prod").CombinedOutput()
		if err != nil {
			t.Fatalf("coordd certs: %v\n%s", err, out)
		}
	}
	again()
	return dir, again
}

// peerFlags are those of TLS between nodes.
func peerFlags(dir, id, mode string) []string {
	return []string{"--peer-tls", mode, "--peer-tls-cert", filepath.Join(dir, id+"-peer.crt"),
		"--peer-tls-key", filepath.Join(dir, id+"-peer.key"), "--peer-tls-ca",
		filepath.Join(dir, "peer-ca.crt")}
}

// clientFlags are those of TLS for clients, which need a certificate.
func clientFlags(dir, id, addr string) []string {
	return []string{"--tls-listen", addr, "--tls-cert", filepath.Join(dir, id+".crt"), "--tls-key",
		filepath.Join(dir, id+".key"), "--tls-ca", filepath.Join(dir, "ca.crt")}
}

// clientFiles are those of the client of coordd certs.
func clientFiles(dir string) tlsconf.Files {
	return tlsconf.Files{Cert: filepath.Join(dir, "app.crt"), Key: filepath.Join(dir, "app.key"),
		CA: filepath.Join(dir, "ca.crt")}
}

func clientTLS(t *testing.T, dir string) *tls.Config {
	t.Helper()
	c, err := clientFiles(dir).Dial()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFromPlainToTLSUnderLoad takes a cluster from plain text to TLS between its nodes in three
// rolling restarts. No client sees an error.
func TestFromPlainToTLSUnderLoad(t *testing.T) {
	if !tier.Soaking() {
		t.Skip("run by make soak")
	}
	dir, _ := certsDir(t)
	ps := startProcesses(t, 3)
	v := startVisitors(t, ps)
	plain := slices.Clone(ps[0].args)
	for _, mode := range []string{"accept", "dial", "required"} {
		for _, p := range ps {
			if p.args = append(p.args[:len(plain):len(plain)], peerFlags(dir, p.id,
				mode)...); mode != "required" {
				p.args = append(p.args, "--insecure-peers")
			}
		}
		had := v.acked.Load()
		wait.For(t, 20*time.Second, "load", func() bool { return v.acked.Load() > had+1000 })
		rollOver(t, ps, v)
	}
	v.finish(t, ps[0].client())
	// what is left is TLS alone
	addr := strings.TrimPrefix(strings.Split(ps[0].flag("--cluster"), ",")[0], "n1=")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = conn.Write([]byte("F"))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("the reply to plain text has %d bytes", n)
	}
}

// TestClientsOverTLS has cluster clients take and release locks over TLS, with no plain port, while
// the certificates are renewed and the leader is killed.
func TestClientsOverTLS(t *testing.T) {
	dir, renew := certsDir(t)
	otherDir, _ := certsDir(t)
	ps := startProcessesWith(t, 3, func(p *process) {
		tlsAddr := p.addr
		p.setFlag("--listen", "")
		p.args = append(p.args, clientFlags(dir, p.id, tlsAddr)...)
		p.args = append(p.args, peerFlags(dir, p.id, "required")...)
	})
	var addrs []string
	for _, p := range ps {
		addrs = append(addrs, p.addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs,
		TLSConfig: clientTLS(t, dir), ClusterStateReloadInterval: 200 * time.Millisecond,
		ConnMaxLifetime: time.Second, DialTimeout: 2 * time.Second})
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	var done, failed atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				lock := fmt.Sprintf("lock:%d", i)
				err := client.SetNX(ctx, lock, i, time.Second).Err()
				if err == nil {
					err = client.Del(ctx, lock).Err()
				}
				if err == nil {
					done.Add(1)
				} else if ctx.Err() == nil {
					failed.Add(1)
				}
			}
		})
	}
	goOn := func(what string) {
		t.Helper()
		had := done.Load()
		wait.For(t, 30*time.Second, what, func() bool { return done.Load() > had+500 })
	}
	goOn("clients over TLS")
	serial := func(p *process) string {
		conn, err := tls.Dial("tcp", p.addr, clientTLS(t, dir))
		if err != nil {
			return ""
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	var before []string
	for _, p := range ps {
		before = append(before, serial(p))
	}
	renew()
	ps[2].signal(syscall.SIGHUP) // the others see their files change
	for i, p := range ps {
		wait.For(t, 10*time.Second, p.id+" with its new certificate", func() bool {
			now := serial(p)
			return now != "" && now != before[i]
		})
	}
	goOn("clients after the renewal")
	if n := failed.Load(); n > 0 {
		t.Errorf("%d requests failed while certificates were renewed", n)
	}
	nodes := client.ClusterNodes(ctx).Val()
	lead := slices.IndexFunc(ps, func(p *process) bool {
		return strings.Contains(nodes, p.addr+"@") && strings.Contains(
			nodes[strings.Index(nodes, p.addr+"@"):strings.Index(nodes, p.addr+"@")+60], "master")
	})
	if lead < 0 {
		t.Fatalf("CLUSTER NODES has no master:\n%s", nodes)
	}
	ps[lead].kill()
	goOn("clients after a failover")
	ps[lead].start() // with the new certificates, of which it knew nothing before
	goOn("clients beside a restart")

	// The same client is refused if it lacks one thing, by a node that serves it otherwise.
	rest := ps[(lead+1)%3]
	own, noCertificate, noAuthority := clientTLS(t, dir), clientTLS(t, dir), clientTLS(t, dir)
	noCertificate.GetClientCertificate = nil
	noAuthority.RootCAs = x509.NewCertPool()
	stranger := clientTLS(t, otherDir)
	stranger.RootCAs = own.RootCAs
	for what, test := range map[string]struct {
		cfg  *tls.Config
		says string
	}{
		"its certificate":                      {own, ""},
		"plain text":                           {nil, "EOF"},
		"no certificate":                       {noCertificate, "tls: certificate required"},
		"no authority":                         {noAuthority, "signed by unknown authority"},
		"a certificate of another's authority": {stranger, "tls: bad certificate"},
	} {
		c := redis.NewClient(&redis.Options{Addr: rest.addr, TLSConfig: test.cfg, MaxRetries: -1,
			ReadTimeout: 10 * time.Second})
		err := c.SetNX(ctx, "lock:last:"+what, 1, 0).Err()
		_ = c.Close()
		if test.says == "" && err != nil || test.says != "" && (err == nil ||
			!strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v, want %q", what, err, test.says)
		}
	}
}

// TestToolsOverTLS uses redis-cli, coordd backup, import and --join over TLS.
func TestToolsOverTLS(t *testing.T) {
	if missing("redis-cli") {
		t.Skip("SKIPPED: redis-cli not found")
	}
	dir, _ := certsDir(t)
	with := func(p *process) {
		p.args = append(p.args, clientFlags(dir, p.id, p.addr)...)
		p.setFlag("--listen", "")
		p.args = append(p.args, peerFlags(dir, p.id, "required")...)
	}
	p := startProcessesWith(t, 1, with)[0]
	f := clientFiles(dir)
	_, port, _ := net.SplitHostPort(p.addr)
	out, err := exec.Command("redis-cli", "--tls", "--cacert", f.CA, "--cert", f.Cert, "--key",
		f.Key, "-h", "127.0.0.1", "-p", port, "SET", "a", "1").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "OK" {
		t.Errorf("redis-cli --tls: %q %v", out, err)
	}
	coordd, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"--tls-ca", f.CA, "--tls-cert", f.Cert, "--tls-key", f.Key}
	file := filepath.Join(t.TempDir(), "backup")
	out, err = exec.Command(coordd, append([]string{"backup", "--from", "rediss://" + p.addr, file},
		files...)...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "with 1 keys") {
		t.Errorf("coordd backup: %q %v", out, err)
	}
	plain := startProcesses(t, 1)[0]
	out, err = exec.Command(coordd, append([]string{"import", "--from", "rediss://" + p.addr,
		"--to", plain.addr}, files...)...).CombinedOutput()
	if got := plain.client().Get(context.Background(), "a").Val(); err != nil || got != "1" {
		t.Errorf("coordd import: %q %v, %q", out, err, got)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}

	ports := freePorts(t, 3)
	n2 := &process{t: t, id: "n2", addr: loopback(ports[0]), http: loopback(ports[2])}
	n2.args = []string{"--id", "n2", "--listen", "", "--http-listen", n2.http, "--data-dir",
		t.TempDir(), "--peer-listen", loopback(ports[1]), "--join", "rediss://" + p.addr}
	// its certificate for serving clients is also the one that it shows as a client of p
	n2.args = append(n2.args, peerFlags(dir, "n2", "required")...)
	n2.args = append(n2.args, "--tls-listen", n2.addr, "--tls-cert", f.Cert, "--tls-key", f.Key,
		"--tls-ca", f.CA)
	t.Cleanup(func() {
		n2.kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", n2.id, n2.log)
		}
	})
	n2.start()
	n2.waitReady()
}
