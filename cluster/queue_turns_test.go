// Tests of fair shares: turns, the doors to them, and batches of an entry or a frame that did not
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

	"github.com/coordd/coordd/cluster/fair"
)

func batchOf(id, command uint64, cost uint64) *call {
	load := fair.Workload{Conn: id, Command: command, Shape: command}
	c := newLocalCall([]byte("g"), 1, time.Now().Add(time.Hour)).withWorkload(load)
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
		if calls := q.dequeue(nil, 1); len(calls) != 1 || calls[0] != light {
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
	q := newQueue(&fair.Costs{})
	q.costs.Record(fair.Workload{Command: heavyCommand}, 10_000_000)
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
	q := newQueue(&fair.Costs{})
	q.costs.Record(fair.Workload{Command: heavyCommand}, 10_000_000)
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
	q := newQueue(&fair.Costs{})
	q.costs.Record(fair.Workload{Command: heavyCommand}, 10_000_000)
	q.costs.Record(fair.Workload{Command: lightCommand}, 10)
	heavy := func(c *call) bool {
		q.push(c)
		return c.heavy
	}
	if !heavy(batchOf(1, heavyCommand, 0)) || heavy(batchOf(2, lightCommand, 0)) ||
		heavy(batchOf(3, newCommand, 0)) || heavy(newLocalCall(nil, 1, time.Now())) {
		t.Error("with nothing else to go by")
	}
	if c := newLocalCall(make([]byte, fair.HeavyWork*fair.BytesPerUnit), 1, time.Now()); !heavy(c) {
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
	q.costs.Record(fair.Workload{Command: lightCommand}, 0)
	if !heavy(batchOf(4, lightCommand, 0)) {
		t.Error("a flow that was just served much does not wait")
	}
}

// A flow that owes nothing is next, however many wait: it may ask for little.
func TestFreshSourceIsNext(t *testing.T) {
	q := newQueue(&fair.Costs{})
	q.costs.Record(fair.Workload{Command: heavyCommand}, 10_000_000)
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

// Clients that open a connection for each request, a light client beside each: the light ones wait
// for nobody, though they were heavy once. Heavy ones that stay connected wait for about as many
// turns as there are others, and those that do not have every second turn at least.
func TestReconnectingFlows(t *testing.T) {
	const rounds = 512 // fewer flows than are remembered
	for _, staying := range []int{1, 2, 20} {
		for _, reconnecting := range []int{1, 2, 12} {
			q := newQueue(&fair.Costs{})
			q.costs.Record(fair.Workload{Command: heavyCommand}, 10_000_000)
			q.costs.Record(fair.Workload{Command: lightCommand}, 10)
			all := staying + reconnecting
			since := make([]int, all+1) // the turn after which a flow began to wait, by its id
			for id := 1; id <= all; id++ {
				q.push(batchOf(uint64(id), heavyCommand, 0))
			}
			stays, reconnects := 0, 0 // the longest waits after the first round
			for turn := range rounds {
				c := q.takeHeavy(nil, 1)[0]
				q.charge(c, 10_000_000, 0)
				light := batchOf(c.Flow.ID, lightCommand, 10)
				if q.push(light); light.heavy {
					t.Fatal("a light one of a client that was heavy once waits for a turn")
				}
				q.dequeue(nil, 1)
				id := int(c.Flow.ID)
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
				stays = max(stays, rounds-since[id])
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
	q := newQueue(&fair.Costs{})
	q.costs.Record(fair.Workload{Command: lightCommand}, 10)
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
	q := newQueue(&fair.Costs{})
	const units = 2 * maxEntryBatches
	for i := range uint64(units) {
		f := fair.Flow{ID: i + 1}
		q.fair = fair.Queue{}
		q.fair.Charge(fair.Place{Flow: f}, 1+i*7919%units)
		q.push(batchOf(f.ID, lightCommand, 0))
	}
	q.withdraw(q.heavy[5])
	var last *call
	for _, most := range []int{maxEntryBatches, 1, 1, units} {
		taken := q.takeHeavy(nil, most)
		if len(taken) != min(most, maxEntryBatches) && !q.empty() {
			t.Fatalf("%d of %d have their turn", len(taken), most)
		}
		for _, c := range taken {
			if last != nil && last.Compare(&c.Place) >= 0 {
				t.Fatalf("%+v came behind %+v", c, last)
			}
			last = c
		}
	}
	if !q.empty() || q.bytes != 0 {
		t.Errorf("%d calls and %d bytes are left", len(q.heavy), q.bytes)
	}
}

// A queue that never empties keeps only what waits.
func TestQueueDoesNotGrow(t *testing.T) {
	q := newQueue(&fair.Costs{})
	// each fills an entry
	unit := func() *call { return &call{batches: make([][]byte, 1), count: MaxBatchRequests} }
	const waiting = 100
	for range waiting {
		q.push(unit())
	}
	for range 100 * waiting {
		q.push(unit())
		if len(q.dequeue(nil, 1)) != 1 {
			t.Fatal("not one unit")
		}
	}
	if len(q.light)-q.head != waiting || cap(q.light) > 8*waiting {
		t.Errorf("%d calls wait in an array of %d", len(q.light)-q.head, cap(q.light))
	}
}

// Heavy writes and heavy reads, which exclude each other, have one turn together, so that a light
// write waits for one of them at the most. Who no longer leads gives it back.
func TestHeavyWritesTakeTurnsWithReads(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		load := fair.Workload{Conn: 2, Command: heavyCommand}
		lead.writes.costs.Record(load, 10_000_000)
		heavy := func() *call {
			u := newLocalCall([]byte("heavy"), 1, lead.leaderDeadline(load)).withWorkload(load)
			if err := lead.writes.push(u); err != nil || !u.heavy {
				t.Fatal(err)
			}
			synctest.Wait()
			return u
		}
		holder := lead.gate.Acquire(fair.Flow{ID: 1}, time.Hour, lead.closing)
		u := heavy()
		c.write(lead, "light")
		if got := c.read(lead, "all"); got != "light" {
			t.Errorf("beside a heavy read: %q", got)
		}
		lead.gate.Release(holder, 0)
		received(t, "the heavy write", u.done)
		if _, err := u.result(); err != nil {
			t.Fatal(err)
		}
		free := func(what string) {
			t.Helper()
			eventually(t, what, func() bool {
				w := lead.gate.Acquire(fair.Flow{ID: 3}, time.Nanosecond, lead.closing)
				if w == nil {
					return false
				}
				lead.gate.Release(w, 0)
				return true
			})
		}
		free("a turn that has ended")

		holder = lead.gate.Acquire(fair.Flow{ID: 1}, time.Hour, lead.closing)
		u = heavy()
		c.net.isolate(lead.cfg.ID)
		eventually(t, "it no longer leads", func() bool { return lead.route.Load().lead == nil })
		lead.gate.Release(holder, 0)
		free("a turn without leadership")
		received(t, "the refusal", u.done)
		if _, err := u.result(); err == nil {
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
			load := fair.Workload{Conn: conn, Command: heavyCommand}
			n.costs.Record(load, 10_000_000)
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
		holder := lead.gate.Acquire(fair.Flow{ID: 9}, time.Hour, lead.closing)
		write(lead, 3, 2_000_000, "more")
		waiting(1)
		write(other, 2, 2_000_000, "first")
		waiting(2)
		lead.gate.Release(holder, 0)
		wg.Wait()
		const want = "work:4000000:much work:2000000:less work:2000000:first work:2000000:more"
		if got := strings.Join(c.converged(), " "); got != want {
			t.Errorf("served %s", got)
		}
	})
}

// TestPredictionsAreNotTrusted has many do at once what was cheap before, or never seen, while
// another has the turn: of reads little more runs than was predicted, and of what cannot be aborted
// a few pieces. All are answered at their turn.
func TestPredictionsAreNotTrusted(t *testing.T) {
	const many = 64
	const tinyWork, mostExempt = 512, 4 // what bypasses a fair.Gate
	cheap := fair.Workload{Command: heavyCommand, Shape: heavyCommand}
	unseen := fair.Workload{Command: newCommand, Shape: newCommand}
	atOnce := func(t *testing.T, n *Node, load fair.Workload, run func(fair.Workload) error,
		meanwhile func(what string)) {
		holder := n.gate.Acquire(fair.Flow{ID: many}, time.Hour, n.closing)
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
		n.gate.Release(holder, 0)
		wg.Wait()
	}
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		machine := c.toys[n.cfg.ID]
		c.write(n, "before")
		for _, load := range []fair.Workload{cheap, unseen} {
			if load == cheap {
				n.costs.Record(load, 0)
			}
			before := machine.readWork.Load()
			read := func(load fair.Workload) error {
				_, err := n.ReadLocal(load, []byte("work:10000000:x"))
				return err
			}
			atOnce(t, n, load, read, func(what string) {
				if work := machine.readWork.Load() - before; work > many*4*tinyWork {
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
		for _, load := range []fair.Workload{cheap, unseen} {
			if load == cheap {
				n.costs.Record(load, 0)
			}
			var running atomic.Int32
			end := make(chan struct{})
			work := func(load fair.Workload) error {
				return n.Schedule(load, func() {
					running.Add(1)
					<-end
				})
			}
			atOnce(t, n, load, work, func(what string) {
				if got := running.Load(); got > mostExempt {
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
					load := fair.Workload{Conn: uint64(k + 1), Command: uint64(k+1) << 33,
						Shape: uint64(k+1) << 33}
					for i := range rounds {
						batch := fmt.Sprintf("work:%d:%s-%d-%d", (k%3)*fair.Quantum*2/3, n.cfg.ID,
							k, i)
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
