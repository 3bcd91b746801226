// The random requests of TestDifferential.

package differential

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/random"
)

// request is a call, a transaction or a script of several, or WATCH.
type request struct {
	db     int
	conn   int // in TestDifferentialSessions: the connection that makes the call
	multi  bool
	script bool // one script makes all calls; each is a call of typingCaller
	watch  bool
	calls  [][][]byte
}

// several reports whether the request's reply has one element for each call.
func (q *request) several() bool { return q.multi || q.script }

// focus returns the commands that a round prefers, so that they meet each other's data: those of
// one group, the next one in each round.
func (d *differential) focus(seed uint64) []*commands.Spec {
	group := d.groups[seed%uint64(len(d.groups))]
	return slices.DeleteFunc(slices.Clone(d.g.Specs), func(s *commands.Spec) bool {
		return s.Group != group
	})
}

// request makes a random request: a call, a script, a transaction, or a WATCH that a later
// transaction ends.
func (d *differential) request(focus []*commands.Spec) request {
	q := request{}
	if d.g.IntN(12) == 0 {
		q.db = 1
	}
	switch d.g.IntN(250) {
	case 0:
		q.calls = [][][]byte{d.many()}
		return q
	case 1, 2, 3, 4:
		q.calls = [][][]byte{d.stocked(d.g.IntN(len(stock)))}
		return q
	case 5, 6, 7, 8, 9, 10, 11, 12:
		q.watch = true
		q.calls = [][][]byte{append(commandtest.Args("WATCH"),
			commandtest.Args(d.g.Words(watched)...)...)}
		return q
	}
	if d.g.IntN(8) > 0 {
		q.calls = [][][]byte{d.call(focus)}
		return q
	}
	if d.g.IntN(3) == 0 {
		q.script = true
		for range 1 + d.g.IntN(6) {
			q.calls = append(q.calls, append(commandtest.Args("EVAL", typingCaller, "0"),
				d.plain(focus)...))
		}
		return q
	}
	q.multi = true
	for range 1 + d.g.IntN(4) {
		call := d.call(focus)
		// A session refuses unknown commands before the machine sees the transaction.
		if spec, err := d.table.Resolve(call); err == nil && !spec.Has(commands.NoMulti) {
			q.calls = append(q.calls, call)
		}
	}
	return q
}

// watched are the arguments of WATCH.
var watched = []commands.Arg{{Name: "key", Multiple: true}}

// many makes a call that fills a key beyond the compact encodings.
func (d *differential) many() [][]byte {
	kinds := []struct {
		group, name string
		words       func(i int) []string
	}{
		{"list", "RPUSH", func(i int) []string { return []string{strconv.Itoa(i % 150)} }},
		{"set", "SADD", func(i int) []string { return []string{strconv.Itoa(i)} }},
		{"set", "SADD", func(i int) []string { return []string{"m" + strconv.Itoa(i)} }},
		{"hash", "HSET", func(i int) []string {
			return []string{strconv.Itoa(i), "m" + strconv.Itoa(i)}
		}},
		{"sorted-set", "ZADD", func(i int) []string {
			return []string{strconv.Itoa(i / 3), strconv.Itoa(i)}
		}},
		{"sorted-set", "ZADD", func(i int) []string {
			return []string{"1", "m" + strconv.Itoa(i)}
		}},
	}
	n := 100 + d.g.IntN(500)
	i := d.g.IntN(len(kinds) + 1)
	if i == len(kinds) {
		const addMany = "for i = 1, tonumber(ARGV[1]) do redis.call('xadd', KEYS[1], i .. '-1', " +
			"'f', i) end"
		return commandtest.Args("EVAL", addMany, "1", d.g.Pick(random.OwnKeys["stream"]),
			strconv.Itoa(n))
	}
	words := []string{kinds[i].name, d.g.Pick(random.OwnKeys[kinds[i].group])}
	for j := range n {
		words = append(words, kinds[i].words(j)...)
	}
	return commandtest.Args(words...)
}

