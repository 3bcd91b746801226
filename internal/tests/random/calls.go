package random

import (
	"crypto/sha1"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
)

// Calls makes random calls, requests and entries. Equal seeds give equal ones.
type Calls struct {
	*rand.Rand
	Specs   []*commands.Spec                  // that the machine runs
	syntax  map[*commands.Spec][]commands.Arg // syntax of every command
	Pools   []Pool
	Shunned []string
	Strays  int        // one key in so many may not be of the command's group
	OddCase bool       // some words have letters that only Unicode's rules fold
	group   string     // group of the current command
	Command string     // its full name
	once    [][][]byte // some calls that run once, to be repeated
	clockMs int64
	wallUs  int64
}

func NewCalls(table *commands.Table, seed uint64) *Calls {
	g := &Calls{Rand: rand.New(rand.NewPCG(seed, 0)), Pools: pools, clockMs: 1,
		wallUs: 1_700_000_000_000_000, Strays: 3,
		syntax: map[*commands.Spec][]commands.Arg{}}
	for _, s := range table.All() {
		if s.Subcommands == nil {
			g.Specs = append(g.Specs, s)
		}
		for i := range s.Subcommands {
			g.Specs = append(g.Specs, &s.Subcommands[i])
		}
	}
	for _, s := range g.Specs {
		args, err := commands.ParseSyntax(s.Syntax)
		if err != nil {
			// an error in the table, which package server's tests report
			panic(s.FullName() + ": " + err.Error())
		}
		g.syntax[s] = args
	}
	g.Specs = slices.DeleteFunc(g.Specs, func(s *commands.Spec) bool { return s.Handler == nil })
	return g
}

// Stamps advances both clocks and returns them. Sometimes the wall clock jumps.
func (g *Calls) Stamps() (clockMs, wallUs int64) {
	g.clockMs += g.Int64N(300)
	g.wallUs += g.Int64N(300_000)
	if g.IntN(20) == 0 {
		g.wallUs += g.Int64N(7200e6) - 3600e6
	}
	return g.clockMs, g.wallUs
}

// Batches makes the requests of one entry.
func (g *Calls) Batches() (batches [][]byte) {
	for range g.IntN(4) {
		var batch []byte
		for range 1 + g.IntN(6) {
			batch = commands.AppendRequest(batch, g.Request())
		}
		batches = append(batches, batch)
	}
	return batches
}

// Request makes a call or, less often, a transaction, which may watch keys.
func (g *Calls) Request() *commands.Request {
	q := &commands.Request{Proto: 2 + g.IntN(2)}
	if g.IntN(10) == 0 {
		q.DB = g.IntN(3)
	}
	if g.IntN(8) > 0 {
		q.Cmds = [][][]byte{g.Call(g.Specs)}
		return q
	}
	q.Multi = true
	for range g.IntN(5) {
		q.Cmds = append(q.Cmds, g.Call(g.Specs))
	}
	if g.IntN(4) == 0 {
		q.Conditional = true
		key := g.Pick(KeyPool)
		q.Cmds = slices.Insert(q.Cmds, 0, commandtest.Args(append([]string{"EXEC"},
			strings.Fields(g.Pick([]string{"NX " + key, "XX " + key, "IFEQ " + key + " 1",
				"IFNE " + key + " 1 XX " + key}))...)...))
	}
	if g.IntN(4) == 0 {
		q.Watch = []commands.WatchedKey{{Key: []byte(g.Pick(KeyPool)),
			Changed: keyspace.Revision(g.IntN(2))}}
	}
	return q
}

// Reads makes a batch of calls that change nothing.
func (g *Calls) Reads() []byte {
	specs := slices.DeleteFunc(slices.Clone(g.Specs), func(s *commands.Spec) bool {
		return s.Kind != commands.Read
	})
	var batch []byte
	for range 1 + g.IntN(4) {
		batch = commands.AppendRequest(batch, &commands.Request{Proto: 2 + g.IntN(2),
			Cmds: [][][]byte{g.Call(specs)}})
	}
	return batch
}

// oddCase replaces letters by others that are equal to them for those who ignore the case of all
// Unicode letters, and not for those who ignore that of ASCII letters.
var oddCase = strings.NewReplacer("i", "\u0130", "I", "\u0131", "k", "\u212a", "K", "\u212a",
	"s", "\u017f", "S", "\u017f")

// Call makes a call of one of the specs, sometimes an invalid one.
func (g *Calls) Call(specs []*commands.Spec) [][]byte {
	spec := specs[g.IntN(len(specs))]
	// Removing everything would leave the machines nothing to differ in.
	for strings.HasPrefix(spec.Name, "flush") && g.IntN(30) > 0 {
		spec = specs[g.IntN(len(specs))]
	}
	if spec.Keys.Carried {
		return g.onceCall(spec)
	}
	g.group, g.Command = spec.Group, spec.FullName()
	words := strings.Split(spec.FullName(), "|")
	words = append(words, g.Words(g.syntax[spec])...)
	if g.OddCase && g.IntN(25) == 0 {
		at := g.IntN(len(words))
		words[at] = oddCase.Replace(words[at])
	}
	switch g.IntN(25) {
	case 0:
		words = append(words, g.Pick(valuePool))
	case 1:
		words[len(words)-1] = g.Pick(valuePool)
	}
	return commandtest.Args(words...)
}

