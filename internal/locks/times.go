// When a revision was: the creation revision of a key says how long a lock is held, so nothing has
// to be remembered for each lock.

package locks

import (
	"sort"

	"github.com/coordd/coordd/commands/keyspace"
)

// The samples of level i are at least 2^i ms apart, so the age of a revision is exact to 1/512. The
// last level reaches back for over a month. All together take 180 KiB.
const (
	timeLevels  = 22
	timeSamples = 512
)

type sample struct {
	at      keyspace.Revision
	clockMs int64
}

// timeLevel is a ring of samples.
type timeLevel struct {
	ring [timeSamples]sample
	n    uint64 // samples ever taken
}

// times maps revisions of entries to the cluster clock.
type times struct {
	levels [timeLevels]timeLevel
	// what clock found last: locks end about in the order in which they began
	since, before keyspace.Revision
	known         int64
}

// note records the clock of an entry. Both rise.
func (t *times) note(at keyspace.Revision, clockMs int64) {
	for i := range t.levels {
		l := &t.levels[i]
		if l.n > 0 && clockMs-l.ring[(l.n-1)%timeSamples].clockMs < 1<<i {
			return
		}
		l.ring[l.n%timeSamples] = sample{at, clockMs}
		l.n++
	}
}

// clock returns the clock of the entry that a revision belongs to, false if that is too long ago,
// or before this node's newest snapshot when it started.
func (t *times) clock(of keyspace.Revision) (ms int64, ok bool) {
	if of >= t.since && of < t.before {
		return t.known, true
	}
	for i := range t.levels {
		l := &t.levels[i]
		first := uint64(0)
		if l.n > timeSamples {
			first = l.n - timeSamples
		}
		if l.n == 0 || l.ring[first%timeSamples].at > of {
			continue
		}
		after := sort.Search(int(l.n-first), func(i int) bool {
			return l.ring[(first+uint64(i))%timeSamples].at > of
		})
		found := l.ring[(first+uint64(after)-1)%timeSamples]
		if t.since, t.before, t.known = found.at, 0, found.clockMs; after < int(l.n-first) {
			t.before = l.ring[(first+uint64(after))%timeSamples].at
		}
		return found.clockMs, true
	}
	return 0, false
}
