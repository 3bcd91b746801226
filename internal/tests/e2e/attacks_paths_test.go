package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/tier"
)

// Whatever a flag's path leads to, a node says in one line why it does not start, or it starts. It
// does not hang, use up the memory, or overwrite a file.
func TestPathsOfFlags(t *testing.T) {
	tier.Check(t)
	binary, err := binaries.Coordd()
	if err != nil {
		t.Fatal(err)
	}
	certs, _ := certsDir(t)
	const text = "# not for coordd\nuser\n"
	for flag, more := range map[string][]string{
		"--data-dir": nil, "--unix-socket": nil, "--audit-log": nil, "--users-file": nil,
		"--default-password-file": nil, "--metrics-token-file": nil,
		"--join-password-file": {"--join", "127.0.0.1:1", "--peer-listen", "127.0.0.1:0"},
		"--tls-cert":           clientFlags(certs, "n1", "127.0.0.1:0"),
		"--tls-key":            clientFlags(certs, "n1", "127.0.0.1:0"),
		"--tls-ca":             clientFlags(certs, "n1", "127.0.0.1:0"),
		"--peer-tls-cert":      peerFlags(certs, "n1", "required"),
		"--peer-tls-key":       peerFlags(certs, "n1", "required"),
		"--peer-tls-ca":        peerFlags(certs, "n1", "required"),
	} {
		for _, path := range []string{"dir", "missing/x", "dangling", "loop", "pipe", "file",
			"file/x", "/dev/zero", "/dev/full"} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{os.Mkdir(filepath.Join(dir, "dir"), 0o700),
				os.Symlink("nowhere", filepath.Join(dir, "dangling")),
				os.Symlink("loop", filepath.Join(dir, "loop")),
				syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			switch created := path == "missing/x" || path == "dangling"; {
			case flag == "--data-dir" && (path == "dir" || path == "missing/x"),
				flag == "--audit-log" && (created || path == "file"):
				continue // that is what the flag is for
			}
			args := append([]string{"--listen", "127.0.0.1:0", "--data-dir", "data"}, more...)
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			cmd := exec.CommandContext(ctx, binary, append(args, flag, path)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			hung := ctx.Err() != nil
			cancel()
			line := strings.TrimSuffix(string(out), "\n")
			if hung || err == nil || cmd.ProcessState.ExitCode() != 1 ||
				!strings.HasPrefix(line, "coordd: ") || strings.Contains(line, "\n") ||
				len(line) > 400 {
				t.Errorf("%s %s: hung %v, %v, %q", flag, path, hung, err, line)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "file")); string(got) != text {
				t.Errorf("%s %s: the file has %q, %v", flag, path, got, err)
			}
		}
	}
}
