// Scripts pay for the work of their commands, however small the replies.

package script

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/tests/detector"
)

// workKeys is the number of keys, fields and members in the data of these tests, workBytes the
// length of the long string.
const (
	workKeys  = 2_000
	workBytes = 3_200_000
)

// workEnv returns the data that a script uses.
func workEnv(t testing.TB, source string) (*commands.Env, func(args ...string) string) {
	ks := keyspace.New()
	ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	env := &commands.Env{Keyspace: ks, ClockMs: 1, Emit: func(commands.Event) {}}
	table := testTable()
	do := func(args ...string) string {
		out := &commands.RESP{Proto: 2}
		runCall(table, &commands.Call{Env: env, Tx: &commands.Tx{}, Out: out,
			Args: commandtest.Args(args...)})
		if strings.HasPrefix(string(out.Buf), "-") {
			t.Fatalf("%.100q: %s", args, out.Buf)
		}
		return string(out.Buf)
	}
	keys, hash, zset := []string{"MSET"}, []string{"HSET", "hash"}, []string{"ZADD", "zset"}
	for i := range workKeys {
		n := strconv.Itoa(i)
		keys = append(keys, "key:"+n, "v")
		hash = append(hash, "field:"+n, "v")
		zset = append(zset, n, "member:"+n)
	}
	small := []string{"HSET", "small"}
	for i := range 512 {
		small = append(small, fmt.Sprintf("field:%058d", i), "v")
	}
	for _, call := range [][]string{keys, hash, zset, small} {
		do(call...)
	}
	long := "x"
	if strings.Contains(source, `"big"`) || strings.Contains(source, `"wide`) {
		long = strings.Repeat("x", workBytes)
	}
	do("SET", "big", long)
	do("HSET", "wide", "f", long, "g", "v")
	do("ZADD", "wideset", "1", long, "2", "b")
	do("SET", "digits", strings.Repeat("9", 5000))
	return env, do
}

// When commands cost only by their arguments and replies, each of these took from 30 seconds to
// many minutes for a full budget.
var hardWork = []struct {
	body string
	most int // rounds that a fiftieth of the budget may last for
}{
	{`redis.call("keys", "nothing")`, 100},
	{`redis.call("keys", ("*a"):rep(50))`, 20},
	{`redis.call("scan", 0, "match", "nothing", "count", 1000000)`, 100},
	{`redis.call("scan", 0, "type", "nothing", "count", 1000000)`, 100},
	{`redis.call("hscan", "hash", 0, "match", "nothing", "count", 1000000)`, 100},
	{`redis.call("hscan", "wide", 0, "match", "nothing")`, 2_500},
	{`redis.call("zscan", "zset", 0, "match", "nothing", "count", 1000000)`, 100},
	{`redis.call("append", "big", "")`, 3_300}, // moves nothing, so it costs nothing
	{`redis.call("copy", "big", "other", "replace") redis.call("append", "other", "x")`, 2},
	{`redis.call("rename", "big", "other") redis.call("rename", "other", "big")`, 2},
	{`redis.call("digest", "big")`, 4},
	{`redis.call("set", "big", "y", "ifdeq", "0123456789abcdef")`, 4},
	{`redis.call("delex", "big", "ifdeq", "0123456789abcdef")`, 4},
	{`redis.call("copy", "zset", "other", "replace") redis.call("zremrangebyrank", "other", 0, -2)`,
		13},
	{`redis.call("copy", "zset", "other", "replace") redis.call("zpopmin", "other", 1999)`, 13},
	{`redis.call("copy", "wideset", "other", "replace") redis.call("zremrangebyrank", "other", 0, 0)`, 4},
	{`redis.call("copy", "wide", "other", "replace") redis.call("hset", "other", "f", "")`, 4},
	{`redis.call("copy", "wide", "other", "replace") redis.call("hdel", "other", "f")`, 4},
	{`redis.call("copy", "small", "other", "replace")`, 1_600},
	{`redis.call("zrangestore", "other", "zset", 0, -1)`, 7},
	{`redis.call("hget", "small", "nothing")`, 2_300},
	{`redis.call("zcount", "zset", "-inf", "+inf")`, 2_300},
	{`redis.pcall("incrbyfloat", "digits", 1)`, 80},
	{`redis.call("mset", unpack(pairs))`, 32},
	{`redis.call("del", unpack(pairs))`, 32},
}

