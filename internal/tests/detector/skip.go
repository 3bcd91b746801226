package detector

import "testing"

// Skip skips a test with one goroutine and much data, if the race detector is on: it would take
// ten times as long to find nothing.
func Skip(t testing.TB) {
	t.Helper()
	if on {
		t.Skip("SKIPPED: one goroutine, much data: it runs without the race detector")
	}
}
