// This file holds fair shares: what a batch is expected to do, what each source did lately, and whose turn it is when there is much to do.
//
// Light batches go first come, first served, and many share one entry. A heavy batch, and any batch of a source that has had more than its share,
// waits for its turn. One turn is taken at a time, so a light batch waits for one of them at most, however many wait. Turns are
// given by start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each source pays for the work that its batches turned out to be,
// and the one that has paid least is next. docs/adr/0015 has the reasons.
package cluster

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Work is counted in the machine's units, each of which takes workUnitTime at most.
const (
	workUnitTime = 25 * time.Nanosecond
	// heavyWork is from how many units on a batch is heavy: some 4 ms.
	heavyWork = 160_000
	// quantum is how many units the batches of one turn are expected to do together, unless one alone does more; also how much one pass over
	// light reads does. The machine ends an entry at about as much.
	quantum = 2_500_000
	// bytesPerUnit is how many bytes of requests and replies are copied, checked, stored and sent for one unit.
	bytesPerUnit = 4
	// cautionTime is how long after batches did much that were taken for light ones no batch is taken for light of which nothing is known.
	cautionTime = time.Second
)

// Workload says whose a batch is and what is in it, as far as the caller knows. It decides when the batch runs, never what it does.
type Workload struct {
	Source  uint64 // the connection; 0: nobody's, which is never charged
	Command uint64 // a hash of what is asked for, 0: not told; batches with the same one are expected to do alike
	Shape   uint64 // a hash of that and of what it is asked of: the first key
}

// source is one connection: of this node, or of the follower whose frames come by via.
type flow struct {
	via *inbound
	id  uint64
}

// costs remembers what batches did, by their hashes. It is a table of hints: what falls into the same slot is forgotten.
//
// A slot holds the upper half of the hash, then a number of units that is a multiple of costGrain, then two marks.
type costs struct {
	slots [1 << 13]atomic.Uint64
}

const (
	// costGrain is the smallest difference that is noted, so that light batches write nothing.
	costGrain = 1 << 8
	// costKnown marks a slot that is in use.
	costKnown = 1
	// costVaries marks a command whose batches did not all do alike, so that their shapes are worth a look. Most commands
	// never do more than a grain, whatever their key: for them one slot says it all, and the table stays in the cache.
	costVaries = 2
)

func (c *costs) slot(key uint64) *atomic.Uint64 { return &c.slots[key%uint64(len(c.slots))] }

// look returns the units and marks that are noted for key; 0 if there are none.
func (c *costs) lookup(key uint64) uint64 {
	v := c.slot(key).Load()
	if key == 0 || v>>32 != key>>32 {
		return 0
	}
	return v & math.MaxUint32
}

// learn notes that a batch with this key did so many units, a multiple of costGrain, where old was noted. More than before is
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
	if key != 0 && units|marks != c.lookup(key) {
		c.slot(key).Store(key>>32<<32 | units | marks)
	}
	return marks
}

// expect returns what a batch is expected to do, and whether anything like it is known.
func (c *costs) estimate(load Workload) (units uint64, known bool) {
	v := c.lookup(load.Command)
	if v&costVaries != 0 {
		if shape := c.lookup(load.Shape); shape != 0 {
			v = shape
		}
	}
	return v / costGrain * costGrain, v != 0 || load.Command == 0
}

// note learns what a batch did. A shape that is seen for the first time starts from what its command does.
func (c *costs) record(load Workload, units uint64) {
	units = min(units, math.MaxUint32) / costGrain * costGrain
	command := c.lookup(load.Command)
	if c.learn(load.Command, command, units)&costVaries != 0 {
		shape := c.lookup(load.Shape)
		if shape == 0 {
			shape = command
		}
		c.learn(load.Shape, shape, units)
	}
}

// maxFlows bounds the sources in one account. Virtual time goes on with the sources that come back, so of those that never do the account
// would grow for ever.
const maxFlows = 1024

// shares is the account of start-time fair queueing. Its owner guards it.
type fairQueue struct {
	virtualTime uint64          // virtual time, in units: the start of the turn that was given last
	finishTags  map[flow]uint64 // where the next batch of a source starts; of sources without one it is now
}

