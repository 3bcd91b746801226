package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/ports"
)

func TestCheckConfig(t *testing.T) {
	dir := t.TempDir()
	certs, data := filepath.Join(dir, "certs"), filepath.Join(dir, "data")
	var out bytes.Buffer
	if code := run(context.Background(), []string{"certs", certs}, noEnv, &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	if code, errs := runOnce("--listen", "127.0.0.1:0", "--data-dir", data); code != 0 {
		t.Fatal(errs)
	}
	taken := ports.Listen(t) // by this node, as far as anybody can tell
	defer taken.Close()
	tls := "tls-listen 127.0.0.1:0\ntls-cert " + certs + "/n1.crt\ntls-key " + certs
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		config string
		code   int
		says   string
	}{
		{"data-dir " + data + "\nlisten " + taken.Addr().String() + "\n" + tls + "/n1.key\n", 0,
			"the configuration of node n1 is valid\n"},
		{"data-dir " + dir + "/new", 0, "valid"},
		{"data-dir " + dir + "/new/deep", 1, "/new does not exist: mount its volume"},
		{"cluster n1=127.0.0.1:7000,n2=nowhere.invalid:7000", 0, "nowhere.invalid"},
		{"cluster n1=127.0.0.1:7000,n2=127.0.0.1:7001", 0, "unless --peer-advertise is set"},
		{"cluster n1=127.0.0.1:7000,n2=127.0.0.1:7001\npeer-advertise 127.0.0.1:7000", 0,
			"the configuration of node n1 is valid\n"},
		{"max-clients 300000000", 0, "maxclients reduced to fit the limit of open files"},
		{"max-clients none", 1, `coordd.conf:1: max-clients "none"`},
		{"data-dir " + data + "\nid n2", 1, `belongs to node "n1", not to "n2"`},
		{"data-dir " + data + "\nlog-store bolt", 1, `uses log store "wal", not "bolt"`},
		{"data-dir " + file, 1, "not a directory"},
		{"data-dir " + file + "/data", 1, "not a directory"},
		{"unix-socket " + dir + "/no/socket", 1, "cannot write to directory " + dir + "/no"},
		{"unix-socket /run/coordd-of-no-test/socket", 0, "is missing at present"},
		{"audit-log " + dir + "/no/log", 1, "cannot write to directory " + dir + "/no"},
		{"http-listen 192.0.2.1:80", 1, "cannot listen on 192.0.2.1:80"},
		{tls + "/app.key", 1, "client certificate"},
		{tls + "/no.key", 1, "no such file"},
		{"listen nowhere.invalid:1\nhttp-listen 192.0.2.1:80", 1, "node n1 would not start"},
	} {
		var out bytes.Buffer
		code := run(context.Background(), []string{"check-config", "--config",
			writeConfig(t, c.config), "--peer-listen", "127.0.0.1:0"}, noEnv, &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%q: exit %d, %q; want %d and %q", c.config, code, out.String(), c.code,
				c.says)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 3 {
		t.Errorf("it left %v, %v", names, err)
	}
}