// onceCall makes a call that carries another one, or repeats one.
func (g *Calls) onceCall(spec *commands.Spec) [][]byte {
	const kept = 8
	if len(g.once) == kept && g.IntN(3) == 0 {
		return g.once[g.IntN(kept)]
	}
	args := append(commandtest.Args(spec.Name, g.Pick(requestPool)), g.Call(g.Specs)...)
	if len(g.once) < kept {
		g.once = append(g.once, args)
	} else {
		g.once[g.IntN(kept)] = args
	}
	return args
}

// The pools are small, so that calls share keys and fields.
var (
	KeyPool = []string{"k1", "k2", "k3", "h1", "h2", "z1", "z2", "l1", "l2", "s1", "s2", "x1",
		"x2", "g1", "", "key\x00\xff"}
	memberPool = []string{"m1", "m2", "m3", "a", "b", "", "\xff\x00", strings.Repeat("long", 20)}
	fewPool    = []string{"1", "1", "1", "2", "2", "3", "0"}
	// ids of requests that run once
	requestPool = []string{"r1", "r2", "r3", "r4", "r5", "r6", "", strings.Repeat("r", 129)}
	valuePool   = []string{"v", "1", "-7", "3.5", "", "10", "9223372036854775807",
		"text with spaces", "\r\n", "1e300", strings.Repeat("x", 70)}
	numberPool = []string{"0", "1", "2", "-1", "5", "100", "-3", "9223372036854775807", "x"}
	floatPool  = []string{"0", "1", "-1.5", "3.25", "inf", "-inf", "1e17", "0.1", "nan", "x"}
	ttlPool    = []string{"1", "50", "400", "1000", "20000", "0", "-5", "9223372036854775807"}
	lengthPool = []string{"0", "1", "10", "200", "30000", "inf", "-1", "x"}
	rangePool  = []string{"0", "-1", "1", "5", "-inf", "+inf", "(1", "-", "+", "[a", "(m2"}
	scriptPool = []string{
		"return {KEYS, ARGV, redis.call('dbsize')}",
		"return redis.call('set', KEYS[1] or 'k1', ARGV[1] or 'v', 'px', 500)",
		"redis.call('incr', 'k3') error('after a write')",
		"local t = {} for i = 1, 20 do t[i] = math.random(1000) end return t",
		"redis.call('hset', 'h1', 'f', redis.call('time')[1]) return redis.call('hgetall', 'h1')",
		"local t = {b = 1, a = 2, c = 3} local s = '' for k, v in pairs(t) do s = s .. k .. v " +
			"end return s",
		"return redis.pcall('zadd', 'z1', ARGV[1], 'm')",
		"return tostring({})", "return 0.1 + 0.2 .. ''", "syntax error", "return nonexistent",
		// constant powers, of which processors and feature levels differ in the last bits
		"return 1.05^12 .. ''", "return {1.1^3 .. '', 10^-6 .. '', 2^53 .. '', 10^23 .. ''}",
	}
)

// OwnKeys are the keys that commands of a group usually get, so that they often find a value.
var OwnKeys = map[string][]string{
	"string": {"k1", "k2", "k3"}, "bitmap": {"k1", "k2"}, "hash": {"h1", "h2"},
	"sorted-set": {"z1", "z2"}, "list": {"l1", "l2"},
	"set": {"s1", "s2"}, "stream": {"x1", "x2"}, "geo": {"g1", "g2"},
}

// SHAPool names the scripts, and one that never existed.
var SHAPool = func() []string {
	pool := []string{strings.Repeat("0", 40)}
	for _, s := range scriptPool {
		pool = append(pool, fmt.Sprintf("%x", sha1.Sum([]byte(s))))
	}
	return pool
}()

// libraryPool are libraries that share names and functions. DumpPool is FUNCTION DUMP of one
// library and of none.
var (
	libraryPool = []string{
		"#!lua name=one\nredis.register_function('f1', function(keys, args) return " +
			"redis.call('set', keys[1] or 'k1', args[1] or 'v') end)",
		"#!lua name=one\nredis.register_function{function_name='f1', flags={'no-writes'}, " +
			"callback=function(keys) return redis.call('get', keys[1] or 'k1') end}",
		"#!lua name=two\nredis.register_function('f2', function(keys) redis.call('incr', 'k3') " +
			"error('after a write') end)",
		"#!lua name=two\nredis.register_function('F1', redis.log)",
		"#!lua name=two\nredis.register_function('f3', redis.log)",
		"#!lua name=risk\nredis.register_function('risk', function() return redis.call('incr', " +
			"'k3') end)",
		"#!lua name=one\nlocal rate = 1.05^12 redis.register_function('f1', function() return " +
			"rate * 1.1^3 .. '' end)",
		"#!lua name=two\nx = 1", "#!lua name=two", "syntax error",
	}
	DumpPool = []string{
		"\xf57#!lua name=one\nredis.register_function('f4', " +
			"redis.log)\n\x00\x80\xf2\xca\x94\x18\x1e=\x80",
		"\n\x00]\x9b\\@\x0f\x7f\xa2\xda",
	}
)

