package fsm

import (
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/invariant"
)

// Tests of the machine alone have a clock that falls.
func init() {
	invariant.Ends = func(name string) bool { return name != clockNeverFalls.Name }
}

// breaks reports whether act breaks a rule, which ends it in tests.
func breaks(r *invariant.Rule, act func()) (broken bool) {
	defer func() { broken = recover() == r.Name+" does not hold" }()
	act()
	return false
}

func TestInvariantsCanFail(t *testing.T) {
	m := newestMachine(testTable())
	at := func(index uint64, clockMs int64) {
		if _, err := m.Apply(index, &Entry{ClockMs: clockMs}, false); err != nil {
			t.Fatal(err)
		}
	}
	at(1, 1000)
	at(2, 1000)
	before := clockNeverFalls.Times()
	at(3, 999)
	if clockNeverFalls.Times() != before+1 || m.ClockMs() != 1000 {
		t.Errorf("an earlier stamp is not seen: %d ms", m.ClockMs())
	}
	m.positions.next = 1
	m.ks.SetRevision(keyspace.NewRevision(m.epoch, m.index, 1))
	if !breaks(revisionsRise, func() { m.nextPosition(&commands.Env{}) }) {
		t.Error("two requests with one revision are not seen")
	}
}
