package fsm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
)

// TestReadWithinStops has reads that take long do little: they stop before what they would do next,
// which a script cannot prevent. Whole, they have their replies.
func TestReadWithinStops(t *testing.T) {
	detector.Skip(t) // it counts bytes
	const most = 1024
	text := strings.Repeat("ab", 1500)
	single := func(words ...string) []byte {
		return commands.AppendRequest(nil,
			&commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(words...)}})
	}
	script := func(source string) []byte { return single("EVAL_RO", source, "2", "a", "b") }
	many := &commands.Request{Proto: 2, Multi: true}
	for range 1000 {
		many.Cmds = append(many.Cmds, commandtest.Args("GET", "c"))
	}
	const lcs = "redis.call, 'LCS', 'a', 'b', 'LEN'"
	for _, level := range []uint64{commands.LevelFirst, commands.LevelSecond,
		commands.FeatureLevel} {
		m := newestMachine(testTable())
		m.level = level
		for _, key := range []string{"a", "b"} {
			r := mustApply(t, m, m.Index()+1, &Entry{ClockMs: 1000, WallUs: 5_000_000,
				Batches: [][]byte{single("SET", key, text)}}, true)
			if got := string(r.Replies[0]); got != "+OK\r\n" {
				t.Fatal(got)
			}
		}
		for _, c := range []struct {
			what  string
			since uint64
			batch []byte
		}{
			{"a loop", 1, script("local s = 0 for i = 1, 100000 do s = s + i end return s")},
			{"caught errors", 1, script("for i = 1, 20000 do pcall(error, 'x') end return 'e'")},
			{"memory", 1, script("local s = 'x' for i = 1, 22 do s = s .. s end return #s")},
			{"a transaction", commands.LevelSecond, commands.AppendRequest(nil, many)},
			{"a long reply", commands.LevelSecond,
				single(strings.Fields("MGET" + strings.Repeat(" a", 200))...)},
			{"LCS", commands.LevelSecond, single("LCS", "a", "b", "LEN")},
			{"a second request", commands.LevelSecond,
				append(single("GET", "c"), single("LCS", "a", "b", "LEN")...)},
			{"a script's LCS", commands.LevelSecond,
				script("for i = 1, 3 do pcall(" + lcs + ") end return 'l'")},
			{"a coroutine's LCS", commands.LevelSecond,
				script("return coroutine.wrap(function() return pcall(" + lcs + ") end)()")},
		} {
			if level < c.since {
				continue
			}
			what := fmt.Sprintf("%s at level %d", c.what, level)
			whole, work := m.ReadWork(nil, c.batch, 1000, 5_000_000, nil, false)
			if len(whole) == 0 || work < 4*most {
				t.Errorf("%s: %d units of work, reply %.60q", what, work, whole)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, took := m.readWitnessed(nil, c.batch, 1000, 5_000_000, most, nil, false, nil)
			runtime.ReadMemStats(&after)
			made := after.TotalAlloc - before.TotalAlloc
			if took <= most || took > 4*most || made > 500_000 {
				t.Errorf("%s: it stopped after %d units of work and made %d bytes", what, took,
					made)
			}
		}
		if u := m.engine.Usage(); u.Stopped > 0 {
			t.Errorf("level %d: %d scripts count as stopped", level, u.Stopped)
		}
	}
}
