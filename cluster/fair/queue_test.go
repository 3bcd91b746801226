// Tests of turns.

package fair

import (
	"slices"
	"testing"
)

// A flow that takes one turn and never returns is forgotten eventually; one that waits is passed by
// one newcomer at most.
func TestFlowsAreBounded(t *testing.T) {
	var q Queue
	came := uint64(0)
	var waiting []*Place
	comes := func(id uint64) {
		came++
		p := q.Place(Flow{ID: id}, came)
		waiting = append(waiting, &p)
	}
	serve := func() Flow {
		at := NextTurn(&q, waiting)
		p := waiting[at]
		waiting = slices.Delete(waiting, at, at+1)
		q.Charge(*p, 10_000_000)
		return p.Flow
	}
	comes(1)
	serve()
	comes(1)
	served := -1
	for turn := range 3 * maxFlows {
		comes(uint64(turn + 2))
		if serve().ID == 1 {
			served = turn
		}
		if len(q.finishTags) > maxFlows {
			t.Fatalf("%d flows are remembered", len(q.finishTags))
		}
	}
	if served < 0 || served > 2 { // the first newcomer came in the same turn
		t.Errorf("the one that waits was served in turn %d", served)
	}
}
