//go:build linux

// What a unit of work of the commands of scripts and functions takes, on as many and as long ones
// as the limits allow.

package fsm

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/threadtime"
)

// manyFunctions returns the source of a library of n functions that return 1. Their names are the
// text, which is one character many times, and a number.
func manyFunctions(library, text string, n int) string {
	return fmt.Sprintf("#!lua name=%s\nlocal f, s = function() return 1 end, ('%s'):rep(%d) "+
		"for i = 1, %d do redis.register_function(s .. i, f) end", library, text[:1], len(text), n)
}

// functionStates are libraries near the limits, and the name of a function and of a library.
func functionStates() map[string]*functionState {
	long := strings.Repeat("f", 900)
	names := &functionState{library: "l3", function: long + "999"}
	for i := range 4 {
		text := strings.Repeat(string(rune('c'+i)), len(long))
		names.data = append(names.data, []string{"FUNCTION", "LOAD",
			manyFunctions(fmt.Sprint("l", i), text, 1000)})
	}
	functions := &functionState{library: "l9", function: "j11999"}
	for i := range 10 {
		text := string(rune('a' + i))
		functions.data = append(functions.data, []string{"FUNCTION", "LOAD",
			manyFunctions(fmt.Sprint("l", i), text, 12_000)})
	}
	libraries := &functionState{function: "f7"}
	for i := range commands.MaxLibraries - 2 {
		libraries.library = strings.Repeat("l", 4000) + fmt.Sprint(i)
		libraries.data = append(libraries.data, []string{"FUNCTION", "LOAD", fmt.Sprintf(
			"#!lua name=%s\nredis.register_function('f%d', function() return 1 end)",
			libraries.library, i)})
	}
	source := &functionState{library: "l", function: "s", data: [][]string{{"FUNCTION", "LOAD",
		manyFunctions("l", "s", 1) + strings.Repeat(" ", commands.MaxScriptBytes-1000)}}}
	source.data[0][2] = strings.Replace(source.data[0][2], "s .. i", "s", 1)
	loops := &functionState{library: "l9", function: "f9"}
	for i := range 64 {
		loops.data = append(loops.data, []string{"FUNCTION", "LOAD", fmt.Sprintf("#!lua name=l%d\n"+
			"for i = 1, 100000 do end redis.register_function('f%d', function() return 1 end)",
			i, i)})
	}
	return map[string]*functionState{"loops": loops, "names": names, "functions": functions,
		"libraries": libraries, "source": source}
}

type functionState struct {
	library, function string
	data              [][]string
	dump              string
}

// calls returns calls of each command of functions and scripts.
func (s *functionState) calls() map[string][][]string {
	const small = "#!lua name=small\nredis.register_function('small', function() end)"
	taken := "#!lua name=small\nredis.register_function('" + s.function + "', function() end)"
	own := strings.Replace(small, "name=small", "name="+s.library, 1)
	absent, upper := s.function[:len(s.function)-1]+"x", strings.ToUpper(s.function)
	sha := strings.Repeat("a", 40)
	shown := fmt.Sprintf("%x", sha1.Sum([]byte(loadedScript(0))))
	return map[string][][]string{
		"fcall": {{"FCALL", s.function, "0"}, {"FCALL", upper, "0"}, {"FCALL", absent, "0"},
			{"FCALL", upper, "x"}},
		"fcall_ro": {{"FCALL_RO", s.function, "0"}, {"FCALL_RO", absent, "0"}},
		"function load": {{"FUNCTION", "LOAD", "REPLACE", small}, {"FUNCTION", "LOAD", own},
			{"FUNCTION", "LOAD", "REPLACE", taken}, {"FUNCTION", "LOAD", "REPLACE", own},
			append([]string{"FUNCTION", "LOAD", "REPLACE"}, s.data[len(s.data)-1][2])},
		"function delete": {{"FUNCTION", "DELETE", s.library}, {"FUNCTION", "DELETE", absent}},
		"function flush":  {{"FUNCTION", "FLUSH"}},
		"function list": {{"FUNCTION", "LIST"}, {"FUNCTION", "LIST", "WITHCODE"},
			{"FUNCTION", "LIST", "LIBRARYNAME", s.library},
			{"FUNCTION", "LIST", "LIBRARYNAME", "x"},
			{"FUNCTION", "LIST", "LIBRARYNAME", "*l*L*l*x"},
			{"FUNCTION", "LIST", "LIBRARYNAME", strings.Repeat("*l", 400) + "x"}},
		"function dump": {{"FUNCTION", "DUMP"}},
		"function restore": {{"FUNCTION", "RESTORE", s.dump},
			{"FUNCTION", "RESTORE", s.dump, "FLUSH"},
			{"FUNCTION", "RESTORE", s.dump, "REPLACE"}},
		"function stats": {{"FUNCTION", "STATS"}},
		"function kill":  {{"FUNCTION", "KILL"}},
		"function help":  {{"FUNCTION", "HELP"}},
		"script load":    {{"SCRIPT", "LOAD", "return 1"}},
		"script exists": {{"SCRIPT", "EXISTS", sha},
			append([]string{"SCRIPT", "EXISTS"}, slices.Repeat([]string{sha}, 1000)...)},
		"script show":  {{"SCRIPT", "SHOW", sha}, {"SCRIPT", "SHOW", shown}},
		"script flush": {{"SCRIPT", "FLUSH"}},
		"script kill":  {{"SCRIPT", "KILL"}},
		"script debug": {{"SCRIPT", "DEBUG", "NO"}, {"SCRIPT", "DEBUG", sha}},
		"script help":  {{"SCRIPT", "HELP"}},
	}
}

