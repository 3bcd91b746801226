package keyspace

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// Databases is the number of databases, SELECT's range, as Redis has by default.
const Databases = 16

// sweepLimit bounds how many expired keys one entry removes, so that a mass expiry cannot hold up
// one entry for long. Keys past their deadline do not exist whether they were swept or not.
const sweepLimit = 4096

// Keyspace is all the data of one machine. It is not safe for concurrent use: the machine admits
// one writer or many readers.
type Keyspace struct {
	dbs      [Databases]*DB
	now      int64    // cluster clock of the newest applied entry, ms
	rev      Revision // revision of the command being applied
	gen      uint64   // rises with every Freeze
	sum      uint64   // running hash over all changes
	edits    uint64   // rises with every step that changes something, or is about to
	expired  uint64   // keys removed because their deadline passed
	writable bool     // between Begin and End: catches a read handler that writes
	observe  Observer // nil: nobody wants to know
	until    int64    // of a view, see At; 0: it is none
}

// Change says what happened to a key.
type Change uint8

// What can happen to a key.
const (
	Modified Change = iota // it was made, or its value or its deadline changed
	Removed                // it was there and is not any more, or is about to be made again
	Expired                // the same, because its deadline had passed
	// every key of the database is gone, or another database's keys are in their place
	Flushed
	// FieldsExpired: fields of a hash were removed because their deadlines had passed; the hash
	// goes with the last.
	FieldsExpired
	// Added: a key that was not there comes to be. Its value is not there yet: Modified follows.
	Added
)

// Observer is notified of changes as they happen, of one change more often than once now and then.
// It sees the entry as it is at that moment (nil when Flushed), must not keep it, and must not
// change anything that the machine's state depends on.
type Observer func(db int, e *Entry, c Change)

// Observe makes f be told of all changes from now on, or nobody if it is nil.
func (ks *Keyspace) Observe(f Observer) { ks.observe = f }

// deadline is one key's place in its database's expiry index.
type deadline struct {
	atMs  int64
	hash  uint64
	entry *Entry
}

// deadlineLess orders by time, then by what is the same on every node.
func deadlineLess(a, b deadline) bool {
	switch {
	case a.atMs != b.atMs:
		return a.atMs < b.atMs
	case a.hash != b.hash:
		return a.hash < b.hash
	}
	return a.entry.key < b.entry.key
}

// New returns an empty keyspace.
func New() *Keyspace {
	ks := &Keyspace{}
	for i := range ks.dbs {
		ks.dbs[i] = newDB(ks, i)
	}
	return ks
}

func newExpiry() *btree.BTreeG[deadline] {
	return btree.NewBTreeGOptions(deadlineLess, btree.Options{NoLocks: true})
}

// DB returns database i, 0 to Databases-1.
func (ks *Keyspace) DB(i int) *DB { return ks.dbs[i] }

// Begin opens the keyspace for the changes of one entry at the cluster clock nowMs (which never
// falls) and removes keys whose deadline has passed.
func (ks *Keyspace) Begin(nowMs int64, rev Revision) {
	ks.now = max(ks.now, nowMs)
	ks.rev = rev
	ks.writable = true
	ks.sweep()
}

// SetRevision says which revision the following changes get.
func (ks *Keyspace) SetRevision(rev Revision) { ks.rev = rev }

// Edits rises whenever something is changed or handed out to be changed: while it stays, nothing
// was.
func (ks *Keyspace) Edits() uint64 { return ks.edits }

// End closes the keyspace for changes until the next Begin.
func (ks *Keyspace) End() { ks.writable = false }

// Now is the cluster clock of the newest entry, ms. A key exists while its deadline is not before
// it.
func (ks *Keyspace) Now() int64 { return ks.now }

// RestoreClock sets the clock of a keyspace that is being restored from a snapshot.
func (ks *Keyspace) RestoreClock(nowMs int64) { ks.now = nowMs }

// Sum is the running hash over every change applied so far: machines that applied the same entries
// have the same.
func (ks *Keyspace) Sum() uint64 { return ks.sum }

// RestoreSum sets the running hash of a keyspace that is being restored from a snapshot.
func (ks *Keyspace) RestoreSum(sum uint64) { ks.sum = sum }

// Expired counts the keys removed because their deadline passed, since this machine started.
func (ks *Keyspace) Expired() uint64 { return ks.expired }

// NextDeadline is the earliest deadline of any key or field, ms of the cluster clock.
func (ks *Keyspace) NextDeadline() (atMs int64, ok bool) {
	for _, db := range ks.dbs {
		for _, order := range [...]*btree.BTreeG[deadline]{db.expiry, db.fields} {
			if d, some := earliest(order); some && (!ok || d.atMs < atMs) {
				atMs, ok = d.atMs, true
			}
		}
	}
	return atMs, ok
}

// earliest is the first of an order of deadlines. Most databases have none, which is seen at once:
// every entry asks all of them.
func earliest(order *btree.BTreeG[deadline]) (d deadline, ok bool) {
	if order.Len() == 0 {
		return d, false
	}
	return order.Min()
}

// sweep removes up to sweepLimit keys and fields whose deadline has passed, of one database after
// the other, the earliest first.
func (ks *Keyspace) sweep() {
	left := sweepLimit
	for _, db := range ks.dbs {
		for ; left > 0; left-- {
			d, ok := earliest(db.expiry)
			if !ok || d.atMs >= ks.now {
				break
			}
			db.expire(d.entry)
		}
		left -= db.sweepFields(left)
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

// Len counts the keys of all databases.
func (ks *Keyspace) Len() int {
	n := 0
	for _, db := range ks.dbs {
		n += db.Len()
	}
	return n
}

// hashOf places keys, fields and members in trees and in scan cursors. It has to be the same on
// every node and in every release.
func hashOf(s string) uint64 { return xxhash.Sum64String(s) }
