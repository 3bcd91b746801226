// Property tests of limits: random calls against simple models, and the promise that a limit of N
// never lets N+1 through in a window.

package commands

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// limitRun is a keyspace whose clock the test sets.
type limitRun struct {
	table *Table
	ks    *keyspace.Keyspace
	level uint64
	index uint64
	nowMs int64
}

func newLimitRun() *limitRun {
	return &limitRun{table: testTable(), ks: keyspace.New(), nowMs: 1}
}

// do runs a call in its own entry and reports whether it changed anything.
func (r *limitRun) do(call ...string) (reply string, changed bool) {
	r.index++
	r.ks.Begin(r.nowMs, keyspace.NewRevision(0, r.index, 0))
	before := r.ks.Sum()
	out := &RESP{Proto: 2}
	r.table.Run(&Call{
		Env: &Env{Keyspace: r.ks, Level: r.level, ClockMs: r.nowMs, WallUs: r.nowMs * 1000},
		Tx:  &Tx{Proto: 2}, Args: commandtest.Args(call...), Out: out})
	r.ks.End()
	return string(out.Buf), r.ks.Sum() != before
}

// bucket models a rate limit: a leaky bucket, filled by what passes, that drains evenly. Its level
// is a number of tokens.
type bucket struct {
	level  *big.Rat
	lastMs int64
}

func (b *bucket) drain(nowMs int64, perMs *big.Rat) {
	out := new(big.Rat).Mul(perMs, new(big.Rat).SetInt64(nowMs-b.lastMs))
	if b.lastMs = nowMs; b.level.Sub(b.level, out).Sign() < 0 {
		b.level.SetInt64(0)
	}
}

