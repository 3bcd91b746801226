// What a batch costs: counted in units of work, and predicted from earlier ones.

package fair

import (
	"math"
	"sync/atomic"
	"time"
)

// Work is counted in the machine's units of at most workUnitTime each.
const (
	workUnitTime = 25 * time.Nanosecond
	// HeavyWork is the cost from which a batch is heavy: about 4 ms.
	HeavyWork = 160_000
	// Quantum is how much work heavy batches that run together are predicted to do, unless one
	// alone does more. It also bounds one pass over light reads. The machine ends an entry at about
	// the same amount.
	Quantum = 2_500_000
	// BytesPerUnit is how many bytes of requests and replies are copied, checked, stored and sent
	// in one unit of work.
	BytesPerUnit = 4
)

// Workload says which flow a batch belongs to and what it does, as far as the caller knows. It
// decides when and whether the batch runs, never what it does.
type Workload struct {
	Conn uint64 // the connection; 0: nobody, never charged
	// a hash of the commands; 0: unknown. Batches with equal hashes are expected to cost alike
	Command uint64
	Shape   uint64 // a hash of the commands and the first key
	Light   bool   // work is O(log n) besides the bytes, whatever the batches were never seen to do
	// how long it waits for a leader; 0: as long as Config says, negative: not at all
	LeaderWait time.Duration
}

// Costs predicts the cost of batches from earlier ones, by hash. It is a table of hints: colliding
// entries overwrite each other.
//
// A slot holds the upper half of the hash, a number of units that is a multiple of costGrain, and
// two marks.
type Costs struct {
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

func (c *Costs) slot(key uint64) *atomic.Uint64 { return &c.slots[key%uint64(len(c.slots))] }

// lookup returns the units and marks noted for key, 0 if there are none.
func (c *Costs) lookup(key uint64) uint64 {
	v := c.slot(key).Load()
	if key == 0 || v>>32 != key>>32 {
		return 0
	}
	return v & math.MaxUint32
}

// learn notes that a batch with this key did units of work (a multiple of costGrain), where old was
// noted before. It adopts a higher value at once and a lower one by half. It returns the marks.
func (c *Costs) learn(key, old, units uint64) (marks uint64) {
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

// Estimate predicts what a batch costs, and reports whether the prediction rests on an earlier
// batch.
func (c *Costs) Estimate(load Workload) (units uint64, known bool) {
	v := c.lookup(load.Command)
	if v&costVaries != 0 {
		if shape := c.lookup(load.Shape); shape != 0 {
			v = shape
		}
	}
	return v / costGrain * costGrain, v != 0 || load.Command == 0 || load.Light
}

// Record learns what a batch cost. A new shape starts from the cost of its command.
func (c *Costs) Record(load Workload, units uint64) {
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

// ElapsedWork converts elapsed time to units, for work that is not counted in units.
func ElapsedWork(took time.Duration) uint64 { return uint64(max(took, 0) / workUnitTime) }
