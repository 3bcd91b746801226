// Random calls of the hash and sorted-set commands on coordd's table and on a real redis-server
// must give the same bytes. Particular cases are in testdata/commands.

package commands

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// testRun runs calls against its own keyspace, each in an entry.
type testRun struct {
	table *Table
	ks    *keyspace.Keyspace
	index uint64
	proto int
	level uint64 // 0: before the first
}

// testTable is the table of the commands on data.
var testTable = sync.OnceValue(func() *Table { return NewTable(Specs()) })

func newTestRun() *testRun {
	return &testRun{table: testTable(), ks: keyspace.New(), proto: 2}
}

// do returns the reply's bytes and whether the call changed the data.
func (r *testRun) do(args [][]byte) (reply []byte, changed bool) {
	r.index++
	out := &RESP{Proto: r.proto}
	before := r.ks.Sum()
	if spec, err := r.table.Resolve(args); err == nil && spec.Kind == Write {
		r.ks.Begin(1, keyspace.NewRevision(0, r.index, 0))
		defer r.ks.End()
	}
	r.table.Run(&Call{Env: &Env{Keyspace: r.ks, ClockMs: 1, Level: r.level},
		Tx: &Tx{Proto: r.proto}, Args: args, Out: out})
	return out.Buf, r.ks.Sum() != before
}

func TestRandomCallsAgainstRedis(t *testing.T) {
	real := commandtest.DialRedis(t)
	g := &callMaker{Rand: rand.New(rand.NewPCG(seeds.Of(t), 1))}
	each := 3000
	if tier.Soaking() {
		each = 30_000
	}
	for _, proto := range []int{2, 3} {
		for _, g.mode = range []callMode{small, largeByScore, largeByName} {
			if _, err := real.Do(commandtest.Args("HELLO", strconv.Itoa(proto))); err != nil {
				t.Fatal(err)
			}
			if _, err := real.Do(commandtest.Args("FLUSHALL")); err != nil {
				t.Fatal(err)
			}
			own := newTestRun()
			own.proto = proto
			compareCalls(t, own, real, append(g.fill(), g.calls(each)...))
		}
	}
}

func compareCalls(t *testing.T, own *testRun, real *commandtest.Conn, calls [][]string) {
	t.Helper()
	for n, call := range calls {
		args := commandtest.Args(call...)
		want, err := real.Do(args)
		if err != nil {
			t.Fatal(err)
		}
		got, changed := own.do(args)
		if !bytes.Equal(got, want) {
			t.Fatalf("call %d: %.1000q\ncoordd %.1000q\nredis  %.1000q", n, call, got, want)
		}
		if changed && got[0] == '-' {
			t.Fatalf("call %d: %.1000q changed the data and replied %q", n, call, got)
		}
	}
}

// A collection changes its form, which OBJECT ENCODING shows, at the same number of elements and
// bytes as on Redis.
func TestFormsChangeWhereRedisDoes(t *testing.T) {
	real := commandtest.DialRedis(t)
	var calls [][]string
	for i := range 514 {
		name := strconv.Itoa(i)
		calls = append(calls, []string{"HSET", "h", name, ""}, []string{"OBJECT", "ENCODING", "h"},
			[]string{"ZADD", "z", name, name}, []string{"OBJECT", "ENCODING", "z"})
	}
	for _, n := range []int{64, 65} {
		long := strings.Repeat("x", n)
		calls = append(calls, []string{"DEL", "h", "z"},
			[]string{"HSET", "h", "f", long}, []string{"OBJECT", "ENCODING", "h"},
			[]string{"DEL", "h"},
			[]string{"HSET", "h", long, ""}, []string{"OBJECT", "ENCODING", "h"},
			[]string{"HDEL", "h", long},
			[]string{"HSET", "h", "f", "v"}, []string{"HSET", "h", "f", long},
			[]string{"OBJECT", "ENCODING", "h"},
			[]string{"ZADD", "z", "-0", "m", "-0", long}, []string{"OBJECT", "ENCODING", "z"},
			[]string{"ZMSCORE", "z", "m", long},
			[]string{"ZREM", "z", long}, []string{"OBJECT", "ENCODING", "z"},
			[]string{"ZRANGESTORE", "h", "z", "0", "-1"},
			[]string{"OBJECT", "ENCODING", "h"})
	}
	compareCalls(t, newTestRun(), real, calls)
}

