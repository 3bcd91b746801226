// The values that the calls of TestDifferential are made of.

package differential

import (
	"crypto/sha1"
	"fmt"
	"github.com/coordd/coordd/internal/tests/random"
	"slices"
	"strings"
)

// Tokens that random values replace: see filled.
const (
	ttlToken   = "<ttl>"
	farToken   = "<far>"
	intToken   = "<int>"
	floatToken = "<float>"
	globToken  = "<glob>"
	textToken  = "<text>"
	whenToken  = "<when>"

	whenMsToken = "<when ms>"

	lonToken    = "<longitude>"
	latToken    = "<latitude>"
	lengthToken = "<length>"
	// Ids of stream entries: one larger than all before, and one of those.
	nextToken  = "<next>"
	entryToken = "<entry>"
)

// The values that calls are made of.
var (
	integers = words(
		"0 1 2 3 -1 5 7 -3 100 9223372036854775807 -9223372036854775808 9223372036854775808 x "+
			"1.5 +1 01", "", " 1", intToken, intToken, intToken)
	counts = words("1 2 3 0 1 2 5 -1 -2 100 9223372036854775807 x", "", intToken)
	floats = words(
		"0 1 -1.5 3.25 inf -inf 1e17 0.1 nan x 3.0e2 -0 1e-10 17179869184.5 +5 0x1p3 1e300 "+
			"0.30000000000000004", "", " 2", floatToken, floatToken, floatToken)
	scores = words("0 1 2 -1.5 3.25 inf -inf 1e17 1 2 5 x nan", floatToken, floatToken)
	bounds = words("0 -1 1 5 -inf +inf (1 (3.25 2 (2 x nan inf (inf", floatToken)
	// TTLs end at once or outlast the test.
	msTTLs = words("1 2 0 -5 9223372036854775807 -9223372036854775808 x 1.5", ttlToken,
		ttlToken, ttlToken, farToken)
	secondTTLs = words("0 -5 9223372036854775807 9223372036854775 -9223372036854775808 x 1.5",
		ttlToken, ttlToken, ttlToken, farToken)
	times = words("0 -1 1 9223372036854775807 9223372036854775 x", ttlToken)
	// in s, in ms or far beyond; the first are past if taken as ms
	farTimes = words("4102444800 4102444800000 4102444800000000", whenToken, whenToken,
		whenMsToken, whenMsToken)
	members = words("m1 m2 m3 a b c 1 2 17 -5 m1 a m1 a 3.5", "", "\xff\x00",
		strings.Repeat("long", 20))
	values = words("v 1 -7 3.5 10 9223372036854775807 1e300 abc 0010 5 -9223372036854775808",
		"", "text with spaces", "\r\n", strings.Repeat("x", 70), "\x00\xff", intToken, floatToken,
		textToken)
	offsets  = words("0 1 7 8 63 100 -1 500 4294967296 x #0 #2 3 5")
	patterns = words("* k* ?1 [a-m]* none [^k]* \\k1 *[ m* [m-a]1 **1 h[12] \\", "", globToken,
		globToken, globToken)
	streamIDs = words("0-1 1-1 2-* 2-1 5-0 5-3 7 100-5 0 0-0 - + x 1-x 9-* 7-1 0-1 1-1 5-3",
		"18446744073709551615-18446744073709551615", nextToken, nextToken, nextToken, nextToken,
		nextToken, nextToken, entryToken, entryToken)
	knownIDs = words("0-1 1-1 2-1 5 - x", entryToken, entryToken, entryToken, entryToken,
		entryToken, entryToken, entryToken, entryToken)
	streamStart = words("- - 0 1-1 (1-1 5 5-3 (0-1 x ( 2 + $")
	streamEnd   = words("+ + + 5-3 (5-3 7 100-5 (7 x - 1 18446744073709551615")
	idles       = words("0 0 0 0 0 0 0 0 0 1000000000 -1 x 9223372036854775807")
	numbered    = words("0 1 0 1 5 7 -1 16 x 01") // databases
	timeouts    = words("0 1 0.5 -1 x inf 1e100 0.0001", "")
	sortNames   = words("k* h*->m1 nosort # * h1->* w_* z*->a ?* l* none h*->", "")
	// Places all over the world, many close to each other, and lengths of any size.
	longitudes = words("0 180 -180 180.1 x 1e-300", lonToken, lonToken, lonToken, lonToken,
		lonToken)
	latitudes = words("0 85.05112878 -85.05112878 85.06 x nan", latToken, latToken, latToken,
		latToken, latToken)
	lengths = words("0 1 inf -1 x 1e300 1e-300", lengthToken, lengthToken, lengthToken,
		lengthToken, lengthToken)
	places = append(members, words("p1 p2 p3 p4 p5 p6 p7 p8 p9 q1 q2 q3 q4 q5 q6 q7 q8 q9")...)

	scripts = []string{
		"return 1", "return {KEYS, ARGV}", "return redis.call('incr', KEYS[1])",
		"return redis.call('get', KEYS[1] or 'k1')",
		"return redis.call('set', KEYS[1] or 'k2', ARGV[1] or '7')", "error('no')", "syntax error",
		"return redis.error_reply('ERR my own')",
		"redis.call('set', 'k1', '5') return redis.call('lpush', 'k1', 'x')", "#!lua\nreturn 1",
		"#!lua flags=no-writes\nreturn redis.call('set','k1','v')", "#!lua flags=nothing\nreturn 1",
		"return {1, 2.9, 'x', false, true, {ok = 'fine'}, {err = 'bad'}, {double = 3.5}}",
		"redis.setresp(3) return redis.call('zscore', KEYS[1] or 'z1', 'm1')",
		"return redis.sha1hex(ARGV[1] or '')", "return {redis.pcall('incr', 'l1')}",
		"redis.call('del', 'l2') redis.call('rpush', 'l2', 'a', 'b') return redis.call('lrange', " +
			"'l2', 0, -1)",
		"return cjson.encode({KEYS, ARGV})", "return #redis.call('keys', '*')",
		"return tostring(redis.call('zscore', KEYS[1] or 'z1', 'm1'))",
		"redis.call('select', 1) return redis.call('set', 'k3', 'x')",
		"return redis.call('blpop', 'l1', 0)",
	}
	libraries = []string{
		"#!lua name=one\nredis.register_function('f1', function(keys, args) return " +
			"redis.call('set', keys[1] or 'k1', args[1] or 'v') end)",
		"#!lua name=one\nredis.register_function{function_name='f1', flags={'no-writes'}, " +
			"callback=function(keys) return redis.call('get', keys[1] or 'k1') end}",
		"#!lua name=two\nredis.register_function('f2', function(keys) redis.call('incr', 'k3') " +
			"error('after a write') end)",
		"#!lua name=two\nredis.register_function('f3', function(keys, args) return {keys, args, " +
			"1.5, {ok = 'yes'}} end)\nredis.register_function('f2', function() return " +
			"redis.pcall('lpush', 'h1', 'x') end)",
		"#!lua name=two\nredis.register_function('F1', redis.log)",
		"#!lua name=three\nredis.register_function('f3', redis.log)",
		"#!lua name=three\nlocal n = 7 redis.register_function{function_name='f4', " +
			"description='a number', flags={'allow-stale', 'no-cluster'}, callback=function() " +
			"return n end}",
		"#!lua name=two\nx = 1", "#!lua name=two\n\nx =", "#!lua name=two", "syntax error",
		"#!lua name=two\nredis.call('get', 'k1')", "#!lua\nreturn 1", "#!lua name=a-b\nreturn 1",
		"#!js name=one\nx",
		"#!lua name=four\nredis.register_function('f5', function(keys, args) return " +
			"redis.call(unpack(args)) end)", callingLibrary,
		"#!lua name=five\nredis.register_function{function_name='f6', flags={'no-writes', " +
			"'allow-oom'}, callback=function(keys, args) return {#keys, args[1], " +
			"redis.call('type', keys[1] or 'k1')} end}",
		"#!lua name=five\nredis.register_function{function_name='f7', flags={'no-writes'}, " +
			"callback=function(keys, args) redis.setresp(3) return redis.call('zscore', keys[1] " +
			"or 'z1', 'm1') end}",
	}
)

