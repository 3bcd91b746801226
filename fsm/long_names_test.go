//go:build linux

// What commands take whose names are long, each in turn: of a key, a group, a consumer, a field or
// a member. An element that is named, or an entry that is pending, may copy, compare and hash them.

package fsm

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/tier"
)

// longNameCalls are calls that were too cheap once, with placeholders: key, group and consumer are
// names, ids many entries that are pending, count their number. What follows "…" is repeated as
// often.
const longNameCalls = `
XADD key MAXLEN 9 DELREF * f v
XADD key MAXLEN 9 ACKED * f v
XADD key IDMPAUTO group * f v
XTRIM key MAXLEN 9 DELREF
XTRIM key MINID 999999 ACKED
XDEL key ids
XDELEX key DELREF IDS count ids
XDELEX key ACKED IDS count ids
XACK key group ids
XACKDEL key group DELREF IDS count ids
XACKDEL key group ACKED IDS count ids
XNACK key group FAIL IDS count ids
XCLAIM key group consumer 0 ids
XCLAIM key group consumer 0 ids JUSTID
XCLAIM key group other 0 ids
XAUTOCLAIM key group consumer 0 0 COUNT count
XAUTOCLAIM key group other 0 0 COUNT count
XREADGROUP GROUP group consumer STREAMS key >
XREADGROUP GROUP group consumer NOACK STREAMS key >
XREADGROUP GROUP group consumer STREAMS key 0
XREADGROUP GROUP group consumer CLAIM 0 STREAMS key >
XREADGROUP GROUP group other CLAIM 0 STREAMS key >
XREADGROUP GROUP group other CLAIM 0 STREAMS keys news
XREADGROUP GROUP group consumer STREAMS keys zeros
XREADGROUP GROUP group consumer COUNT 1 STREAMS keys news
XPENDING key group - + count consumer
XPENDING key group IDLE 999999 - + count consumer
XINFO STREAM key FULL COUNT 0
XGROUP DELCONSUMER key group consumer
DUMP key
RESTORE d 0 dump
BITFIELD bits … SET u8 9 200 SET u8 9 100
BITFIELD bits … INCRBY i64 #9 1
`

// longCalls makes calls of all commands of the table, from their syntax. What may be repeated is,
// five times as often as there are entries, unless that takes more than longBytes.
type longCalls struct {
	*random.Calls
	names map[string]string // what placeholders of such names get
	group string            // of the command: its keys
	count int               // of entries that are pending
	keys  int               // of the command, so far
}

const longBytes = 8 << 20

// namedParts are the kinds of names, as placeholders have them.
var namedParts = []string{"key", "group", "consumer", "field", "member", "element"}

func (g *longCalls) call(spec *commands.Spec) [][]byte {
	args, err := commands.ParseSyntax(spec.Syntax)
	if err != nil {
		panic(err) // NewCalls has read it
	}
	g.group, g.keys = spec.Group, 0
	return commandtest.Args(append(strings.Split(spec.FullName(), "|"), g.words(args)...)...)
}

func (g *longCalls) words(args []commands.Arg) (words []string) {
	counts := -1 // the index of a word that counts what follows
	for i := range args {
		a := &args[i]
		if a.Optional && g.IntN(2) == 0 {
			continue
		}
		more, n := g.argument(a, 0, true), 1
		most := 1
		if a.Multiple {
			size := len(strings.Join(more, " "))
			most = min(5*g.count, max(1, longBytes/max(size, 1)))
		}
		if g.keys > 0 && (a.Name == "id" || a.Name == "weight") {
			most = g.keys
		}
		for ; n < most; n++ {
			more = append(more, g.argument(a, n, a.MultipleToken)...)
		}
		if counts >= 0 {
			words[counts] = strconv.Itoa(n)
		}
		words = append(words, more...)
		if counts = -1; slices.Contains(counting, a.Name) {
			counts = len(words) - 1
		}
		if a.Type == commands.ArgKey && a.Multiple {
			g.keys = n
		}
	}
	return words
}

