// Pattern subscriptions, and which of them match a channel. An index of their literal prefixes
// finds candidates; matching needs no lock.

package server

import (
	"bytes"
	"runtime"
	"slices"
	"sync/atomic"

	radix "github.com/hashicorp/go-immutable-radix"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/internal/lockorder"
)

const (
	// maxPatterns limits a connection, maxNodePatterns the node: one message may be matched with
	// all of them.
	maxPatterns     = 10_000
	maxNodePatterns = 100_000
	// maxMatchWork bounds the work of matching one channel, in units of 25 ns.
	maxMatchWork = 1_000_000
	// matchSlice is the work after which other goroutines may run.
	matchSlice = 4_000
)

var errNodePatterns = commands.Errorf("ERR too many patterns: the limit is %d per node",
	maxNodePatterns)

// patternTable finds patterns.
type patternTable struct {
	tried atomic.Uint64 // matches attempted

	mu   lockorder.RWMutex
	all  map[string]*pattern
	tree *radix.Tree // *patternGroup by literal prefix
}

// patternGroup holds the patterns with the same literal prefix.
type patternGroup struct{ of []*pattern }

// pattern is a pattern with subscribers.
type pattern struct {
	text   []byte
	prefix []byte // literal bytes that it begins with
	open   bool   // a star alone follows prefix
	at     int    // index in its group
	cost   atomic.Uint32
	to     subscribers // guarded by patternTable.mu
}

func (t *patternTable) init() { t.all, t.tree = map[string]*pattern{}, radix.New() }

func (t *patternTable) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.all)
}

func (t *patternTable) full() bool { return t.size() >= maxNodePatterns }

// add reports whether s is the first subscriber.
func (t *patternTable) add(text string, s *session, after uint64) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.all[text]
	if p == nil {
		p = &pattern{text: []byte(text), to: subscribers{}}
		p.prefix = glob.Prefix(p.text)
		p.open = bytes.HasSuffix(p.text, []byte("*")) &&
			bytes.Equal(p.prefix, p.text[:len(p.text)-1])
		p.cost.Store(uint32(len(text)))
		t.all[text] = p
		g, _ := t.group(p.prefix)
		if g == nil {
			g = &patternGroup{}
			t.tree, _, _ = t.tree.Insert(p.prefix, g)
		}
		p.at = len(g.of)
		g.of = append(g.of, p)
	}
	p.to[s] = after
	return len(p.to) == 1
}

// count returns the number of subscribers of a pattern.
func (t *patternTable) count(text string) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if p := t.all[text]; p != nil {
		return len(p.to)
	}
	return 0
}

func (t *patternTable) group(prefix []byte) (*patternGroup, bool) {
	v, known := t.tree.Get(prefix)
	if !known {
		return nil, false
	}
	return v.(*patternGroup), true
}

// remove reports whether s was the last subscriber.
func (t *patternTable) remove(text string, s *session) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.all[text]
	if delete(p.to, s); len(p.to) > 0 {
		return false
	}
	delete(t.all, text)
	g, _ := t.group(p.prefix)
	newest := g.of[len(g.of)-1]
	g.of[p.at], newest.at = newest, p.at
	if g.of = slices.Delete(g.of, len(g.of)-1, len(g.of)); len(g.of) == 0 {
		t.tree, _, _ = t.tree.Delete(p.prefix)
	}
	return true
}

// each calls f with the subscribers of every pattern.
func (t *patternTable) each(f func(name string, to subscribers)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for name, p := range t.all {
		f(name, p.to)
	}
}

// mayReach reports whether there may be a pattern that matches channel. It never waits.
func (t *patternTable) mayReach(channel []byte) (may bool) {
	if !t.mu.TryRLock() {
		return true
	}
	tree := t.tree
	t.mu.RUnlock()
	tree.Root().WalkPath(channel, func([]byte, any) bool {
		may = true
		return true
	})
	return may
}

// candidates returns the patterns whose literal prefix matches channel.
func (t *patternTable) candidates(channel []byte) []*pattern {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found []*pattern
	t.tree.Root().WalkPath(channel, func(_ []byte, v any) bool {
		found = append(found, v.(*patternGroup).of...)
		return false
	})
	return found
}

// reached calls f with the patterns that match channel and their subscribers. It calls missed,
// unless nil, with the subscribers of patterns it skips because matching all takes too much work;
// patterns that were cheap last time come first. It reports the work of expensive ones to blame,
// unless nil.
func (t *patternTable) reached(channel []byte, f func(p *pattern, to subscribers),
	missed func(to subscribers), blame func(to subscribers, work int)) {
	found := t.candidates(channel)
	if len(found) == 0 {
		return
	}
	matched, untried, costly := t.match(found, channel)
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, p := range matched {
		if len(p.to) > 0 { // its last subscriber may have left
			f(p, p.to)
		}
	}
	if blame != nil {
		for _, c := range costly {
			blame(c.p.to, c.work)
		}
	}
	if missed != nil {
		for _, p := range untried {
			missed(p.to)
		}
	}
}

// costlyMatch is the work of matching a message for which somebody is charged: the subscribers of
// the pattern that completes it. So many cheap patterns are charged like a few expensive ones, and
// what is rarely charged is charged for its neighbors too.
const costlyMatch = 64

// costly is a pattern that is charged for matching.
type costly struct {
	p    *pattern
	work int
}

// match tries patterns in classes of their last cost. It needs no lock.
func (t *patternTable) match(found []*pattern,
	channel []byte) (matched, untried []*pattern, costlies []costly) {
	work, slice, unbilled := 0, 0, 0
	rest := found
	for most := uint32(64); len(rest) > 0; most *= 64 {
		var later []*pattern
		for _, p := range rest {
			switch {
			case p.open:
				if len(channel) > 0 { // as in Redis: a star does not match an empty channel
					matched = append(matched, p)
				}
				continue
			case p.cost.Load() > most && most < maxMatchWork:
				later = append(later, p)
				continue
			case work > maxMatchWork:
				untried = append(untried, p)
				continue
			}
			t.tried.Add(1)
			ok, took := glob.MatchWork(p.text, channel)
			p.cost.Store(uint32(min(took, maxMatchWork)))
			if ok {
				matched = append(matched, p)
			}
			if unbilled += took; unbilled >= costlyMatch {
				costlies = append(costlies, costly{p, unbilled})
				unbilled = 0
			}
			if work, slice = work+took, slice+took; slice > matchSlice {
				slice = 0
				runtime.Gosched()
			}
		}
		rest = later
	}
	return matched, untried, costlies
}
