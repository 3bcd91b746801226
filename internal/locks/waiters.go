// Who asked for a lock and was refused: clients that poll, and those that wait for a message and
// ask again.

package locks

import "github.com/cespare/xxhash/v2"

const (
	// maxWaiters bounds the waiters of all locks, maxLockWaiters those of one. Those beyond are
	// counted as refused, but not remembered. They take at most 2 MiB.
	maxWaiters     = 8192
	maxLockWaiters = 256
	// waiterGoneMs is when a waiter that has not asked again is forgotten.
	waiterGoneMs = 60_000
	// waiterSweepMs is how often those are looked for.
	waiterSweepMs = 5_000
)

// waiter is a client that was refused a lock, told by the owner that it wants to be.
type waiter struct {
	id            uint64 // hash of owner
	owner         string
	firstMs, seen int64
	tries         int
}

type waiters struct {
	byLock  map[uint64][]waiter
	n       int
	sweptMs int64
}

// refuse notes that a client was refused a lock.
func (w *waiters) refuse(lock uint64, owner []byte, nowMs int64) {
	id := xxhash.Sum64(owner)
	list := w.byLock[lock]
	for i := range list {
		if list[i].id == id {
			list[i].seen = max(list[i].seen, nowMs)
			list[i].tries++
			return
		}
	}
	if w.n >= maxWaiters || len(list) >= maxLockWaiters {
		return
	}
	if w.byLock == nil {
		w.byLock = map[uint64][]waiter{}
	}
	w.byLock[lock] = append(list, waiter{id: id, owner: string(owner[:min(len(owner), maxOwner)]),
		firstMs: nowMs, seen: nowMs, tries: 1})
	w.n++
}

// grant removes a waiter that got its lock. It returns how long that waited, false if it did not
// wait.
func (w *waiters) grant(lock uint64, owner []byte, nowMs int64) (ms int64, waited bool) {
	if w.n == 0 {
		return 0, false
	}
	list := w.byLock[lock]
	if len(list) == 0 {
		return 0, false
	}
	id := xxhash.Sum64(owner)
	for i := range list {
		if list[i].id != id {
			continue
		}
		ms = max(nowMs-list[i].firstMs, 0)
		w.set(lock, append(list[:i], list[i+1:]...))
		w.n--
		return ms, true
	}
	return 0, false
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
			if nowMs-one.seen < waiterGoneMs {
				kept = append(kept, one)
			}
		}
		w.n -= len(list) - len(kept)
		clear(list[len(kept):])
		w.set(lock, kept)
	}
}
