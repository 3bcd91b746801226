package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/internal/tests/ports"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestFoundCommand has a node that discovers itself found a cluster for those who know its first
// user, and prints the same id whenever it is told to again.
func TestFoundCommand(t *testing.T) {
	password := func(text string) string {
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	right, wrong := password("right"), password("wrong")
	peer := ports.Listen(t)
	at := peer.Addr().String()
	cfg, err := parseConfig([]string{"--id", "auto", "--listen", "127.0.0.1:0", "--data-dir",
		t.TempDir(), "--peer-listen", at, "--discover", at, "--founders", "1",
		"--default-password-file", right}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	var logs wait.Buffer
	n, err := node.Start(cfg.Config, node.Listeners{Peer: peer},
		slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	wait.For(t, 10*time.Second, "the node waits", func() bool {
		return strings.Contains(logs.String(), "coordd found on one of them founds a cluster")
	})
	found := func(code int, addr string, args ...string) (said, errors string) {
		t.Helper()
		var out, errs wait.Buffer
		if got := run(t.Context(), append([]string{"found", "--addr", addr}, args...), noEnv, &out,
			&errs); got != code {
			t.Errorf("found %v: exit %d, %s", args, got, errs.String())
		}
		return out.String(), errs.String()
	}
	for _, test := range []struct{ file, want string }{{"", "NOAUTH"}, {wrong, "WRONGPASS"}} {
		_, got := found(1, n.Addr(), "--password-file", test.file)
		if !strings.Contains(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	nobody := "127.0.0.1:1"
	first, waited := found(0, nobody+","+n.Addr(), "--password-file", right)
	if !strings.HasPrefix(waited, "waiting: "+nobody) {
		t.Errorf("without the first node: %q", waited)
	}
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := found(0, n.Addr(), "--password-file", right); got != first || len(got) != 21 {
		t.Errorf("the cluster is %q, and then %q", first, got)
	}
	if _, got := found(1, n.Addr(), "--password-file", wrong); !strings.Contains(got,
		"WRONGPASS") {
		t.Errorf("a cluster that exists, with a wrong password: %q", got)
	}
	found(1, "nowhere")
}
