package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a directory that scripts of the packages take for the root of a machine.
type machine struct {
	*testing.T
	root string
}

// commands stand in for those that need root or would change this machine. chown only notes which
// files it would give away.
var commands = map[string]string{
	"chown":            `for f; do readlink -f -- "$f"; done >>"$ROOT/given" 2>/dev/null; :`,
	"install":          `exec /usr/bin/install $(echo " $*" | sed 's/ -[og] [a-z]*//g')`,
	"systemd-sysusers": ":", "getent": ":", "useradd": ":", "systemctl": ":",
}

func newMachine(t *testing.T) *machine {
	m := &machine{t, t.TempDir()}
	for _, dir := range []string{"bin", "etc/default", "var/lib", "usr/share/coordd"} {
		m.check(os.MkdirAll(m.path(dir), 0o755))
	}
	for name, does := range commands {
		m.check(os.WriteFile(m.path("bin/"+name), []byte("#!/bin/sh\n"+does+"\n"), 0o755))
	}
	m.write("usr/share/coordd/coordd.conf", "id n1\n")
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) check(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *machine) write(name, text string) {
	m.Helper()
	m.check(os.WriteFile(m.path(name), []byte(text), 0o600))
}

// run runs a script as dpkg or rpm would.
func (m *machine) run(script string, args ...string) {
	m.Helper()
	text, err := os.ReadFile(script)
	m.check(err)
	here := strings.NewReplacer("/etc/", m.root+"/etc/", "/var/lib/", m.root+"/var/lib/",
		"/usr/share/", m.root+"/usr/share/", "/run/", m.root+"/run/").Replace(string(text))
	cmd := exec.Command("/bin/sh", append([]string{"-c", here, script}, args...)...)
	cmd.Env = []string{"PATH=" + m.path("bin") + ":/usr/bin:/bin", "ROOT=" + m.root}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		m.Errorf("%s %q: %v %s", script, args, err, out)
	}
}

// mode returns the mode of a file, empty if it is missing.
func (m *machine) mode(name string) string {
	info, err := os.Lstat(m.path(name))
	if err != nil {
		return ""
	}
	return info.Mode().String()
}

// TestScripts has each script run as the package managers do, after the first installation with
// links that the service's user has put into its directory.
func TestScripts(t *testing.T) {
	for kind, args := range map[string][]string{"to a file": {"configure", "0.1.0"},
		"to nothing": {"2"}} {
		m := newMachine(t)
		m.run("postinstall.sh", "configure", "")
		for name, want := range map[string]string{"etc/coordd": "drwxr-x---",
			"etc/coordd/coordd.conf": "-rw-r-----", "var/lib/coordd": "drwx------"} {
			if got := m.mode(name); got != want {
				t.Errorf("%s has mode %s, want %s", name, got, want)
			}
		}
		if kind == "to a file" {
			m.write("etc/shadow", "secret")
		}
		m.check(os.Remove(m.path("etc/coordd/coordd.conf")))
		m.check(os.Symlink("../shadow", m.path("etc/coordd/coordd.conf")))
		m.write("etc/coordd/key", "")
		m.check(os.RemoveAll(m.path("given")))
		was := m.mode("etc/shadow")
		m.run("postinstall.sh", args...)
		m.run("preremove.sh", "upgrade", "0.3.0")
		m.run("preremove.sh", "remove")
		m.run("postremove.sh", "remove")
		if got := m.mode("etc/coordd/coordd.conf"); !strings.HasPrefix(got, "L") {
			t.Errorf("coordd.conf has mode %q after the removal", got)
		}
		m.run("postremove.sh", "purge")
		if given, _ := os.ReadFile(m.path("given")); len(given) > 0 {
			t.Errorf("a link %s: given away:\n%s", kind, given)
		}
		if got := m.mode("etc/shadow"); got != was {
			t.Errorf("a link %s: its mode is %q, want %q", kind, got, was)
		}
		if m.mode("etc/coordd/coordd.conf") != "" || m.mode("etc/coordd/key") == "" {
			t.Error("a purge removes coordd.conf, and what is not of the package stays")
		}
		m.run("postremove.sh", "purge")
	}
}

// TestUnitStartsWhateverEnds: a Go program that panics, or that the watchdog ends by SIGABRT, exits
// with 2. So no exit status and no number of restarts may keep a node down.
func TestUnitStartsWhateverEnds(t *testing.T) {
	text, err := os.ReadFile("coordd.service")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			has[name] = value
		}
	}
	for name, want := range map[string]string{"Restart": "always", "StartLimitIntervalSec": "0",
		"RestartPreventExitStatus": "", "SuccessExitStatus": "", "StartLimitAction": ""} {
		if has[name] != want {
			t.Errorf("%s=%s, want %q", name, has[name], want)
		}
	}
}
