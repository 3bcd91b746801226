package files

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// A path may lead to anything: nothing is waited for, or read without end.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	path, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(path, []byte("1234"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path  string
		limit int64
		says  string
	}{{path, 4, ""}, {path, 3, "larger than 3 bytes"}, {pipe, 9, "nobody writes to it"},
		{"/dev/zero", 1 << 20, "larger than"}, {"/dev/null", 9, "nobody writes to it"},
		{dir, 9, "is a directory"}, {filepath.Join(dir, "none"), 9, "no such file"}} {
		got, err := Read(test.path, test.limit)
		if test.says == "" && (err != nil || string(got) != "1234") ||
			test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %q %v, want %q", test.path, got, err, test.says)
		}
	}
	w, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("1234"); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(pipe, 3); err == nil {
		t.Errorf("%q", got)
	}
}
