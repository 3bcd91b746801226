// The gate to this node's processors for heavy work, and what bypasses it.

package fair

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// Gate lets one piece of heavy work at a time onto this node's processors, besides the work of
// the log.
type Gate struct {
	mu          lockorder.Mutex
	fair        Queue
	busy        bool
	waiting     []*Ticket
	arrived     uint64    // tickets so far
	exemptUntil time.Time // until when the budget for exempt work is spent

	exempted atomic.Int32 // pieces of work that bypass the gate now and cannot be aborted
}

// Ticket is one piece of work that has or waits for the gate.
type Ticket struct {
	Place
	ready chan struct{} // closed when it is served
}

// Acquire waits for the gate on behalf of a flow. It returns nil if the limit or stop comes first.
func (t *Gate) Acquire(f Flow, limit time.Duration, stop <-chan struct{}) *Ticket {
	t.mu.Lock()
	t.arrived++
	w := &Ticket{t.fair.Place(f, t.arrived), make(chan struct{})}
	if !t.busy {
		t.busy = true
		NextTurn(&t.fair, []*Ticket{w})
		t.mu.Unlock()
		return w
	}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.ready:
		return w
	case <-timer.C:
	case <-stop:
	}
	t.mu.Lock()
	at := slices.Index(t.waiting, w)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // it was just served
		t.Release(w, 0)
	}
	return nil
}

// Release frees the gate after units of work, and serves the next ticket.
func (t *Gate) Release(w *Ticket, units uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fair.Charge(w.Place, units)
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	next := NextTurn(&t.fair, t.waiting)
	w = t.waiting[next]
	t.waiting = slices.Delete(t.waiting, next, next+1)
	close(w.ready)
}

// Exempt work bypasses the gate: tiny work always, small work as long as all of it together takes a
// tenth of a processor. Whether work is tiny or small is a prediction, so what bypasses the gate is
// bounded besides: reads by their work, other work by how much of it runs at once.
const (
	exemptWork   = 512
	exemptShare  = 10                                       // one part in so many
	exemptBurst  = 10 * time.Millisecond                    // budget that may be saved up
	exemptWindow = time.Duration(exemptShare) * exemptBurst // the time that earns exemptBurst

	// exemptBytes is how long a batch may be: it is decoded before its work is counted.
	exemptBytes = 16 << 10
	// maxExempt is how many pieces of work that nothing can abort.
	maxExempt = 4
)

// Enter is ExemptRead for work that nothing can abort: only so much of it runs at once, each until
// Leave.
func (t *Gate) Enter(units uint64) bool {
	if t.exempted.Add(1) <= maxExempt && t.exempt(units) {
		return true
	}
	t.Leave()
	return false
}

// Leave ends what Enter let in.
func (t *Gate) Leave() { t.exempted.Add(-1) }

// ExemptRead reports whether a batch of reads of this predicted cost and of so many bytes may
// bypass the gate. If so, it is billed, and may do most units: it is aborted then.
func (t *Gate) ExemptRead(predicted uint64, bytes int) (most uint64, ok bool) {
	if bytes > exemptBytes || !t.exempt(predicted) {
		return 0, false
	}
	return 2 * max(predicted, exemptWork), true
}

// exempt reports whether work of this predicted cost may bypass the gate. If so, it is billed.
func (t *Gate) exempt(units uint64) bool {
	switch {
	case units >= HeavyWork:
		return false
	case units < exemptWork:
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.exemptUntil.Before(time.Now()) {
		return false
	}
	t.billLocked(int64(units))
	return true
}

// billLocked takes units from the budget for exempt work, or gives them back.
func (t *Gate) billLocked(units int64) {
	if least := time.Now().Add(-exemptWindow); t.exemptUntil.Before(least) {
		t.exemptUntil = least
	}
	t.exemptUntil = t.exemptUntil.Add(time.Duration(units) * workUnitTime * exemptShare)
}

// SettleExempt corrects the bill of work that bypassed the gate.
func (t *Gate) SettleExempt(f Flow, predicted, units uint64) {
	if max(predicted, units) < exemptWork {
		return
	}
	if predicted < exemptWork {
		predicted = 0 // it was not billed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.billLocked(int64(units) - int64(predicted))
	if units >= HeavyWork {
		t.fair.Charge(t.fair.Place(f, 0), units)
	}
}
