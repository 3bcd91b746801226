package tier

import (
	"os"
	"testing"
)

// Variables of the environment.
const (
	checking = "COORDD_CHECK" // set by make check
	soaking  = "COORDD_SOAK"  // set by make soak, which sets both
)

// Check skips a test that is in make check alone.
func Check(t testing.TB) {
	t.Helper()
	if !Checking() {
		t.Skip("SKIPPED: make check runs it")
	}
}

// Checking reports whether this is make check, for a test that does more there.
func Checking() bool { return os.Getenv(checking) != "" }

// Soaking reports whether this is make soak, for a test that goes on by chance there.
func Soaking() bool { return os.Getenv(soaking) != "" }
