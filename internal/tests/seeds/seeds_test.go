package seeds

import "testing"

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
