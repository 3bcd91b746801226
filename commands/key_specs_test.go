package commands_test

import (
	"slices"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/server"
)

// Routing, WATCH and the users' rights use the positions of KeyIndexes; COMMAND and what users may
// do with a key use KeyParts. Wherever a call has keys, both must name the same ones.
func TestKeyPartsAgreeWithKeyIndexes(t *testing.T) {
	const callsPerSpec = 300
	table := commands.NewTable(commands.Specs(), server.Specs())
	g := random.NewCalls(table, seeds.Of(t))
	for _, spec := range withSubcommands(table) {
		found := 0
		for range callsPerSpec {
			args := g.Call([]*commands.Spec{spec})
			if _, err := table.Resolve(args); err != nil {
				continue // the arity
			}
			indexes, err := spec.KeyIndexes(args)
			if err != nil {
				continue
			}
			found += len(indexes)
			checkParts(t, spec, args, indexes)
		}
		if hasKeys := len(spec.KeyParts()) > 0; hasKeys != (found > 0) {
			t.Errorf("%s: %d keys in %d calls", spec.FullName(), found, callsPerSpec)
		}
	}
}

// checkParts compares the positions of the parts with those of KeyIndexes, of which parts that are
// unknown may have any.
func checkParts(t *testing.T, spec *commands.Spec, args [][]byte, indexes []int) {
	t.Helper()
	var positions []int
	unknown := false
	for _, p := range spec.KeyParts() {
		positions = append(positions, p.Positions(args)...)
		unknown = unknown || p.Unknown
	}
	slices.Sort(positions)
	positions = slices.Compact(positions)
	sorted := slices.Sorted(slices.Values(indexes))
	extra := slices.ContainsFunc(positions, func(i int) bool {
		return !slices.Contains(sorted, i)
	})
	if extra || !unknown && len(positions) != len(sorted) {
		t.Errorf("%q: the parts give the keys %v, KeyIndexes %v", args, positions, sorted)
	}
}

// withSubcommands returns all specs that can be called.
func withSubcommands(table *commands.Table) (specs []*commands.Spec) {
	for _, s := range table.All() {
		if s.Subcommands == nil {
			specs = append(specs, s)
		}
		for i := range s.Subcommands {
			specs = append(specs, &s.Subcommands[i])
		}
	}
	return specs
}
