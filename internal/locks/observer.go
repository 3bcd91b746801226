package locks

import (
	"hash/maphash"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/lockorder"
)

// takenWithinMs is how soon after its lease ended a lock counts as taken from a holder that may
// still believe in it.
const takenWithinMs = 1000

// Observer receives the facts of a node's machine. It implements fsm.Observer.
type Observer struct {
	mu      lockorder.Mutex
	rules   *Rules
	counts  []counts // by label
	times   times
	history history
	waiters waiters
	// semaphores are sorted sets that were seen to be such: also when they are empty meanwhile
	semaphores [semaphoreSlots]uint64
	seed       maphash.Seed
	clockMs    int64
}

// semaphoreSlots bounds the semaphores that are known.
const semaphoreSlots = 4096

// counts are what the node counted of the keys of one label.
type counts struct {
	facts        [commands.FactKinds]uint64
	late, taken  uint64
	held, waited histogram
	blocked      histogram
}

// New returns an observer that labels keys by rules.
func New(rules *Rules) *Observer {
	return &Observer{rules: rules, counts: make([]counts, len(rules.labels)),
		seed: maphash.MakeSeed()}
}

// SetRules changes the rules. Labels that stay keep their counts.
func (o *Observer) SetRules(rules *Rules) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next := make([]counts, len(rules.labels))
	for i, label := range rules.labels {
		for j, old := range o.rules.labels {
			if label == old {
				next[i] = o.counts[j]
			}
		}
	}
	o.rules, o.counts = rules, next
}

// Rules returns the rules.
func (o *Observer) Rules() *Rules {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rules
}

// lockID returns the hash by which a lock is known. Its seed is secret: nobody can choose a key
// that is taken for another's.
func (o *Observer) lockID(db int, key []byte) uint64 {
	return maphash.Bytes(o.seed, key) + uint64(db)
}

// ownerID returns the hash by which an owner is known.
func (o *Observer) ownerID(owner []byte) uint64 { return maphash.Bytes(o.seed, owner) }

// isSemaphore reports whether a sorted set was seen to be a semaphore.
func (o *Observer) isSemaphore(lock uint64) bool {
	return o.semaphores[lock%semaphoreSlots] == lock
}

// asSemaphore makes what looks like a fact of a window one of a semaphore, if the key is known as
// such: until somebody gives a slot back, they look alike.
func (o *Observer) asSemaphore(f *commands.Fact) {
	switch f.Form {
	case commands.FormSemaphore:
		lock := o.lockID(f.DB, f.Key)
		o.semaphores[lock%semaphoreSlots] = lock
	case commands.FormSliding:
		if !o.isSemaphore(o.lockID(f.DB, f.Key)) {
			return
		}
		f.Form, f.Shared = commands.FormSemaphore, true
		switch f.Kind {
		case commands.WindowAllowed:
			f.Kind = commands.LockGranted
		case commands.WindowDenied:
			f.Kind = commands.LockRefused
		}
	}
}

// Applied receives the facts of an entry, which come with own entries alone. The time is noted of
// every entry: the next leader knows how long locks are held that another granted.
func (o *Observer) Applied(at keyspace.Revision, clockMs int64, facts []commands.Fact) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clockMs = clockMs
	o.times.note(at, clockMs)
	for i := range facts {
		f := &facts[i]
		o.count(f, clockMs)
		if f.Kind == commands.LockReleased || f.Kind == commands.LockExpired {
			o.remember(f, clockMs)
		}
	}
	o.waiters.sweep(clockMs)
}

// Tried receives the facts of dry runs.
func (o *Observer) Tried(clockMs int64, facts []commands.Fact) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range facts {
		o.count(&facts[i], clockMs)
	}
}