// callers are the scripts and functions that make a call of their arguments: the command, and what
// it runs. They take no keys.
var callers = [][2]string{
	{"EVAL", "return redis.call(unpack(ARGV))"},
	{"EVAL", "return redis.pcall(unpack(ARGV))"},
	{"EVAL", mappingCaller},
	{"EVAL", typingCaller},
	{"EVAL_RO", "return redis.call(unpack(ARGV)) "},
	{"FCALL", "call"}, {"FCALL", "try"}, {"FCALL", "look"}, {"FCALL_RO", "look"},
}

// callingLibrary has the functions of callers.
const callingLibrary = `#!lua name=calling
redis.register_function('call', function(keys, args) return redis.call(unpack(args)) end)
redis.register_function('try', function(keys, args) return redis.pcall(unpack(args)) end)
redis.register_function{function_name='look', flags={'no-writes'}, callback=function(keys, args) return redis.call(unpack(args)) end}`

// mappingCaller uses RESP3 replies, typingCaller also returns the Lua type of the reply.
const (
	mappingCaller = "redis.setresp(3) return redis.call(unpack(ARGV))"
	typingCaller  = "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then " +
		"return {'failed', r.err} end return {type(r), r}"
)

// manyCaller makes several calls, each preceded by its number of arguments, and returns for each
// what typingCaller returns.
const manyCaller = "local out, i = {}, 1 while ARGV[i] do local n = tonumber(ARGV[i]) local r = " +
	"redis.pcall(unpack(ARGV, i + 1, i + n)) i = i + n + 1 " +
	"if type(r) == 'table' and r.err then out[#out + 1] = {'failed', r.err} else out[#out + 1] = " +
	"{type(r), r} end end return out"

// madeByScript is the one call that makes all calls of a request.
func madeByScript(calls [][][]byte) [][]byte {
	one := commandtest.Args("EVAL", manyCaller, "0")
	for _, call := range calls {
		words := inner(call)
		one = append(append(one, strconv.AppendInt(nil, int64(len(words)), 10)), words...)
	}
	return one
}

// call is a random call, sometimes mutated, sometimes made by a script.
func (d *differential) call(focus []*commands.Spec) [][]byte {
	call := d.plain(focus)
	if d.g.IntN(7) > 0 {
		return call
	}
	caller := callers[d.g.IntN(len(callers))]
	return append(commandtest.Args(caller[0], caller[1], "0"), call...)
}

// plain is a random call, sometimes mutated.
func (d *differential) plain(focus []*commands.Spec) [][]byte {
	specs := d.g.Specs
	if d.g.IntN(4) > 0 {
		specs = focus
	}
	call := d.g.Call(specs)
	if d.g.IntN(10) == 0 {
		call = d.mutated(call)
	}
	return wholeScan(d.filled(call))
}

// mutated changes the order or the number of the arguments, or one of them.
func (d *differential) mutated(call [][]byte) [][]byte {
	first := 1 + strings.Count(d.g.Command, "|")
	n := len(call) - first
	if n < 1 {
		return call
	}
	at := first + d.g.IntN(n)
	switch d.g.IntN(5) {
	case 0:
		other := first + d.g.IntN(n)
		call[at], call[other] = call[other], call[at]
	case 1:
		return slices.Insert(call, at, call[first+d.g.IntN(n)])
	case 2:
		return slices.Delete(call, at, at+1)
	case 3:
		call[at] = []byte(d.g.Pick(d.g.Pools[d.g.IntN(len(d.g.Pools))].Values))
	case 4:
		if lower := bytes.ToLower(call[at]); len(lower) < 20 {
			call[at] = lower
		}
	}
	return call
}

// inner is the call itself, without a script that makes it.
func inner(call [][]byte) [][]byte {
	if scripted(call) {
		return call[3:]
	}
	return call
}

// scripted reports whether one of the callers makes a call.
func scripted(call [][]byte) bool {
	return len(call) > 3 && string(call[2]) == "0" &&
		slices.Contains(callers, [2]string{string(call[0]), string(call[1])})
}

