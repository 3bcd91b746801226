package seeds

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestSeeds(t *testing.T) {
	seed := func(name, value string) uint64 {
		t.Helper()
		seed, err := find(name, value)
		if err != nil {
			t.Fatal(err)
		}
		return seed
	}
	a, b := seed("TestA", ""), seed("TestB", "")
	if again := seed("TestA", ""); a != again || a == b {
		t.Errorf("a test's seeds %d and %d, another's %d", a, again, b)
	}
	if first, second := seed("TestA", Chance), seed("TestA", Chance); first == second {
		t.Error("chance gave one seed twice")
	}
	if seed("TestA", "17") != 17 {
		t.Error("the seed is not that of the environment")
	}
	if _, err := find("TestA", "often"); err == nil {
		t.Error("a seed that is no number was taken")
	}
	t.Setenv(Variable, "18")
	if Of(t) != 18 {
		t.Error("Of does not read the environment")
	}
}

func TestKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept")
	if kept := Kept(t, path); len(kept) != 0 {
		t.Errorf("of no file: %q", kept)
	}
	Keep(t, path, []string{"b", "a"})
	Keep(t, path, []string{"c", "a"})
	if kept := Kept(t, path); !slices.Equal(kept, []string{"a", "b", "c"}) {
		t.Errorf("kept %q", kept)
	}
}
