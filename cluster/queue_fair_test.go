// Tests of fair shares: turns, predicted costs, and batches of an entry or a frame that did not
// run.

package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func batchOf(id, command uint64, cost uint64) *call {
	c := newLocalCall([]byte("g"), 1, time.Now().Add(time.Hour)).withWorkload(Workload{Conn: id,
		Command: command, Shape: command})
	c.work = []uint64{cost} // what it will turn out to do
	return c
}

const (
	heavyCommand = 1<<40 + 1
	lightCommand = 2<<40 + 2
	newCommand   = 3<<40 + 3
)

// turns has flows queue heavy work all the time, one batch each, and gives so many turns. It
// returns the work of each flow.
func turns(t *testing.T, q *queue, costs map[uint64]uint64, count int) map[uint64]uint64 {
	t.Helper()
	got := map[uint64]uint64{}
	for id := range uint64(len(costs)) {
		q.push(batchOf(id+1, heavyCommand, costs[id+1]))
	}
	for range count {
		light := batchOf(1000, lightCommand, 10)
		q.push(light)
		if calls := q.take(nil, 1); len(calls) != 1 || calls[0] != light {
			t.Fatalf("%d calls are taken with a light one that waits", len(calls))
		}
		q.charge(light, 10, 0)
		calls := q.takeHeavy(nil, maxEntryBatches)
		if len(calls) != 1 {
			t.Fatalf("%d heavy calls have their turn together", len(calls))
		}
		c := calls[0]
		got[c.workload.Conn] += c.work[0]
		q.charge(c, c.work[0], 0)
		q.push(batchOf(c.workload.Conn, heavyCommand, costs[c.workload.Conn]))
	}
	return got
}

// However many heavy batches wait, a light batch is in the next entry, after at most one turn.
// Flows take turns.
func TestTurnsGoRound(t *testing.T) {
	q := newQueue(&costs{})
	q.costs.record(Workload{Command: heavyCommand}, 10_000_000)
	want := map[uint64]uint64{}
	for id := range uint64(20) {
		want[id+1] = 10_000_000
	}
	for id, work := range turns(t, q, want, 200) {
		if work != 10*want[id] {
			t.Errorf("flow %d did %d units", id, work)
		}
	}
}

// Shares are equal by work, not by batches.
func TestSharesAreOfWork(t *testing.T) {
	q := newQueue(&costs{})
	q.costs.record(Workload{Command: heavyCommand}, 10_000_000)
	got := turns(t, q, map[uint64]uint64{1: 10_000_000, 2: 1_000_000, 3: 5_000_000}, 400)
	for id, work := range got {
		if diff := int64(work) - int64(got[1]); diff > 10_000_000 || diff < -10_000_000 {
			t.Errorf("flow %d did %d units, and another %d", id, work, got[1])
		}
	}
}

// The history of a command predicts a heavy batch of a new connection. A command without history is
// heavy only in a cautious queue.
func TestWhatIsExpected(t *testing.T) {
	q := newQueue(&costs{})
	q.costs.record(Workload{Command: heavyCommand}, 10_000_000)
	q.costs.record(Workload{Command: lightCommand}, 10)
	heavy := func(c *call) bool {
		q.push(c)
		return c.heavy
	}
	if !heavy(batchOf(1, heavyCommand, 0)) || heavy(batchOf(2, lightCommand, 0)) ||
		heavy(batchOf(3, newCommand, 0)) || heavy(newLocalCall(nil, 1, time.Now())) {
		t.Error("with nothing else to go by")
	}
	if c := newLocalCall(make([]byte, heavyWork*bytesPerUnit), 1, time.Now()); !heavy(c) {
		t.Error("a large batch is light")
	}
	q.beCautious()
	if !q.isCautious() || heavy(batchOf(2, lightCommand, 0)) || !heavy(batchOf(3, newCommand, 0)) ||
		heavy(newLocalCall(nil, 1, time.Now())) {
		t.Error("in a strained queue")
	}
	debtor := batchOf(4, lightCommand, 0)
	q.push(debtor)
	q.charge(debtor, 10_000_000, 0)
	if q.costs.record(Workload{Command: lightCommand}, 0); !heavy(batchOf(4, lightCommand, 0)) {
		t.Error("a flow that was just served much does not wait")
	}
}