// filled replaces the tokens of the pools by random values.
func (d *differential) filled(call [][]byte) [][]byte {
	for i, arg := range call {
		switch token := string(arg); token {
		case ttlToken, farToken:
			call[i] = strconv.AppendInt(nil, d.ttl(token == farToken), 10)
		case whenToken, whenMsToken:
			call[i] = strconv.AppendInt(nil, d.when(token == whenMsToken), 10)
		case nextToken:
			d.entries++
			call[i] = fmt.Appendf(nil, "%d-1", d.entries)
		case entryToken:
			call[i] = fmt.Appendf(nil, "%d-1", 1+d.g.IntN(d.entries+1))
		case intToken:
			call[i] = strconv.AppendInt(nil, d.integer(), 10)
		case floatToken:
			call[i] = d.float()
		case lonToken:
			call[i] = d.degrees(180)
		case latToken:
			call[i] = d.degrees(85.05112878)
		case lengthToken:
			length := math.Pow(10, 9*d.g.Float64()-1)
			call[i] = strconv.AppendFloat(nil, length, 'f', d.g.IntN(4), 64)
		case globToken:
			pieces := words("* * ? [ ] ^ - \\ k h 1 2 a z [^ [a- [k", "\xff", "\x00")
			call[i] = nil
			for range 1 + d.g.IntN(6) {
				call[i] = append(call[i], d.g.Pick(pieces)...)
			}
		case textToken:
			lengths := []int{1, 5, 44, 45, 63, 64, 65, 200}
			call[i] = make([]byte, lengths[d.g.IntN(len(lengths))])
			for j := range call[i] {
				call[i][j] = byte(d.g.IntN(256))
			}
		}
	}
	return call
}

// ttl is a TTL of 11 days to 300 years, or one near the largest time. All differ by so much that
// the delay between the two servers never decides what GT and LT reply.
func (d *differential) ttl(far bool) int64 {
	d.ttls++
	const prime = 10007
	ttl := 1_000_000 * (1 + int64(d.ttls)*7919%prime)
	if far {
		ttl += 9_000_000_000_000_000
	}
	return ttl
}

// when is a time in 2100, a different one each time, for GT and LT.
func (d *differential) when(ms bool) int64 {
	d.ttls++
	seconds := 4_102_444_800 + int64(d.ttls)*7919%10007
	if ms {
		return 1000 * seconds
	}
	return seconds
}

// integer is small, or near a power of two, or any.
func (d *differential) integer() int64 {
	switch d.g.IntN(4) {
	case 0:
		return d.g.Int64N(41) - 20
	case 1:
		return d.g.Int64N(2001) - 1000
	case 2:
		n := int64(1)<<d.g.IntN(64) + d.g.Int64N(5) - 2
		if d.g.IntN(2) == 0 {
			return -n
		}
		return n
	}
	return int64(d.g.Uint64())
}

// degrees is a coordinate of a place: one near others, or any, up to most.
func (d *differential) degrees(most float64) []byte {
	f := most * (2*d.g.Float64() - 1)
	if d.g.IntN(3) > 0 {
		f = most/3 + d.g.NormFloat64()*math.Pow(10, -float64(d.g.IntN(7)))
	}
	return strconv.AppendFloat(nil, f, 'f', d.g.IntN(12), 64)
}

// float is a number with a fraction, in one of several notations. A double holds it.
func (d *differential) float() []byte {
	exponent := d.g.IntN(40) - 20
	if d.g.IntN(6) == 0 {
		exponent = d.g.IntN(560) - 280
	}
	f := (d.g.Float64() - 0.5) * math.Pow10(exponent)
	if d.g.IntN(3) == 0 {
		f = math.Round(f)
	}
	precision := -1
	if d.g.IntN(2) == 0 {
		precision = d.g.IntN(20)
	}
	return strconv.AppendFloat(nil, f, "efgG"[d.g.IntN(4)], precision, 64)
}