// differentialSHAs names the scripts of differentialPools.
var differentialSHAs = func() []string {
	var names []string
	for _, s := range scripts {
		names = append(names, fmt.Sprintf("%x", sha1.Sum([]byte(s))))
	}
	return names
}()

// payloads are what DUMP of redis-server 7.0.15 gives for a value of each type, one of which is cut
// short.
var payloads = func() []string {
	list := []string{
		"\x00\x05hello\n\x00cr\xdfve4 \n",
		"\x00\xc0{\n\x00H\xe2S\xe1\x00zg\xb9",
		"\x12\x01\x02\x0f\x0f\x00\x00\x00\x03\x00\x81x\x02\x81y\x02\a\x01\xff\n\x00\x8b" +
			"W\xd8<\xed^\xa7\t",
		"\x0b\x0e\x02\x00\x00\x00\x03\x00\x00\x00\xfb\xff\x01\x00\x02\x00\n\x00I.\xedn" +
			"\xc0\a\x8c\xef",
		"\x02\x02\x01a\x02m1\n\x00\x1c\xe2}*+\xf2\x8b\x8b",
		"\x10\x14\x14\x00\x00\x00\x04\x00\x82m1\x03\x81v\x02\x82m2\x03\x05\x01\xff\n" +
			"\x00\xd7[i\xb2c\xa2+\x9e",
		"\x11\x1a\x1a\x00\x00\x00\x04\x00\x82m2\x03\x84-inf\x05\x82m1\x03\x831.5\x04" +
			"\xff\n\x00\x8dm\xc0\x89\"\x88\x8a\xed",
		"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01" +
			"\x1e\x1e\x00\x00\x00\n\x00\x01\x01\x00\x01\x01\x01\x82m1\x03\x00\x01\x02\x01" +
			"\x00\x01\x00\x01\x81v\x02\x04\x01\xff\x01\x01\x01\x01\x01\x00\x00\x01\x01\x02g" +
			"1\x00\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\n\x00\xc7\xeb\xb5!8vX5",
	}
	return append(list, list[0][1:])
}()

