package models

import (
	"testing"

	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/tier"
)

// In all states within the bounds no term has two leaders, and no leader that lives is deposed
// without a reason.
func TestElectionsDeposeNobody(t *testing.T) {
	detector.Skip(t)
	bounds := []ElectionBounds{
		{Terms: 4, Entries: 2, Cold: true},
		{Terms: 5, Entries: 2, Crashes: 1, Handovers: 2},
		{Terms: 5, Entries: 3, Crashes: 1, Firewalls: 1},
		{Terms: 4, Entries: 2, Crashes: 1, Restarts: 1},
	}
	if tier.Checking() {
		bounds = append(bounds,
			ElectionBounds{Terms: 4, Entries: 3, Crashes: 1, Cold: true},
			ElectionBounds{Terms: 5, Entries: 3, Crashes: 1, Firewalls: 1, Handovers: 1},
			ElectionBounds{Terms: 4, Entries: 2, Crashes: 1, Restarts: 1, Firewalls: 1},
			ElectionBounds{Terms: 4, Entries: 1, Crashes: 1, Restarts: 1, Handovers: 1})
	}
	for _, b := range bounds {
		states, v := CheckElections(b)
		if v != nil {
			t.Errorf("%+v: %v", b, v)
		}
		t.Logf("%+v: %d states", b, states)
	}
}

// Without any of the rules, a state breaks a promise.
func TestRulesOfElectionsAreNeeded(t *testing.T) {
	detector.Skip(t)
	cold := ElectionBounds{Terms: 4, Entries: 2, Cold: true}
	hot := ElectionBounds{Terms: 5, Entries: 3, Crashes: 1, Firewalls: 1, Handovers: 1}
	for r, b := range map[Rule]ElectionBounds{
		MajorityHasNoLeader: hot,
		InTheSameTerm:       hot,
		StandsForOneTerm:    cold,
		OnlyItsLeaderAsks:   hot,
		OneAfterTheOther:    cold,
		VotesOnce:           cold,
	} {
		b.Without = r
		if states, v := CheckElections(b); v == nil {
			t.Errorf("nothing is wrong in %d states without: %s", states, r)
		}
	}
}
