// Function libraries in the machine's state, their limits, and their dumps on a real redis-server.

package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// ask runs a call whose reply must not be an error, and returns the reply.
func ask(t testing.TB, target commandtest.Target, words ...string) commandtest.Value {
	t.Helper()
	raw, err := target.Do(commandtest.Args(words...))
	if err != nil {
		t.Fatalf("%.200q: %v", words, err)
	}
	v, err := commandtest.Parse(raw)
	if err != nil || v.IsError() {
		t.Fatalf("%.200q: %s %v", words, v, err)
	}
	return v
}

// refused runs a call whose reply must be an error with the text.
func refused(t testing.TB, target commandtest.Target, text string, words ...string) {
	t.Helper()
	raw, err := target.Do(commandtest.Args(words...))
	if err != nil || !strings.Contains(string(raw), text) || raw[0] != '-' {
		t.Errorf("%.200q: %.300q %v, want %q", words, raw, err, text)
	}
}

// oneFunction returns a library with a function of the same name.
func oneFunction(name, body string) string {
	return fmt.Sprintf("#!lua name=%s\n redis.register_function('%s', function(keys, args) %s end)",
		name, name, body)
}

func TestDamagedLibraryRecords(t *testing.T) {
	here := newNode()
	ask(t, here, "SCRIPT", "LOAD", "return 1")
	ask(t, here, "FUNCTION", "LOAD", oneFunction("a", "return 1"))
	ask(t, here, "FUNCTION", "LOAD", oneFunction("b", "return 1"))
	whole := here.engine.AppendTo(nil)
	table := testTable()
	if err := NewEngine(table).Restore(whole); err != nil {
		t.Fatal(err)
	}
	withoutLibraries := 0
	for i := range whole {
		if NewEngine(table).Restore(whole[:i]) == nil {
			withoutLibraries++ // truncated where the libraries begin
		}
	}
	if withoutLibraries != 1 {
		t.Errorf("%d truncated records were read, want 1", withoutLibraries)
	}
	for _, damaged := range [][]byte{append(whole[:len(whole):len(whole)], 0),
		append(whole[:len(whole):len(whole)], whole[len(whole)-40:]...)} {
		if NewEngine(table).Restore(damaged) == nil {
			t.Errorf("%q was read", damaged)
		}
	}
}

func TestLibraryLimits(t *testing.T) {
	here := newNode()
	full := commands.ErrLibrariesFull.Error()
	source := func(n int, padding int) string {
		return oneFunction(fmt.Sprint("f", n), "return 1") + strings.Repeat(" ", padding)
	}

	t.Run("bytes of one", func(t *testing.T) {
		at := commands.MaxScriptBytes - len(source(0, 0))
		ask(t, here, "FUNCTION", "LOAD", source(0, at))
		refused(t, here, "library is longer than", "FUNCTION", "LOAD", "REPLACE", source(0, at+1))
		ask(t, here, "FCALL", "f0", "0")
		ask(t, here, "FUNCTION", "FLUSH")
	})
	t.Run("number", func(t *testing.T) {
		for i := range commands.MaxLibraries {
			ask(t, here, "FUNCTION", "LOAD", source(i, 0))
		}
		refused(t, here, full, "FUNCTION", "LOAD", source(commands.MaxLibraries, 0))
		ask(t, here, "FUNCTION", "LOAD", "REPLACE", source(7, 1))
		dump := ask(t, here, "FUNCTION", "DUMP").Text
		ask(t, here, "FUNCTION", "RESTORE", dump, "REPLACE")
		ask(t, here, "FUNCTION", "RESTORE", dump, "FLUSH")
		ask(t, here, "FUNCTION", "DELETE", "f0")
		ask(t, here, "FUNCTION", "LOAD", source(commands.MaxLibraries, 0))
		refused(t, here, full, "FUNCTION", "RESTORE", dump, "REPLACE")
		if n := len(here.engine.Libraries()); n != commands.MaxLibraries {
			t.Errorf("%d libraries", n)
		}
		ask(t, here, "FUNCTION", "FLUSH")
	})
	t.Run("bytes of all", func(t *testing.T) {
		const each = commands.MaxLibraryBytes / 5
		for i := range 4 {
			ask(t, here, "FUNCTION", "LOAD", source(i, each))
		}
		refused(t, here, full, "FUNCTION", "LOAD", source(4, each))
		ask(t, here, "FUNCTION", "LOAD", source(4, each-10_000))
		ask(t, here, "FUNCTION", "FLUSH")
		const described = "#!lua name=d\n redis.register_function{function_name='d', " +
			"callback=redis.log, description=('x'):rep(5000000)}"
		refused(t, here, full, "FUNCTION", "LOAD", described)
	})
	t.Run("work", func(t *testing.T) {
		busy := func(n, rounds int) string {
			return fmt.Sprintf(
				"#!lua name=w%d\n for i = 1, %d do end redis.register_function('w%d', function() "+
					"return 1 end)", n, rounds, n)
		}
		const late = "-ERR Error registering functions: ERR FUNCTION LOAD timeout\r\n"
		refused(t, here, late, "FUNCTION", "LOAD", busy(0, loadInstructions))
		refused(t, here, late, "FUNCTION", "LOAD", "#!lua name=x\n while true do end")
		refused(t, here, errScriptMemory, "FUNCTION", "LOAD",
			"#!lua name=x\n for i = 1, 200000 do local t = {} end")
		for i := range maxLoadCost / loadInstructions {
			ask(t, here, "FUNCTION", "LOAD", busy(i, loadInstructions-1000))
		}
		ask(t, here, "FCALL", "w3", "0")
		refused(t, here, full, "FUNCTION", "LOAD", busy(99, loadInstructions/2))
		ask(t, here, "FUNCTION", "FLUSH")
	})
}

