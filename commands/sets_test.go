// Sets: random calls with their notifications beside a real server, calls that change nothing, and
// the evenness of random picks.

package commands

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// setCall returns a call whose reply is not random.
func (g *callMaker) setCall() []string {
	members := func(n int) (list []string) {
		for range 1 + g.IntN(n) {
			list = append(list, g.pick(strconv.Itoa(g.IntN(30)), strconv.Itoa(g.IntN(30)),
				strconv.Itoa(g.IntN(30)), "m"+strconv.Itoa(g.IntN(8)), "01"))
		}
		return list
	}
	keys := func(n int) (list []string) {
		for range 1 + g.IntN(n) {
			list = append(list, g.key("s"))
		}
		return list
	}
	switch g.IntN(16) {
	case 0, 1, 2:
		return append([]string{"SADD", g.key("s")}, members(6)...)
	case 3, 4:
		return append([]string{"SREM", g.key("s")}, members(6)...)
	case 5:
		return []string{"SMOVE", g.key("s"), g.key("s"), members(1)[0]}
	case 6:
		return []string{"SISMEMBER", g.key("s"), members(1)[0]}
	case 7:
		return append([]string{"SMISMEMBER", g.key("s")}, members(4)...)
	case 8:
		return []string{g.pick("SMEMBERS", "SCARD", "DEL"), g.key("s")}
	case 9:
		return []string{"OBJECT", "ENCODING", g.key("s")}
	case 10:
		return []string{"SPOP", g.key("s"), g.pick("100", "0", "x", "-1")}
	case 11:
		return []string{"SRANDMEMBER", g.key("s"), g.pick("100", "0", "x")}
	case 12:
		return append([]string{g.pick("SINTER", "SUNION", "SDIFF")}, keys(4)...)
	case 13, 14:
		return append([]string{g.pick("SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"), g.key("s")},
			keys(4)...)
	}
	inputs := keys(3)
	call := append([]string{"SINTERCARD", strconv.Itoa(len(inputs))}, inputs...)
	return append(call, g.options([]string{"LIMIT", g.integer()})...)
}

// sortedReply returns a reply with sorted elements if it is an array of bulk strings.
func sortedReply(reply []byte) string {
	lines := strings.Split(string(reply), "\r\n")
	if len(lines) < 4 || lines[0][0] != '*' || lines[1][0] != '$' {
		return string(reply)
	}
	var elements []string
	for i := 1; i+1 < len(lines); i += 2 {
		elements = append(elements, lines[i]+" "+lines[i+1])
	}
	slices.Sort(elements)
	return lines[0] + strings.Join(elements, "\r\n")
}

func TestSetCallsAreThoseOfRedis(t *testing.T) {
	g := &callMaker{Rand: rand.New(rand.NewPCG(seeds.Of(t), 6))}
	compareNotifications(t, g.setCall)
}

func TestSetCallsThatChangeNothing(t *testing.T) {
	r := newTestRun()
	for _, call := range [][]string{{"SADD", "s", "1", "2"}, {"SADD", "n", "a"}} {
		r.do(commandtest.Args(call...))
	}
	changesNothing(t, r, [][]string{
		{"SADD", "s", "1", "2"}, {"SREM", "s", "3"}, {"SREM", "none", "1"},
		{"SMOVE", "s", "n", "3"}, {"SMOVE", "s", "s", "1"}, {"SMOVE", "none", "s", "1"},
		{"SPOP", "none"}, {"SPOP", "none", "2"}, {"SPOP", "s", "0"},
		{"SINTERSTORE", "none", "s", "none"}, {"SDIFFSTORE", "none", "s", "s"},
		{"SUNIONSTORE", "none", "none2"}, {"MOVE", "none", "1"}, {"MOVE", "s", "0"},
		{"SWAPDB", "3", "3"},
	})
}

// Every member is picked about equally often, by all commands, from all forms of a set.
func TestMembersArePickedEvenly(t *testing.T) {
	const rounds = 3000
	for _, prefix := range []string{"", "m"} {
		for _, call := range []string{"SRANDMEMBER s", "SRANDMEMBER s 3", "SRANDMEMBER s -3",
			"SPOP s", "SPOP s 3", "SPOP s 9"} {
			b := newBench(t)
			counts := map[string]int{}
			all := []string{"SADD", "s"}
			for i := range 10 {
				all = append(all, prefix+strconv.Itoa(i))
			}
			total := 0
			for i := range rounds {
				b.run(all...)
				b.env.Seed = uint64(i)
				for _, line := range strings.Split(b.run(strings.Fields(call)...), "\r\n") {
					if line != "" && line[0] != '$' && line[0] != '*' {
						counts[line]++
						total++
					}
				}
			}
			for _, member := range all[2:] {
				if n := counts[member]; n < total/10*3/4 || n > total/10*5/4 {
					t.Errorf("%s: %s was picked %d times of %d", call, member, n, total)
				}
			}
		}
	}
}

// Moving a key to another database makes a new holder: a later fencing token.
func TestFenceOfMovedKeys(t *testing.T) {
	b := newBench(t)
	b.run("SET", "lock", "1")
	last := b.fence("lock")
	for _, calls := range [][]string{{"MOVE lock 1", "SET lock 2", "DEL lock", "SWAPDB 0 1"},
		{"SWAPDB 0 2", "SWAPDB 2 0"}, {"SWAPDB 0 3", "SET lock 3"}} {
		for _, call := range calls {
			b.run(strings.Fields(call)...)
		}
		token := b.fence("lock")
		if token <= last {
			t.Errorf("%q: token %d after %d", calls, token, last)
		}
		last = token
	}
}

// An absolute time at the start of the cluster clock is past, not a missing deadline.
func TestExpiryAtTheBeginningOfTheClock(t *testing.T) {
	for _, call := range []string{"PEXPIREAT a %d", "GETEX a PXAT %d", "SET a 2 PXAT %d"} {
		b := newBench(t)
		b.run("SET", "a", "1", "EX", "100")
		b.run(strings.Fields(fmt.Sprintf(call, b.env.WallUs/1000-b.env.ClockMs))...)
		if got := b.run("EXISTS", "a"); got != ":0\r\n" {
			t.Errorf("after %s the key exists: %q", call, got)
		}
	}
}
