// The attacks of TestHostileInput.

package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
)

const (
	tooLarge = "-ERR the reply, with those that go before it, is larger than 67108864 bytes; " +
		"nothing was changed"
	tooMuchData  = "-ERR the command goes over too much data, nothing was changed"
	notRunLarger = "-ERR request exceeds 33554432 bytes; it did not run"
	someKeys     = 100_000
)

// protocolAttacks are malformed or unusual input.
func protocolAttacks() []attack {
	noise := make([]byte, 64<<10)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise)
	return []attack{
		{name: "huge count", raw: "*1000000000\r\n",
			want: []string{"-ERR Protocol error: invalid multibulk length"}, closes: true},
		{name: "count beyond integers", raw: "*99999999999999999999\r\n",
			want: []string{"-ERR Protocol error: invalid multibulk length"}, closes: true},
		{name: "one argument too many", raw: "*1048577\r\n",
			want: []string{"-ERR Protocol error: invalid multibulk length"}, closes: true},
		{name: "huge length", raw: "*2\r\n$4\r\nECHO\r\n$536870913\r\n",
			want: []string{"-ERR Protocol error: invalid bulk length"}, closes: true},
		{name: "negative length", raw: "*2\r\n$4\r\nECHO\r\n$-1\r\n",
			want: []string{"-ERR Protocol error: invalid bulk length"}, closes: true},
		{name: "negative counts", raw: "*-1\r\n*0\r\n*-100\r\n\r\n\r\nPING\r\n",
			want: []string{"+PONG"}},
		{name: "no length", raw: "*1\r\n:4\r\n",
			want: []string{"-ERR Protocol error: expected '$', got ':'"}, closes: true},
		{name: "open quotes", raw: "SET a \"b\r\n",
			want: []string{"-ERR Protocol error: unbalanced quotes in request"}, closes: true},
		{name: "long line", raw: strings.Repeat("x", 70<<10),
			want: []string{"-ERR Protocol error: too big inline request"}, closes: true},
		{name: "long head", raw: "*" + strings.Repeat("1", 70<<10),
			want: []string{"-ERR Protocol error: too big mbulk count string"}, closes: true},
		{name: "web page", raw: "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET a b\r\n",
			closes: true},
		{name: "request beyond its limit",
			calls: [][]string{{"SET", "k", strings.Repeat("x", 40<<20)}, {"EXISTS", "k"}},
			want:  []string{notRunLarger, ":0"}},
		{name: "many arguments beyond the limit",
			calls: [][]string{with(400_000, strings.Repeat("x", 100), "DEL")},
			want:  []string{notRunLarger}},
		{name: "binary names", calls: [][]string{{string(noise)}, {"GET", string(noise)},
			{"\x00\r\n"}}, want: []string{"-ERR unknown command", "$-1", "-ERR unknown command"}},
		{name: "noise", run: func(b *battle, _ *rawClient) { b.noise(noise) }},
		{name: "half a command", run: halfCommand},
		{name: "half-open connections", run: halfOpen},
		{name: "a million pipelined", run: latePipeline},
		{name: "subscriber that does not read", once: true, run: deafSubscriber},
		{name: "odd greetings", calls: [][]string{
			{"HELLO", "4"}, {"HELLO", "x"}, {"HELLO", least}, {"HELLO", "3", "AUTH", "a"},
			{"HELLO", "3", "SETNAME", "a b"}, {"HELLO", "3", "WHAT"},
			{"HELLO", "2", "AUTH", "a", "b"},
		}, want: []string{"-NOPROTO", "-ERR Protocol version", "-NOPROTO", "-ERR Syntax error",
			"-ERR Client names", "-ERR Syntax error", "-WRONGPASS"}},
		{name: "answers of the session", once: true,
			calls: [][]string{with(someKeys, "set", "COMMAND", "DOCS"),
				with(900_000, "set", "COMMAND", "INFO")},
			want: []string{"-ERR the command goes over too much data, nothing was changed"}},
		{name: "long names", calls: [][]string{{"CLIENT", "SETNAME", strings.Repeat("x", 30<<20)},
			with(someKeys, "x*", "CONFIG", "GET"), with(900_000, "x", "PUBSUB", "NUMSUB")},
			want: []string{"-ERR Client names cannot be longer", "-ERR too many parameters",
				"-ERR the command goes over too much data, nothing was changed"}},
	}
}