// counting are the names of numbers that count what follows.
var counting = []string{"numkeys", "numfields", "nummembers", "numids"}

func (g *longCalls) argument(a *commands.Arg, at int, token bool) (words []string) {
	if a.Token != "" && (token || a.Type == commands.ArgToken) {
		words = append(words, a.Token)
	}
	switch a.Type {
	case commands.ArgToken:
	case commands.ArgOneOf:
		one := g.IntN(len(a.Args))
		words = append(words, g.words(a.Args[one:one+1])...)
	case commands.ArgBlock:
		words = append(words, g.words(a.Args)...)
	default:
		words = append(words, g.value(a, at))
	}
	return words
}

func (g *longCalls) value(a *commands.Arg, at int) string {
	name := strings.ToLower(a.Name)
	switch {
	case a.Type == commands.ArgKey:
		return g.names["key"] + g.group
	case name == "id":
		return fmt.Sprint(at+1, "-1")
	}
	for part, value := range g.names {
		if strings.HasPrefix(name, part) {
			return value
		}
	}
	return g.Words([]commands.Arg{{Name: a.Name, Type: a.Type}})[0]
}

// data fills the keys of all groups.
func (g *longCalls) data() (data [][]string) {
	script := fmt.Sprintf(`local key, group, _, field, member, element = unpack(ARGV)
for i = 1, %d do
	redis.call('xadd', key .. 'stream', i .. '-1', 'f', 'v')
	redis.call('zadd', key .. 'sorted-set', i, i) redis.call('sadd', key .. 'set', 'm' .. i)
	redis.call('hset', key .. 'hash', i, i) redis.call('rpush', key .. 'list', i)
	redis.call('geoadd', key .. 'geo', i %% 90, 1, i)
end
redis.call('hset', key .. 'hash', field, 1) redis.call('sadd', key .. 'set', member)
redis.call('zadd', key .. 'sorted-set', 1, member) redis.call('geoadd', key .. 'geo', 1, 1, member)
redis.call('rpush', key .. 'list', element) redis.call('pfadd', key .. 'hyperloglog', element)
redis.call('setrange', key .. 'bitmap', 9999, 'x') redis.call('set', key .. 'string', '1')
redis.call('set', key .. 'generic', element)
redis.call('xgroup', 'create', key .. 'stream', group, 0)
redis.call('xgroup', 'create', key .. 'stream', 'z', 0)
for i = %[1]d + 1, 2 * %[1]d do redis.call('xadd', key .. 'stream', i .. '-1', 'f', 'v') end`,
		g.count)
	words := []string{"EVAL", script, "0", "short:"}
	for _, part := range namedParts[1:] {
		words = append(words, g.names[part])
	}
	data = append(data, words, []string{"XREADGROUP", "GROUP", g.names["group"],
		g.names["consumer"], "COUNT", strconv.Itoa(g.count), "STREAMS", "short:stream", ">"})
	for _, group := range strings.Fields("stream sorted-set set hash list geo hyperloglog bitmap " +
		"string generic") {
		data = append(data, []string{"RENAME", "short:" + group, g.names["key"] + group})
	}
	return data
}

// known returns the calls of longNameCalls.
func (g *longCalls) known(dump string) (calls [][]string) {
	stream := g.names["key"] + "stream"
	names := map[string][]string{"key": {stream}, "bits": {g.names["key"] + "bitmap"},
		"group": {g.names["group"]}, "consumer": {g.names["consumer"]},
		"count": {strconv.Itoa(g.count)}, "dump": {dump}}
	for i := range g.count {
		names["ids"] = append(names["ids"], fmt.Sprint(i+1, "-1"))
	}
	for range min(g.count, 2*longBytes/len(stream)) {
		names["keys"] = append(names["keys"], stream)
		names["zeros"] = append(names["zeros"], "0")
		names["news"] = append(names["news"], ">")
	}
	for line := range strings.Lines(strings.TrimSpace(longNameCalls)) {
		line, repeated, _ := strings.Cut(strings.TrimSpace(line), " … ")
		line += strings.Repeat(" "+repeated, g.count)
		var words []string
		for _, w := range strings.Fields(line) {
			if named, ok := names[w]; ok {
				words = append(words, named...)
			} else {
				words = append(words, w)
			}
		}
		calls = append(calls, words)
	}
	return calls
}