// ceil returns r rounded up.
func ceil(r *big.Rat) int64 {
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// take returns the model's reply to a call for quantity tokens.
func (b *bucket) take(nowMs, limit, count, periodMs, quantity int64) [5]int64 {
	perMs := big.NewRat(count, periodMs)
	perSecond := big.NewRat(count*1000, periodMs)
	b.drain(nowMs, perMs)
	then := new(big.Rat).Add(b.level, big.NewRat(quantity, 1))
	limited, retry := int64(0), int64(-1)
	if over := new(big.Rat).Sub(then, big.NewRat(limit, 1)); over.Sign() > 0 {
		limited = 1
		if quantity <= limit {
			retry = ceil(over.Quo(over, perSecond))
		}
	} else {
		b.level = then
	}
	free := new(big.Rat).Sub(big.NewRat(limit, 1), b.level)
	remaining := -ceil(free.Neg(free))
	return [5]int64{limited, limit, max(remaining, 0), retry,
		ceil(new(big.Rat).Quo(b.level, perSecond))}
}

func TestRateLimitsAgainstABucket(t *testing.T) {
	seed := seeds.Of(t)
	for round := range uint64(40) {
		g := rand.New(rand.NewPCG(seed, round))
		r := newLimitRun()
		burst, count, periodMs := g.Int64N(20), 1+g.Int64N(50), 1000*(1+g.Int64N(90))
		if g.IntN(3) == 0 {
			burst, count = g.Int64N(1e6), 1+g.Int64N(1e7)
		}
		b := &bucket{level: new(big.Rat), lastMs: r.nowMs}
		taken := &window{limit: burst + 1}
		for range 500 {
			if g.IntN(2) == 0 {
				r.nowMs += g.Int64N(1 + 4*periodMs/count)
			}
			if g.IntN(60) == 0 {
				r.nowMs += periodMs
			}
			quantity := int64(1)
			if g.IntN(3) == 0 {
				quantity = g.Int64N(burst + 3)
			}
			call := []string{"CL.THROTTLE", "k", fmt.Sprint(burst), fmt.Sprint(count),
				fmt.Sprint(periodMs / 1000), fmt.Sprint(quantity)}
			if quantity > 0 && g.IntN(2) == 0 {
				call = []string{"GCRA", "k", call[2], call[3], call[4] + ".000", "NUM_REQUESTS",
					call[5]}
			}
			reply, changed := r.do(call...)
			want := b.take(r.nowMs, burst+1, count, periodMs, quantity)
			if got := fmt.Sprintf("*5\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n:%d\r\n", want[0], want[1],
				want[2], want[3], want[4]); got != reply {
				t.Fatalf("round %d, at %d ms: %q\ncoordd %q\nmodel  %q", round, r.nowMs, call,
					reply, got)
			}
			if passed := want[0] == 0 && quantity > 0; changed != passed {
				t.Fatalf("round %d: %q changed something: %v, let through: %v", round, call,
					changed, passed)
			} else if passed {
				taken.add(t, r.nowMs, quantity, count, periodMs)
			}
			full, e := b.level.Sign() == 0, r.ks.DB(0).Find([]byte("k"))
			if (e == nil && !full) || (e != nil && full && e.Deadline() != r.nowMs) {
				// it exists through the millisecond
				t.Fatalf("round %d: the bucket is full: %v, and the key says otherwise", round,
					full)
			}
		}
	}
}

// window records what passed and checks every window that ends now: of any length, it holds at most
// the limit and what came back meanwhile.
type window struct {
	limit int64
	at    []int64 // ms
	n     []int64
}

func (w *window) add(t *testing.T, nowMs, n, count, periodMs int64) {
	t.Helper()
	w.at, w.n = append(w.at, nowMs), append(w.n, n)
	total := int64(0)
	for i := len(w.at) - 1; i >= 0; i-- {
		total += w.n[i]
		if back := (nowMs - w.at[i]) * count / periodMs; total > w.limit+back {
			t.Fatalf("%d in %d ms, with a limit of %d and %d in %d ms", total, nowMs-w.at[i],
				w.limit, count, periodMs)
		}
	}
}

// The retry time is exact: after that many seconds a refused call passes and, if they are whole,
// not a millisecond earlier.
func TestRetryAfterIsExact(t *testing.T) {
	g := rand.New(rand.NewPCG(seeds.Of(t), 2))
	for range 300 {
		r := newLimitRun()
		burst, count, period := g.Int64N(10), 1+g.Int64N(20), 1+g.Int64N(100)
		args := []string{"CL.THROTTLE", "k", fmt.Sprint(burst), fmt.Sprint(count),
			fmt.Sprint(period)}
		for range burst + 1 {
			r.do(args...)
		}
		reply, _ := r.do(args...)
		retry := (period + count - 1) / count
		if want := fmt.Sprintf(":1\r\n:%d\r\n:0\r\n:%d\r\n", burst+1,
			retry); reply[4:4+len(want)] != want {
			t.Fatalf("%q: %q, want %q", args, reply, want)
		}
		if period%count == 0 {
			r.nowMs += retry*1000 - 1
			if reply, _ = r.do(args...); reply[5] != '1' {
				t.Fatalf("%q a millisecond early: %q", args, reply)
			}
			r.nowMs++
		} else {
			r.nowMs += retry * 1000
		}
		if reply, _ = r.do(args...); reply[5] != '0' {
			t.Fatalf("%q in time: %q", args, reply)
		}
	}
}

// A fixed window: INCREX with UBOUND and ENX lets N pass, refuses the rest without a change, and
// starts the next window when its time is over.
func TestIncrexWindowAgainstACounter(t *testing.T) {
	g := rand.New(rand.NewPCG(seeds.Of(t), 3))
	for range 60 {
		r := newLimitRun()
		limit, windowMs := 1+g.Int64N(30), 1+g.Int64N(5000)
		endMs, n := int64(-1), int64(0)
		for range 400 {
			r.nowMs += g.Int64N(1+windowMs/limit) * g.Int64N(2)
			if r.nowMs > endMs {
				n = 0
			}
			by, refused := 1+g.Int64N(3), false
			saturate := g.IntN(4) == 0
			call := []string{"INCREX", "k", "BYINT", fmt.Sprint(by), "UBOUND", fmt.Sprint(limit),
				"PX", fmt.Sprint(windowMs), "ENX"}
			if saturate {
				call = append(call, "SATURATE")
			}
			switch {
			case n+by <= limit:
			case saturate:
				by = limit - n
			default:
				by, refused = 0, true
			}
			if n == 0 && !refused {
				endMs = r.nowMs + windowMs
			}
			n += by
			reply, changed := r.do(call...)
			if want := "*2\r\n:" + strconv.FormatInt(n, 10) + "\r\n:" + strconv.FormatInt(by, 10) +
				"\r\n"; reply != want {
				t.Fatalf("%q: %q, want %q", call, reply, want)
			}
			if refused && changed {
				t.Fatalf("%q was refused and changed something", call)
			}
		}
	}
}

// Random sums of INCREX equal those of big integers, within 64 bits and the bounds.
func TestIncrexAgainstBigIntegers(t *testing.T) {
	g := rand.New(rand.NewPCG(seeds.Of(t), 4))
	number := func() int64 {
		n := int64(g.Uint64() >> g.IntN(64))
		return n * (1 - 2*g.Int64N(2))
	}
	r := newLimitRun()
	for range 20000 {
		old, by, lower, upper, saturate := number(), number(), number(), number(), g.IntN(2) == 0
		call := []string{"INCREX", "k", "BYINT", fmt.Sprint(by), "LBOUND", fmt.Sprint(lower),
			"UBOUND", fmt.Sprint(upper)}
		if saturate {
			call = append(call, "SATURATE")
		}
		r.do("SET", "k", fmt.Sprint(old))
		reply, changed := r.do(call...)
		sum := new(big.Int).Add(big.NewInt(old), big.NewInt(by))
		over, under := sum.Cmp(big.NewInt(upper)) > 0, sum.Cmp(big.NewInt(lower)) < 0
		switch {
		case over:
			sum.SetInt64(upper)
		case under:
			sum.SetInt64(lower)
		}
		applied := new(big.Int).Sub(sum, big.NewInt(old))
		want, changes := fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", sum, applied), true
		switch {
		case lower > upper:
			want, changes = "-ERR LBOUND can't be greater than UBOUND\r\n", false
		case (over || under) && !saturate:
			want, changes = fmt.Sprintf("*2\r\n:%d\r\n:0\r\n", old), false
		case !applied.IsInt64():
			want, changes = "-ERR applied increment would overflow\r\n", false
		}
		if reply != want || (changed && !changes) {
			t.Fatalf("%d, %q: %q, want %q; changed: %v", old, call, reply, want, changed)
		}
	}
}

// Notifications of limits, as Redis 8.8's INCREX and the proposal of GCRA define them.
func TestNotificationsOfLimits(t *testing.T) {
	table, ks := testTable(), keyspace.New()
	var notified []string
	env := &Env{Keyspace: ks, ClockMs: 1, WallUs: 1e15,
		Notify: func(_ NotifyClass, event string, _ int, _ []byte) {
			notified = append(notified, event)
		}}
	for i, c := range []struct{ call, want string }{
		{"INCREX k BYINT 5", "incrby"},
		{"INCREX k BYFLOAT 0.5", "incrbyfloat"},
		{"INCREX k BYFLOAT 0.5 PERSIST", "incrbyfloat"},
		{"INCREX k EX 100", "incrby expire"},
		{"INCREX k EX 200 ENX", "incrby"},
		{"INCREX k PERSIST", "incrby persist"},
		{"INCREX k UBOUND 3", ""},
		{"INCREX k UBOUND 3 SATURATE EX 5", "incrby expire"},
		{"INCREX k EXAT 1", "del"},
		{"INCREX k EXAT 1", ""},
		{"INCREX k FOO", ""},
		{"CL.THROTTLE t 1 1 1", "set expire"},
		{"GCRA t 1 1 1", "set expire"},
		{"GCRA t 1 1 1", ""},
		{"CL.THROTTLE t 1 1 1 0", ""},
	} {
		notified = nil
		ks.Begin(1, keyspace.NewRevision(0, uint64(i+1), 0))
		table.Run(&Call{Env: env, Tx: &Tx{Proto: 2},
			Args: commandtest.Args(strings.Fields(c.call)...), Out: &RESP{Proto: 2}})
		ks.End()
		if got := strings.Join(notified, " "); got != c.want {
			t.Errorf("%s notified %q, want %q", c.call, got, c.want)
		}
	}
}
