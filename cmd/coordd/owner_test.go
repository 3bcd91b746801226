package main

import (
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// owner is a user without an entry, to whom data directories belong.
const owner = 12345

// offlineArgs are arguments for each subcommand that works on the data directory DIR and changes
// something there, or looks at it.
var offlineArgs = map[string][]string{
	"restore": {"BACKUP", "--id", "n1", "--data-dir", "DIR"},
	"recover": {"--data-dir", "DIR", "--accept-lost-writes"}, "refetch": {"--data-dir", "DIR"},
	"reset-default-user": {"--data-dir", "DIR", "--password-file", "PASSWORD"},
	"backup":             {"--data-dir", "DIR", "OUT"},
	"backup --to":        {"--data-dir", "DIR", "--to", "TO"},
	"check-config":       {"--data-dir", "DIR", "--listen", "127.0.0.1:0"},
	// a node, with an address that no machine has
	"--id":   {"n1", "--data-dir", "DIR", "--http-listen", "192.0.2.1:1"},
	"doctor": {"--data-dir", "DIR", "--listen", "127.0.0.1:1", "--http-listen", ""},
}

// TestCommandOfOwner is the process that TestRootFollowsNobody and TestRootActsAsOwner start.
func TestCommandOfOwner(t *testing.T) {
	if args := os.Getenv("COORDD_TEST_COMMAND"); args != "" {
		os.Exit(run(t.Context(), strings.Split(args, "\n"), func(string) string { return "" },
			os.Stdout, os.Stderr))
	}
}

// offline is a directory with what commands need, in which root runs them.
type offline struct {
	*testing.T
	dir string
}

func newOffline(t *testing.T) *offline {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root acts as others")
	}
	o := &offline{t, t.TempDir()}
	o.check(os.Chmod(filepath.Dir(o.dir), 0o755)) // others get there
	o.check(os.WriteFile(o.path("PASSWORD"), []byte("secret"), 0o600))
	backup, err := os.ReadFile("../../testdata/golden/snapshot-v1.bin")
	o.check(err)
	o.check(os.WriteFile(o.path("BACKUP"), backup, 0o600))
	return o
}

func (o *offline) path(name string) string { return filepath.Join(o.dir, name) }

func (o *offline) check(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

// make makes a directory of the owner, in which links lead to names of root's that nothing has.
func (o *offline) make(name string, links ...string) (dir string) {
	o.Helper()
	dir = o.path(name)
	o.check(os.MkdirAll(dir, 0o700))
	o.check(os.MkdirAll(o.path("etc"), 0o755))
	for _, link := range links {
		o.check(os.Symlink(o.path("etc/"+link), filepath.Join(dir, link)))
		o.check(os.Lchown(filepath.Join(dir, link), owner, owner))
	}
	o.check(os.Chown(dir, owner, owner))
	return dir
}

// version makes a directory one of release 0.1.
func (o *offline) version(dir string) {
	o.Helper()
	text := "coordd data directory\nformat: 1\nnode: n1\nlog-store: wal\n"
	sum := crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))
	path := filepath.Join(dir, "VERSION")
	o.check(os.WriteFile(path, fmt.Appendf(nil, "%schecksum: %08x\n", text, sum), 0o600))
	o.check(os.Chown(path, owner, owner))
}

// run runs a subcommand as root in a process of its own.
func (o *offline) run(name, dir string) (ok bool, said string) {
	places := strings.NewReplacer("DIR", dir, "BACKUP", o.path("BACKUP"), "PASSWORD",
		o.path("PASSWORD"), "OUT", o.path("OUT"), "TO", o.path("backups"))
	args := places.Replace(strings.Join(offlineArgs[name], "\n"))
	cmd := exec.CommandContext(o.Context(), os.Args[0], "-test.run", "^TestCommandOfOwner$")
	name, _, _ = strings.Cut(name, " ")
	cmd.Env = append(os.Environ(), "COORDD_TEST_COMMAND="+name+"\n"+args)
	out, err := cmd.CombinedOutput()
	o.Logf("%s: %v %s", name, err, out)
	return err == nil, string(out)
}

