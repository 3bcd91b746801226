// Who held a lock before: a bounded memory of all locks together.

package locks

import "github.com/coordd/coordd/commands/keyspace"

// A lock's past holders are in one bucket, with those of other locks: busy locks drive out only
// what shares their buckets. All buckets take 2.6 MiB, whatever the number of locks.
const (
	historyBuckets = 2048
	historySlots   = 16
	maxOwner       = 46 // bytes that are kept of an owner
)

// End says how a holder lost a lock.
type End uint8

// The ways in which a lock ends.
const (
	Released End = iota + 1 // by its holder, or by somebody who deleted the key
	Expired                 // its lease was over
)

// String returns the word that commands show.
func (e End) String() string {
	if e == Expired {
		return "expired"
	}
	return "released"
}

// past is a holder of a lock that is over.
type past struct {
	lock    uint64 // hash of database and key
	token   keyspace.Revision
	sinceMs int64 // -1: unknown
	untilMs int64
	end     End // 0: none
	length  uint8
	owner   [maxOwner]byte
}

func (p *past) name() []byte { return p.owner[:p.length] }

type history struct {
	expiredMs [historyBuckets]int64 // when a lock of the bucket last expired; 0 at the start
	buckets   [historyBuckets]struct {
		next  uint8
		slots [historySlots]past
	}
}

// add remembers a holder. It returns the place, to fill in the rest.
func (h *history) add(lock uint64, owner []byte) *past {
	b := &h.buckets[lock%historyBuckets]
	p := &b.slots[b.next%historySlots]
	b.next = (b.next + 1) % historySlots
	p.lock = lock
	p.length = uint8(copy(p.owner[:], owner))
	return p
}

// of calls f with the past holders of a lock, the latest first, until it returns false.
func (h *history) of(lock uint64, f func(*past) bool) {
	b := &h.buckets[lock%historyBuckets]
	for i := range historySlots {
		p := &b.slots[(int(b.next)+2*historySlots-1-i)%historySlots]
		if p.end != 0 && p.lock == lock && !f(p) {
			return
		}
	}
}
