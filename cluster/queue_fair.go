// This file holds fair shares: what a group is expected to do, what each source did lately, and whose turn it is when there is much to do.
//
// Light groups go first come, first served, and many share one entry. A heavy group, and any group of a source that has had more than its share,
// waits for its turn. One turn is taken at a time, so a light group waits for one of them at most, however many wait. Turns are
// given by start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each source pays for the work that its groups turned out to be,
// and the one that has paid least is next. docs/adr/0015 has the reasons.
package cluster

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Work is counted in the machine's units, each of which takes unitTime at most.
const (
	unitTime = 25 * time.Nanosecond
	// heavyWork is from how many units on a group is heavy: some 4 ms.
	heavyWork = 160_000
	// turnWork is how many units the groups of one turn are expected to do together, unless one alone does more; also how much one pass over
	// light reads does. The machine ends an entry at about as much.
	turnWork = 2_500_000
	// bytesPerUnit is how many bytes of requests and replies are copied, checked, stored and sent for one unit.
	bytesPerUnit = 4
	// strainTime is how long after groups did much that were taken for light ones no group is taken for light of which nothing is known.
	strainTime = time.Second
)

// Asker says whose a group is and what is in it, as far as the caller knows. It decides when the group runs, never what it does.
type Asker struct {
	Source  uint64 // the connection; 0: nobody's, which is never charged
	Command uint64 // a hash of what is asked for, 0: not told; groups with the same one are expected to do alike
	Shape   uint64 // a hash of that and of what it is asked of: the first key
}

// source is one connection: of this node, or of the follower whose frames come by via.
type source struct {
	via *inbound
	id  uint64
}

// costs remembers what groups did, by their hashes. It is a table of hints: what falls into the same slot is forgotten.
//
// A slot holds the upper half of the hash, then a number of units that is a multiple of costGrain, then two marks.
type costs struct {
	slots [1 << 13]atomic.Uint64
}

const (
	// costGrain is the smallest difference that is noted, so that light groups write nothing.
	costGrain = 1 << 8
	// costKnown marks a slot that is in use.
	costKnown = 1
	// costVaries marks a command whose groups did not all do alike, so that their shapes are worth a look. Most commands
	// never do more than a grain, whatever their key: for them one slot says it all, and the table stays in the cache.
	costVaries = 2
)

func (c *costs) slot(key uint64) *atomic.Uint64 { return &c.slots[key%uint64(len(c.slots))] }

// look returns the units and marks that are noted for key; 0 if there are none.
func (c *costs) look(key uint64) uint64 {
	v := c.slot(key).Load()
	if key == 0 || v>>32 != key>>32 {
		return 0
	}
	return v & math.MaxUint32
}

// learn notes that a group with this key did so many units, a multiple of costGrain, where old was noted. More than before is
// believed at once, less by half. It returns the marks.
func (c *costs) learn(key, old, units uint64) (marks uint64) {
	before := old / costGrain * costGrain
	marks = costKnown | old&costVaries
	if old != 0 && before != units {
		marks |= costVaries
	}
	if before > units {
		units += (before - units) / 2 / costGrain * costGrain
	}
	if key != 0 && units|marks != c.look(key) {
		c.slot(key).Store(key>>32<<32 | units | marks)
	}
	return marks
}

// expect returns what a group is expected to do, and whether anything like it is known.
func (c *costs) expect(by Asker) (units uint64, known bool) {
	v := c.look(by.Command)
	if v&costVaries != 0 {
		if shape := c.look(by.Shape); shape != 0 {
			v = shape
		}
	}
	return v / costGrain * costGrain, v != 0 || by.Command == 0
}

// note learns what a group did. A shape that is seen for the first time starts from what its command does.
func (c *costs) note(by Asker, units uint64) {
	units = min(units, math.MaxUint32) / costGrain * costGrain
	command := c.look(by.Command)
	if c.learn(by.Command, command, units)&costVaries != 0 {
		shape := c.look(by.Shape)
		if shape == 0 {
			shape = command
		}
		c.learn(by.Shape, shape, units)
	}
}

// maxOwed bounds the sources in one account. Virtual time goes on with the sources that come back, so of those that never do the account
// would grow for ever.
const maxOwed = 1024