// A flow that owes nothing is next, however many wait: it may ask for little.
func TestFreshSourceIsNext(t *testing.T) {
	q := newQueue(&costs{})
	q.costs.record(Workload{Command: heavyCommand}, 10_000_000)
	want := map[uint64]uint64{}
	for id := range uint64(20) {
		want[id+1] = 10_000_000
	}
	turns(t, q, want, 25) // in the midst of a round
	q.beCautious()
	c := batchOf(77, newCommand, 0)
	if q.push(c); !c.heavy {
		t.Fatal("it is light")
	}
	if got := q.takeHeavy(nil, 1); len(got) != 1 || got[0] != c {
		t.Errorf("flow %d is next", got[0].workload.Conn)
	}
	c = batchOf(78, newCommand, 0)
	c.workload.Light = true
	if q.push(c); c.heavy {
		t.Error("a command that cannot do much waits for a turn before it was ever seen")
	}
}

// A flow that takes one turn and never returns is forgotten eventually; one that waits is passed by
// one newcomer at most.
func TestFlowsAreBounded(t *testing.T) {
	q := newQueue(&costs{})
	q.costs.record(Workload{Command: heavyCommand}, 10_000_000)
	debtor := batchOf(1, heavyCommand, 0)
	q.push(debtor)
	q.takeHeavy(nil, 1)
	q.charge(debtor, 10_000_000, 0)
	q.push(batchOf(1, heavyCommand, 0))
	served := -1
	for turn := range 3 * maxFlows {
		q.push(batchOf(uint64(turn+2), heavyCommand, 0))
		c := q.takeHeavy(nil, 1)[0]
		if c.flow.id == 1 {
			served = turn
		}
		if q.charge(c, 10_000_000, 0); len(q.fair.finishTags) > maxFlows {
			t.Fatalf("%d flows are remembered", len(q.fair.finishTags))
		}
	}
	if served < 0 || served > 2 { // the first newcomer came in the same turn
		t.Errorf("the one that waits was served in turn %d", served)
	}
}

// Clients that open a connection for each request, a light client beside each: the light ones wait
// for nobody, though they were heavy once. Heavy ones that stay connected wait for about as many
// turns as there are others, and those that do not have every second turn at least.
func TestReconnectingFlows(t *testing.T) {
	for _, staying := range []int{1, 2, 20} {
		for _, reconnecting := range []int{1, 2, 12} {
			q := newQueue(&costs{})
			q.costs.record(Workload{Command: heavyCommand}, 10_000_000)
			q.costs.record(Workload{Command: lightCommand}, 10)
			all := staying + reconnecting
			since := make([]int, all+1) // the turn after which a flow began to wait, by its id
			for id := 1; id <= all; id++ {
				q.push(batchOf(uint64(id), heavyCommand, 0))
			}
			stays, reconnects := 0, 0 // the longest waits after the first round
			for turn := range maxFlows / 2 {
				c := q.takeHeavy(nil, 1)[0]
				q.charge(c, 10_000_000, 0)
				light := batchOf(c.flow.id, lightCommand, 10)
				if q.push(light); light.heavy {
					t.Fatal("a light one of a client that was heavy once waits for a turn")
				}
				q.take(nil, 1)
				id := int(c.flow.id)
				if id <= staying {
					stays = max(stays, turn-since[id])
					since[id] = turn + 1
				} else {
					if id > all {
						reconnects = max(reconnects, turn-since[id])
					}
					id = len(since)
					since = append(since, turn+1)
				}
				q.push(batchOf(uint64(id), heavyCommand, 0))
			}
			for id := 1; id <= staying; id++ {
				stays = max(stays, maxFlows/2-since[id])
			}
			if stays > 2*(all-1) || reconnects > 2*reconnecting {
				t.Errorf("of %d clients %d reconnect, and wait for %d turns; the others for %d",
					all, reconnecting, reconnects, stays)
			}
		}
	}
}

