// What lives here: random entries for tests that compare machines. Calls are made from each Spec's own Syntax, so that every command of
// the table takes part and no second list of commands exists.

package fsm

import (
	"crypto/sha1"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// seedVariable names the environment variable that repeats a random test.
const seedVariable = "COORDD_TEST_SEED"

// testSeed is the seed of a random test: a new one each time, or that of the environment. A test that fails shows it.
func testSeed(t testing.TB) uint64 {
	seed := rand.Uint64()
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d repeats this test", seedVariable, seed)
	return seed
}

// callMaker makes random calls, requests and entries. Equal seeds give equal ones.
type callMaker struct {
	*rand.Rand
	specs   []*commands.Spec // that the machine runs
	pools   []pool
	clockMs int64
	wallUs  int64
}

func newCallMaker(table *commands.Table, seed uint64) *callMaker {
	g := &callMaker{Rand: rand.New(rand.NewPCG(seed, 0)), pools: pools, clockMs: 1, wallUs: 1_700_000_000_000_000}
	for _, s := range table.All() {
		if s.Subcommands == nil {
			g.specs = append(g.specs, s)
		}
		for i := range s.Subcommands {
			g.specs = append(g.specs, &s.Subcommands[i])
		}
	}
	g.specs = slices.DeleteFunc(g.specs, func(s *commands.Spec) bool { return s.Handler == nil })
	return g
}

// entry makes an entry: the clock moves on, the wall clock jumps now and then.
func (g *callMaker) entry() *Entry {
	g.clockMs += g.Int64N(300)
	g.wallUs += g.Int64N(300_000)
	if g.IntN(20) == 0 {
		g.wallUs += g.Int64N(7200e6) - 3600e6
	}
	e := &Entry{Origin: g.Uint64(), ClockMs: g.clockMs, WallUs: g.wallUs}
	for range g.IntN(4) {
		var run []byte
		for range 1 + g.IntN(6) {
			run = commands.AppendRequest(run, g.request())
		}
		e.Groups = append(e.Groups, run)
	}
	return e
}

// request makes a call or, more seldom, a transaction, which may watch keys.
func (g *callMaker) request() *commands.Request {
	q := &commands.Request{Proto: 2 + g.IntN(2)}
	if g.IntN(10) == 0 {
		q.DB = g.IntN(3)
	}
	if g.IntN(8) > 0 {
		q.Cmds = [][][]byte{g.call(g.specs)}
		return q
	}
	q.Multi = true
	for range g.IntN(5) {
		q.Cmds = append(q.Cmds, g.call(g.specs))
	}
	if g.IntN(4) == 0 {
		q.Watch = []commands.WatchedKey{{Key: []byte(g.pick(keyPool)), Changed: keyspace.Revision(g.IntN(2))}}
	}
	return q
}

// reads makes a run of calls that change nothing.
func (g *callMaker) reads() []byte {
	specs := slices.DeleteFunc(slices.Clone(g.specs), func(s *commands.Spec) bool { return s.Kind != commands.Read })
	var run []byte
	for range 1 + g.IntN(4) {
		run = commands.AppendRequest(run, &commands.Request{Proto: 2 + g.IntN(2), Cmds: [][][]byte{g.call(specs)}})
	}
	return run
}

// call makes a call of one of the specs, now and then a wrong one.
func (g *callMaker) call(specs []*commands.Spec) [][]byte {
	spec := specs[g.IntN(len(specs))]
	// What removes everything would leave the machines nothing to differ in.
	for strings.HasPrefix(spec.Name, "flush") && g.IntN(30) > 0 {
		spec = specs[g.IntN(len(specs))]
	}
	words := strings.Split(spec.FullName(), "|")
	syntax := &syntaxReader{g: g, s: spec.Syntax}
	words = append(words, syntax.sequence()...)
	if n := spec.Keys.Numkeys; n > 0 && n < len(words) && g.IntN(20) > 0 {
		g.countKeys(words, n)
	}
	switch g.IntN(25) {
	case 0:
		words = append(words, g.pick(valuePool))
	case 1:
		words[len(words)-1] = g.pick(valuePool)
	}
	return commandtest.Args(words...)
}

// countKeys makes the argument that counts keys true: the syntax cannot say that it has to be.
func (g *callMaker) countKeys(words []string, n int) {
	keys := 0
	for _, w := range words[n+1:] {
		if !slices.Contains(keyPool, w) {
			break
		}
		keys++
	}
	words[n] = strconv.Itoa(keys)
}

// The pools are small, so that calls meet at the same keys and fields.
var (
	keyPool    = []string{"k1", "k2", "k3", "h1", "h2", "z1", "z2", "", "key\x00\xff"}
	memberPool = []string{"m1", "m2", "m3", "a", "b", "", "\xff\x00", strings.Repeat("long", 20)}
	valuePool  = []string{"v", "1", "-7", "3.5", "", "10", "9223372036854775807", "text with spaces", "\r\n", "1e300", strings.Repeat("x", 70)}
	numberPool = []string{"0", "1", "2", "-1", "5", "100", "-3", "9223372036854775807", "x"}
	floatPool  = []string{"0", "1", "-1.5", "3.25", "inf", "-inf", "1e17", "0.1", "nan", "x"}
	lifePool   = []string{"1", "50", "400", "1000", "20000", "0", "-5", "9223372036854775807"}
	rangePool  = []string{"0", "-1", "1", "5", "-inf", "+inf", "(1", "-", "+", "[a", "(m2"}
	scriptPool = []string{
		"return {KEYS, ARGV, redis.call('dbsize')}",
		"return redis.call('set', KEYS[1] or 'k1', ARGV[1] or 'v', 'px', 500)",
		"redis.call('incr', 'k3') error('after a write')",
		"local t = {} for i = 1, 20 do t[i] = math.random(1000) end return t",
		"redis.call('hset', 'h1', 'f', redis.call('time')[1]) return redis.call('hgetall', 'h1')",
		"local t = {b = 1, a = 2, c = 3} local s = '' for k, v in pairs(t) do s = s .. k .. v end return s",
		"return redis.pcall('zadd', 'z1', ARGV[1], 'm')",
		"return tostring({})", "return 0.1 + 0.2 .. ''", "syntax error", "return nonexistent",
	}
)

// shaPool names the scripts, and one that never was.
var shaPool = func() []string {
	pool := []string{strings.Repeat("0", 40)}
	for _, s := range scriptPool {
		pool = append(pool, fmt.Sprintf("%x", sha1.Sum([]byte(s))))
	}
	return pool
}()

// pool is the values of a placeholder whose name has a part.
type pool struct {
	part   string
	values []string
}

// pools are looked through in their order; the first that fits counts.
var pools = []pool{
	{"sha1", shaPool}, {"script", scriptPool}, {"key", keyPool}, {"member", memberPool}, {"field", memberPool},
	{"second", lifePool}, {"unix", lifePool}, {"timestamp", lifePool}, {"ttl", lifePool},
	{"score", floatPool}, {"increment", numberPool}, {"decrement", numberPool},
	{"min", rangePool}, {"max", rangePool}, {"start", rangePool}, {"stop", rangePool}, {"end", rangePool},
	{"count", numberPool}, {"offset", numberPool}, {"cursor", numberPool}, {"index", numberPool}, {"num", numberPool},
	{"pattern", []string{"*", "k*", "?1", "[a-m]*", "none"}},
	{"type", []string{"string", "hash", "zset", "list"}},
}

func (g *callMaker) pick(pool []string) string { return pool[g.IntN(len(pool))] }

// value is a value for a placeholder.
func (g *callMaker) value(name string) string {
	for _, p := range g.pools {
		if strings.Contains(name, p.part) {
			return g.pick(p.values)
		}
	}
	return g.pick(valuePool)
}

// syntaxReader makes words of a syntax as Redis's documentation writes it: NAME is a word, name a placeholder, [x] may be left out,
// <x | y> and [x | y] are choices, "..." repeats what is before it within its brackets.
type syntaxReader struct {
	g *callMaker
	s string
}

// sequence reads up to a closing bracket or the end, and makes words of one of its alternatives.
func (r *syntaxReader) sequence() []string {
	alternatives := [][]string{nil}
	repeated := false
	for {
		r.s = strings.TrimLeft(r.s, " ")
		last := &alternatives[len(alternatives)-1]
		switch {
		case r.s == "" || r.s[0] == ']' || r.s[0] == '>':
			r.s = strings.TrimPrefix(strings.TrimPrefix(r.s, "]"), ">")
			chosen := alternatives[r.g.IntN(len(alternatives))]
			if repeated && r.g.IntN(2) == 0 {
				chosen = append(chosen, chosen...)
			}
			return chosen
		case r.s[0] == '|':
			r.s = r.s[1:]
			alternatives = append(alternatives, nil)
		case r.s[0] == '[':
			r.s = r.s[1:]
			inner := r.sequence()
			if r.g.IntN(3) == 0 {
				*last = append(*last, inner...)
			}
		case r.s[0] == '<':
			r.s = r.s[1:]
			*last = append(*last, r.sequence()...)
		case strings.HasPrefix(r.s, "..."):
			r.s = r.s[3:]
			repeated = true
		default:
			*last = append(*last, r.word())
		}
	}
}

func (r *syntaxReader) word() string {
	end := strings.IndexAny(r.s, " []<>|")
	if end < 0 {
		end = len(r.s)
	}
	word := strings.TrimSuffix(r.s[:end], "...")
	r.s = r.s[end:]
	if strings.Trim(word, "\"") == "" || strings.ContainsFunc(word, unicode.IsLower) {
		return r.g.value(strings.ToLower(word))
	}
	return strings.Trim(word, "\"")
}

func TestSyntaxReader(t *testing.T) {
	for _, c := range []struct{ syntax, some string }{
		{"", ""},
		{"WORD", "WORD"},
		{"<A | B> C", "A C"},
		{"<A | B> C", "B C"},
		{"[A]", "A"},
		{"[A]", ""},
		{"[A | B C]", "B C"},
		{"[A ...]", "A A"},
		{"[NX|XX] [CH]", "XX CH"},
		{"A [B [C]] D", "A B C D"},
	} {
		seen := map[string]bool{}
		g := newCallMaker(commands.NewTable(), 1)
		for range 300 {
			r := &syntaxReader{g: g, s: c.syntax}
			seen[strings.Join(r.sequence(), " ")] = true
			if r.s != "" {
				t.Fatalf("%s: %q was not read", c.syntax, r.s)
			}
		}
		if !seen[c.some] {
			t.Errorf("%s never gives %q but %v", c.syntax, c.some, seen)
		}
	}
}
