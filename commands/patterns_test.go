package commands

import (
	"testing"

	"github.com/coordd/coordd/commands/glob"
)

func TestPatternLimit(t *testing.T) {
	if CheckPattern(make([]byte, glob.MaxPattern+1)) == nil ||
		CheckPattern(make([]byte, glob.MaxPattern)) != nil {
		t.Fatal("the limit is not where it is said to be")
	}
}
