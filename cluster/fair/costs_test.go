// Tests of predicted costs.

package fair

import (
	"testing"
)

func TestCosts(t *testing.T) {
	var c Costs
	one, other := Workload{Command: 5, Shape: 8<<32 | 8}, Workload{Command: 5, Shape: 9<<32 | 9}
	if _, known := c.Estimate(one); known {
		t.Error("an empty table knows something")
	}
	c.Record(one, 1<<20)
	c.Record(one, 1<<10)
	if got, _ := c.Estimate(one); got < 1<<19 || got > 1<<20 {
		t.Errorf("after one light batch %d are expected", got)
	}
	for range 30 {
		c.Record(one, 0)
	}
	if got, known := c.Estimate(one); got >= 2*costGrain || !known {
		t.Errorf("after many light batches %d are expected", got)
	}
	c.Record(one, 1<<63)
	if got, known := c.Estimate(one); got < HeavyWork || !known {
		t.Errorf("after an endless one %d", got)
	}
	if _, known := c.Estimate(Workload{Command: 5 + 1<<32*uint64(len(c.slots))}); known {
		t.Error("another hash in the same slot is taken for it")
	}
	if got, known := c.Estimate(other); got < HeavyWork || !known {
		t.Error("the command is not asked where the shape is new")
	}
	for range 30 {
		c.Record(other, 0)
	}
	if got, _ := c.Estimate(other); got >= 2*costGrain {
		t.Errorf("a light key of a command that is heavy elsewhere is expected to do %d", got)
	}
	if got, _ := c.Estimate(one); got < HeavyWork {
		t.Errorf("a heavy key of a command that is light elsewhere is expected to do %d", got)
	}
}

// A command whose cost does not depend on its key takes one slot, however many keys there are.
func TestCostsOfOneCommand(t *testing.T) {
	var c Costs
	for i := range uint64(1000) {
		c.Record(Workload{Command: 5, Shape: i<<32 | i | 1}, costGrain-1)
	}
	used := 0
	for i := range c.slots {
		if c.slots[i].Load() != 0 {
			used++
		}
	}
	if used != 1 {
		t.Errorf("%d slots are in use", used)
	}
}
