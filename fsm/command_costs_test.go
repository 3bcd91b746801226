//go:build linux

// What a unit of work of a command takes: random calls, some of thousands of arguments, on values
// of thousands of elements.

package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/threadtime"
)

// The most that a call may take: so many times 25 ns a unit, the least of several tries, if it
// takes long at all. What a call takes besides is the price of an entry.
const (
	mostOfUnit = 8
	// other work on the machine slows some tries down, and only what is too slow takes more of them
	mostTries    = 15
	beyondDoubt  = 5 * mostOfUnit // what no other work makes of a call: two tries are enough
	keptPrice    = 3              // from which make costs keeps a call for later runs
	shortestCall = time.Millisecond
	unit         = 25 * time.Nanosecond
	// wordWork is what reading a word of an entry takes. It is not charged: the limits of requests
	// bound it.
	wordWork = 2
)

// costsData has values of thousands of elements under the keys that calls of their groups use.
const costsData = `for i = 1, 5000 do
	local v = 'v' .. i
	redis.call('hset', 'h1', v, i) redis.call('zadd', 'z1', i % 50, v) redis.call('rpush', 'l1', v)
	redis.call('sadd', 's1', v) redis.call('xadd', 'x1', i .. '-1', 'f', v)
	redis.call('geoadd', 'g1', i % 90, i % 60, v) redis.call('pfadd', 'k3', v)
	redis.call('set', v, i, 'px', 100000 + i)
	if i % 2 == 0 then redis.call('sadd', 's2', v) redis.call('zadd', 'z2', i, v)
		redis.call('hset', 'h2', v, i) redis.call('hpexpire', 'h2', 100000 + i, 'fields', 1, v)
		redis.call('rpush', 'l2', 1) end
end
redis.call('xgroup', 'create', 'x1', 'm1', '0') redis.call('setrange', 'k1', 100000, 'v')
redis.call('set', 'k2', string.rep('ab', 50000))`

// manyElements makes that data.
func manyElements() [][]string {
	return [][]string{{"EVAL", costsData, "0"},
		{"XREADGROUP", "GROUP", "m1", "m1", "COUNT", "3000", "STREAMS", "x1", ">"}}
}

// costsMachine measures calls on a machine with some data.
type costsMachine struct {
	t        testing.TB
	snapshot []byte
	*Machine
	keys     int
	shortest time.Duration // calls that take less do not matter
}

func newCostsMachine(t testing.TB, shortest time.Duration, data [][]string) *costsMachine {
	c := &costsMachine{t: t, Machine: newestMachine(testTable()), shortest: shortest}
	for _, words := range data {
		reply := mustApply(t, c.Machine, c.Index()+1, &Entry{ClockMs: 1, WallUs: 1,
			Batches: [][]byte{request(words...)}}, true).Replies[0]
		if reply[0] == '-' {
			t.Fatalf("%s: %s", words[0], reply)
		}
	}
	c.keys, c.snapshot = c.ks.Len(), snapshotBytes(t, c.Snapshot())
	return c
}

// renew gives the machine its data back, and an interpreter: no call pays for making that.
func (c *costsMachine) renew() {
	c.Machine = restore(c.t, c.snapshot, testTable())
	mustApply(c.t, c.Machine, c.Index()+1, &Entry{ClockMs: c.ClockMs() + 1, WallUs: 1,
		Batches: [][]byte{request("EVAL", "return 1", "0")}}, true)
}

// run returns the time and the work of a call.
func (c *costsMachine) run(call [][]byte) (took time.Duration, work uint64) {
	c.t.Helper()
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2, Cmds: [][][]byte{call}})
	e := &Entry{ClockMs: c.ClockMs() + 1, WallUs: 1, Batches: [][]byte{batch}}
	from := threadtime.Now()
	r := mustApply(c.t, c.Machine, c.Index()+1, e, true)
	return threadtime.Now() - from, r.Spent
}

// price returns how many units of time a unit of work of a call took, the least of some tries.
func (c *costsMachine) price(call [][]byte) (price float64, took time.Duration) {
	for i := range mostTries {
		if i > 0 {
			c.renew()
			runtime.GC() // else the call helps to collect what restoring has left
		}
		d, work := c.run(call)
		p := float64(d) / float64(unit) / float64(work+uint64(wordWork*len(call)))
		if i == 0 || p < price {
			price, took = p, d
		}
		if price <= mostOfUnit || d < c.shortest || i > 0 && price > beyondDoubt {
			break
		}
	}
	return price, took
}