// scriptsToRead are the same scripts with other SHA1s, because the real server caches them.
var scriptsToRead = func() []string {
	texts := slices.Clone(scripts)
	for i := range texts {
		texts[i] += " "
	}
	return texts
}()

// seldomRight are values that make most calls fail.
var seldomRight = words(
	"x nan 1.5 9223372036854775808 -9223372036854775808 9223372036854775807 ( [ * - $ 1-x 16 -5 "+
		"4294967296", "", "\r\n", "text with spaces", "syntax error")

// words are the words of a text, and more.
func words(text string, more ...string) []string { return append(strings.Fields(text), more...) }

// pool is a random.Pool.
type pool struct {
	part   string
	values []string
}

func asRandom(pools []pool) []random.Pool {
	list := make([]random.Pool, len(pools))
	for i, p := range pools {
		list[i] = random.Pool{Part: p.part, Values: p.values}
	}
	return list
}

// differentialPools are the pools of TestDifferential.
var differentialPools = []pool{
	{"eval_ro script", scriptsToRead}, {"setbit value", words("0 1 0 1 2 x -1")},
	{"sort pattern", sortNames}, {"sort_ro pattern", sortNames},
	{"xread id", words("0 0 1-1 5 $ > x 5-3 + -")},
	{"xreadgroup id", words("> > > > 0 0 1-1 $ x 5", entryToken)}, {"xack id", knownIDs},
	{"xclaim id", knownIDs}, {"xdel id", knownIDs}, {"xgroup|create id", words("0 $ 1-1 0 x 5-3")},
	{"xgroup|setid id", words("0 $ 1-1 0 x 5-3")},
	{"xautoclaim start", words("0 - 1-1 5 (0-1 x 0 0 - 0", entryToken)}, {"lindex index", integers},
	{"lset index", words("0 1 -1 -2 5 0 -1 x")}, {"move db", numbered}, {"select index", numbered},
	{"xrange start", streamStart}, {"xrange end", streamEnd}, {"xrevrange start", streamStart},
	{"xrevrange end", streamEnd}, {"xpending start", streamStart}, {"xpending end", streamEnd},
	{"zlexcount min", lexMin}, {"zlexcount max", lexMax}, {"zrangebylex min", lexMin},
	{"zrangebylex max", lexMax}, {"zrevrangebylex min", lexMin}, {"zrevrangebylex max", lexMax},
	{"zremrangebylex min", lexMin}, {"zremrangebylex max", lexMax}, {"zrange start", anyMin},
	{"zrange stop", anyMax}, {"zrangestore min", anyMin}, {"zrangestore max", anyMax},
	{"zrandmember count", words("1 2 -1 -3 0 5 -5 x 100 9223372036854775807")},
	{"zadd score", scores}, {"zincrby increment", scores}, {"incrbyfloat increment", floats},
	{"hincrbyfloat increment", floats}, {"hset value", slices.Concat(values, floats)},
	{"bitfield value", integers}, {"object-subcommand", words("x")}, {"scan count", counts},
	{"script|exists sha1", append(words("x"), differentialSHAs...)},
	{"sha1", append(words("x X"), differentialSHAs...)}, {"function-code", libraries},
	{"library", words("one two t* three four * none")},
	{"function", words("f1 f2 F3 f4 f5 f1 f6 f7 none")},
	{"restore serialized-value", payloads}, {"serialized", random.DumpPool}, {"script", scripts},
	{"longitude", longitudes}, {"latitude", latitudes}, {"geoadd member", places},
	{"radius", lengths}, {"width", lengths}, {"height", lengths},
	{"key", random.KeyPool}, {"source", random.KeyPool}, {"src", random.KeyPool},
	{"dst", random.KeyPool}, {"destination-db", numbered}, {"destination", random.KeyPool},
	{"member", members}, {"field", members}, {"element", members}, {"pivot", members},
	{"index", numbered},
	{"milliseconds-timestamp", times}, {"unix", append(farTimes, times...)}, {"timestamp", times},
	{"min-idle", idles},
	{"frequency", counts},
	{"restore ttl", words("0 0 0 0 0 0 -5 x 1.5", ttlToken, farToken)},
	{"username", words("default default default none")},
	{"acl|dryrun command", words("get set ping mset config nothing")},
	{"milliseconds", msTTLs}, {"seconds", secondTTLs}, {"ms", idles}, {"timeout", timeouts},
	{"score", scores}, {"weight", floats}, {"increment", slices.Concat(integers, floats)},
	{"decrement", integers},
	{"last-id", streamIDs}, {"lastid", streamIDs}, {"max-deleted-id", streamIDs},
	{"entries", integers}, {"id", streamIDs}, {"threshold", slices.Concat(counts, streamIDs)},
	{"group", words("g1 g2 g1 g1 g1 g2 g1 g1 g1", "")}, {"consumer", words("c1 c2", "")},
	{"min", bounds}, {"max", bounds}, {"start", integers}, {"stop", integers}, {"end", integers},
	{"offset", offsets}, {"bit", words("0 1 2 x -1")}, {"encoding", encodings},
	{"rank", counts}, {"len", counts}, {"limit", counts}, {"num", counts}, {"count", counts},
	{"cursor", words("0 0 0 x -0")},
	{"pattern", patterns}, {"type", words("string hash zset list set stream none")},
	{"db", numbered}, {"value", values},
}