// shares is the account of start-time fair queueing. Its owner guards it.
type shares struct {
	now  uint64            // virtual time, in units: the start of the turn that was given last
	owed map[source]uint64 // where the next group of a source starts; of sources without one it is now
}

// start returns the virtual time at which a source's next group starts, and whether the source has not been charged lately.
func (s *shares) start(src source) (start uint64, fresh bool) {
	if len(s.owed) == 0 {
		return s.now, true
	}
	end, known := s.owed[src]
	return max(s.now, end), !known
}

// charge books the work of a source's group, which started at start.
func (s *shares) charge(src source, start, units uint64) {
	end := start + units
	if src == (source{}) || end <= s.now {
		return
	}
	if s.owed == nil {
		s.owed = map[source]uint64{}
	}
	s.owed[src] = max(end, s.owed[src])
	if len(s.owed) > maxOwed {
		for _, end := range s.owed {
			s.now = max(s.now, end)
		}
		clear(s.owed)
	}
}

// advance gives the turn to a group that starts at start.
func (s *shares) advance(start uint64) {
	if start <= s.now {
		return
	}
	s.now = start
	for src, end := range s.owed {
		if end < start { // one that ends now was in this round
			delete(s.owed, src)
		}
	}
}

// turnstile lets one piece of heavy work at a time onto this node's processors, besides what the log has it do.
type turnstile struct {
	mu      sync.Mutex
	shares  shares
	busy    bool
	waiting []*turn   // in the order in which they came
	spent   time.Time // until when the time is used up that work without a turn may take
}

// turn is one piece of work.
type turn struct {
	src   source
	start uint64
	fresh bool
	ready chan struct{} // closed when it is its turn
}

// enter waits for a turn for a source's work, and returns nil when it does not come before the limit or stop.
func (t *turnstile) enter(src source, limit time.Duration, stop <-chan struct{}) *turn {
	t.mu.Lock()
	w := &turn{src: src, ready: make(chan struct{})}
	w.start, w.fresh = t.shares.start(src)
	if !t.busy {
		t.busy = true
		t.shares.advance(w.start)
		t.mu.Unlock()
		return w
	}
	t.waiting = append(t.waiting, w)
	t.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.ready:
		return w
	case <-timer.C:
	case <-stop:
	}
	t.mu.Lock()
	at := slices.Index(t.waiting, w)
	if at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
	t.mu.Unlock()
	if at < 0 { // it was just let in
		t.leave(w, 0)
	}
	return nil
}

// leave ends a turn, in which so many units were done.
func (t *turnstile) leave(w *turn, units uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shares.charge(w.src, w.start, units)
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	next := 0
	for i, other := range t.waiting {
		if n := t.waiting[next]; other.start < n.start || other.start == n.start && other.fresh && !n.fresh {
			next = i
		}
	}
	w = t.waiting[next]
	t.waiting = slices.Delete(t.waiting, next, next+1)
	t.shares.advance(w.start)
	close(w.ready)
}

// Work that takes no turn: what is tiny, and what is small as long as all of it together takes a tenth of a processor.
const (
	tinyWork  = 512
	freeShare = 10                                   // one part in so many
	freeBurst = 10 * time.Millisecond                // that may be saved up
	freeTime  = time.Duration(freeShare) * freeBurst // in which it is
)

// free reports whether work that is expected to be so much may be done without a turn.
func (t *turnstile) free(units uint64) bool {
	switch {
	case units >= heavyWork:
		return false
	case units < tinyWork:
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spent.Before(time.Now())
}

// charge books work that was done without a turn.
func (t *turnstile) charge(src source, units uint64) {
	if units < tinyWork {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if least := time.Now().Add(-freeTime); t.spent.Before(least) {
		t.spent = least
	}
	t.spent = t.spent.Add(time.Duration(units) * unitTime * freeShare)
	if units >= heavyWork {
		start, _ := t.shares.start(src)
		t.shares.charge(src, start, units)
	}
}

// unitsOf is the work that took so long, for what is not counted in units.
func unitsOf(took time.Duration) uint64 { return uint64(max(took, 0) / unitTime) }
