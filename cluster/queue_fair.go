// Fair sharing: predicting what a batch costs, and choosing who is served when there is much to do.
//
// Light batches run first come, first served, and many share one entry. Heavy batches, and all
// batches of a flow that has had more than its share, are served one quantum at a time by
// start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each flow pays for the work that its
// batches turned out to be, and the smallest start tag goes next. So a light batch waits for at
// most one heavy quantum. See docs/adr/0015.

package cluster

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Work is counted in the machine's units of at most workUnitTime each.
const (
	workUnitTime = 25 * time.Nanosecond
	// heavyWork is the cost from which a batch is heavy: about 4 ms.
	heavyWork = 160_000
	// quantum is how much work heavy batches that run together are predicted to do, unless one
	// alone does more. It also bounds one pass over light reads. The machine ends an entry at about
	// the same amount.
	quantum = 2_500_000
	// bytesPerUnit is how many bytes of requests and replies are copied, checked, stored and sent
	// in one unit of work.
	bytesPerUnit = 4
	// cautionTime is how long a queue stays cautious after light calls turned out heavy.
	cautionTime = time.Second
)

// Workload says which flow a batch belongs to and what it does, as far as the caller knows. It
// decides when and whether the batch runs, never what it does.
type Workload struct {
	Conn uint64 // the connection; 0: nobody, never charged
	// a hash of the commands; 0: unknown. Batches with equal hashes are expected to cost alike
	Command uint64
	Shape   uint64 // a hash of the commands and the first key
	Light   bool   // of O(log n) work besides their bytes, whatever they were never seen to do
	// how long it waits for a leader; 0: as long as Config says, negative: not at all
	LeaderWait time.Duration
}

// flow is one connection: of this node, or of the follower that sends its frames through via.
type flow struct {
	via *inbound
	id  uint64
}

// costs predicts the cost of batches from earlier ones, by hash. It is a table of hints: colliding
// entries overwrite each other.
//
// A slot holds the upper half of the hash, a number of units that is a multiple of costGrain, and
// two marks.
type costs struct {
	slots [1 << 13]atomic.Uint64
}

const (
	// costGrain is the resolution, so that light batches write nothing.
	costGrain = 1 << 8
	// costKnown marks a slot that is in use.
	costKnown = 1
	// costVaries marks a command whose cost varies, so that its shapes are looked up too. Most
	// commands never exceed a grain: one slot describes them, and the table stays in the cache.
	costVaries = 2
)

func (c *costs) slot(key uint64) *atomic.Uint64 { return &c.slots[key%uint64(len(c.slots))] }

// lookup returns the units and marks noted for key, 0 if there are none.
func (c *costs) lookup(key uint64) uint64 {
	v := c.slot(key).Load()
	if key == 0 || v>>32 != key>>32 {
		return 0
	}
	return v & math.MaxUint32
}

// learn notes that a batch with this key did units of work (a multiple of costGrain), where old was
// noted before. It adopts a higher value at once and a lower one by half. It returns the marks.
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

// estimate predicts what a batch costs, and reports whether the prediction rests on an earlier
// batch.
func (c *costs) estimate(load Workload) (units uint64, known bool) {
	v := c.lookup(load.Command)
	if v&costVaries != 0 {
		if shape := c.lookup(load.Shape); shape != 0 {
			v = shape
		}
	}
	return v / costGrain * costGrain, v != 0 || load.Command == 0 || load.Light
}

// record learns what a batch cost. A new shape starts from the cost of its command.
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

// maxFlows bounds the flows in a fairQueue. Virtual time advances only with flows that come back,
// so flows that never do would accumulate.
const maxFlows = 1024

// fairQueue does the accounting of start-time fair queueing. Its owner guards it.
type fairQueue struct {
	virtualTime uint64          // the start tag that was served last
	finishTags  map[flow]uint64 // of flows whose tag is later than virtualTime
}

// startTag returns the start tag of a flow's next batch, and whether the flow has not been charged
// lately.
func (s *fairQueue) startTag(f flow) (start uint64, fresh bool) {
	if len(s.finishTags) == 0 {
		return s.virtualTime, true
	}
	end, known := s.finishTags[f]
	return max(s.virtualTime, end), !known
}

// charge bills the work of a batch with this start tag to its flow.
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

// advance moves virtual time to the start tag of the batch that is served next.
func (s *fairQueue) advance(start uint64) {
	if start <= s.virtualTime {
		return
	}
	s.virtualTime = start
	for f, end := range s.finishTags {
		if end < start { // a flow that ends at start belongs to this round
			delete(s.finishTags, f)
		}
	}
}

// fairGate lets one piece of heavy work at a time onto this node's processors, besides the work of
// the log.
type fairGate struct {
	mu          sync.Mutex
	fair        fairQueue
	busy        bool
	waiting     []*ticket // in order of arrival
	exemptUntil time.Time // until when the budget for exempt work is spent
}

// ticket is one piece of work that has or waits for the gate.
type ticket struct {
	flow     flow
	startTag uint64
	fresh    bool
	ready    chan struct{} // closed when it is served
}

// acquire waits for the gate on behalf of a flow. It returns nil if the limit or stop comes first.
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
	if at < 0 { // it was just served
		t.release(w, 0)
	}
	return nil
}

// release frees the gate after units of work, and serves the next ticket.
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
		if n := t.waiting[next]; other.startTag < n.startTag || other.startTag == n.startTag &&
			other.fresh && !n.fresh {
			next = i
		}
	}
	w = t.waiting[next]
	t.waiting = slices.Delete(t.waiting, next, next+1)
	t.fair.advance(w.startTag)
	close(w.ready)
}

// Exempt work bypasses the gate: tiny work always, small work as long as all of it together takes a
// tenth of a processor.
const (
	exemptWork   = 512
	exemptShare  = 10                                       // one part in so many
	exemptBurst  = 10 * time.Millisecond                    // budget that may be saved up
	exemptWindow = time.Duration(exemptShare) * exemptBurst // the time that earns exemptBurst
)

// exempt reports whether work of this predicted cost may bypass the gate.
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

// chargeExempt bills work that bypassed the gate.
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

// elapsedWork converts elapsed time to units, for work that is not counted in units.
func elapsedWork(took time.Duration) uint64 { return uint64(max(took, 0) / workUnitTime) }
