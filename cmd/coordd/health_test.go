package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/certs"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

func TestHealth(t *testing.T) {
	addr := ports.Addr(t)
	_, port, _ := net.SplitHostPort(addr)
	health := func(args ...string) (code int, says string) {
		var out bytes.Buffer
		code = run(context.Background(), append([]string{"health"}, args...), noEnv, &out, &out)
		return code, out.String()
	}
	if code, says := health(); code != 1 || !strings.Contains(says, "requires the node's --http") {
		t.Error(code, says)
	}
	if code, says := health("--http-listen", addr); code != 1 ||
		!strings.Contains(says, "refused") {
		t.Error(code, says)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var errs wait.Buffer
	done := make(chan int, 1)
	go func() {
		// n2 is not there
		done <- run(ctx, []string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir(),
			"--http-listen", addr, "--cluster", "n1=127.0.0.1:0,n2=127.0.0.1:1",
			"--peer-advertise", "127.0.0.1:2"}, noEnv, &errs, &errs)
	}()
	wait.For(t, 20*time.Second, "the node says why it is not ready", func() bool {
		code, says := health("--http-listen", "0.0.0.0:"+port)
		return code == 1 && strings.Contains(says, "no leader is reachable")
	})
	cancel()
	if code := exitCode(t, done); code != 0 {
		t.Error(code, errs.String())
	}
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		done <- run(ctx, []string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir(),
			"--http-listen", addr}, noEnv, &errs, &errs)
	}()
	wait.For(t, 20*time.Second, "the node is ready", func() bool {
		code, says := health("--config", writeConfig(t, "http-listen "+addr))
		return code == 0 && says == "ready, leader\n"
	})
	cancel()
	if code := exitCode(t, done); code != 0 {
		t.Error(code, errs.String())
	}
	flags := append([]string{"--http-listen", addr, "--http-tls"}, ownPair(t)...)
	ctx, cancel = context.WithCancel(context.Background())
	go func() {
		done <- run(ctx, append([]string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir()},
			flags...), noEnv, &errs, &errs)
	}()
	wait.For(t, 20*time.Second, "the node is ready over TLS", func() bool {
		code, says := health(flags...)
		return code == 0 && says == "ready, leader\n"
	})
	cancel()
	if code := exitCode(t, done); code != 0 {
		t.Error(code, errs.String())
	}
}

// ownPair returns flags for a certificate that names no address.
func ownPair(t *testing.T) []string {
	t.Helper()
	a, err := certs.NewAuthority("tests", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Issue(certs.Request{CommonName: "n1", Server: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var flags []string
	for name, text := range map[string][]byte{"cert": p.Cert, "key": p.Key} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--tls-"+name, path)
	}
	return flags
}
