// What scripts and libraries see from LevelSecond on: the name server, across snapshots and the
// rise of the level, and errors that name what was called.

package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// scripted applies calls in an entry that raises the machine to level, and returns the replies and
// the work of each.
func scripted(t *testing.T, m *Machine, level uint64, list ...[]string) string {
	t.Helper()
	var all strings.Builder
	for _, words := range list {
		result := mustApply(t, m, m.index+1, &Entry{ClockMs: 1, Level: level,
			Batches: [][]byte{commands.AppendRequest(nil, &commands.Request{Proto: 2,
				Cmds: [][][]byte{commandtest.Args(words...)}})}}, true)
		fmt.Fprintf(&all, "%s%d\n", bytes.Join(result.Replies, nil), result.Work)
	}
	return all.String()
}

// TestServerBelowItsLevel: the name leaves no trace there, neither for next nor in the work of a
// walk over the globals.
func TestServerBelowItsLevel(t *testing.T) {
	const walk = "local n = 0 for k in pairs(_G) do n = n + 1 end return n"
	const load = "#!lua name=old\nredis.register_function('walk', function() " + walk + " end)"
	for _, level := range []uint64{firstLevel, commands.FeatureLevel} {
		m := NewMachine(testTable())
		got := scripted(t, m, level, []string{"EVAL", walk, "0"},
			[]string{"EVAL", "return {pcall(next, _G, 'server')}", "0"},
			[]string{"FUNCTION", "LOAD", load}, []string{"FCALL", "walk", "0"})
		script, after, function := ":35\r\n[186]\n", "invalid key to 'next'", "\n:33\r\n[178]\n"
		if level >= commands.LevelSecond {
			script, after, function = ":36\r\n", "KEYS", "\n:34\r\n"
		}
		if !strings.HasPrefix(got, script) || !strings.Contains(got, after) ||
			!strings.Contains(got, function) {
			t.Errorf("level %d: %q", level, got)
		}
	}
}

// TestServerAtTheRiseOfTheLevel: what was loaded before answers alike on a node that kept running
// and on one that started from a snapshot, below the level and above it.
func TestServerAtTheRiseOfTheLevel(t *testing.T) {
	const below = commands.LevelFirst
	const api = "if %s then redis.register_function('g', redis.log) end "
	const seen = "redis.register_function('f', function() return tostring(pcall(function() " +
		"return server.call('INCR', 'n') end)) end)"
	load := func(name, code string) []string {
		return []string{"FUNCTION", "LOAD", "REPLACE", "#!lua name=" + name + "\n" + code}
	}
	list, call := []string{"FUNCTION", "LIST", "WITHCODE"}, []string{"FCALL", "f", "0"}
	eval := []string{"EVAL", "return {server == redis, server.call('INCR', 'n')}", "0"}

	m := NewMachine(testTable())
	// A library that looks for the name while it loads is refused, however it looks.
	for _, test := range []string{"server", "redis.server", "(server or 1)",
		"('server'):gsub('.+', function(s) return server and s end)"} {
		refused := scripted(t, m, below, load("probe", fmt.Sprintf(api, test)+seen))
		if !strings.Contains(refused, "nonexistent global variable 'server'") {
			t.Errorf("%s: %q", test, refused)
		}
	}
	got := scripted(t, m, below, load("old", seen), call, eval)
	if !strings.Contains(got, "false") || strings.Contains(got, "true") {
		t.Errorf("below the level: %q", got)
	}
	early := restored(t, m)
	steps := func(m *Machine, level uint64) string {
		return scripted(t, m, level, list, call, call, eval, list)
	}
	if kept, fresh := steps(m, below), steps(early, below); kept != fresh {
		t.Errorf("below the level: %q after a restart, %q without", fresh, kept)
	}
	kept, fresh := steps(m, commands.LevelSecond), steps(early, commands.LevelSecond)
	if kept != fresh || !strings.Contains(kept, "true") {
		t.Errorf("after the rise: %q after a restart, %q without", fresh, kept)
	}

	valkeys := load("new", "local api = server "+strings.ReplaceAll(fmt.Sprintf(api, "server"),
		"redis", "api")+"server.log(server.LOG_DEBUG, 'x') server.register_function{"+
		"function_name='h', callback=function() return server.call('INCR', 'n') end}")
	if got := scripted(t, m, 0, valkeys); !strings.HasPrefix(got, "$3\r\nnew") {
		t.Fatalf("a library of Valkey: %q", got)
	}
	late := restored(t, m)
	calls := [][]string{list, call, {"FCALL", "h", "0"}, {"FCALL", "g", "0"}, eval}
	if kept, fresh := scripted(t, m, 0, calls...), scripted(t, late, 0, calls...); kept != fresh {
		t.Errorf("a library of Valkey: %q after a restart, %q without", fresh, kept)
	}
}

// TestErrorsNameCallsFromTheirLevel: a script can store the text of an error.
func TestErrorsNameCallsFromTheirLevel(t *testing.T) {
	for _, level := range []uint64{firstLevel, commands.FeatureLevel} {
		want := "$42\r\nuser_script:1: attempt to call a nil value"
		if level >= commands.LevelSecond {
			want = "attempt to call field 'nope' (a nil value)\r\n"
		}
		const source = "return select(2, pcall(function() redis.nope() end))"
		if got := scripted(t, NewMachine(testTable()), level,
			[]string{"EVAL", source, "0"}); !strings.Contains(got, want) {
			t.Errorf("level %d: %q", level, got)
		}
	}
}