// Pool is the values of placeholders whose name contains a part. If the part is the full name of a
// command and a placeholder, it is for that one only.
type Pool struct {
	Part   string
	Values []string
}

// pools are searched in order; the first match counts.
var pools = []Pool{
	{"increx request", requestPool}, {"cl.throttle request", requestPool},
	{"window.hit key", []string{"w1", "w2", "w3"}}, {"window.hit window", ttlPool[:4]},
	{"window.hit limit", []string{"1", "3", "200", "10000", "10001", "30000"}},
	{"window.hit cost", []string{"1", "2", "150", "5000", "0"}},
	{"fence.check token", []string{"0", "1", "5", "9223372036854775807", "-1"}},
	{"sha1", SHAPool}, {"function-code", libraryPool}, {"library", []string{"one", "two", "t*"}},
	{"function", []string{"f1", "f2", "F3", "f4", "risk", "r\u0130sk", "ris\u212a"}},
	{"serialized", DumpPool}, {"script", scriptPool}, {"key", KeyPool}, {"nummembers", fewPool},
	{"num-members", fewPool}, {"member", memberPool}, {"numfields", fewPool}, {"field", memberPool},
	{"encoding", []string{"u8", "i16", "u1", "i64", "u63", "i5", "u64"}},
	{"second", ttlPool}, {"unix", ttlPool}, {"timestamp", ttlPool}, {"ttl", ttlPool},
	{"score", floatPool}, {"increment", numberPool}, {"decrement", numberPool},
	{"maxcount", numberPool}, {"maxsize", numberPool},
	{"min", rangePool}, {"max", rangePool}, {"start", rangePool}, {"stop", rangePool},
	{"end", rangePool},
	{"count", numberPool}, {"offset", numberPool}, {"cursor", numberPool}, {"index", numberPool},
	{"num", numberPool},
	{"longitude", []string{"0", "13.4", "13.5", "-180", "180", "181"}},
	{"latitude", []string{"0", "52.5", "52.51", "-85", "85.05112878", "x"}},
	{"radius", lengthPool}, {"width", lengthPool}, {"height", lengthPool},
	{"pattern", []string{"*", "k*", "?1", "[a-m]*", "none"}},
	{"type", []string{"string", "hash", "zset", "list"}},
}

// Pick returns a value of a pool, usually another one than the one to avoid.
func (g *Calls) Pick(pool []string) string {
	value := pool[g.IntN(len(pool))]
	if slices.Contains(g.Shunned, value) && g.IntN(8) > 0 {
		value = pool[g.IntN(len(pool))]
	}
	return value
}

// value returns a value for a placeholder.
func (g *Calls) value(name string) string {
	if own := OwnKeys[g.group]; own != nil && strings.Contains(name, "key") &&
		g.IntN(g.Strays) > 0 {
		return g.Pick(own)
	}
	for _, p := range g.Pools {
		if strings.Contains(name, p.Part) || p.Part == g.Command+" "+name {
			return g.Pick(p.Values)
		}
	}
	return g.Pick(valuePool)
}

// Words makes the words of arguments as Spec.Syntax declares them.
func (g *Calls) Words(args []commands.Arg) []string {
	var words []string
	counts := -1 // the index of a word that counts what follows
	keys := 0
	for i := range args {
		a := &args[i]
		var more []string
		n := 0
		if !a.Optional || g.IntN(3) == 0 {
			// The syntax does not say that a number must be right, or that there are as many ids or
			// weights as keys. So that is known here.
			asKeys := keys > 0 && (a.Name == "id" || a.Name == "weight") && g.IntN(20) > 0
			more, n = g.argument(a, true), 1
			for ; a.Multiple && ((asKeys && n < keys) || (!asKeys && g.IntN(2) == 0)); n++ {
				more = append(more, g.argument(a, a.MultipleToken)...)
			}
		}
		if counts >= 0 && g.IntN(20) > 0 {
			words[counts] = strconv.Itoa(n)
		}
		words = append(words, more...)
		counts = -1
		switch a.Name {
		case "numkeys", "numfields", "nummembers", "num-members":
			counts = len(words) - 1
		}
		if a.Name == "key" {
			keys = n
		}
	}
	return words
}

// argument makes the words of one argument, once.
func (g *Calls) argument(a *commands.Arg, token bool) []string {
	var words []string
	if a.Token != "" && (token || a.Type == commands.ArgToken) {
		words = append(words, a.Token)
	}
	switch a.Type {
	case commands.ArgToken:
	case commands.ArgOneOf:
		one := g.IntN(len(a.Args))
		words = append(words, g.Words(a.Args[one:one+1])...)
	case commands.ArgBlock:
		words = append(words, g.Words(a.Args)...)
	default:
		words = append(words, g.value(strings.ToLower(a.Name)))
	}
	return words
}