// A function starts with what loading its library left of the call's budget, and stops as a script
// does.
func TestFunctionsStop(t *testing.T) {
	here := newNode()
	for name, body := range map[string]string{
		"forever":   `while true do end`,
		"caught":    `while true do pcall(function() while true do end end) end`,
		"recursion": `local function f() return pcall(f) end while true do f() end`,
		"build":     `local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end`,
	} {
		ask(t, here, "FUNCTION", "LOAD", oneFunction(name, body))
		refused(t, here, "script stopped: it used up its", "FCALL", name, "0")
	}
	ask(t, here, "FUNCTION", "LOAD", oneFunction("fine", "return redis.call('set', 'after', 'x')"))
	ask(t, here, "FCALL", "fine", "0")
}

// What a function stores in its library's local variables does not last until its next call, on any
// interpreter.
func TestFunctionsRememberNothing(t *testing.T) {
	here := newNode()
	ask(t, here, "FUNCTION", "LOAD", `#!lua name=m
local n, t = 0, {}
redis.register_function{function_name='m', flags={'no-writes'}, callback=function()
  n = n + 1
  t[#t + 1] = n
  return tostring({}) .. tostring(t) .. n .. #t
end}`)
	first := ask(t, here, "FCALL", "m", "0").String()
	for range 3 {
		for _, command := range []string{"FCALL", "FCALL_RO", "FCALL_RO"} {
			if got := ask(t, here, command, "m", "0").String(); got != first {
				t.Errorf("%s: %s, then %s", command, first, got)
			}
		}
	}
}

// Redis accepts coordd's dumps.
func TestRedisReadsDumps(t *testing.T) {
	real := commandtest.DialRedis(t)
	here := newNode()
	for i, padding := range []int{0, 10, 60, 200, 16_000, 17_000, 500_000} {
		ask(t, here, "FUNCTION", "LOAD", oneFunction(fmt.Sprint("f", i), "return "+fmt.Sprint(i))+
			strings.Repeat(" ", padding))
		ask(t, real, "FUNCTION", "RESTORE", ask(t, here, "FUNCTION", "DUMP").Text, "FLUSH")
	}
	for i := range 7 {
		name := fmt.Sprint("f", i)
		got, want := ask(t, real, "FUNCTION", "LIST", "LIBRARYNAME", name, "WITHCODE"),
			ask(t, here, "FUNCTION", "LIST", "LIBRARYNAME", name, "WITHCODE")
		if got.String() != want.String() {
			t.Errorf("redis has %.300s, want %.300s", got, want)
		}
		if got := ask(t, real, "FCALL", name, "0").String(); got != fmt.Sprint(":", i) {
			t.Errorf("%s: %s", name, got)
		}
	}
	// And Redis's dumps of them, compressed.
	ask(t, here, "FUNCTION", "RESTORE", ask(t, real, "FUNCTION", "DUMP").Text, "FLUSH")
	if got := ask(t, here, "FCALL", "f6", "0").String(); got != ":6" {
		t.Error(got)
	}
}
