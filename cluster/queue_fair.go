// Fair sharing: predicting what a batch costs, and choosing who is served when there is much to do.
//
// Light batches run first come, first served, and many share one entry. Heavy batches, and unknown
// ones of a flow that has had more than its share, are served one quantum at a time by start-time
// fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): each flow pays for the work that its batches
// turned out to be, and the smallest start tag goes next. So a light batch waits for at most one
// heavy quantum. See docs/adr/0015.

package cluster

import (
	"cmp"
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

// maxFlows bounds the flows in a fairQueue, which remembers those that never come back too.
const maxFlows = 1024

// fairQueue does the accounting of start-time fair queueing. Its owner guards it.
type fairQueue struct {
	virtualTime uint64          // the latest start tag that was served
	finishTags  map[flow]uint64 // of the flows that were served lately
	turns       uint64          // given so far
	overtaken   bool            // the last one went to a newcomer, past one that came before it
}

// place is where a piece of work stands that waits for a turn.
type place struct {
	flow     flow   // who is charged; the zero flow: nobody
	startTag uint64 // the flow's, when the work came
	newcomer bool   // the flow was not served lately
	came     uint64 // how many turns had been given
	seq      uint64 // the order of arrival
}

func (p *place) placed() *place { return p }

// before reports whether p is served before o. A newcomer wins ties: it may ask for little and does
// not wait for a round of the others.
func (p *place) before(o *place) bool { return p.compare(o) < 0 }

func (p *place) compare(o *place) int {
	switch {
	case p.startTag != o.startTag:
		return cmp.Compare(p.startTag, o.startTag)
	case p.newcomer != o.newcomer && p.newcomer:
		return -1
	case p.newcomer != o.newcomer:
		return 1
	}
	return cmp.Compare(p.seq, o.seq)
}

// place returns the place of a flow's next piece of work.
func (s *fairQueue) place(f flow, seq uint64) place {
	end, known := s.finishTags[f]
	return place{f, max(s.virtualTime, end), !known, s.turns, seq}
}

// inDebt reports whether a flow has had more than its share.
func (s *fairQueue) inDebt(f flow) bool { return s.finishTags[f] > s.virtualTime }

// nextTurn gives a turn to the first of those that wait, and returns its index.
//
// Newcomers start at virtual time, ahead of those in debt. Who opens a connection for each request
// is a newcomer always, and would keep the others waiting. So newcomers have every second turn at
// most while another one waits that came before them.
func nextTurn[T interface{ placed() *place }](s *fairQueue, waiting []T) int {
	first, known, came := 0, -1, s.turns
	for i, w := range waiting {
		p := w.placed()
		if p.before(waiting[first].placed()) {
			first = i
		}
		if !p.newcomer {
			if came = min(came, p.came); known < 0 || p.before(waiting[known].placed()) {
				known = i
			}
		}
	}
	p := waiting[first].placed()
	overtakes := p.newcomer && known >= 0 && came < p.came
	if overtakes && s.overtaken {
		first, overtakes = known, false
	}
	s.overtaken = overtakes
	s.turns++
	s.advance(waiting[first].placed().startTag)
	return first
}

// charge bills work to the flow that had this place.
func (s *fairQueue) charge(p place, units uint64) {
	if p.flow == (flow{}) || units == 0 {
		return
	}
	if s.finishTags == nil {
		s.finishTags = map[flow]uint64{}
	}
	s.finishTags[p.flow] = max(p.startTag+units, s.finishTags[p.flow])
	if len(s.finishTags) > maxFlows {
		for _, end := range s.finishTags {
			s.advance(end)
		}
		clear(s.finishTags)
	}
}

// advance moves virtual time to the start tag of what is served.
func (s *fairQueue) advance(start uint64) { s.virtualTime = max(s.virtualTime, start) }

// fairGate lets one piece of heavy work at a time onto this node's processors, besides the work of
// the log.
type fairGate struct {
	mu          sync.Mutex
	fair        fairQueue
	busy        bool
	waiting     []*ticket
	arrived     uint64    // tickets so far
	exemptUntil time.Time // until when the budget for exempt work is spent

	exempted atomic.Int32 // pieces of work that bypass the gate now and cannot be aborted
}

// ticket is one piece of work that has or waits for the gate.
type ticket struct {
	place
	ready chan struct{} // closed when it is served
}

// acquire waits for the gate on behalf of a flow. It returns nil if the limit or stop comes first.
func (t *fairGate) acquire(f flow, limit time.Duration, stop <-chan struct{}) *ticket {
	t.mu.Lock()
	t.arrived++
	w := &ticket{t.fair.place(f, t.arrived), make(chan struct{})}
	if !t.busy {
		t.busy = true
		nextTurn(&t.fair, []*ticket{w})
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
	t.fair.charge(w.place, units)
	if len(t.waiting) == 0 {
		t.busy = false
		return
	}
	next := nextTurn(&t.fair, t.waiting)
	w = t.waiting[next]
	t.waiting = slices.Delete(t.waiting, next, next+1)
	close(w.ready)
}

// Exempt work bypasses the gate: tiny work always, small work as long as all of it together takes a
// tenth of a processor. Whether work is tiny or small is a prediction, so what bypasses the gate is
// bounded besides: reads by their work, other work by how much of it runs at once.
const (
	exemptWork   = 512
	exemptShare  = 10                                       // one part in so many
	exemptBurst  = 10 * time.Millisecond                    // budget that may be saved up
	exemptWindow = time.Duration(exemptShare) * exemptBurst // the time that earns exemptBurst

	// exemptBytes is how long a batch may be: it is decoded before its work is counted.
	exemptBytes = 16 << 10
	// maxExempt is how many pieces of work that nothing can abort.
	maxExempt = 4
)

// enter is exempt for work that nothing can abort: only so much of it runs at once, each until
// leave.
func (t *fairGate) enter(units uint64) bool {
	if t.exempted.Add(1) <= maxExempt && t.exempt(units) {
		return true
	}
	t.leave()
	return false
}

func (t *fairGate) leave() { t.exempted.Add(-1) }

// exempt reports whether work of this predicted cost may bypass the gate. If so, it is billed.
func (t *fairGate) exempt(units uint64) bool {
	switch {
	case units >= heavyWork:
		return false
	case units < exemptWork:
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.exemptUntil.Before(time.Now()) {
		return false
	}
	t.billLocked(int64(units))
	return true
}

// billLocked takes units from the budget for exempt work, or gives them back.
func (t *fairGate) billLocked(units int64) {
	if least := time.Now().Add(-exemptWindow); t.exemptUntil.Before(least) {
		t.exemptUntil = least
	}
	t.exemptUntil = t.exemptUntil.Add(time.Duration(units) * workUnitTime * exemptShare)
}

// settleExempt corrects the bill of work that bypassed the gate.
func (t *fairGate) settleExempt(f flow, predicted, units uint64) {
	if max(predicted, units) < exemptWork {
		return
	}
	if predicted < exemptWork {
		predicted = 0 // it was not billed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.billLocked(int64(units) - int64(predicted))
	if units >= heavyWork {
		t.fair.charge(t.fair.place(f, 0), units)
	}
}

// elapsedWork converts elapsed time to units, for work that is not counted in units.
func elapsedWork(took time.Duration) uint64 { return uint64(max(took, 0) / workUnitTime) }
