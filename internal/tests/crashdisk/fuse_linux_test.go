package crashdisk

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mounted returns a disk, mounted at the directory that is returned too.
func mounted(t *testing.T) (*Disk, string) {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	d, dir := New(), t.TempDir()
	m, err := d.MountAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return d, dir
}

// inside returns a command that runs a script in the directory. The shell goes there itself: exec's
// Dir would, before the new program runs, while Go's scheduler may wait for it.
func inside(dir, script string) *exec.Cmd {
	return exec.Command("sh", "-c", `cd "$0" && `+script, dir)
}

// shell runs a script in the directory, in a process of its own, and returns its output.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := inside(dir, script).CombinedOutput()
	if err != nil {
		out = append(out, " "+err.Error()...)
	}
	return strings.TrimSpace(string(out))
}

// A process sees a file system, and the disk what it did.
func TestMount(t *testing.T) {
	d, dir := mounted(t)
	if got := shell(t, dir, `mkdir d && echo one >d/f && ln d/f g && echo two >>g && mv d/f d/h &&
		cat g d/h && stat -c %s,%h g && ls d && ! rmdir d 2>/dev/null && rm d/h && rmdir d &&
		truncate -s 2 g && chmod 640 g && stat -c %a,%h g && flock g cat g; sync g; rm g`); got !=
		"one\ntwo\none\ntwo\n8,2\nh\n640,1\non" {
		t.Error(got)
	}
	n, counts := d.Taken()
	if want := map[string]int{"mkdir": 1, "create": 1, "link": 1, "write": 2, "rename": 1,
		"unlink": 2, "rmdir": 1, "truncate": 1, "chmod": 1, "sync": 1}; n != 12 ||
		len(counts) != len(want) {
		t.Error(n, counts, d.Trace())
	}
	if got := tree(d); got != "" {
		t.Error(got)
	}
}

// Each write reaches the disk at once, and a mapped file shows it: bbolt's way.
func TestMountMapped(t *testing.T) {
	d, dir := mounted(t)
	script := `import mmap, os
f = os.open("f", os.O_CREAT | os.O_RDWR)
os.ftruncate(f, 16384)
m = mmap.mmap(f, 16384, mmap.MAP_SHARED, mmap.PROT_READ)
for i in range(50):
    os.pwrite(f, b"%05d" % i, 4096 + i)
    assert m[4096 + i:4101 + i] == b"%05d" % i
    os.fdatasync(f)
print("same")
`
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	if got := shell(t, dir, "python3 -c '"+script+"'"); got != "same" {
		t.Fatal(got)
	}
	if _, counts := d.Taken(); counts["write"] != 50 || counts["datasync"] != 50 {
		t.Error(counts)
	}
	if b, err := d.Survivor(Lost, nil).ReadFile("f"); err != syscall.ENOENT {
		t.Error("a file whose name is not durable:", len(b), err)
	}
}

// The power fails: who changes the disk stands still until it is killed, and the operation was not
// taken.
func TestMountCrash(t *testing.T) {
	d, dir := mounted(t)
	d.CrashAt(3)
	c := inside(dir, "echo one >f; echo two >>f; echo said")
	out := &strings.Builder{}
	c.Stdout = out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.Reached():
	case <-time.After(10 * time.Second):
		t.Error("the power did not fail")
	}
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	d.Release()
	if err := c.Wait(); err == nil || out.String() != "" {
		t.Error(err, out)
	}
	if d.Hit() != (Op{3, "write", "f"}) || tree(d.Survivor(Kept, nil)) != "f=one\n" {
		t.Error(d.Hit(), tree(d))
	}
	if got := shell(t, dir, "cat f; : >g"); !strings.Contains(got, "one") ||
		!strings.Contains(got, "Input/output error") {
		t.Error(got)
	}
}

// An error is returned once or from then on, and EMFILE where files are opened.
func TestMountErrors(t *testing.T) {
	d, dir := mounted(t)
	d.FailAt(2, syscall.ENOSPC, false)
	if got := shell(t, dir, "echo one >f; echo two >f; cat f"); !strings.Contains(got,
		"error") || !strings.HasSuffix(got, "two") || d.Hit() != (Op{2, "write", "f"}) {
		t.Error(got, d.Hit())
	}
	d.FailAt(1, syscall.EIO, true)
	if got := shell(t, dir, "echo one >g; mkdir d; ls"); strings.Count(got,
		"nput/output error") != 2 || !strings.HasSuffix(got, "f") {
		t.Error(got)
	}
	d.FailAt(1, syscall.EMFILE, false)
	if got := shell(t, dir, "cat f; cat f"); !strings.Contains(got, "Too many open files") ||
		!strings.HasSuffix(got, "two") || d.Hit() != (Op{1, "open", "f"}) {
		t.Error(got, d.Hit())
	}
	d.Go()
	if got := shell(t, dir, "echo three >f; cat f"); got != "three" {
		t.Error(got)
	}
}

func TestMountNeedsADirectory(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip("SKIPPED: ", err)
	}
	if _, err := New().MountAt(t.TempDir() + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
