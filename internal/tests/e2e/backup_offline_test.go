// Backups of nodes that are stopped.

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/sample"
)

// TestBackupOfStoppedNode takes a backup from a data directory, which is the one that the node
// itself would have sent. While the node runs, and from what is no data directory, there is none.
func TestBackupOfStoppedNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "source")
	n, c := startSingle(t, dir)
	sample.Fill(t, c, "one")
	if err := c.Do(t.Context(), "RAFT", "SNAPSHOT").Err(); err != nil {
		t.Fatal(err)
	}
	sample.Fill(t, c, "two") // in the log alone
	online, offline := filepath.Join(t.TempDir(), "online"), filepath.Join(t.TempDir(), "offline")
	succeed(t, "backup", "--from", n.addr, online)
	if code, _, errs := command(t, "backup", "--data-dir", dir, offline); code != 1 ||
		!strings.Contains(errs, "is in use by another process") {
		t.Errorf("a node that runs: exit %d, %s", code, errs)
	}
	n.kill()
	if code, _, errs := command(t, "backup", "--data-dir", t.TempDir(), offline); code != 1 ||
		!strings.Contains(errs, "is not a data directory") {
		t.Errorf("an empty directory: exit %d, %s", code, errs)
	}
	if _, err := os.Stat(offline); !os.IsNotExist(err) {
		t.Errorf("a failed backup left a file: %v", err)
	}
	said := succeed(t, "backup", "--data-dir", dir, offline)
	want, got := readMachine(t, online), readMachine(t, offline)
	if got.Sum().Sum != want.Sum().Sum || got.Stats().Databases[0].Keys == 0 ||
		!strings.Contains(said, fmt.Sprintf("backup of %s with %d "+
			"keys", dir, got.Stats().Databases[0].Keys)) {
		t.Errorf("%s: %v, want %v", said, got.Sum(), want.Sum())
	}
	kept := t.TempDir()
	succeed(t, "backup", "--data-dir", dir, "--to", kept, "--keep", "1")
	if names, err := os.ReadDir(kept); err != nil || len(names) != 1 {
		t.Error(names, err)
	}
	startSingle(t, dir) // the directory is as it was
}
