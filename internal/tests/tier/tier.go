package tier

import (
	"os"
	"testing"
)

// variable is set by make check.
const variable = "COORDD_CHECK"

// Check skips a test that is in make check alone.
func Check(t testing.TB) {
	t.Helper()
	if !Checking() {
		t.Skip("SKIPPED: make check runs it")
	}
}

// Checking reports whether this is make check, for a test that does more there.
func Checking() bool { return os.Getenv(variable) != "" }
