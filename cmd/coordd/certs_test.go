package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tlsconf"
)

func makeCerts(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(context.Background(), append([]string{"certs", dir}, args...), noEnv, &out,
		&errs); code != 0 {
		t.Fatalf("coordd certs: %d, %s", code, &errs)
	}
	return out.String()
}

// filesOf are the files of a certificate that coordd certs makes.
func filesOf(dir, name, ca string) tlsconf.Files {
	path := func(file string) string { return filepath.Join(dir, file) }
	return tlsconf.Files{Cert: path(name + ".crt"), Key: path(name + ".key"), CA: path(ca + ".crt")}
}

// TestCerts makes certificates, reads them as nodes and clients do, and adds to them.
func TestCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	text := makeCerts(t, dir, "--cluster", "prod", "--nodes", "n1,n2")
	for _, want := range []string{"--peer-tls-ca " + dir, "redis-cli --tls --cacert " + dir} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	peer := func(file, id string) error {
		_, err := cluster.OpenPeerTLS(cluster.PeerTLSConfig{Mode: cluster.PeerTLSRequired,
			Files: filesOf(dir, file, "peer-ca")}, id, slog.New(slog.DiscardHandler))
		return err
	}
	if err := peer("n1-peer", "n1"); err != nil {
		t.Error(err)
	}
	for _, file := range []string{"n2-peer", "n1", "app"} {
		if peer(file, "n1") == nil {
			t.Errorf("%s passes for the certificate of node n1", file)
		}
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	makeCerts(t, dir, "--nodes", "n3", "--clients", "") // of the same cluster
	if again, _ := os.ReadFile(filepath.Join(dir, "ca.crt")); !bytes.Equal(ca, again) {
		t.Error("the authority was replaced")
	}
	if err := peer("n3-peer", "n3"); err != nil {
		t.Error(err)
	}
	if pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "n3-peer.crt"), filepath.Join(dir,
		"n3-peer.key")); err != nil || pair.Leaf.URIs[0].String() != "coordd://prod/n3" {
		t.Errorf("the added certificate: %v", err)
	}
	refused := func(says string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(context.Background(), append([]string{"certs", dir}, args...), noEnv, &out,
			&errs); code == 0 || !strings.Contains(errs.String(), says) {
			t.Errorf("%v: %d, %s", args, code, &errs)
		}
	}
	refused("has the authorities of prod; use another directory", "--cluster", "other")
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
		info, err := d.Info()
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: others may read it: %v %v", path, info.Mode(), err)
		}
		return nil
	})
	key := filepath.Join(dir, "peer-ca.key")
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	refused("peer-ca.key is missing")
	// the server's certificate and the client's, as each end sees the other
	store, err := tlsconf.Open(tlsconf.Config{Files: filesOf(dir, "n1", "ca"),
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tls.Listen("tcp", ports.Addr(t), store.Server(tls.RequireAndVerifyClientCert))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if conn, err := ln.Accept(); err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	cfg, err := filesOf(dir, "app", "ca").Dial()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", ln.Addr().String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b [1]byte
	if _, err := conn.Write(b[:]); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		t.Error(err)
	}
}
