package files

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestGiveToOwner writes as root into another user's directory.
func TestGiveToOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root writes into directories of others")
	}
	const owner = 12345
	outside, dir := filepath.Join(t.TempDir(), "outside"), t.TempDir()
	within := filepath.Join(dir, "new", "file")
	for _, err := range []error{
		os.Chown(dir, owner, owner),
		os.WriteFile(outside, nil, 0o600),
		os.Mkdir(filepath.Dir(within), 0o700),
		os.WriteFile(within, nil, 0o600),
		os.Symlink(filepath.Dir(outside), filepath.Join(dir, "link")),
		os.Link(outside, filepath.Join(dir, "hard")),
		os.WriteFile(filepath.Join(dir, "third"), nil, 0o600),
		os.Chown(filepath.Join(dir, "third"), 54321, 54321),
		GiveToOwner(dir),
		GiveToOwner(filepath.Dir(outside)), // root's own
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]uint32{dir: owner, filepath.Dir(within): owner,
		within: owner, filepath.Join(dir, "link"): owner, outside: 0,
		filepath.Join(dir, "third"): 54321} {
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to %d, want %d", name, got, want)
		}
	}
}
