package models

import (
	"testing"

	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/tier"
)

// In all states within the bounds nothing that was acknowledged is lost, no two members apply
// different entries, and no read returns less than was acknowledged before it.
func TestDeferredDiskAndReads(t *testing.T) {
	detector.Skip(t)
	bounds := []Bounds{
		{Terms: 2, Entries: 3, Crashes: 1},
		{Terms: 2, Entries: 2, Crashes: 1, Reads: 1},
	}
	if tier.Checking() {
		bounds = append(bounds, Bounds{Terms: 3, Entries: 3, Crashes: 1},
			Bounds{Terms: 3, Entries: 3, Reads: 1})
	}
	for _, b := range bounds {
		states, v := Check(b)
		if v != nil {
			t.Errorf("%+v: %v", b, v)
		}
		t.Logf("%+v: %d states", b, states)
	}
}

// Without any of the rules, a state breaks a promise.
func TestRulesAreNeeded(t *testing.T) {
	detector.Skip(t)
	crash := Bounds{Terms: 2, Entries: 3, Crashes: 1}
	for r, b := range map[Rule]Bounds{
		AppliesWhatIsDurable:  crash,
		TellsWhatIsDurable:    crash,
		FollowersWriteFirst:   crash,
		TermBeforeVote:        {Terms: 2, Entries: 2},
		ReadsAfterBarrier:     {Terms: 2, Entries: 2, Reads: 1},
		AnswersToThisQuestion: {Terms: 2, Entries: 2, Reads: 2},
		AsksAMajority:         {Terms: 2, Entries: 2, Reads: 1},
	} {
		b.Without = r
		states, v := Check(b)
		if v == nil {
			t.Errorf("nothing is wrong in %d states without: %s", states, r)
			continue
		}
	}
}

// Numbered in each order, the members reach as many states as when the order does not matter.
func TestOrderOfMembersDoesNotMatter(t *testing.T) {
	detector.Skip(t)
	b := Bounds{Terms: 2, Entries: 2, Crashes: 1}
	least := map[key]struct{}{}
	numbered, v := Explore(newCluster(), func(c *cluster) key {
		least[c.key()] = struct{}{}
		return c.keyOf(orders[0])
	}, b.steps)
	states, _ := Check(b)
	if v != nil || len(least) != states || numbered <= states {
		t.Errorf("%d states, %d of them apart from the order, but %d are visited: %v", numbered,
			len(least), states, v)
	}
}