// files lists what is below a directory, and whose it is.
func (o *offline) files(dir string) (all []string) {
	o.check(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil {
			is := info.Sys().(*syscall.Stat_t)
			all = append(all, fmt.Sprint(path, " ", is.Uid, ":", is.Gid, " ", info.Mode()))
		}
		return err
	}))
	return all
}

// TestRootFollowsNobody has root run each command on the home of somebody, and on a directory in
// which a user has made links of the names that a node has there.
func TestRootFollowsNobody(t *testing.T) {
	for _, cmd := range newRoot(console{}).Commands() {
		if cmd.Flag("data-dir") != nil && offlineArgs[cmd.Name()] == nil && cmd.Name() != "health" {
			t.Error("no arguments for", cmd.Name())
		}
	}
	for name := range offlineArgs {
		o := newOffline(t)
		home := o.make("alice")
		o.check(os.WriteFile(filepath.Join(home, "authorized_keys"), []byte("root's"), 0o600))
		locked, data := o.make("locked", "LOCK"), o.make("data", "raft.db", "promises", "durable",
			"snapshots", "wal", "reset-default-user")
		if name != "restore" { // which takes a directory with a lock
			o.version(locked)
			o.version(data)
		}
		was := strings.Join(append(o.files(home), o.files(o.path("etc"))...), "\n")
		for _, dir := range []string{home, locked, data} {
			o.run(name, dir)
		}
		is := strings.Join(append(o.files(home), o.files(o.path("etc"))...), "\n")
		if is != was {
			t.Errorf("%s as root made\n%s\nof\n%s", name, is, was)
		}
	}
}

// TestRootRunsNoNodeOfOthers: whoever types the command of the service as root, to see why that
// does not start, leaves nothing that it cannot read.
func TestRootRunsNoNodeOfOthers(t *testing.T) {
	o := newOffline(t)
	begun, roots := o.path("roots"), o.make("of-root")
	o.check(os.Mkdir(begun, 0o700))
	o.version(begun)
	o.version(roots)
	o.check(os.Chown(filepath.Join(roots, "VERSION"), 0, 0))
	refused := "sudo -u '#12345' coordd"
	for dir, says := range map[string]string{o.make("data"): refused, begun: refused,
		roots: "cannot listen", o.path("new"): "cannot listen"} {
		if ok, said := o.run("--id", dir); ok || !strings.Contains(said, says) {
			t.Errorf("%s: %s, want %q", dir, said, says)
		}
	}
}

// TestRootActsAsOwner: what root's commands write is the node's to read.
func TestRootActsAsOwner(t *testing.T) {
	o := newOffline(t)
	within := o.make("of-owner")
	for _, dir := range []string{o.make("data"), filepath.Join(within, "missing")} {
		for _, name := range []string{"restore", "reset-default-user", "recover"} {
			if ok, said := o.run(name, dir); !ok || !strings.Contains(said, "as its owner, user") {
				t.Errorf("%s: %s", name, said)
			}
		}
		files := o.files(dir)
		for _, file := range files {
			if !strings.Contains(file, fmt.Sprintf(" %d:%[1]d ", owner)) {
				t.Error(file)
			}
		}
		if len(files) < 10 {
			t.Error(files)
		}
	}
	backups := o.make("backups")
	for range 2 {
		if ok, said := o.run("backup --to", o.path("data")); !ok {
			t.Error(said)
		}
	}
	files := o.files(backups)
	if len(files) != 3 || !strings.Contains(files[2], fmt.Sprintf(" %d:%[1]d ", owner)) {
		t.Error(files)
	}
	own := o.path("roots")
	if ok, said := o.run("restore", own); !ok || strings.Contains(said, "owner") {
		t.Error(said)
	}
	for mode, says := range map[os.FileMode]string{0o770: "others may write", 0o750: "not empty"} {
		o.check(os.Chown(own, 0, owner))
		o.check(os.Chmod(own, mode))
		if ok, said := o.run("restore", own); ok || !strings.Contains(said, says) {
			t.Errorf("mode %o: %s", mode, said)
		}
	}
	o.check(os.Chmod(o.dir, 0o700))
	if ok, said := o.run("recover", o.path("data")); ok || !strings.Contains(said, "cannot reach") {
		t.Error(said)
	}
}
