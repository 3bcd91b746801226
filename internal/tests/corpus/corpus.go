package corpus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Script is one script with its arguments for EVAL.
type Script struct {
	Source string
	Args   []string
}

// Read reads a file of testdata/scripts.
func Read(t testing.TB, path string) []Script {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []Script
	for line := range strings.Lines(string(b)) {
		if args, ok := strings.CutPrefix(line, "---- "); ok {
			list = append(list, Script{Args: strings.Fields(args)})
			continue
		}
		if len(list) == 0 {
			t.Fatalf("%s: it begins without a line ----", path)
		}
		list[len(list)-1].Source += line
	}
	for i := range list {
		list[i].Source = strings.TrimSuffix(list[i].Source, "\n")
	}
	return list
}

// Files returns the files of testdata/scripts. testdata is its path, relative to the test's
// directory.
func Files(t testing.TB, testdata string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testdata, "scripts", "*.lua"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	return files
}
