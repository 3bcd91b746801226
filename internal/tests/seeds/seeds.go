package seeds

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// Variable names the environment variable with the seed of all random tests.
	Variable = "COORDD_TEST_SEED"
	// Chance is its value for a new seed in each test.
	Chance = "random"
)

// Of returns the seed of a random test, and logs it: that of the environment, or one that depends
// only on the test's name.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed, err := find(t.Name(), os.Getenv(Variable))
	if err != nil {
		t.Fatalf("%s: %v", Variable, err)
	}
	t.Logf("%s=%d repeats this test", Variable, seed)
	return seed
}

func find(name, value string) (uint64, error) {
	switch value {
	case "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return h.Sum64(), nil
	case Chance:
		return rand.Uint64(), nil
	}
	return strconv.ParseUint(value, 10, 64)
}

// Kept returns the inputs that searches have kept in a file, one a line.
func Kept(t testing.TB, path string) (inputs []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		inputs = append(inputs, strings.TrimSuffix(line, "\n"))
	}
	return inputs
}

// Keep adds inputs to a file.
func Keep(t testing.TB, path string, inputs []string) {
	t.Helper()
	all := append(Kept(t, path), inputs...)
	slices.Sort(all)
	text := strings.Join(append(slices.Compact(all), ""), "\n")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