// noise sends meaningless bytes to every node, whole and in parts. Any reply is well-formed.
func (b *battle) noise(bytesOfIt []byte) {
	for _, p := range b.ps {
		for _, cut := range []int{len(bytesOfIt), 10_000, 100, 1} {
			nc, err := net.Dial("tcp", p.addr)
			if err != nil {
				b.t.Fatal(err)
			}
			_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = nc.Write(bytesOfIt[:cut])
			_ = nc.(*net.TCPConn).CloseWrite()
			var got bytes.Buffer
			_, _ = got.ReadFrom(nc) // a reset is as good as an end
			_ = nc.Close()
			if _, err := commandtest.ParseAll(got.Bytes()); err != nil {
				b.t.Errorf("noise: %v", err)
			}
		}
	}
}

// halfCommand sends a part of a write and disconnects: nothing of it runs.
func halfCommand(b *battle, c *rawClient) {
	whole := "*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$5\r\nvalue\r\n"
	for cut := 1; cut < len(whole); cut++ {
		nc, err := net.Dial("tcp", b.ps[cut%len(b.ps)].addr)
		if err != nil {
			b.t.Fatal(err)
		}
		_, _ = nc.Write([]byte(whole[:cut]))
		_ = nc.Close()
	}
	if got := c.call("EXISTS", "half"); got != ":0\r\n" {
		b.t.Errorf("half a command ran: %q", got)
	}
}

// halfOpen holds thousands of connections that have sent a part of a command, while another one is
// served.
func halfOpen(b *battle, c *rawClient) {
	var open []net.Conn
	for i := range 3000 {
		nc, err := net.Dial("tcp", b.ps[i%len(b.ps)].addr)
		if err != nil {
			b.t.Errorf("connection %d: %v", i, err)
			break
		}
		_, _ = nc.Write([]byte("*2\r\n$3\r\nGET\r\n$1000000\r\nx"))
		open = append(open, nc)
	}
	if got := c.call("SET", "served", "1"); got != "+OK\r\n" {
		b.t.Errorf("among half-open connections: %q", got)
	}
	b.check("3000 half-open connections")
	for _, nc := range open {
		_ = nc.Close()
	}
}

// latePipeline reads its first reply when it can send no more.
func latePipeline(b *battle, c *rawClient) {
	const pings = 1_000_000
	sent := make(chan error, 1)
	go func() { sent <- c.SendRaw(bytes.Repeat([]byte("PING\r\n"), pings)) }()
	select {
	case <-sent:
		sent <- nil
	case <-time.After(300 * time.Millisecond):
		// the sockets are full: the server waits for this client, and the others do not
	}
	b.check("a million pipelined commands, unread")
	for i := range pings {
		if got, err := c.Receive(); err != nil || string(got) != "+PONG\r\n" {
			b.t.Errorf("reply %d: %q, %v", i, got, err)
			return
		}
	}
	if err := <-sent; err != nil {
		b.t.Error(err)
	}
}

// deafSubscriber subscribes and monitors without reading: it is disconnected, and nobody waits for
// it.
func deafSubscriber(b *battle, c *rawClient) {
	for _, p := range b.ps {
		for _, call := range []string{"SUBSCRIBE deaf\r\n", "MONITOR\r\n"} {
			nc, err := net.Dial("tcp", p.addr)
			if err != nil {
				b.t.Fatal(err)
			}
			defer nc.Close()
			_, _ = nc.Write([]byte(call))
			_ = nc.SetReadDeadline(time.Now().Add(20 * time.Second))
			_, _ = nc.Read(make([]byte, 1))
		}
	}
	message := strings.Repeat("x", 8<<20)
	for range 6 {
		if got := c.call("PUBLISH", "deaf", message); got[0] != ':' {
			b.t.Errorf("PUBLISH: %q", got)
		}
	}
}

