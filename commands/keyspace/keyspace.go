package keyspace

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Databases is the number of databases, Redis's default.
const Databases = 16

// sweepLimit bounds how many expired keys one entry removes unless LimitSweep says otherwise.
// Expired keys do not exist, swept or not.
const sweepLimit = 4096

// Keyspace is all the data of one machine. It is not safe for concurrent use: the machine admits
// one writer or many readers.
type Keyspace struct {
	dbs      [Databases]*DB
	now      int64    // cluster clock of the newest applied entry, ms
	rev      Revision // revision of the command being applied
	gen      uint64   // rises with every Freeze
	sum      uint64   // running hash over all changes
	bytes    int64    // what the data counts: see memory_count.go
	edits    uint64   // rises before or with every change
	expired  uint64   // keys removed because their deadline passed
	sweeps   int      // expired keys and elements that an entry removes at most
	quiet    bool     // removing expired elements is no change that WATCH sees: see LastChange
	writable bool     // between Begin and End: catches a read handler that writes
	observe  Observer // nil: none
	trace    Observer // sees leases end, and with tracing all changes; nil: none
	tracing  bool
	lacks    func(db int, key []byte, writable bool) // see Lacks; nil: nobody asks
	until    int64                                   // clock of a view (see At); 0: not a view
	loose    bool                                    // there may be loose streams
	more     func() bool                             // see LimitSweep; nil: always
	// see entry_rest.go
	woken   struct{ rested, box *Entry } // the latest of the log entry
	scratch []byte
}

// Change says what happened to a key.
type Change uint8

// The kinds of changes.
const (
	Modified Change = iota // created, or its value or deadline changed
	Removed                // no longer exists, or is about to be created again
	Expired                // removed because its deadline has passed
	// every key of the database was removed, or replaced by those of another database
	Flushed
	// ElementsExpired: fields of a hash or members of a set were removed because their deadlines
	// have passed. The key goes with the last.
	ElementsExpired
	// Added: a key is being created. It has no value yet: Modified follows.
	Added
	// Retimed: the key's deadline, which it still has, is about to change: Modified follows.
	Retimed
)

// Observer is notified of changes as they happen, possibly more than once per change. It sees the
// entry as it is at that moment (nil for Flushed), must not keep it, and must not change anything
// that the machine's state depends on.
type Observer func(db int, e *Entry, c Change)

// Observe sets the observer, or removes it if f is nil.
func (ks *Keyspace) Observe(f Observer) { ks.observe = f }

// Trace sets a second observer, or removes it if f is nil. It is notified of leases that end, and
// while Tracing is on of all changes.
func (ks *Keyspace) Trace(f Observer) { ks.trace = f }

// ObserveLacks sets what learns of Lacks, also outside of entries: writable says which.
func (ks *Keyspace) ObserveLacks(f func(db int, key []byte, writable bool)) { ks.lacks = f }

// Tracing sets whether the observer of Trace is notified of all changes.
func (ks *Keyspace) Tracing(on bool) { ks.tracing = on }

// New returns an empty keyspace.
func New() *Keyspace {
	ks := &Keyspace{sweeps: sweepLimit}
	for i := range ks.dbs {
		ks.dbs[i] = newDB(ks, i)
	}
	return ks
}

// DB returns database i, 0 to Databases-1.
func (ks *Keyspace) DB(i int) *DB { return ks.dbs[i] }

// Begin opens the keyspace for the changes of one entry at the cluster clock nowMs, which never
// falls, and removes expired keys.
func (ks *Keyspace) Begin(nowMs int64, rev Revision) {
	ks.now = max(ks.now, nowMs)
	ks.rev = rev
	ks.writable = true
	ks.sweep()
}

// LimitSweep sets how many expired keys and elements the next entries remove at most, while more
// returns true: the observer may do much for one.
func (ks *Keyspace) LimitSweep(n int, more func() bool) { ks.sweeps, ks.more = n, more }

// maySweep reports whether an entry that may remove that many keys or elements removes another.
func (ks *Keyspace) maySweep(left int) bool { return left > 0 && (ks.more == nil || ks.more()) }

// SweepQuietly has whoever watches a collection see that its elements expire when they do, and not
// when they are swept.
func (ks *Keyspace) SweepQuietly(on bool) { ks.quiet = on }

// SetRevision sets the revision of the following changes.
func (ks *Keyspace) SetRevision(rev Revision) { ks.rev = rev }

// CurrentRevision returns the revision that changes get now.
func (ks *Keyspace) CurrentRevision() Revision { return ks.rev }

// Fold folds a change of something beside the keys into the running hash.
func (ks *Keyspace) Fold(change []byte) { ks.mix(uint64(len(change)), xxhash.Sum64(change)) }

// Edits returns a count that rises with every change and everything handed out for changes. While
// it stays the same, nothing has changed.
func (ks *Keyspace) Edits() uint64 { return ks.edits }

// End closes the keyspace for changes until the next Begin. Entries that came from Edit or a setter
// are not valid any more.
func (ks *Keyspace) End() {
	ks.rest(maxOpen)
	ks.writable = false
}

// Now returns the cluster clock of the newest entry, ms. A key exists while its deadline is not
// before it.
func (ks *Keyspace) Now() int64 { return ks.now }

// RestoreClock sets the clock while the keyspace is restored from a snapshot.
func (ks *Keyspace) RestoreClock(nowMs int64) { ks.now = nowMs }

// Sum returns the running hash over every change: machines that applied the same entries have the
// same.
func (ks *Keyspace) Sum() uint64 { return ks.sum }

// RestoreSum sets the running hash while the keyspace is restored from a snapshot.
func (ks *Keyspace) RestoreSum(sum uint64) { ks.sum = sum }

// Expired returns the number of keys that expired since this machine started.
func (ks *Keyspace) Expired() uint64 { return ks.expired }

// NextDeadline returns the earliest deadline of any key or element, ms of the cluster clock.
func (ks *Keyspace) NextDeadline() (atMs int64, ok bool) {
	atMs = never
	for _, db := range ks.dbs {
		atMs = min(atMs, db.keys.due.min())
		if d, some := db.elements.Min(); some {
			atMs = min(atMs, d.atMs)
		}
	}
	return atMs, atMs != never
}

// sweep removes a limited number of expired keys and elements, database by database, the earliest
// first.
func (ks *Keyspace) sweep() {
	left := ks.sweeps
	for _, db := range ks.dbs {
		for ; db.keys.due.min() < ks.now && ks.maySweep(left); left-- {
			db.expire(db.keys.earliest())
		}
		left -= db.sweepElements(left)
	}
}

// mix folds one change into the running hash.
func (ks *Keyspace) mix(a, b uint64) {
	hi, lo := bits.Mul64(ks.sum^a^0x9e3779b97f4a7c15, b^0xd6e8feb86659fd93)
	ks.sum = bits.RotateLeft64(hi^lo, 23) + a + b
}

// FlushAll removes every key of every database.
func (ks *Keyspace) FlushAll() {
	for _, db := range ks.dbs {
		db.Flush()
	}
}

// Len returns the number of keys in all databases.
func (ks *Keyspace) Len() int {
	n := 0
	for _, db := range ks.dbs {
		n += db.Len()
	}
	return n
}

// hashOf orders keys, fields and members in trees and in scan cursors. It must be the same on every
// node and in every release.
func hashOf(s string) uint64 { return xxhash.Sum64String(s) }