// A write command that changes nothing opens nothing for changes. It runs on a closed keyspace,
// which panics at a change: so it neither breaks a WATCH nor needs a log entry.
func TestCallsThatChangeNothing(t *testing.T) {
	r := newTestRun()
	for _, call := range [][]string{{"HSET", "h", "f", "v"}, {"ZADD", "z", "1", "a", "2", "b"}} {
		if reply, changed := r.do(commandtest.Args(call...)); !changed {
			t.Fatalf("%q changed nothing: %q", call, reply)
		}
	}
	changesNothing(t, r, [][]string{
		{"HSETNX", "h", "f", "w"}, {"HDEL", "h", "none"}, {"HDEL", "none", "f"},
		{"ZADD", "z", "1", "a"}, {"ZADD", "z", "NX", "5", "a"}, {"ZADD", "z", "XX", "5", "c"},
		{"ZADD", "none", "XX", "5", "c"},
		{"ZADD", "z", "GT", "0", "a"}, {"ZADD", "z", "LT", "INCR", "1", "a"},
		{"ZINCRBY", "z", "0", "a"}, {"ZADD", "z", "x", "a"},
		{"ZREM", "z", "none"}, {"ZREM", "none", "a"}, {"ZPOPMIN", "z", "0"}, {"ZPOPMAX", "none"},
		{"ZREMRANGEBYRANK", "z", "5", "9"}, {"ZREMRANGEBYSCORE", "z", "5", "9"},
		{"ZREMRANGEBYLEX", "z", "[c", "[d"},
		{"ZRANGESTORE", "none", "z", "5", "9"}, {"ZMPOP", "1", "none", "MIN"},
		{"ZINTERSTORE", "none", "2", "z", "none"}, {"ZDIFFSTORE", "none", "2", "z", "z"},
		{"ZUNIONSTORE", "none", "1", "none"},
	})
}

// changesNothing runs calls while the keyspace is closed for changes.
func changesNothing(t *testing.T, r *testRun, calls [][]string) {
	t.Helper()
	before := r.ks.Sum()
	for _, call := range calls {
		out := &RESP{Proto: 2}
		r.table.Run(&Call{Env: &Env{Keyspace: r.ks, ClockMs: 1}, Tx: &Tx{Proto: 2},
			Args: commandtest.Args(call...), Out: out})
		if len(out.Buf) == 0 {
			t.Errorf("%q: no reply", call)
		}
	}
	if r.ks.Sum() != before {
		t.Error("the running hash has changed")
	}
}

// BenchmarkWindow is one turn of a sliding window of 100 calls: trim, add, count.
func BenchmarkWindow(b *testing.B) {
	r := newTestRun()
	calls := [][][]byte{commandtest.Args("ZREMRANGEBYSCORE", "z", "-inf", ""),
		commandtest.Args("ZADD", "z", "", ""), commandtest.Args("ZCARD", "z")}
	out := &RESP{Proto: 2}
	x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 1}, Tx: &Tx{Proto: 2}, Out: out}
	b.ReportAllocs()
	for i := range b.N {
		calls[0][3] = strconv.AppendInt(calls[0][3][:0], int64(i-100), 10)
		calls[1][2] = strconv.AppendInt(calls[1][2][:0], int64(i), 10)
		calls[1][3] = calls[1][2]
		r.ks.Begin(1, keyspace.NewRevision(0, uint64(i), 0))
		for _, x.Args = range calls {
			out.Buf = out.Buf[:0]
			r.table.Run(x)
		}
		r.ks.End()
	}
}