// widePools also have numbers that a double cannot hold. They are for calls without SORT: see
// errnoLine.
var widePools = func() []pool {
	wide := words(
		"1e400 -1e400 1e-400 1e5000 -1e-5000 4.9e-324 1.7976931348623157e308 1e308 -1e308 1e4931 "+
			"0x1p-1074 123456789012345678901234567890 .5 5. 1e",
		"1"+strings.Repeat("0", 400), "0."+strings.Repeat("0", 400)+"1", "infinity", "-Infinity",
		"nan(1)", "1e+2", "1_0")
	pools := slices.Clone(differentialPools)
	for i, p := range pools {
		for _, part := range []string{"increment", "score", "weight", "value", "min", "max",
			"timeout", "zrange s", "zrangestore m"} {
			if strings.Contains(p.part, part) && !strings.Contains(p.part, "lex") {
				pools[i].values = slices.Concat(p.values, wide)
				break
			}
		}
	}
	return pools
}()

// encodings are the types of BITFIELD, and some invalid ones.
var encodings = func() []string {
	all := words("u64 i65 x5 i0 u0 u i")
	for n := 1; n <= 64; n++ {
		all = append(all, fmt.Sprint("i", n), fmt.Sprint("u", min(n, 63)))
	}
	return all
}()

// Bounds by name, and what ZRANGE accepts as either.
var (
	lexMin = words("- [a (m2 [m1 - ( [ x + [1")
	lexMax = words("+ [m3 (m2 [m1 + ( [ x - [zz")
	anyMin = slices.Concat(lexMin, integers, bounds, words("0 0 0 0 1 -inf - -2"))
	anyMax = slices.Concat(lexMax, integers, bounds, words("-1 -1 -1 -1 2 +inf + 5"))
)