// manyKeysAttacks name many keys, or one key many times.
func manyKeysAttacks() []attack {
	pairs := []string{"MSET"}
	for i := range someKeys {
		pairs = append(pairs, fmt.Sprint("pair", i), "v")
	}
	zeros := with(someKeys, "0", with(someKeys, "stream", "XREAD", "STREAMS")...)
	return []attack{
		{name: "reads of many keys", calls: [][]string{keys(someKeys, "MGET"),
			keys(someKeys, "EXISTS"), keys(someKeys, "TOUCH")},
			want: []string{"*100000", ":0", ":0"}},
		{name: "writes of many keys", calls: [][]string{pairs, keys(someKeys, "DEL"),
			keys(someKeys, "UNLINK"), keys(someKeys, "LPUSH", "many"), {"DEL", "many"}},
			want: []string{"+OK", ":0", ":0", ":100000", ":1"}},
		{name: "sets of many keys", calls: [][]string{keys(someKeys, "SUNION"),
			keys(someKeys, "SINTER"), keys(someKeys, "SDIFF"), keys(someKeys, "SUNIONSTORE")},
			want: []string{"*0", "*0", "*0", ":0"}},
		{name: "sorted sets of many keys", calls: [][]string{keys(someKeys, "ZUNION", "100000"),
			keys(someKeys, "ZINTER", "100000"), keys(someKeys, "ZDIFF", "100000"),
			keys(someKeys, "ZUNIONSTORE", "d", "100000")},
			want: []string{"*0", "*0", "*0", ":0"}},
		{name: "scripts of many keys",
			calls: [][]string{keys(someKeys, "EVAL", "return #KEYS", "100000"),
				keys(someKeys, "EVAL", "return {unpack(KEYS)}", "100000"),
				keys(someKeys, "EVAL", "return redis.call('MGET', unpack(KEYS))", "100000")},
			want: []string{":100000", inScript + "too many results to unpack",
				inScript + "too many results to unpack"}},
		{name: "watch of many keys", calls: [][]string{keys(someKeys, "WATCH"), {"MULTI"},
			{"GET", "n"}, {"EXEC"}}, want: []string{"+OK", "+OK", "+QUEUED", "*1"}},
		{name: "waiting for many keys", calls: [][]string{append(keys(someKeys, "BLPOP"), "0.01"),
			append(keys(someKeys, "BZPOPMIN"), "0.01")}, want: []string{"*-1"}},
		{name: "too many subscriptions", calls: [][]string{keys(someKeys+1, "SUBSCRIBE"),
			keys(someKeys+1, "PSUBSCRIBE"), keys(someKeys+1, "SSUBSCRIBE")},
			want: []string{"-ERR too many subscriptions"}},
		{name: "the same large value", calls: [][]string{with(someKeys, "big", "MGET"),
			{"GET", "n"}}, want: []string{tooLarge, "$"}},
		{name: "the same large sets", once: true,
			calls: [][]string{with(someKeys, "set", "SUNION"),
				with(someKeys, "zset", "ZINTERSTORE", "d", "100000")},
			want: []string{tooMuchData}},
		{name: "the same stream", calls: [][]string{zeros}, want: []string{tooMuchData}},
		{name: "the same large strings",
			calls: [][]string{with(someKeys, "big", "BITOP", "OR", "d")},
			want:  []string{tooMuchData}},
		{name: "a pipeline of large values", calls: same(150, "GET", "big"),
			want: []string{"$1048576"}},
		{name: "a pipeline of the same large set", once: true,
			calls: same(100, "SUNION", "set", "set"), want: []string{"*10000"}},
		{name: "patterns", calls: [][]string{
			{"KEYS", strings.Repeat("*a", 500) + "b"}, {"KEYS", strings.Repeat("*?", 512)},
			{"SCAN", "0", "MATCH", strings.Repeat("a*", 500) + "b", "COUNT", most},
			{"KEYS", strings.Repeat("*", 1025)},
			{"KEYS", strings.Repeat("[^b-", 250)}, {"PSUBSCRIBE", strings.Repeat("*", 1025)},
		}, want: []string{tooMuch, tooMuch, tooMuch, "-ERR pattern is longer than 1024 bytes",
			tooMuch, "-ERR pattern is longer than 1024 bytes"}},
		{name: "sorting by huge patterns", calls: [][]string{
			{"SORT", "set", "BY", strings.Repeat("x", 1<<20) + "*"},
			with(2*someKeys, "#", "SORT", "set", "ALPHA", "GET"),
			{"SORT", "gs", "BY", "nosort", "GET", "bi*"},
		}, want: []string{"-ERR BY and GET go over more than 67108864 bytes", "-ERR",
			"-ERR BY and GET go over more than 67108864 bytes"}},
	}
}

// evalCall returns a call of EVAL.
func evalCall(body string, args ...string) []string {
	return append([]string{"EVAL", body, "0"}, args...)
}