// keptCosts has the worst calls that make costs has found, as String writes them.
const keptCosts = "../testdata/costs/commands.txt"

// costCall is a call whose last words are repeated, some with another number at their end each.
type costCall struct {
	words       []string
	last, times int
	seed        uint64
}

func (c *costCall) call() [][]byte {
	rnd, call := rand.New(rand.NewPCG(c.seed, 0)), commandtest.Args(c.words...)
	last := call[len(call)-c.last:]
	for range c.times {
		for _, w := range last {
			if rnd.IntN(2) == 0 {
				w = strconv.AppendInt(slices.Clip(w), rnd.Int64N(5000), 10)
			}
			call = append(call, w)
		}
	}
	return call
}

// String returns what parseCostCall reads.
func (c *costCall) String() string {
	var text strings.Builder
	fmt.Fprint(&text, c.last, " ", c.times, " ", c.seed)
	for _, w := range c.words {
		text.WriteString(" " + strconv.QuoteToASCII(w))
	}
	return text.String()
}

func parseCostCall(text string) (*costCall, error) {
	c := &costCall{}
	if _, err := fmt.Sscan(text, &c.last, &c.times, &c.seed); err != nil {
		return nil, err
	}
	for at := strings.IndexByte(text, '"'); at >= 0; at = strings.IndexByte(text, '"') {
		text = text[at:]
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return nil, err
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		c.words, text = append(c.words, word), text[len(quoted):]
	}
	if c.last > len(c.words) {
		return nil, errors.New("fewer words than are repeated")
	}
	return c, nil
}

// costCallOf makes a call of a command; every other one has its last words some thousand times.
func costCallOf(g *random.Calls, spec *commands.Spec) *costCall {
	c := &costCall{}
	for _, w := range g.Call([]*commands.Spec{spec}) {
		c.words = append(c.words, string(w))
	}
	if g.IntN(2) == 0 && len(c.words) > 1 {
		c.last, c.times = 1+g.IntN(min(3, len(c.words)-1)), 1000+g.IntN(3000)
		c.seed = g.Uint64()
	}
	return c
}

// TestCommandsAreChargedForTheirTime measures some calls of each command, on many elements and on
// long ones.
func TestCommandsAreChargedForTheirTime(t *testing.T) {
	detector.Skip(t)
	rounds, seed := 1, uint64(1) // always the same: what only chance finds is for make costs
	text := os.Getenv("COORDD_COSTS")
	if text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		seed = seeds.Of(t)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var kept []*costCall
	for _, text := range seeds.Kept(t, keptCosts) {
		call, err := parseCostCall(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		kept = append(kept, call)
	}
	worst := newCostsMachine(t, shortestCall, manyElements()).search(kept, rounds, seed)
	data, known := longElements(t)
	newCostsMachine(t, shortestLong, data).search(append(known, kept...), rounds, seed)
	if text != "" {
		seeds.Keep(t, keptCosts, worst)
	}
}

// search measures calls, and rounds of random calls of each command. It fails the test for the ones
// that are too cheap, and returns those that make costs keeps.
func (c *costsMachine) search(calls []*costCall, rounds int, seed uint64) (worst []string) {
	g := random.NewCalls(c.table, seed)
	g.Strays = 10
	type found struct {
		price float64
		took  time.Duration
		*costCall
	}
	var all []found
	measure := func(call *costCall) {
		words := call.call()
		if _, err := c.table.ResolveAt(c.level, words); err != nil {
			return // the node refuses it
		}
		if price, took := c.price(words); took >= c.shortest {
			all = append(all, found{price, took, call})
		}
	}
	for _, call := range calls {
		c.renew()
		measure(call)
	}
	for range rounds {
		for _, spec := range g.Specs {
			if strings.HasPrefix(spec.Name, "flush") {
				continue
			}
			if c.ks.Len() < c.keys/2 {
				c.renew()
			}
			measure(costCallOf(g, spec))
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.price, a.price) })
	all = all[:min(len(all), 30)]
	for i, f := range all {
		c.t.Logf("%2d. %5.1f times, %v: %.150s", i+1, f.price, f.took, f)
		if f.price > mostOfUnit {
			c.t.Errorf("%.1f times its charge, %v: %.150s", f.price, f.took, f)
		}
		if f.price > keptPrice {
			worst = append(worst, f.String())
		}
	}
	return worst
}
