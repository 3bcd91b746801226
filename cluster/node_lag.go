// How far a node lags behind its leader, as far as it can know without asking.

package cluster

import (
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// lag knows what the leader had committed when it last spoke, which this node may not have received
// yet.
type lag struct {
	mu     lockorder.Mutex
	term   uint64
	commit uint64    // the largest that the leader announced in term
	mark   uint64    // an index that was committed …
	since  time.Time // … by then
}

// note records what a leader in term has committed now, and what this node has applied.
func (l *lag) note(term, commit, applied uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term < l.term {
		return
	}
	l.term, l.commit = term, max(l.commit, commit)
	l.advance(applied, now)
}

// advance sets the next mark once the last one is reached. The caller holds mu.
func (l *lag) advance(applied uint64, now time.Time) {
	if applied >= l.mark {
		l.mark, l.since = l.commit, now
	}
}

// behind returns how many committed entries are not applied, and for how long at least the oldest
// of them has been committed.
func (l *lag) behind(applied uint64, now time.Time) (entries uint64, age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(applied, now)
	if applied >= l.commit {
		return 0, 0
	}
	return l.commit - applied, now.Sub(l.since)
}