// tooMuch expects the refusal of a command that exceeds the work of a request.
const tooMuch = "-ERR the command goes over too much data, nothing was changed"

const (
	noInstructions = "script stopped: it used up its instruction budget"
	noMemory       = "script stopped: it used up its memory budget"
	inScript       = "-ERR user_script:1: "
	// one of them, depending on the data
	noBudget = inScript + "script stopped: it used up its "
)

// scripts adds programs that all get the same reply.
func (a attack) scripts(want string, bodies ...string) attack {
	for _, body := range bodies {
		a.calls, a.want = append(a.calls, evalCall(body)), append(a.want, want)
	}
	return a
}

// scriptAttacks are programs. Each expects its own error, or the budget that stopped it, so that a
// misspelt one fails.
func scriptAttacks() []attack {
	one := func(name, want string, bodies ...string) attack {
		// two in one batch take twice as long, on every node
		return attack{name: name, once: true, waits: true}.scripts(want, bodies...)
	}
	const late = "-ERR Error registering functions: ERR FUNCTION LOAD timeout"
	const megabytes = "local s = string.rep('x', 1000000) "
	return []attack{
		one("endless", inScript+noInstructions, "while true do end",
			"while true do pcall(function() while true do end end) end",
			"local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while "+
				"true do pcall(function() return t[1] end) end"),
		one("recursion", inScript+"stack overflow",
			"local function f() return 1 + f() end return f()",
			"local f f = function(...) return f(1, ...) end f()").
			scripts(inScript+noInstructions,
				"local function f() f() end while true do pcall(f) end").
			scripts(inScript+"loop in gettable",
				"local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x").
			scripts(inScript+"[string \"(((((",
				"return assert(loadstring(string.rep('(', 100000)))()").
			scripts("-ERR Error compiling script (new function): user_script:1: chunk has too "+
				"many syntax levels", "return "+strings.Repeat("(", 50_000)),
		one("building", inScript+noMemory, "local s = 'x' while true do s = s .. s end").
			scripts(inScript+noInstructions, "return string.rep('x', 1e9)",
				megabytes+"local t = {} for i = 1, 1000 do t[i] = s end return table.concat(t)",
				"return ('x'):rep(1e6):gsub('', ('y'):rep(1e6))").
			scripts(inScript+noMemory,
				"local t = {} while true do t[#t + 1] = string.rep('x', 1000) end").
			scripts(inScript+"attempt to concatenate a table value",
				"return string.rep('x', 2^60):rep(2^60, 2^60) .. {}").
			scripts(inScript+"invalid format (width or precision too long)",
				"return string.format('%1000000000d', 1)"),
		one("building a reply", "-ERR "+noMemory,
			megabytes+"local t = {} for i = 1, 1000 do t[i] = s end return t",
			megabytes+"local t = {s} for i = 1, 100 do t = {t, t} end return t"),
		one("budgets behind pcall", inScript+noInstructions,
			"while true do pcall(string.rep, 'x', 1e9) end",
			"local f = function() while true do end end while true do xpcall(f, f) end").
			scripts(inScript+noMemory, "for i = 1, 1e9 do pcall(error, string.rep('x', 1000)) end"),
		one("tables", inScript+noMemory, "local t = {} while true do t[#t + 1] = {} end").
			scripts(inScript+noInstructions, "local t = {} for i = 1, 1e9 do t['k' .. i] = i end",
				"local t = {} for i = 1, 5e4 do t[i] = i end while true do table.remove(t, 1) "+
					"table.insert(t, 1, 1) end",
				"local t = {} for i = 1, 1e5 do t[i] = -i end while true do table.sort(t, "+
					"function(a, b) return a < b end) end").
			scripts(inScript+"too many results to unpack", "return {unpack({}, 1, 1e8)}",
				"return select('#', unpack({}, 0, 2^31 - 1))").
			scripts(inScript+"invalid order function for sorting",
				"local t = {} for i = 1, 1e5 do t[i] = -i end table.sort(t, function(a, b) "+
					"return true end)"),
		one("patterns of scripts", inScript+noInstructions,
			"return string.find(string.rep('a', 100000), string.rep('a*', 100) .. 'b')",
			"return string.find(string.rep('a', 1000), string.rep('a-', 500) .. 'b')",
			"return string.match(string.rep('(', 100000), string.rep('%b()', 30))",
			"local n = 0 while true do for w in string.gmatch(string.rep('a', 1e5), '.-') do n = "+
				"n + 1 end end").
			scripts(inScript+noInstructions,
				"return string.gsub(string.rep('x', 1e6), '.', string.rep('y', 1e6))").
			scripts(inScript+"pattern too complex",
				"return string.find(string.rep('a', 3e5), string.rep('.-', 3e4))"),
		one("cjson", noBudget, megabytes+
			"local t = {} for i = 1, 1000 do t[i] = s end return cjson.encode(t)").
			scripts(inScript+"Found too many nested data structures (1001)",
				"return cjson.decode(string.rep('[', 1000000))").
			scripts(inScript+"Cannot serialise, excessive nesting (1001)",
				"local t = {} for i = 1, 2000 do t = {t} end return cjson.encode(t)",
				"local t = {} t[1] = t return cjson.encode(t)"),
		one("cmsgpack and struct", noBudget,
			megabytes+"local t = {} for i = 1, 1000 do t[i] = s end return cmsgpack.pack(t)").
			scripts(inScript+"Missing bytes in input.",
				"return cmsgpack.unpack('\\221\\255\\255\\255\\255')").
			scripts(inScript+noInstructions,
				"local t = {} for i = 1, 100 do t[i] = t end return cmsgpack.pack(t) .. "+
					"string.rep('x', 1e9)").
			scripts(inScript+"stack overflow",
				"return cmsgpack.unpack(string.rep('\\145', 1000000))").
			scripts(inScript+"bad argument #3 to 'pack' (string too short)",
				"return struct.pack('c1000000000', 'x')").
			scripts(inScript+"integral size 1000000000 is larger than limit of 32",
				"return struct.unpack('i1000000000', 'x')"),
		one("coroutines", inScript+noMemory, "while true do coroutine.wrap(function() end)() end",
			"local t = {} while true do t[#t + 1] = coroutine.create(function() "+
				"coroutine.yield() end) coroutine.resume(t[#t]) end").
			// each that it is in adds where
			scripts(inScript+strings.Repeat("user_script:1: ", 100),
				"local function f() coroutine.wrap(f)() end f()"),
		one("errors of megabytes", inScript+"xxxxx", "error(string.rep('x', 10000000))").
			scripts("-ERR xxxxx", "return redis.error_reply(string.rep('x', 10000000))").
			scripts("-xxxxx", "return {err = string.rep('x', 10000000)}").
			scripts("-     ", "error({err = string.rep('\\r\\n', 5000000)})").
			scripts("-ERR Wrong number of args calling Redis command",
				"return redis.call('GET', string.rep('x', 1e7), string.rep('y', 1e7))").
			scripts("-ERR Unknown Redis command called from script",
				"return redis.call(string.rep('x', 1e7))"),
		one("large replies from small tables", "-ERR script stopped: it used up its",
			"local t = {} for i = 1, 1000 do t[i] = i + 2^52 end local u = {} for i = 1, 4500 do "+
				"u[i] = t end return u",
			"local t = {} for i = 1, 1000 do t[i] = string.rep('x', 100) end local u = {} for i "+
				"= 1, 700 do u[i] = t end return u"),
		one("commands in scripts", noBudget, "while true do redis.call('PING') end",
			"while true do redis.call('SUNION', 'set', 'set') end",
			"while true do redis.pcall('KEYS', '*') end",
			"while true do redis.call('SORT', 'set', 'ALPHA') end",
			"local s = string.rep('x', 16777216) for i = 1, 1e9 do redis.call('SET', 'bomb' .. i "+
				"% 8, s) end",
			"for i = 1, 1e9 do redis.call('SET', 'b' .. i % 1000, 'x') end").
			scripts("-ERR the reply, with those that go before it, is larger than 67108864 bytes",
				"while true do redis.call('GET', 'big') end").
			scripts("-ERR the command goes over too much data, nothing was changed",
				"local s = string.rep('x', 16777216) while true do redis.call('PUBLISH', 'c', s) "+
					"end").
			scripts("-ERR offset is more than 16777216 bytes past the end",
				"while true do redis.call('SETRANGE', 'far', 99999999, 'x') end"),
		{name: "the bombs are cleared away", once: true,
			calls: [][]string{keys(0, "DEL", "bomb0", "bomb1", "bomb2", "bomb3", "bomb4", "bomb5",
				"bomb6", "bomb7", "far")}, want: []string{":"}},
		{name: "sources", once: true, calls: [][]string{
			evalCall(strings.Repeat("x = 1 ", 200_000)),
			evalCall("return '" + strings.Repeat("x", 2<<20) + "'"),
			evalCall("return 1", strings.Repeat("x", 30<<20)),
			{"EVALSHA", strings.Repeat("x", 1<<20), "0"},
			{"EVAL", "return 1", most}, {"EVAL", "return 1", least},
			{"SCRIPT", "LOAD", strings.Repeat("(", 1<<20)},
			evalCall("#!lua flags=" + strings.Repeat("x,", 400_000) + "\nreturn 1"),
		}, want: []string{"-ERR script is longer than", "-ERR script is longer than", ":1",
			"-NOSCRIPT", "-ERR Number of keys", "-ERR Number of keys",
			"-ERR Error compiling script", "-ERR Unexpected flag"}},
		{name: "libraries", calls: [][]string{
			{"FUNCTION", "LOAD", "#!lua name=a\nwhile true do end"},
			{"FUNCTION", "LOAD",
				"#!lua name=a\nfor i = 1, 1e9 do redis.register_function('f' .. i, function() " +
					"end) end"},
			{"FUNCTION", "LOAD", "#!lua name=" + strings.Repeat("a", 2<<20) + "\n"},
			{"FUNCTION", "LOAD", "#!lua name=a\nlocal s = 'x' while true do s = s .. s end"},
			{"FUNCTION", "LOAD", strings.Repeat("\x00", 1<<20)},
			{"FUNCTION", "RESTORE", strings.Repeat("\xf5\xff", 1<<20)}, {"FUNCTION", "RESTORE", ""},
			{"FUNCTION", "RESTORE", "\x0a\x00\x5d\x9b\x5c\x40\x0f\x7f\xa2\xda", "WHAT"},
			{"FCALL", strings.Repeat("f", 1<<20), "0"},
		}, want: []string{late, late, "-ERR library is longer than", late,
			"-ERR Missing library metadata",
			"-ERR DUMP payload version or checksum are wrong",
			"-ERR DUMP payload version or checksum are wrong", "-ERR Wrong restore policy",
			"-ERR Function not found"}},
		{name: "a pipeline of endless scripts", once: true,
			calls: same(4, evalCall("while true do end")...),
			want:  []string{inScript + noInstructions}},
	}
}

