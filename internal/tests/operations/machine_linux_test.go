// Machines with a fresh Debian and a running systemd, in a network of their own.

package operations

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// packages is what the machines have besides the smallest Debian. The release has a name that
// stays.
const (
	packages = "systemd,systemd-sysv,dbus,iproute2,procps,sudo,openssl,openssh-server," +
		"openssh-client,redis-tools,redis-server"
	release = "bookworm"
)

// here is the address of the test itself.
const here = "10.0.0.254"

// enter runs the test again in namespaces of its own, and reports whether this is that run.
func enter(t *testing.T) bool {
	t.Helper()
	const inside = "COORDD_OPERATIONS_INSIDE"
	if os.Getenv(inside) != "" {
		for _, args := range [][]string{{"link", "set", "lo", "up"},
			{"link", "add", "machines", "type", "bridge"},
			{"addr", "add", here + "/24", "dev", "machines"}, {"link", "set", "machines", "up"}} {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				t.Fatalf("ip %q: %v: %s", args, err, out)
			}
		}
		return true
	}
	// what the second run starts ends with it, whatever happens: it is the init of its namespace
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--net", "--mount", "--pid",
		"--fork", "--kill-child", "--mount-proc", "--propagation", "private", os.Args[0],
		"-test.run", "^" + t.Name() + "$"},
		flagsOfTest()...)...)
	cmd.Env = append(os.Environ(), inside+"=yes")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("in namespaces of its own: %v", err)
	}
	return false
}

// flagsOfTest returns the flags of this test process that hold for the second one.
func flagsOfTest() (flags []string) {
	for _, name := range []string{"test.v", "test.timeout"} {
		flags = append(flags, "-"+name+"="+flag.Lookup(name).Value.String())
	}
	return flags
}

// debian returns the directory of a fresh Debian, which is made once on this machine.
func debian(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(cache, "coordd-tests", release+"-1")
	if _, err := os.Stat(root); err == nil {
		return root
	}
	if err := os.MkdirAll(filepath.Dir(root), 0o700); err != nil {
		t.Fatal(err)
	}
	made, err := os.MkdirTemp(filepath.Dir(root), release+"-*.tmp")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(made, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "debootstrap", "--variant=minbase",
		"--include="+packages, release, made).CombinedOutput()
	if err != nil {
		t.Fatalf("debootstrap: %v\n%s", err, out)
	}
	// the machines know each other's names and are reached by ssh, as in a company
	out, err = exec.CommandContext(t.Context(), "chroot", made, "sh", "-euc", `
		mkdir -p -m 700 /root/.ssh
		ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
		cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
		printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' \
			>/root/.ssh/config
		systemctl disable redis-server
		: >/etc/machine-id`).CombinedOutput()
	if err != nil {
		t.Fatalf("the machines' root: %v\n%s", err, out)
	}
	if err := os.Rename(made, root); err != nil {
		t.Fatal(err)
	}
	return root
}

// machine is one of them.
type machine struct {
	name, addr, root string
	pid              int // of its systemd
}

// boot starts a machine, which ends with the test.
func boot(t *testing.T, n int) *machine {
	t.Helper()
	m := &machine{name: fmt.Sprint("n", n), addr: fmt.Sprint("10.0.0.", n)}
	dir := t.TempDir()
	m.root = filepath.Join(dir, "root")
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("overlay", m.root, "overlay", 0, fmt.Sprintf(
		"lowerdir=%s,upperdir=%s/upper,workdir=%s/work", debian(t), dir, dir)); err != nil {
		t.Fatalf("an overlay: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(m.root, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	hosts := "127.0.0.1 localhost\n10.0.0.4 n4 vault\n"
	for i := range 3 {
		hosts += fmt.Sprintf("10.0.0.%d n%[1]d n%[1]d.coordd-peers.prod.svc.cluster.local "+
			"coordd-peers.prod.svc.cluster.local\n", i+1)
	}
	m.write(t, "/etc/hosts", hosts)
	m.write(t, "/etc/hostname", m.name+"\n")
	console := wait.NewFile(t)
	cmd := exec.Command("sh", "-c", `for f in $0; do echo $$ >"$f"; done; exec "$@"`,
		strings.Join(groups(t, m.name), " "), "systemd-nspawn", "--quiet",
		"--directory", m.root, "--machine", m.name, "--register=no", "--keep-unit",
		"--resolv-conf=off", "--timezone=off",
		"--network-bridge=machines", "--boot")
	cmd.Stdout, cmd.Stderr = console.File, console.File
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(m.pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	running := false
	wait.Explain(t, func() {
		if !running {
			t.Logf("%s:\n%s", m.name, console.End())
		}
	})
	wait.For(t, time.Minute, m.name+" runs", func() bool {
		out, _ := exec.Command("pgrep", "-P", strconv.Itoa(cmd.Process.Pid)).Output()
		m.pid, _ = strconv.Atoi(strings.TrimSpace(string(out)))
		if m.pid == 0 {
			return false
		}
		said, _, err := m.try("systemctl is-system-running")
		return err == nil && (said == "running\n" || said == "degraded\n")
	})
	running = true
	m.must(t, "ip addr add "+m.addr+"/24 dev host0; ip link set host0 up")
	return m
}

// groups makes control groups for a machine, which would share its units' with other machines, in
// each hierarchy that a systemd may use, by one name: systemd-nspawn keeps them alike.
func groups(t *testing.T, name string) (files []string) {
	t.Helper()
	name = fmt.Sprintf("coordd-operations-%d-%s", time.Now().UnixNano(), name)
	for _, root := range []string{"", "/unified", "/systemd"} {
		root = "/sys/fs/cgroup" + root
		if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
			continue
		}
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeGroup(t, dir) })
		files = append(files, dir+"/cgroup.procs")
	}
	return files
}

// removeGroup removes a group whose processes have ended, and those within.
func removeGroup(t *testing.T, dir string) {
	within, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, d := range within {
		if d.IsDir() {
			removeGroup(t, filepath.Join(dir, d.Name()))
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Error(err)
	}
}

func (m *machine) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.root, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(m.root, name), 0o644); err != nil {
		t.Fatal(err)
	}
}

// try runs a script as root in root's directory, and returns what it printed and its exit code.
func (m *machine) try(script string) (output string, code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(m.pid), "--all", "--root",
		"--wd", "env", "-i", "HOME=/root", "TERM=dumb", "LC_ALL=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"bash", "-c", "cd /root\n"+script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // what the script started may live on with its output
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return out.String(), exit.ExitCode(), nil
	}
	return out.String(), 0, err
}

// must runs a script of the test's own, which has to succeed.
func (m *machine) must(t *testing.T, script string) string {
	t.Helper()
	out, code, err := m.try("set -eu -o pipefail\n" + script)
	if err != nil || code != 0 {
		t.Fatalf("%s: %s\nexit %d, %v\n%s", m.name, script, code, err, out)
	}
	return out
}

// until runs a script until it succeeds and prints certain words.
func (m *machine) until(t *testing.T, words, script string) (out string) {
	t.Helper()
	over, found := time.Now().Add(time.Minute), false
	wait.For(t, 3*time.Minute, m.name+": "+script, func() bool {
		said, code, err := m.try("set -o pipefail\n" + script)
		out = said
		found = err == nil && code == 0 && strings.Contains(said, words)
		return found || time.Now().After(over)
	})
	if !found {
		t.Fatalf("%s: %s\nprints not %q, but\n%s", m.name, script, words, out)
	}
	return out
}