// BenchmarkReentrant is a reentrant lock's use of its hash: HEXISTS, then HINCRBY.
func BenchmarkReentrant(b *testing.B) {
	r := newTestRun()
	calls := [][][]byte{commandtest.Args("HEXISTS", "lock", "owner:1"),
		commandtest.Args("HINCRBY", "lock", "owner:1", "1")}
	out := &RESP{Proto: 2}
	x := &Call{Env: &Env{Keyspace: r.ks, ClockMs: 1}, Tx: &Tx{Proto: 2}, Out: out}
	b.ReportAllocs()
	for i := range b.N {
		r.ks.Begin(1, keyspace.NewRevision(0, uint64(i), 0))
		for _, x.Args = range calls {
			out.Buf = out.Buf[:0]
			r.table.Run(x)
		}
		r.ks.End()
	}
}

// callMode limits random calls where Redis promises no order: a scan of a large set, or a range by
// name while scores differ.
type callMode int

const (
	small callMode = iota // all commands; the order of small sets is the same on both
	// sets past the bounds of the small form; no scans, no bounds by name
	largeByScore
	largeByName // the same with bounds by name; all scores are 0
)

// callMaker makes random calls. Keys, names and numbers are few, so that calls interact.
type callMaker struct {
	*rand.Rand
	mode callMode
}

// fill makes the sets large if the mode asks for it.
func (g *callMaker) fill() (calls [][]string) {
	if g.mode == small {
		return nil
	}
	for i := range 3 * 600 {
		key, name := strconv.Itoa(i%3), fmt.Sprintf("m%03d", i/3)
		calls = append(calls, []string{"HSET", "h" + key, name, "1"},
			[]string{"ZADD", "z" + key, g.score(), name})
	}
	return calls
}

func (g *callMaker) calls(n int) (calls [][]string) {
	for range n {
		calls = append(calls, g.call())
	}
	return calls
}

func (g *callMaker) pick(choices ...string) string { return choices[g.IntN(len(choices))] }

func (g *callMaker) key(kind string) string {
	if g.IntN(40) == 0 {
		kind = g.pick("h", "z", "s", "none")
	}
	return kind + strconv.Itoa(g.IntN(3))
}

func (g *callMaker) name() string {
	switch g.IntN(20) {
	case 0:
		return g.pick("", "\x00", "\xff", "NX", "inf", "1")
	case 1:
		return strings.Repeat("n", 60+g.IntN(4))
	}
	if g.mode != small {
		return fmt.Sprintf("m%03d", g.IntN(600))
	}
	return fmt.Sprintf("m%02d", g.IntN(30))
}

func (g *callMaker) names(n int) (names []string) {
	for range 1 + g.IntN(n) {
		names = append(names, g.name())
	}
	return names
}

func (g *callMaker) integer() string {
	if g.IntN(30) == 0 {
		return g.pick("", "x", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
			"01", " 1", "1.5", "-0")
	}
	return strconv.Itoa(g.IntN(41) - 20)
}

// score is a member's score.
func (g *callMaker) score() string {
	if g.IntN(50) == 0 {
		return g.pick("1e400", "-1e400", "1e-400", "0e-400", "0x0p-9999", "0x1p-9999")
	}
	if g.mode == largeByName {
		return "0"
	}
	return g.number()
}

func (g *callMaker) number() string {
	switch g.IntN(20) {
	case 0:
		return g.pick("inf", "-inf", "+inf", "Infinity", "nan", "", " 1", "1 ", "0x1F", "-0",
			"1e18", "1e17",
			"4611686018427387904", "9007199254740993", "1_0", "1e", "0x", "infinit", "1\x00", ".5",
			"5.", "+3")
	case 1, 2, 3:
		return strconv.FormatFloat(float64(g.IntN(2000)-1000)/100, 'g', -1, 64)
	case 4:
		return strconv.FormatFloat((g.Float64()-0.5)*1e6, 'g', -1, 64)
	}
	return strconv.Itoa(g.IntN(13) - 4)
}