// A flow in debt waits for its turn with what nobody knows to be light.
func TestDebtDelaysTheUnknown(t *testing.T) {
	q := newQueue(&costs{})
	q.costs.record(Workload{Command: lightCommand}, 10)
	debtor := batchOf(1, heavyCommand, 0)
	if q.push(debtor); debtor.heavy {
		t.Fatal("the first one is known to be heavy")
	}
	q.charge(debtor, 10_000_000, 0)
	unknown, light, other := batchOf(1, newCommand, 0), batchOf(1, lightCommand, 0),
		batchOf(2, newCommand, 0)
	q.push(unknown)
	q.push(light)
	if q.push(other); !unknown.heavy || light.heavy || other.heavy {
		t.Errorf("an unknown one waits: %v; a light one: %v; an unknown one of another: %v",
			unknown.heavy, light.heavy, other.heavy)
	}
}

// Calls that are served together are in order.
func TestTurnsTogether(t *testing.T) {
	q := newQueue(&costs{})
	const units = 2 * maxEntryBatches
	for i := range uint64(units) {
		f := flow{id: i + 1}
		q.fair.finishTags = map[flow]uint64{f: 1 + i*7919%units}
		q.push(batchOf(f.id, lightCommand, 0))
	}
	q.withdraw(q.heavy[5])
	var last *call
	for _, most := range []int{maxEntryBatches, 1, 1, units} {
		taken := q.takeHeavy(nil, most)
		if len(taken) != min(most, maxEntryBatches) && !q.empty() {
			t.Fatalf("%d of %d have their turn", len(taken), most)
		}
		for _, c := range taken {
			if last != nil && !last.before(&c.place) {
				t.Fatalf("%+v came behind %+v", c, last)
			}
			last = c
		}
	}
	if !q.empty() || q.bytes != 0 {
		t.Errorf("%d calls and %d bytes are left", len(q.heavy), q.bytes)
	}
}

func TestCosts(t *testing.T) {
	var c costs
	one, other := Workload{Command: 5, Shape: 8<<32 | 8}, Workload{Command: 5, Shape: 9<<32 | 9}
	if _, known := c.estimate(one); known {
		t.Error("an empty table knows something")
	}
	c.record(one, 1<<20)
	c.record(one, 1<<10)
	if got, _ := c.estimate(one); got < 1<<19 || got > 1<<20 {
		t.Errorf("after one light batch %d are expected", got)
	}
	for range 30 {
		c.record(one, 0)
	}
	if got, known := c.estimate(one); got >= 2*costGrain || !known {
		t.Errorf("after many light batches %d are expected", got)
	}
	c.record(one, 1<<63)
	if got, known := c.estimate(one); got < heavyWork || !known {
		t.Errorf("after an endless one %d", got)
	}
	if _, known := c.estimate(Workload{Command: 5 + 1<<32*uint64(len(c.slots))}); known {
		t.Error("another hash in the same slot is taken for it")
	}
	if got, known := c.estimate(other); got < heavyWork || !known {
		t.Error("the command is not asked where the shape is new")
	}
	for range 30 {
		c.record(other, 0)
	}
	if got, _ := c.estimate(other); got >= 2*costGrain {
		t.Errorf("a light key of a command that is heavy elsewhere is expected to do %d", got)
	}
	if got, _ := c.estimate(one); got < heavyWork {
		t.Errorf("a heavy key of a command that is light elsewhere is expected to do %d", got)
	}
}

