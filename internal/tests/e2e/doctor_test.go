// The commands for three in the morning: coordd doctor, coordd members and coordd restart-wait.

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// TestDoctor asks what to do while a cluster loses one node after the other, and gets them back.
func TestDoctor(t *testing.T) {
	ps := startProcesses(t, 3)
	_, others := leader(t, ps)
	p := others[0]
	doctor := func(code int, words ...string) {
		t.Helper()
		args := append([]string{"doctor"}, p.args...)
		wait.For(t, 20*time.Second, strings.Join(words, ", "), func() bool {
			got, out, errs := command(t, args...)
			for _, w := range words {
				if !strings.Contains(out+errs, w) {
					t.Logf("exit %d, %s%s", got, out, errs)
					return false
				}
			}
			return got == code
		})
	}
	doctor(0, "✓ configuration", "✓ node            "+p.id+" answers at "+p.addr, "✓ state",
		"leads, term ", "(this node)", "✓ verdict         All 3 members are well")
	for _, q := range ps {
		if q != p {
			q.kill()
		}
	}
	doctor(1, "■ state           no leader is reachable", "connection refused",
		"■ verdict         No leader", "Next: start 1 of ", " on their data directories")
	_, out, errs := command(t, "members", "--node", p.addr)
	if strings.Count(out, "\n") != 4 || !strings.Contains(errs, "does not answer "+p.id) {
		t.Errorf("members without a leader: %s%s", out, errs)
	}
	p.kill()
	doctor(1, "■ node            does not run", "✓ data            of node "+p.id, "voters n1, "+
		"n2, n3",
		"Next: start it")
	for _, q := range ps {
		q.start()
	}
	succeed(t, "restart-wait", "--node", p.addr)
	doctor(0, "✓ verdict")
}

// TestRestartWait waits for a member that is away, which is not the asked one, and is told when the
// next may go.
func TestRestartWait(t *testing.T) {
	ps := startProcesses(t, 3)
	_, others := leader(t, ps)
	asked, gone := others[0], others[1]
	succeed(t, "restart-wait", "--node", asked.addr)
	gone.kill()
	code, _, errs := command(t, "restart-wait", "--node", asked.addr, "--timeout", "2s")
	if code != 1 { // the leader heard from it a moment ago
		t.Errorf("right after %s was killed: exit %d, %s", gone.id, code, errs)
	}
	wait.For(t, 20*time.Second, gone.id+" is missed", func() bool {
		code, _, errs := command(t, "restart-wait", "--node", asked.addr, "--timeout", "100ms")
		return code == 1 && strings.Contains(errs, gone.id+" does not answer the leader") &&
			strings.Contains(errs, "restart no other node yet")
	})
	_, out, errs := command(t, "members", "--node", asked.addr)
	if strings.Count(out, "\n") != 4 || !strings.Contains(errs, gone.id+" does not answer") ||
		!strings.Contains(errs, "One more failure stops the cluster") {
		t.Errorf("members: %s%s", out, errs)
	}
	gone.start()
	said := succeed(t, "restart-wait", "--node", asked.addr, "--timeout", "1m")
	if !strings.Contains(said, "the next node may be restarted") {
		t.Error(said)
	}
	code, _, errs = command(t, "restart-wait", "--node", loopback(1), "--timeout", "100ms")
	if code != 1 || !strings.Contains(errs, "does not answer") {
		t.Errorf("nobody there: exit %d, %s", code, errs)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs = command(t, "restart-wait", "--node", asked.addr, "--user", "nobody",
		"--password-file", password) // waits for nothing that cannot come
	if code != 1 || !strings.Contains(errs, "WRONGPASS") || strings.Contains(errs, "waiting") {
		t.Errorf("a wrong password: exit %d, %s", code, errs)
	}
}