func (g *callMaker) scoreBound() string {
	return g.pick("", "", "(") + g.pick(g.number(), "-inf", "+inf", "1e400", "1e-400")
}

func (g *callMaker) lexBound() string {
	if g.mode == largeByScore {
		return "no bound"
	}
	return g.pick("-", "+", "["+g.name(), "("+g.name(), "["+g.name(), g.name())
}

func (g *callMaker) bounds() (lowest, highest string) {
	switch g.IntN(3) {
	case 0:
		return g.scoreBound(), g.scoreBound()
	case 1:
		return g.lexBound(), g.lexBound()
	}
	return g.integer(), g.integer()
}

// options returns a random selection of all, in random order and case, sometimes with one twice.
func (g *callMaker) options(all ...[]string) (args []string) {
	g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, o := range all {
		if g.IntN(3) > 0 {
			continue
		}
		if g.IntN(20) == 0 {
			o = append(o, all[(i+1)%len(all)]...)
		}
		if g.IntN(2) == 0 {
			o = append([]string{strings.ToLower(o[0])}, o[1:]...)
		}
		args = append(args, o...)
	}
	if g.IntN(60) == 0 {
		args = append(args, g.pick("", "NX", "LIMIT", "junk", "MATCH"))
	}
	return args
}

func (g *callMaker) call() []string {
	if g.IntN(200) == 0 {
		return []string{g.pick("DEL", "DEL", "TYPE"), g.key(g.pick("h", "z"))}
	}
	if g.IntN(500) == 0 {
		return []string{"SET", "s" + strconv.Itoa(g.IntN(3)), "v"}
	}
	if g.IntN(3) == 0 {
		return g.hashCall()
	}
	if g.IntN(2) == 0 {
		return g.zsetChange()
	}
	return g.zsetRead()
}

func (g *callMaker) hashCall() []string {
	key := g.key("h")
	switch g.IntN(8) {
	case 0, 1:
		call := []string{g.pick("HSET", "HMSET"), key}
		for range 1 + g.IntN(4) {
			call = append(call, g.name(), g.pick(g.number(), g.integer(), g.name()))
		}
		if g.IntN(40) == 0 {
			call = append(call, "odd")
		}
		return call
	case 2:
		return append([]string{g.pick("HDEL", "HMGET"), key}, g.names(5)...)
	case 3:
		return []string{"HSETNX", key, g.name(), g.number()}
	case 4:
		return []string{"HINCRBY", key, g.name(), g.integer()}
	case 5:
		return []string{"HINCRBYFLOAT", key, g.name(),
			g.pick("0.5", "-1.25", "3.0e3", "1e-5", "nan", "inf", "x", "7")}
	case 6:
		if g.mode != small {
			return []string{"HLEN", key}
		}
		return append([]string{"HSCAN", key, g.cursor()},
			g.options([]string{"MATCH", g.pattern()}, []string{"COUNT", g.integer()})...)
	}
	if g.IntN(2) == 0 && g.mode == small {
		return []string{g.pick("HGETALL", "HKEYS", "HVALS", "HLEN"), key}
	}
	return []string{g.pick("HGET", "HEXISTS", "HSTRLEN"), key, g.name()}
}

func (g *callMaker) cursor() string {
	return g.pick("0", "0", "0", "0", "", "x", "-", "7", "18446744073709551616", "1\x00x")
}

func (g *callMaker) pattern() string {
	return g.pick("*", "m*", "m?1", "[mn]*", "", "m0[1-5]", "*\xff")
}

