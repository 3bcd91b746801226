package commands

import (
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// However many conditions there are, they are no more work than a request may be.
func TestExecConditionsAreCharged(t *testing.T) {
	args := commandtest.Args("EXEC", "NX", "a", "IFNE", "b", "1", "NX", "c")
	for conditions := range 4 {
		x := &Call{Env: &Env{Keyspace: keyspace.New(), Level: FeatureLevel, Work: 7}, Tx: &Tx{},
			Args: args, Stop: 7 + uint64(conditions)*conditionWork}
		hold, err := x.ExecConditions()
		if want := conditions == 3; hold != want || (err == nil) != want {
			t.Errorf("room for %d conditions: %v, %v", conditions, hold, err)
		}
	}
}