// TestLongNamesAreCharged makes one kind of name long at a time, and calls each command that has
// such names.
func TestLongNamesAreCharged(t *testing.T) {
	detector.Skip(t)
	tier.Check(t)
	const size, count, rounds = 1 << 20, 200, 4
	for _, long := range namedParts {
		t.Run(long, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			g := &longCalls{Calls: random.NewCalls(testTable(), 1), count: count,
				names: map[string]string{}}
			for _, part := range namedParts {
				g.names[part] = part[:1]
			}
			g.names[long] = strings.Repeat("n", size)
			g.Pools = []random.Pool{{Part: "encoding", Values: []string{"u8", "i64"}},
				{Part: "offset", Values: []string{"#9", "0"}}, {Part: "script", Values: []string{
					"return 1"}}, {Part: "count", Values: []string{strconv.Itoa(count)}},
				{Part: "second", Values: []string{"1000"}}, {Part: "", Values: []string{"1", "0"}}}
			c := newCostsMachine(t, shortestLong, g.data())
			measure := func(call [][]byte) {
				c.renew()
				price, took := c.price(call)
				if price > keptPrice && took >= c.shortest {
					t.Logf("%5.1f times its charge, %v: %.40q", price, took, call)
				}
				if price > mostOfUnit && took >= c.shortest {
					t.Errorf("%.1f times its charge, %v: %.40q", price, took, call)
				}
			}
			reply := mustApply(t, c.Machine, c.Index()+1, &Entry{ClockMs: c.ClockMs() + 1,
				WallUs: 1, Batches: [][]byte{request("DUMP", g.names["key"]+"stream")}},
				true).Replies[0]
			_, payload, _ := bytes.Cut(reply, []byte("\r\n"))
			for _, words := range g.known(string(bytes.TrimSuffix(payload, []byte("\r\n")))) {
				measure(commandtest.Args(words...))
			}
			walked := 0
			for _, spec := range g.Specs {
				if strings.HasPrefix(spec.Name, "flush") || !strings.Contains(spec.Syntax, long) {
					continue
				}
				walked++
				for i := range rounds {
					if i > 0 && !strings.Contains(spec.Syntax, "...") {
						break // it names one
					}
					measure(g.call(spec))
				}
			}
			if walked < 3 {
				t.Errorf("%d commands have a %s", walked, long)
			}
		})
	}
}

// TestTrimsOfManyGroups trims nothing, or one entry, of a stream with many groups: each walks them.
func TestTrimsOfManyGroups(t *testing.T) {
	detector.Skip(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	data := [][]string{{"EVAL", `redis.call('xadd', 'x', '1-1', 'f', 'v')
for i = 1, 5000 do redis.call('xgroup', 'create', 'x', 'g' .. i, '$')
	redis.call('xgroup', 'create', 'empty', 'g' .. i, '$', 'mkstream') end`, "0"}}
	c := newCostsMachine(t, shortestLong, data)
	for _, line := range []string{
		"XADD x MAXLEN 99 ACKED * f v", "XADD x MAXLEN 99 DELREF * f v",
		"XADD x MINID 0 ACKED * f v", "XADD x MAXLEN 1 ACKED * f v",
		"XADD empty MAXLEN 0 ACKED * f v", "XADD empty MAXLEN 9 DELREF * f v",
		"XTRIM x MAXLEN 99 ACKED", "XTRIM x MINID 0 DELREF",
	} {
		c.renew()
		price, took := c.price(commandtest.Args(strings.Fields(line)...))
		t.Logf("%5.1f times its charge, %v: %s", price, took, line)
		if price > mostOfUnit && took >= c.shortest {
			t.Errorf("%.1f times its charge, %v: %s", price, took, line)
		}
	}
}