func loadedScript(i int) string { return fmt.Sprint("return ", i, strings.Repeat(" ", 100)) }

// TestFunctionCommandsAreChargedForTheirTime measures transactions of each command of functions and
// scripts.
func TestFunctionCommandsAreChargedForTheirTime(t *testing.T) {
	tier.Check(t)
	detector.Skip(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, state := range functionStates() {
		for i := range 1000 {
			state.data = append(state.data, []string{"SCRIPT", "LOAD", loadedScript(i)})
		}
		c := newCostsMachine(t, shortestCall, state.data)
		state.data = state.data[:len(state.data)-1000]
		refused := settingOf("", 0, commands.SystemRefuseScript, strings.Repeat("a", 40), "1")
		mustApply(t, c.Machine, c.Index()+1, &Entry{ClockMs: 1, WallUs: 1,
			Batches: [][]byte{refused}}, true) // from now on each call is compared with it
		c.snapshot = snapshotBytes(t, c.Snapshot())
		dump := c.transaction([][][]byte{commandtest.Args("FUNCTION", "DUMP")})
		_, value, _ := bytes.Cut(dump.reply, []byte("\n"))
		_, value, _ = bytes.Cut(value, []byte("\n"))
		state.dump = string(bytes.TrimSuffix(value, []byte("\r\n")))
		if name == "loops" {
			c.measureReloads(state)
			continue
		}
		calls := state.calls()
		for _, spec := range []string{"fcall", "fcall_ro", "function", "script"} {
			spec := c.table.Get([]byte(spec))
			if len(spec.Subcommands) == 0 {
				c.measureFunctions(name, false, calls[spec.Name])
			}
			for _, sub := range spec.Subcommands {
				full := spec.Name + " " + strings.ToLower(sub.Name)
				if len(calls[full]) == 0 {
					t.Errorf("no call of %s", full)
				}
				c.measureFunctions(name, sub.Kind == commands.Write, calls[full])
				if sub.Kind == commands.Write {
					c.renew()
				}
			}
		}
	}
}

// transactionCost is what a transaction took.
type transactionCost struct {
	took  time.Duration
	work  uint64
	reply []byte
}

func (c *costsMachine) transaction(cmds [][][]byte) transactionCost {
	c.t.Helper()
	batch := commands.AppendRequest(nil, &commands.Request{Proto: 2, Multi: true, Cmds: cmds})
	e := &Entry{ClockMs: c.ClockMs() + 1, WallUs: 1, Batches: [][]byte{batch}}
	from := threadtime.Now()
	r := mustApply(c.t, c.Machine, c.Index()+1, e, true)
	return transactionCost{threadtime.Now() - from, r.Spent, bytes.Clone(r.Replies[0])}
}

// measureReloads measures what has an interpreter run the code of libraries again: one that was
// spoiled, and another library that it keeps instead of the last.
func (c *costsMachine) measureReloads(s *functionState) {
	c.t.Helper()
	c.renew()
	var called [][][]byte
	for i := range s.data {
		called = append(called, commandtest.Args("FCALL", fmt.Sprint("f", i), "0"))
	}
	for _, change := range [][][][]byte{
		{commandtest.Args("FUNCTION", "LOAD", "#!lua name=bomb\nlocal x = ('x'):rep(2^30)")},
		{commandtest.Args("FUNCTION", "LOAD",
			"#!lua name=a\nredis.register_function('A', function() end)"),
			commandtest.Args("FCALL", "A", "0"), commandtest.Args("FUNCTION", "DELETE", "a")},
	} {
		c.transaction(called)
		cmds := slices.Concat(change, called)
		got := c.transaction(slices.Repeat(cmds, 5))
		price := float64(got.took) / float64(unit) / float64(got.work)
		c.t.Logf("%5.1f times, %v: %.60q", price, got.took, change[0])
		if price > mostOfUnit && got.took >= c.shortest {
			c.t.Errorf("%.1f times its charge, %v for calls after %.60q", price, got.took,
				change[0])
		}
	}
}

// measureFunctions measures each call some hundred times in a transaction, as far as it fits.
func (c *costsMachine) measureFunctions(state string, writes bool, calls [][]string) {
	c.t.Helper()
	for _, words := range calls {
		size := len(strings.Join(words, " "))
		times := max(1, min(200, (1<<20)/size))
		cmds := slices.Repeat([][][]byte{commandtest.Args(words...)}, times)
		var price float64
		var least transactionCost
		for try := range mostTries {
			if writes {
				c.renew()
			}
			if strings.HasPrefix(words[0], "FCALL") {
				c.transaction(cmds[:1]) // an interpreter runs the code of a library once
			}
			got := c.transaction(cmds)
			p := float64(got.took) / float64(unit) /
				float64(got.work+uint64(wordWork*len(words)*times))
			if try == 0 || p < price {
				price, least = p, got
			}
			if price <= mostOfUnit || got.took < c.shortest {
				break
			}
		}
		c.t.Logf("%s: %5.1f times, %v, %d times %.100q: %.40q", state, price, least.took, times,
			words, least.reply)
		if price > mostOfUnit && least.took >= c.shortest {
			c.t.Errorf("%s: %.1f times its charge, %v for %d times %.100q", state, price,
				least.took, times, words)
		}
	}
}
