// The restore drill of docs/operations.md, and backups that a process takes in each interval.

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/sample"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// drill returns the commands of the restore drill, as they stand in the document.
func drill(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## A restore drill\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := regexp.MustCompile(`(?m)^    \$ (.*)$`).FindAllStringSubmatch(section, -1)
	if len(lines) < 5 {
		t.Fatalf("docs/operations.md has no drill: %q", section)
	}
	var script strings.Builder
	for _, l := range lines {
		script.WriteString(l[1] + "\n")
	}
	return script.String()
}

// TestRestoreDrill runs the drill's commands in a shell. Only the addresses are the test's own.
func TestRestoreDrill(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("SKIPPED: no redis-cli")
	}
	binary, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	n, c := startSingle(t, filepath.Join(t.TempDir(), "source"))
	sample.Fill(t, c, "one")
	var ports []string
	for _, p := range freePorts(t, 3) {
		_, port, _ := strings.Cut(loopback(p), ":")
		ports = append(ports, port)
	}
	script := drill(t)
	for _, change := range [][2]string{{"127.0.0.1:6379", n.addr}, {"6399", ports[0]},
		{"7399", ports[1]}, {"8399", ports[2]}} {
		if !strings.Contains(script, change[0]) {
			t.Fatalf("the drill has no %s:\n%s", change[0], script)
		}
		script = strings.ReplaceAll(script, change[0], change[1])
	}
	dir := t.TempDir()
	shell := exec.CommandContext(t.Context(), "bash", "-m", "-e", "-u", "-o", "pipefail", "-c",
		"trap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n"+script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+filepath.Dir(cli)+":"+
		os.Getenv("PATH"))
	out, err := shell.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "drill.log"))
		t.Fatalf("%v:\n%s\n%s", err, out, log)
	}
	wantWords(t, "the drill", string(out), "backup-", "can be restored",
		"keys           4, ", "fencing tokens above ", "ready, leader", "\n4\n",
		"raft_applied_index:")
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Error("left over:", left)
	}
}

// TestScheduledBackups has a process take backups while its cluster goes away and comes back.
func TestScheduledBackups(t *testing.T) {
	tier.Check(t)
	n, c := startSingle(t, filepath.Join(t.TempDir(), "source"))
	sample.Fill(t, c, "one")
	binary, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	dir, absent := t.TempDir(), loopback(freePorts(t, 1)[0])
	var log wait.Buffer
	s := exec.Command(binary, "backup", "--from", absent+","+n.addr, "--every", "1s", "--keep", "1",
		"--to", dir)
	s.Stdout, s.Stderr = &log, &log
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Process.Kill() })
	says := func(text string, times int) {
		t.Helper()
		wait.For(t, 20*time.Second, text, func() bool {
			return strings.Count(log.String(), text) >= times
		})
	}
	says(`"msg":"backup taken"`, 1)
	n.kill()
	says(`"msg":"backup failed"`, 1)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 1 {
		t.Fatal("while the node is away:", files)
	}
	succeed(t, "backup", "verify", files[0])
	n.start()
	says(`"removed":1`, 1)
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil || !strings.Contains(log.String(), "backups stopped") {
		t.Error(err, log.String())
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Error(files)
	}
}