// transactionAttacks multiply work with MULTI.
func transactionAttacks() []attack {
	block := func(n int, call ...string) [][]string {
		return append(append([][]string{{"MULTI"}}, same(n, call...)...), []string{"EXEC"})
	}
	queued := func(n int, last string) []string {
		return append(append([]string{"+OK"}, strings.Fields(strings.Repeat("+QUEUED ", n))...),
			last)
	}
	return []attack{
		{name: "transaction of large reads", calls: block(3000, "GET", "big"),
			want: queued(3000, "*3000")},
		{name: "transaction of large answers", once: true, calls: block(700, "COMMAND"),
			want: queued(700, "*700")},
		{name: "transaction of endless scripts", once: true,
			calls: block(50, evalCall("while true do end")...), want: queued(50, "*50")},
		{name: "transaction of many commands", calls: block(50_000, "INCR", "n"),
			want: queued(50_000, "*50000")},
		{name: "transaction beyond its limit",
			calls: append(append([][]string{{"MULTI"}},
				same(5, "SET", "k", strings.Repeat("x", 8<<20))...), []string{"EXEC"}),
			want: []string{"+OK", "+QUEUED", "+QUEUED", "+QUEUED",
				"-ERR transaction exceeds 33554432 bytes",
				"-ERR transaction exceeds 33554432 bytes", "-EXECABORT"}},
		{name: "a pipeline of large reads with writes",
			calls: append(same(30, "MGET", "big", "big"),
				append(same(30, "INCR", "n"), same(30, "MGET", "big", "big")...)...),
			want: []string{""}},
	}
}

