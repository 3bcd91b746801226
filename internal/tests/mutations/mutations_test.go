package mutations

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// Every class has a mutation, and each of them applies to the sources: whoever changes what a patch
// changes also changes the patch.
func TestMutationsApply(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	list := load(t)
	has := map[string]bool{}
	for _, m := range list {
		has[m.Class] = true
		patch, err := filepath.Abs(m.Path)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("git", "apply", "--check", patch)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s.patch no longer applies, refresh it: %v\n%s", m.Name, err, out)
		}
	}
	for _, class := range Classes {
		if !has[class] {
			t.Errorf("no mutation of the class %q", class)
		}
	}
}

// The tests that find the mutations exist.
func TestMutationsNameTests(t *testing.T) {
	for _, m := range load(t) {
		names := regexp.MustCompile(`Test\w+`).FindAllString(m.Find.Run, -1)
		if len(names) == 0 {
			t.Errorf("%s.patch: -run %s names no test", m.Name, m.Find.Run)
		}
		declared := testsOf(t, m.Find.Package)
		for _, name := range names {
			if !strings.Contains(declared, "\nfunc "+name+"(") {
				t.Errorf("%s.patch: %s has no %s", m.Name, m.Find.Package, name)
			}
		}
	}
}

// The table of docs/testing.md has one row for each mutation.
func TestTableNamesMutations(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, Doc))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Rows(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range load(t) {
		if rows[m.Name] == "" {
			t.Errorf("%s has no row for %s: make mutations writes it", Doc, m.Name)
		}
		delete(rows, m.Name)
	}
	for name := range rows {
		t.Errorf("%s has a row for %s, of which there is no patch", Doc, name)
	}
}

func TestHeadsAreChecked(t *testing.T) {
	for _, c := range []struct{ name, head string }{
		{"no sentence", "class: barrier skipped\nfind: go test ./x -run TestX -count 1"},
		{"unknown class", "Reads lie.\nclass: other\nfind: go test ./x -run TestX -count 1"},
		{"no command", "Reads lie.\nclass: barrier skipped"},
		{"other command", "Reads lie.\nclass: barrier skipped\nfind: make test"},
	} {
		path := filepath.Join(t.TempDir(), "m.patch")
		if err := os.WriteFile(path, []byte(c.head+"\ndiff --git a/x b/x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := read(path); err == nil {
			t.Errorf("a head with %s is accepted", c.name)
		}
	}
}

func load(t *testing.T) []Mutation {
	t.Helper()
	list, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("there are no patches")
	}
	return list
}

// testsOf returns the text of a package's tests.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