// A command whose cost does not depend on its key takes one slot, however many keys there are.
func TestCostsOfOneCommand(t *testing.T) {
	var c costs
	for i := range uint64(1000) {
		c.record(Workload{Command: 5, Shape: i<<32 | i | 1}, costGrain-1)
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

// A queue that never empties keeps only what waits.
func TestQueueDoesNotGrow(t *testing.T) {
	q := newQueue(&costs{})
	// each fills an entry
	unit := func() *call { return &call{batches: make([][]byte, 1), count: MaxBatchRequests} }
	const waiting = 100
	for range waiting {
		q.push(unit())
	}
	for range 100 * waiting {
		q.push(unit())
		if len(q.take(nil, 1)) != 1 {
			t.Fatal("not one unit")
		}
	}
	if len(q.light)-q.head != waiting || cap(q.light) > 8*waiting {
		t.Errorf("%d calls wait in an array of %d", len(q.light)-q.head, cap(q.light))
	}
}

func TestFairGate(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var s fairGate
		never := make(chan struct{})
		first := s.acquire(flow{id: 1}, time.Hour, never)
		var order []uint64
		var mu sync.Mutex
		var wg sync.WaitGroup
		enter := func(id uint64, at int) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				w := s.acquire(flow{id: id}, time.Hour, never)
				mu.Lock()
				order = append(order, id)
				mu.Unlock()
				s.release(w, 1000)
			}()
			eventually(t, "the next waits", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.waiting) == at
			})
		}
		s.fair.charge(place{flow: flow{id: 2}}, 500) // it has had more than the others
		enter(2, 1)
		enter(3, 2)
		enter(4, 3)
		if w := s.acquire(flow{id: 5}, time.Nanosecond, never); w != nil {
			t.Error("two are let in")
		}
		stop := make(chan struct{})
		close(stop)
		if w := s.acquire(flow{id: 5}, time.Hour, stop); w != nil {
			t.Error("one is let in that is to stop")
		}
		s.release(first, 0)
		wg.Wait()
		if fmt.Sprint(order) != "[3 4 2]" {
			t.Errorf("order %v", order)
		}
		if s.busy || len(s.waiting) != 0 {
			t.Error("it is still busy")
		}
	})
}

// Who opens a connection for each piece of work does not keep the gate from one that stays.
func TestFairGateOfReconnectingFlows(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var s fairGate
		never := make(chan struct{})
		served := make(chan *ticket)
		enter := func(id uint64, waiting int) {
			go func() { served <- s.acquire(flow{id: id}, time.Hour, never) }()
			eventually(t, "the next waits", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return len(s.waiting) == waiting
			})
		}
		s.release(s.acquire(flow{id: 1}, time.Hour, never), 1000)
		holder := s.acquire(flow{id: 2}, time.Hour, never)
		enter(1, 1)
		turns := 0
		for ; holder.flow.id != 1 && turns < 100; turns++ {
			enter(uint64(3+turns), 2)
			s.release(holder, 1000)
			holder = <-served
		}
		if turns > 3 {
			t.Errorf("the one that stays waited for %d turns", turns)
		}
		s.release(holder, 0)
		s.release(<-served, 0)
	})
}

// Heavy writes and heavy reads, which exclude each other, have one turn together, so that a light
// write waits for one of them at the most. Who no longer leads gives it back.
func TestHeavyWritesTakeTurnsWithReads(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		load := Workload{Conn: 2, Command: heavyCommand}
		lead.writes.costs.record(load, 10_000_000)
		heavy := func() *call {
			u := newLocalCall([]byte("heavy"), 1, lead.leaderDeadline(load)).withWorkload(load)
			if err := lead.writes.push(u); err != nil || !u.heavy {
				t.Fatal(err)
			}
			synctest.Wait()
			return u
		}
		holder := lead.gate.acquire(flow{id: 1}, time.Hour, lead.closing)
		u := heavy()
		c.write(lead, "light")
		if got := c.read(lead, "all"); got != "light" {
			t.Errorf("beside a heavy read: %q", got)
		}
		lead.gate.release(holder, 0)
		received(t, "the heavy write", u.done)
		if _, err := u.take(); err != nil {
			t.Fatal(err)
		}
		free := func(what string) {
			t.Helper()
			eventually(t, what, func() bool {
				lead.gate.mu.Lock()
				defer lead.gate.mu.Unlock()
				return !lead.gate.busy
			})
		}
		free("a turn that has ended")

		holder = lead.gate.acquire(flow{id: 1}, time.Hour, lead.closing)
		u = heavy()
		c.net.isolate(lead.cfg.ID)
		eventually(t, "it no longer leads", func() bool { return lead.route.Load().lead == nil })
		lead.gate.release(holder, 0)
		free("a turn without leadership")
		received(t, "the refusal", u.done)
		if _, err := u.take(); err == nil {
			t.Error("it was served without a leader")
		}
	})
}