// rangeAttacks are numbers at the ends of their ranges.
func rangeAttacks() []attack {
	var a attack
	add := func(want string, calls ...string) {
		for _, c := range calls {
			c = strings.NewReplacer("MIN", least, "MAX", most).Replace(c)
			a.calls, a.want = append(a.calls, strings.Fields(c)), append(a.want, want)
		}
	}
	a.name = "numbers at the ends"
	const outOfRange = "-ERR value is out of range"
	add("-ERR value is out of range, must be positive", "LPOP list MIN", "RPOP list -1",
		"SPOP set MIN")
	add(outOfRange, "SRANDMEMBER set MIN", "ZRANDMEMBER zset MIN",
		"ZRANDMEMBER zset MIN WITHSCORES", "HRANDFIELD hash MIN", "HRANDFIELD hash MIN WITHVALUES",
		"SRANDMEMBER set -2000000000")
	add("*10000", "SRANDMEMBER set MAX", "ZRANDMEMBER zset MAX", "LRANGE list MIN MAX",
		"ZRANGE zset MIN MAX", "ZREVRANGE zset MIN MAX")
	add("*0", "LRANGE list MAX MIN", "ZRANGE zset MAX MIN",
		"XRANGE stream 18446744073709551615-18446744073709551615 +",
		"ZRANGEBYSCORE zset -inf +inf LIMIT MAX MAX")
	add("*", "XRANGE stream - + COUNT MAX", "XREVRANGE stream + - COUNT MIN", "SCAN 0 COUNT MAX",
		"HSCAN hash 0 COUNT MAX", "SCAN 18446744073709551615 COUNT 1",
		"XREAD COUNT MAX STREAMS stream 0")
	add("$0", "GETRANGE n MAX MIN")
	add("", "WAIT MIN 0", "LPOS list x RANK MIN", "COMMAND GETKEYS EVAL x MAX", "SLOWLOG GET -1",
		"PEXPIREAT none MAX")
	add("$1048576", "GETRANGE big MIN MAX")
	add("-ERR bit offset is not an integer or out of range", "SETBIT b 4294967296 1",
		"SETBIT b MIN 1", "GETBIT b MAX", "BITFIELD b SET u8 4294967296 1",
		"BITFIELD b SET u8 #MAX 1")
	add("-ERR string exceeds maximum allowed size", "SETRANGE b 536870912 x", "SETRANGE b MAX x")
	add("-ERR offset is out of range", "SETRANGE b MIN x")
	add("-ERR", "XADD stream 0-0 f v", "XADD stream 99999999999999999999-1 f v", "INCRBY n MAX",
		"DECRBY n MIN", "EXPIRE n MAX", "SET n 1 EX MAX", "SET n 1 PX MIN",
		"HEXPIRE hash MAX FIELDS 1 f",
		"INCRBYFLOAT n 1e999999999", "ZADD zset nan x", "SELECT MAX", "CLIENT KILL ID MIN",
		"SINTERCARD MAX set", "ZUNION MAX zset", "EVAL x MAX",
		"XAUTOCLAIM stream g c 0 0 COUNT MAX",
		"BLPOP l 1e400", "BLPOP l MIN", "OBJECT HELP HELP", "COPY n m DB MAX", "SWAPDB 0 MAX",
		"LMPOP MAX list LEFT", "ZMPOP 1 zset MIN COUNT MIN", "CL.THROTTLE t MAX MAX MAX MAX",
		"SLOWLOG GET MIN", "SETRANGE n x y",
		"XSETID stream 0-0", "LINSERT list BEFORE", "RESTORE x 0 x", "DEBUG SLEEP x")
	add("+OK", "XGROUP CREATE ends g 18446744073709551615-18446744073709551615 MKSTREAM",
		"XGROUP DESTROY ends g", "DEL ends")
	a.want[len(a.want)-1], a.want[len(a.want)-2] = ":1", ":1"
	far := attack{name: "the far end of a string", once: true}
	put := func(want string, call ...string) {
		far.calls, far.want = append(far.calls, call), append(far.want, want)
	}
	put("-ERR offset is more than 16777216 bytes past the end", "SETBIT", "far",
		"4294967295", "1")
	for i := range 5 {
		at := fmt.Sprint((i+1)<<24 - 1)
		put(":", "SETRANGE", "far", at, "x")
	}
	put(":83886080", "STRLEN", "far")
	put("-ERR the reply", "GET", "far")
	put("$12", "GETRANGE", "far", "83886068", "-1")
	put("-ERR the reply", "GETDEL", "far")
	put(":1", "DEL", "far")
	return []attack{a, far}
}