func TestCommandsInScriptsPayForTheirWork(t *testing.T) {
	detector.Skip(t)
	const before = `local pairs = {} for i = 1, 1000 do pairs[i] = "m" .. i end while true do redis.call("incr", "n") `
	rounds := func(body string) string {
		env, do := workEnv(t, body)
		p, err := compileScript([]byte(before+body+` end`), commands.FeatureLevel)
		if err != nil {
			t.Fatal(err)
		}
		out := &commands.RESP{Proto: 2}
		limit := lua.Budget{Instructions: scriptInstructions / 50, Bytes: scriptBytes}
		newInterpreter(testTable(), true).runWithin(&commands.Call{Env: env, Tx: &commands.Tx{},
			Out: out}, p, "sha", commands.Script{}, limit)
		if !strings.Contains(string(out.Buf), errScriptInstructions) {
			t.Errorf("%s: reply %.100q", body, out.Buf)
		}
		return do("GET", "n") + fmt.Sprint(env.Keyspace.Sum(), env.Work)
	}
	for _, c := range hardWork {
		first := rounds(c.body)
		n, err := strconv.Atoi(strings.Split(first, "\r\n")[1])
		if err != nil || n < 1 || n > c.most {
			t.Errorf("%s: %d rounds, want 1 to %d", c.body, n, c.most)
		}
		if second := rounds(c.body); second != first {
			t.Errorf("%s: %q, then %q", c.body, first, second)
		}
	}
}

// The arguments and replies of common scripts pay for their work.
func TestCommonScriptsPayLittle(t *testing.T) {
	env, _ := workEnv(t, "")
	for source, most := range map[string]uint64{
		`return redis.call("get", "key:1")`:                                               0,
		`return redis.call("set", "key:1", "value", "nx", "px", 1000)`:                    0,
		`if redis.call("get", "key:1") == "v" then return redis.call("del", "key:1") end`: 0,
		`return redis.call("append", "key:2", "value")`:                                   0,
		`return redis.call("hget", "hash", "field:1")`:                                    0,
		`return redis.call("scan", 0)`:                                                    11,
		`return redis.call("zrangebyscore", "zset", 10, 20)`:                              30,
	} {
		p, err := compileScript([]byte(source), commands.FeatureLevel)
		if err != nil {
			t.Fatal(err)
		}
		before := env.Work
		newInterpreter(testTable(), true).run(&commands.Call{Env: env, Tx: &commands.Tx{},
			Out: commands.Discard{}}, p, "sha", commands.Script{})
		if work := env.Work - before; work > most {
			t.Errorf("%s: work %d, want at most %d", source, work, most)
		}
	}
}

// Skipping keys that are past their deadline and not swept yet is paid for.
func TestStepsOverDeadKeysArePaidFor(t *testing.T) {
	ks := keyspace.New()
	ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	env := &commands.Env{Keyspace: ks, ClockMs: 1}
	table := testTable()
	work := func(args ...string) uint64 {
		before := env.Work
		runCall(table, &commands.Call{Env: env, Tx: &commands.Tx{}, Out: commands.Discard{},
			Args: commandtest.Args(args...)})
		return env.Work - before
	}
	const keys = 6000 // more than one entry sweeps
	for i := range keys {
		work("SET", strconv.Itoa(i), "v", "PX", "1")
	}
	if n := work("DBSIZE"); n != 0 {
		t.Errorf("work %d without dead keys", n)
	}
	ks.Begin(100, keyspace.NewRevision(0, 2, 0))
	if ks.DB(0).Volatile() == 0 {
		t.Fatal("all were swept at once")
	}
	for _, name := range []string{"DBSIZE", "RANDOMKEY", "SCAN", "KEYS"} {
		args := map[string][]string{"SCAN": {"SCAN", "0"}, "KEYS": {"KEYS", "*"}}[name]
		if args == nil {
			args = []string{name}
		}
		if n := work(args...); n == 0 {
			t.Errorf("%s: no work", name)
		}
	}
}