// count counts a fact.
func (o *Observer) count(f *commands.Fact, nowMs int64) {
	o.asSemaphore(f)
	c := &o.counts[o.rules.of(f.Key)]
	c.facts[f.Kind]++
	switch f.Kind {
	case commands.LockGranted:
		lock := o.lockID(f.DB, f.Key)
		if len(o.waiters.byLock[lock]) > 0 {
			ms, waited := o.waiters.grant(lock, o.ownerID(f.Owner), nowMs)
			if waited && f.QueuedMs == 0 {
				c.waited.add(ms)
			}
		}
		if f.QueuedMs != 0 {
			c.waited.add(nowMs - f.QueuedMs)
		}
		if o.takenOver(lock, f.Owner, nowMs) {
			c.taken++
		}
	case commands.LockRefused:
		o.waiters.refuse(o.lockID(f.DB, f.Key), o.ownerID(f.Owner), f, nowMs)
	case commands.LockRenewed:
		if ttl := f.DeadlineMs - nowMs; ttl > 0 && f.BeforeMs-nowMs < ttl/10 {
			c.late++
		}
	}
}

// takenOver reports whether a lock that a new owner got has just expired in another's hands.
func (o *Observer) takenOver(lock uint64, owner []byte, nowMs int64) (taken bool) {
	if nowMs-o.history.expiredMs[lock%historyBuckets] > takenWithinMs {
		return false
	}
	o.history.of(lock, func(p *past) bool {
		taken = p.end == Expired && nowMs-p.untilMs <= takenWithinMs &&
			string(p.name()) != string(owner[:min(len(owner), maxOwner)])
		return false
	})
	return taken
}

// remember notes that a lock's holder has lost it, and counts how long it had it.
func (o *Observer) remember(f *commands.Fact, nowMs int64) {
	lock := o.lockID(f.DB, f.Key)
	p := o.history.add(lock, f.Owner)
	p.token, p.untilMs, p.end = f.Token, nowMs, Released
	if f.Kind == commands.LockExpired {
		p.untilMs, p.end = f.DeadlineMs, Expired
		o.history.expiredMs[lock%historyBuckets] = f.DeadlineMs
	}
	p.sinceMs = -1
	if since, ok := o.times.clock(f.Token); ok {
		p.sinceMs = since
		if !f.Shared {
			o.counts[o.rules.of(f.Key)].held.add(p.untilMs - since)
		}
	}
}

// Served counts a client of this node that had to wait for a key, as BLPOP does, and got something.
func (o *Observer) Served(key []byte, waited time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts[o.rules.of(key)].blocked.add(waited.Milliseconds())
}

// Stats are the counts of one label.
type Stats struct {
	Label string

	// Acquisitions. Refused ones include every attempt of clients that poll.
	Granted, Refused uint64
	// Released counts locks that were given back, Expired those whose leases ended first.
	Released, Expired uint64
	// Renewed counts extended leases; RenewedLate those with less than a tenth of the TTL left.
	Renewed, RenewedLate uint64
	// Missed counts releases and renewals that found the lock with another holder.
	Missed uint64
	// TakenOver counts locks that expired and that another client got within a second.
	TakenOver uint64
	// Held is how long locks were held until they were released or expired, Waited how long clients
	// that were refused or queued first waited for a lock that they got.
	Held, Waited Histogram
	// Blocked is how long clients of this node waited in commands such as BLPOP that found
	// something at last. Those that wait for locks are among Waited instead.
	Blocked Histogram

	// Windows. Counted ones do not show whether the client let the request pass.
	Allowed, Denied, Counted uint64
}

// Snapshot returns the counts by label, those of Other last. They only rise, until SetRules drops a
// label.
func (o *Observer) Snapshot() []Stats {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Stats, len(o.counts))
	for i := range o.counts {
		c := &o.counts[i]
		all[i] = Stats{Label: o.rules.labels[i],
			Granted: c.facts[commands.LockGranted], Refused: c.facts[commands.LockRefused],
			Released: c.facts[commands.LockReleased], Expired: c.facts[commands.LockExpired],
			Renewed: c.facts[commands.LockRenewed], RenewedLate: c.late,
			Missed: c.facts[commands.LockMissed], TakenOver: c.taken,
			Held: c.held.snapshot(), Waited: c.waited.snapshot(), Blocked: c.blocked.snapshot(),
			Allowed: c.facts[commands.WindowAllowed], Denied: c.facts[commands.WindowDenied],
			Counted: c.facts[commands.WindowCounted]}
	}
	return all
}
