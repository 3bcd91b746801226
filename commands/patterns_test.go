package commands

import "testing"

func TestPatternLimit(t *testing.T) {
	if CheckPattern(make([]byte, maxPattern+1)) == nil ||
		CheckPattern(make([]byte, maxPattern)) != nil {
		t.Fatal("the limit is not where it is said to be")
	}
}
