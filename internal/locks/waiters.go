// Who asked for a lock and was refused: clients that poll, and those that wait for a message and
// ask again.

package locks

import (
	"slices"

	"github.com/coordd/coordd/commands"
)

const (
	// maxWaiters bounds the waiters of all locks, maxLockWaiters those of one. Those beyond are
	// counted as refused, but not remembered. They take at most 2 MiB.
	maxWaiters     = 8192
	maxLockWaiters = 256
	// shownMs is how long a waiter that has not asked again is shown. One that has learned when the
	// lease ends, and so may wait for a message, has until then, at most patienceMs more.
	shownMs    = 10_000
	patienceMs = 3_600_000
	// keptMs is how much later it is forgotten.
	keptMs = 50_000
	// waiterSweepMs is how often those are looked for.
	waiterSweepMs = 5_000
)

// waiter is a client that was refused a lock, told by the owner that it wants to be.
type waiter struct {
	id            uint64 // hash of owner
	owner         string // empty: it did not say
	firstMs, seen int64
	untilMs       int64 // until then it is shown
	tries         int
}

type waiters struct {
	byLock  map[uint64][]waiter
	n       int
	sweptMs int64
}

// refuse notes that a client was refused a lock. id is the hash of its name.
func (w *waiters) refuse(lock, id uint64, f *commands.Fact, nowMs int64) {
	untilMs := nowMs + shownMs
	if f.Patient {
		untilMs += min(max(f.DeadlineMs-nowMs, 0), patienceMs)
	}
	list := w.byLock[lock]
	for i := range list {
		if one := &list[i]; one.id == id {
			if one.untilMs+keptMs < nowMs { // it had given up
				one.firstMs, one.tries = nowMs, 0
			}
			one.seen, one.untilMs = max(one.seen, nowMs), max(one.untilMs, untilMs)
			one.tries++
			return
		}
	}
	if w.n >= maxWaiters || len(list) >= maxLockWaiters {
		return
	}
	if w.byLock == nil {
		w.byLock = map[uint64][]waiter{}
	}
	w.byLock[lock] = append(list, waiter{id: id,
		owner: string(f.Owner[:min(len(f.Owner), maxOwner)]), firstMs: nowMs, seen: nowMs,
		untilMs: untilMs, tries: 1})
	w.n++
}

// grant removes a waiter that got its lock. It returns how long that waited, false if it did not
// wait. Those that did not say who they are may include it: they are forgotten until they ask
// again.
func (w *waiters) grant(lock, id uint64, nowMs int64) (ms int64, waited bool) {
	list := w.byLock[lock]
	for i := len(list) - 1; i >= 0; i-- {
		one := list[i]
		if one.id == id && nowMs <= one.untilMs+keptMs {
			ms, waited = max(nowMs-one.firstMs, 0), one.owner != ""
		}
		if one.id == id || one.owner == "" {
			list = slices.Delete(list, i, i+1)
			w.n--
			w.set(lock, list)
		}
	}
	return ms, waited
}

func (w *waiters) set(lock uint64, list []waiter) {
	if len(list) == 0 {
		delete(w.byLock, lock)
		return
	}
	w.byLock[lock] = list
}

// sweep forgets the waiters that have not asked for long.
func (w *waiters) sweep(nowMs int64) {
	if w.n == 0 || nowMs-w.sweptMs < waiterSweepMs {
		return
	}
	w.sweptMs = nowMs
	for lock, list := range w.byLock {
		kept := list[:0]
		for _, one := range list {
			if nowMs < one.untilMs+keptMs {
				kept = append(kept, one)
			}
		}
		w.n -= len(list) - len(kept)
		clear(list[len(kept):])
		w.set(lock, kept)
	}
}