// The leader gives turns to the connections of a follower, not to the follower: one that has asked
// for nothing yet is not charged for its neighbour's work.
func TestForwardedConnectionsHaveTurnsOfTheirOwn(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, other := c.leader(), c.followers()[0]
		var wg sync.WaitGroup
		write := func(n *Node, conn uint64, work int, name string) {
			load := Workload{Conn: conn, Command: heavyCommand}
			n.costs.record(load, 10_000_000)
			wg.Go(func() {
				batch := fmt.Sprintf("work:%d:%s", work, name)
				if _, err := n.Write(context.Background(), load, []byte(batch), 1); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		waiting := func(calls int) {
			eventually(t, fmt.Sprint(calls, " calls wait"), func() bool {
				lead.writes.mu.Lock()
				defer lead.writes.mu.Unlock()
				return len(lead.writes.heavy) == calls
			})
		}
		write(other, 1, 4_000_000, "much")
		wg.Wait()
		write(lead, 3, 2_000_000, "less")
		wg.Wait()
		holder := lead.gate.acquire(flow{id: 9}, time.Hour, lead.closing)
		write(lead, 3, 2_000_000, "more")
		waiting(1)
		write(other, 2, 2_000_000, "first")
		waiting(2)
		lead.gate.release(holder, 0)
		wg.Wait()
		const want = "work:4000000:much work:2000000:less work:2000000:first work:2000000:more"
		if got := strings.Join(c.converged(), " "); got != want {
			t.Errorf("served %s", got)
		}
	})
}

// Small work bypasses the gate until it adds up to much.
func TestExemptWorkIsBounded(t *testing.T) {
	var s fairGate
	done := uint64(0)
	for range 1000 {
		if !s.exempt(20_000) { // half a millisecond
			break
		}
		s.settleExempt(flow{id: 1}, 20_000, 20_000)
		done += 20_000
	}
	if took := time.Duration(done) * workUnitTime; took > 2*exemptBurst {
		t.Errorf("%v of work took no turn", took)
	}
	var atOnce fairGate
	exempt := 0
	for ; exempt < 1000 && atOnce.exempt(100_000); exempt++ {
	}
	if took := time.Duration(exempt*100_000) * workUnitTime; took > 2*exemptBurst {
		t.Errorf("%v of work that has not ended takes no turn", took)
	}
	if !s.exempt(exemptWork-1) || s.exempt(heavyWork) {
		t.Error("what is tiny is always free, what is heavy never")
	}
}

// TestPredictionsAreNotTrusted has many do at once what was cheap before, or never seen, while
// another has the turn: of reads little more runs than was predicted, and of what cannot be aborted
// a few pieces. All are answered at their turn.
func TestPredictionsAreNotTrusted(t *testing.T) {
	const many = 64
	cheap := Workload{Command: heavyCommand, Shape: heavyCommand}
	unseen := Workload{Command: newCommand, Shape: newCommand}
	atOnce := func(t *testing.T, n *Node, load Workload, run func(Workload) error,
		meanwhile func(what string)) {
		holder := n.gate.acquire(flow{id: many}, time.Hour, n.closing)
		var wg sync.WaitGroup
		for k := range uint64(many) {
			load := load
			load.Conn = k
			wg.Go(func() {
				if err := run(load); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		meanwhile(fmt.Sprintf("of a command known as cheap: %v", load.Command == cheap.Command))
		n.gate.release(holder, 0)
		wg.Wait()
	}
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		machine := c.toys[n.cfg.ID]
		c.write(n, "before")
		for _, load := range []Workload{cheap, unseen} {
			if load == cheap {
				n.costs.record(load, 0)
			}
			before := machine.readWork.Load()
			read := func(load Workload) error {
				_, err := n.ReadLocal(load, []byte("work:10000000:x"))
				return err
			}
			atOnce(t, n, load, read, func(what string) {
				if work := machine.readWork.Load() - before; work > many*4*exemptWork {
					t.Errorf("reads %s: %d units of work without a turn", what, work)
				}
			})
			if work := machine.readWork.Load() - before; work < many*10_000_000 {
				t.Errorf("%d units of reads were done", work)
			}
		}
	})
	simulated(t, func(t *testing.T) {
		n := newCluster(t, 1, nil).leader()
		for _, load := range []Workload{cheap, unseen} {
			if load == cheap {
				n.costs.record(load, 0)
			}
			var running atomic.Int32
			end := make(chan struct{})
			work := func(load Workload) error {
				return n.Schedule(load, func() {
					running.Add(1)
					<-end
				})
			}
			atOnce(t, n, load, work, func(what string) {
				if got := running.Load(); got > maxExempt {
					t.Errorf("%d pieces of work %s run at once without a turn", got, what)
				}
				close(end)
			})
			if got := running.Load(); got != many {
				t.Errorf("%d of %d have run", got, many)
			}
		}
	})
}

// Batches that an entry did not run, because its budget was spent, run in a later one: each once,
// those of one caller in order, through any node.
func TestBatchesThatDidNotRunRunLater(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		const callers, rounds = 12, 8
		var wg sync.WaitGroup
		for _, n := range c.nodes {
			for k := range callers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					load := Workload{Conn: uint64(k + 1), Command: uint64(k+1) << 33,
						Shape: uint64(k+1) << 33}
					for i := range rounds {
						batch := fmt.Sprintf("work:%d:%s-%d-%d", (k%3)*quantum*2/3, n.cfg.ID, k, i)
						reply, err := n.Write(context.Background(), load, []byte(batch), 1)
						if err != nil || !strings.HasSuffix(string(reply), ":"+batch) {
							t.Errorf("%s: %q %v", batch, reply, err)
						}
						if reply, err := n.Read(context.Background(), load,
							[]byte(batch)); err != nil || string(reply) != "1" {
							t.Errorf("reading %s: %q %v", batch, reply, err)
						}
					}
				}()
			}
		}
		wg.Wait()
		next := map[string]int{}
		list := c.converged()
		for _, batch := range list {
			at := strings.LastIndexByte(batch, '-')
			if want := fmt.Sprint(next[batch[:at]]); batch[at+1:] != want {
				t.Errorf("%s stands where %s is due", batch, want)
			}
			next[batch[:at]]++
		}
		if len(list) != 3*callers*rounds {
			t.Errorf("%d batches ran, want %d", len(list), 3*callers*rounds)
		}
		cut := uint64(0)
		for _, toy := range c.toys {
			cut += toy.cut.Load()
		}
		if cut == 0 {
			t.Error("no entry was cut short: the test shows nothing")
		}
	})
}

// One frame answers batches that ran and batches that did not.
func TestFrameOfWhichAPartRan(t *testing.T) {
	a, err := decodeReplies(appendWork(appendReplies(nil, [][]byte{[]byte("ran"), {}}, 3, 10),
		[]uint64{7, 1 << 40}))
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(a.kinds) != fmt.Sprint([]byte{replyWhole, replyWhole, replyNotRun, replyNotRun,
		replyNotRun}) || fmt.Sprint(a.work) != "[7 1099511627776]" || a.replies[2] != nil {
		t.Errorf("%+v", a)
	}
}
