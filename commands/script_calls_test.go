package commands

import "testing"

// However many commands scripts call, each has its counts, and none once they are forgotten.
func TestScriptCallsOfManyCommands(t *testing.T) {
	table, calls := NewTable(Specs()), &ScriptCalls{On: true}
	for round := range uint64(3) {
		for i := range uint64(3) {
			for _, spec := range table.catalog {
				calls.Ran(spec, i, i == 2)
				calls.Rejected(spec)
			}
		}
		if len(calls.Counts) != len(table.catalog) {
			t.Fatalf("round %d: %d commands", round, len(calls.Counts))
		}
		for i, n := range calls.Counts {
			if want := (ScriptCount{table.catalog[i], 3, 1, 3, 3}); n != want {
				t.Fatalf("round %d: %v, want %v", round, n, want)
			}
		}
		calls.Forget()
	}
}
