package detector

import "testing"

// Skip skips a test of much data that goroutines do not share, or of many clusters whose code other
// tests run too, if the race detector is on: it would take ten times as long to find nothing.
func Skip(t testing.TB) {
	t.Helper()
	if on {
		t.Skip("SKIPPED: much work: it runs without the race detector")
	}
}