// start returns the virtual time at which a source's next batch starts, and whether the source has not been charged lately.
func (s *fairQueue) startTag(f flow) (start uint64, fresh bool) {
	if len(s.finishTags) == 0 {
		return s.virtualTime, true
	}
	end, known := s.finishTags[f]
	return max(s.virtualTime, end), !known
}

// charge books the work of a source's batch, which started at start.
func (s *fairQueue) charge(f flow, start, units uint64) {
	end := start + units
	if f == (flow{}) || end <= s.virtualTime {
		return
	}
	if s.finishTags == nil {
		s.finishTags = map[flow]uint64{}
	}
	s.finishTags[f] = max(end, s.finishTags[f])
	if len(s.finishTags) > maxFlows {
		for _, end := range s.finishTags {
			s.virtualTime = max(s.virtualTime, end)
		}
		clear(s.finishTags)
	}
}

// advance gives the turn to a batch that starts at start.
func (s *fairQueue) advance(start uint64) {
	if start <= s.virtualTime {
		return
	}
	s.virtualTime = start
	for f, end := range s.finishTags {
		if end < start { // one that ends now was in this round
			delete(s.finishTags, f)
		}
	}
}

// turnstile lets one piece of heavy work at a time onto this node's processors, besides what the log has it do.
type fairGate struct {
	mu          sync.Mutex
	fair        fairQueue
	busy        bool
	waiting     []*ticket // in the order in which they came
	exemptUntil time.Time // until when the time is used up that work without a turn may take
}

// turn is one piece of work.
type ticket struct {
	flow     flow
	startTag uint64
	fresh    bool
	ready    chan struct{} // closed when it is its turn
}

// enter waits for a turn for a source's work, and returns nil when it does not come before the limit or stop.
func (t *fairGate) acquire(f flow, limit time.Duration, stop <-chan struct{}) *ticket {
	t.mu.Lock()
	w := &ticket{flow: f, ready: make(chan struct{})}
	w.startTag, w.fresh = t.fair.startTag(f)
	if !t.busy {
		t.busy = true
		t.fair.advance(w.startTag)
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
		t.release(w, 0)
	}
	return nil
}

// leave ends a turn, in which so many units were done.
func (t *fairGate) release(w *ticket, units uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fair.charge(w.flow, w.startTag, units)
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	next := 0
	for i, other := range t.waiting {
		if n := t.waiting[next]; other.startTag < n.startTag || other.startTag == n.startTag && other.fresh && !n.fresh {
			next = i
		}
	}
	w = t.waiting[next]
	t.waiting = slices.Delete(t.waiting, next, next+1)
	t.fair.advance(w.startTag)
	close(w.ready)
}

// Work that takes no turn: what is tiny, and what is small as long as all of it together takes a tenth of a processor.
const (
	exemptWork   = 512
	exemptShare  = 10                                       // one part in so many
	exemptBurst  = 10 * time.Millisecond                    // that may be saved up
	exemptWindow = time.Duration(exemptShare) * exemptBurst // in which it is
)

// free reports whether work that is expected to be so much may be done without a turn.
func (t *fairGate) exempt(units uint64) bool {
	switch {
	case units >= heavyWork:
		return false
	case units < exemptWork:
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exemptUntil.Before(time.Now())
}

// charge books work that was done without a turn.
func (t *fairGate) chargeExempt(f flow, units uint64) {
	if units < exemptWork {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if least := time.Now().Add(-exemptWindow); t.exemptUntil.Before(least) {
		t.exemptUntil = least
	}
	t.exemptUntil = t.exemptUntil.Add(time.Duration(units) * workUnitTime * exemptShare)
	if units >= heavyWork {
		start, _ := t.fair.startTag(f)
		t.fair.charge(f, start, units)
	}
}

// elapsedWork is the work that took so long, for what is not counted in units.
func elapsedWork(took time.Duration) uint64 { return uint64(max(took, 0) / workUnitTime) }
