package commands

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coordd/coordd/commands/keyspace"
)

// Of any number of pending entries, those are kept that were delivered first.
func TestOldestPendingAreKept(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n, most := rnd.IntN(2000), 1+rnd.IntN(400)
		all := make([]keyspace.Pending, n)
		o := oldest{most: most}
		for i := range all {
			all[i] = keyspace.Pending{ID: keyspace.StreamID{Ms: uint64(i)},
				DeliveredMs: rnd.Int64N(1 + int64(n)/3)}
			o.add(all[i])
			if len(o.kept) > 3*most+300 {
				t.Fatalf("it keeps %d for %d", len(o.kept), most)
			}
		}
		slices.SortFunc(all, deliveredLater)
		if got, want := o.sorted(), all[:min(n, most)]; !slices.Equal(got, want) {
			t.Fatalf("%d of %d differ", most, n)
		}
	}
}
