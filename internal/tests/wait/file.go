package wait

import (
	"io"
	"os"
	"strings"
	"testing"
)

// File keeps what a process writes. The process writes it itself: what it wrote before it answered
// somebody is there when the answer is, while a Buffer gets it through a pipe, later.
type File struct {
	*os.File
	t testing.TB
}

// NewFile returns an empty file without a name, which is gone with the test's process.
func NewFile(t testing.TB) *File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	return &File{f, t}
}

// String returns all that was written.
func (f *File) String() string {
	f.t.Helper()
	var b strings.Builder
	if _, err := io.Copy(&b, io.NewSectionReader(f.File, 0, 1<<62)); err != nil {
		f.t.Error(err)
	}
	return b.String()
}

// End returns the end of what was written, for a test that failed.
func (f *File) End() string {
	const most = 256 << 10
	text := f.String()
	if len(text) <= most {
		return text
	}
	return "…" + text[len(text)-most:]
}
