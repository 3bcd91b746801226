// Tests of the gate, and of what bypasses it.

package fair

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

func TestFairGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Gate
		never := make(chan struct{})
		first := s.Acquire(Flow{ID: 1}, time.Hour, never)
		var order []uint64
		var mu sync.Mutex
		var wg sync.WaitGroup
		enter := func(id uint64, at int) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				w := s.Acquire(Flow{ID: id}, time.Hour, never)
				mu.Lock()
				order = append(order, id)
				mu.Unlock()
				s.Release(w, 1000)
			}()
			wait.For(t, 20*time.Second, "the next waits", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.waiting) == at
			})
		}
		s.fair.Charge(Place{Flow: Flow{ID: 2}}, 500) // it has had more than the others
		enter(2, 1)
		enter(3, 2)
		enter(4, 3)
		if w := s.Acquire(Flow{ID: 5}, time.Nanosecond, never); w != nil {
			t.Error("two are let in")
		}
		stop := make(chan struct{})
		close(stop)
		if w := s.Acquire(Flow{ID: 5}, time.Hour, stop); w != nil {
			t.Error("one is let in that is to stop")
		}
		s.Release(first, 0)
		wg.Wait()
		if fmt.Sprint(order) != "[3 4 2]" {
			t.Errorf("order %v", order)
		}
		if s.busy || len(s.waiting) != 0 {
			t.Error("it is still busy")
		}
	})
}

// Who opens a connection for each piece of work does not keep the gate from one that stays.
func TestFairGateOfReconnectingFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Gate
		never := make(chan struct{})
		served := make(chan *Ticket)
		enter := func(id uint64, waiting int) {
			go func() { served <- s.Acquire(Flow{ID: id}, time.Hour, never) }()
			wait.For(t, 20*time.Second, "the next waits", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.waiting) == waiting
			})
		}
		s.Release(s.Acquire(Flow{ID: 1}, time.Hour, never), 1000)
		holder := s.Acquire(Flow{ID: 2}, time.Hour, never)
		enter(1, 1)
		turns := 0
		for ; holder.Flow.ID != 1 && turns < 100; turns++ {
			enter(uint64(3+turns), 2)
			s.Release(holder, 1000)
			holder = <-served
		}
		if turns > 3 {
			t.Errorf("the one that stays waited for %d turns", turns)
		}
		s.Release(holder, 0)
		s.Release(<-served, 0)
	})
}

// Small work bypasses the gate until it adds up to much.
func TestExemptWorkIsBounded(t *testing.T) {
	var s Gate
	done := uint64(0)
	for range 1000 {
		if !s.exempt(20_000) { // half a millisecond
			break
		}
		s.SettleExempt(Flow{ID: 1}, 20_000, 20_000)
		done += 20_000
	}
	if took := time.Duration(done) * workUnitTime; took > 2*exemptBurst {
		t.Errorf("%v of work took no turn", took)
	}
	var atOnce Gate
	exempt := 0
	for ; exempt < 1000 && atOnce.exempt(100_000); exempt++ {
	}
	if took := time.Duration(exempt*100_000) * workUnitTime; took > 2*exemptBurst {
		t.Errorf("%v of work that has not ended takes no turn", took)
	}
	if !s.exempt(exemptWork-1) || s.exempt(HeavyWork) {
		t.Error("what is tiny is always free, what is heavy never")
	}
}
