// What commands show of the observer: it implements commands.Known.

package locks

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// maxShown bounds the waiters of a lock that are shown, the first ones.
const maxShown = 64

// Lock implements commands.Known.
func (o *Observer) Lock(db int, key []byte, token keyspace.Revision,
	clockMs int64) commands.KnownLock {
	o.mu.Lock()
	defer o.mu.Unlock()
	lock := o.lockID(db, key)
	k := commands.KnownLock{HeldMs: -1}
	if since, ok := o.times.clock(token); ok {
		k.HeldMs = max(clockMs-since, 0)
	}
	for _, w := range o.waiters.byLock[lock] {
		if clockMs < w.untilMs && len(k.Waiters) < maxShown {
			k.Waiters = append(k.Waiters, commands.LockWaiter{Owner: w.owner,
				WaitsMs: max(clockMs-w.firstMs, 0), SeenMs: max(clockMs-w.seen, 0),
				Attempts: int64(w.tries)})
		}
	}
	o.history.of(lock, func(p *past) bool {
		h := commands.LockHolder{Owner: string(p.name()), Token: p.token, End: p.end.String(),
			HeldMs: -1, AgoMs: max(clockMs-p.untilMs, 0)}
		if p.sinceMs >= 0 {
			h.HeldMs = max(p.untilMs-p.sinceMs, 0)
		}
		k.Past = append(k.Past, h)
		return true
	})
	return k
}

// Semaphore implements commands.Known.
func (o *Observer) Semaphore(db int, key []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isSemaphore(o.lockID(db, key))
}

// countNames are the names of the counts of a label.
var countNames = []string{"granted", "refused", "released", "expired", "renewed", "renewed-late",
	"missed", "taken-over", "held-ms", "waited", "waited-ms", "windows-allowed", "windows-denied",
	"windows-counted"}

// Counts implements commands.Known.
func (o *Observer) Counts() []commands.LabelCounts {
	var all []commands.LabelCounts
	for _, s := range o.Snapshot() {
		all = append(all, commands.LabelCounts{Label: s.Label, Names: countNames,
			Counts: []uint64{s.Granted, s.Refused, s.Released, s.Expired, s.Renewed, s.RenewedLate,
				s.Missed, s.TakenOver, uint64(s.Held.Sum * 1000), s.Waited.Count,
				uint64(s.Waited.Sum * 1000), s.Allowed, s.Denied, s.Counted}})
	}
	return all
}