func (g *callMaker) zsetChange() []string {
	key := g.key("z")
	switch g.IntN(8) {
	case 0, 1, 2:
		call := append([]string{"ZADD", key},
			g.options([]string{"NX"}, []string{"XX"}, []string{"GT"}, []string{"LT"},
				[]string{"CH"}, []string{"INCR"})...)
		for range 1 + g.IntN(3)*g.IntN(2) {
			call = append(call, g.score(), g.name())
		}
		return call
	case 3:
		return []string{"ZINCRBY", key, g.score(), g.name()}
	case 4:
		return append([]string{"ZREM", key}, g.names(3)...)
	case 5:
		low, high := g.bounds()
		return []string{g.pick("ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZREMRANGEBYLEX"), key, low,
			high}
	case 6:
		switch g.IntN(6) {
		case 0:
			return append(append([]string{"ZMPOP"}, g.inputs()...),
				append([]string{g.pick("MIN", "MAX", "max", "x")},
					g.options([]string{"COUNT", g.pick("1", "2", "0", "x")})...)...)
		case 1:
			call := append(append([]string{g.pick("ZUNIONSTORE", "ZINTERSTORE"), g.key("z")},
				g.inputs()...), g.combineOptions()...)
			return call
		case 2:
			return append(append([]string{"ZDIFFSTORE", g.key("z")}, g.inputs()...), g.options()...)
		}
		call := []string{g.pick("ZPOPMIN", "ZPOPMAX"), key}
		if g.IntN(2) == 0 {
			call = append(call, g.pick("0", "1", "2", "-1", "x", "3"))
		}
		return call
	}
	low, high := g.bounds()
	return append([]string{"ZRANGESTORE", g.key("z"), key, low, high}, g.rangeOptions()...)
}

// inputs returns some keys after their number.
func (g *callMaker) inputs() []string {
	n := 1 + g.IntN(3)
	inputs := []string{strconv.Itoa(n)}
	if g.IntN(40) == 0 {
		inputs[0] = g.pick("0", "-1", "x", "4", "")
	}
	for range n {
		inputs = append(inputs, g.key("z"))
	}
	return inputs
}

func (g *callMaker) combineOptions() []string {
	weights := []string{"WEIGHTS", g.number(), g.number(), g.number()}
	return g.options(weights[:2+g.IntN(3)], []string{"AGGREGATE", g.pick("SUM", "MIN", "max", "x")})
}

func (g *callMaker) rangeOptions() []string {
	return g.options([]string{"BYSCORE"}, []string{"BYLEX"}, []string{"REV"},
		[]string{"WITHSCORES"}, []string{"LIMIT", g.integer(), g.integer()})
}

func (g *callMaker) zsetRead() []string {
	key := g.key("z")
	low, high := g.bounds()
	switch g.IntN(6) {
	case 5:
		switch g.IntN(3) {
		case 0:
			return append(append(append([]string{g.pick("ZUNION", "ZINTER")}, g.inputs()...),
				g.combineOptions()...), g.options([]string{"WITHSCORES"})...)
		case 1:
			return append(append([]string{"ZDIFF"}, g.inputs()...),
				g.options([]string{"WITHSCORES"})...)
		}
		return append(append([]string{"ZINTERCARD"}, g.inputs()...),
			g.options([]string{"LIMIT", g.integer()})...)
	case 0, 1:
		return append([]string{"ZRANGE", key, low, high}, g.rangeOptions()...)
	case 2:
		command := g.pick("ZREVRANGE", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZRANGEBYLEX",
			"ZREVRANGEBYLEX")
		return append([]string{command, key, low, high},
			g.options([]string{"WITHSCORES"}, []string{"LIMIT", g.integer(), g.integer()})...)
	case 3:
		if g.mode != small {
			return []string{"ZCARD", key}
		}
		return append([]string{"ZSCAN", key, g.cursor()},
			g.options([]string{"MATCH", g.pattern()}, []string{"COUNT", g.integer()})...)
	}
	switch g.IntN(4) {
	case 0:
		return []string{g.pick("ZCOUNT", "ZLEXCOUNT"), key, low, high}
	case 1:
		return append([]string{"ZMSCORE", key}, g.names(4)...)
	case 2:
		return []string{"ZCARD", key}
	}
	return []string{g.pick("ZSCORE", "ZRANK", "ZREVRANK"), key, g.name()}
}
