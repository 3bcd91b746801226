package files

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if got, err := os.ReadFile(path); string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
	if err := Remove(path); err != nil {
		t.Fatal(err)
	}
	expectEmpty(t, dir)
}

// What cannot be replaced stays as it is, and nothing is left beside it.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "directory")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("new")); err == nil {
		t.Error("a directory was replaced")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expectEmpty(t, dir)
	if err := Replace(filepath.Join(dir, "absent", "file"), nil); err == nil {
		t.Error("a file without a directory was written")
	}
}

func expectEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
}
