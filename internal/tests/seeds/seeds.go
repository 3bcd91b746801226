package seeds

import (
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
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
