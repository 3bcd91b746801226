// The comparison of the Lua libraries with a real redis-server: each snippet runs on both sides and
// must return or raise the same. Without an installed redis-server the tests are skipped.

package script

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/resp"
)

// harness precedes each snippet, on both sides, on one line. show writes a value with all bytes of
// strings, all digits of numbers and the content of tables. A snippet returns what it compares.
const harness = `local show show = function(v, deep) ` +
	`if type(v) == 'string' then return '"' .. v:gsub('[^%w%p ]', function(c) return '\\' .. c:byte() end) .. '"' end ` +
	`if type(v) == 'number' then return (string.format('%.17g', v):gsub('^-nan', 'nan')) end ` +
	`if v == cjson.null then return 'null' end ` +
	`if type(v) ~= 'table' or deep > 8 then return type(v) == 'boolean' and tostring(v) or type(v) end ` +
	`local keys, parts = {}, {} for k in pairs(v) do keys[#keys + 1] = k end ` +
	`table.sort(keys, function(a, b) return show(a, 9) < show(b, 9) end) ` +
	`for i, k in ipairs(keys) do parts[i] = show(k, 9) .. '=' .. show(v[k], deep + 1) end ` +
	`return '{' .. table.concat(parts, ',') .. '}' end ` +
	`local function test() `

// ending shows all results of the snippet, or its error.
const ending = ` end local r = {pcall(test)} local parts, n = {}, 1 ` +
	`for i in pairs(r) do if i > n then n = i end end ` +
	`for i = 1, math.min(n, 60) do parts[i] = show(r[i], 0) end return table.concat(parts, ' ')`

// runHere runs a snippet on the libraries of this package.
func runHere(t testing.TB, snippet string) string {
	t.Helper()
	return runIn(t, libraryState(t), snippet)
}

// runIn is runHere in an existing state; it resets settings and budgets.
func runIn(t testing.TB, L *lua.LState, snippet string) string {
	t.Helper()
	L.Begin(lua.Budget{Instructions: 50_000_000, Bytes: 1 << 30})
	v, err := evalHere(L, harness+snippet+ending)
	if err != nil {
		t.Fatalf("%s: %v", snippet, err)
	}
	return showValue(v)
}

// evalHere runs a source and returns its first result.
func evalHere(L *lua.LState, source string) (lua.LValue, error) {
	proto, _, err := compileChunk([]byte(source), "user_script", lua.Limits{})
	if err != nil {
		return nil, err
	}
	L.SetTop(0)
	L.Push(L.NewFunctionFromProto(proto))
	if err := L.PCall(0, 1); err != nil {
		return nil, err
	}
	return L.Get(-1), nil
}

// doString runs a source.
func doString(L *lua.LState, source string) error {
	_, err := evalHere(L, source)
	return err
}

// showValue returns a string as it is, and the type of any other value.
func showValue(v lua.LValue) string {
	if s, ok := toString(v); ok {
		return s
	}
	return v.Type().String()
}

// libraryState returns the Lua state of an interpreter.
func libraryState(t testing.TB) *lua.LState {
	t.Helper()
	return newInterpreter(testTable(), true).L
}

// redisServer is a redis-server that this test process started, and one connection to it.
type redisServer struct {
	conn *commandtest.Conn
	here *lua.LState // what it is compared with
}

// startRedis starts a redis-server that ends with the test, or skips the test.
func startRedis(t testing.TB) *redisServer {
	t.Helper()
	conn := commandtest.DialRedis(t)
	return &redisServer{conn: conn, here: libraryState(t)}
}

// eval runs a script and returns its reply, a bulk string or an error.
func (r *redisServer) eval(t testing.TB, script string) string {
	t.Helper()
	raw, err := r.conn.Do(commandtest.Args("EVAL", script, "0"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := commandtest.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	if v.Kind != resp.Bulk {
		return strings.TrimSpace(string(raw))
	}
	return v.Text
}

// compare runs the snippets on both sides.
func compare(t *testing.T, snippets []string) {
	t.Helper()
	redis := startRedis(t)
	for _, snippet := range snippets {
		redis.compare(t, snippet)
	}
}

// compare runs one snippet on both sides; long results are shown from their first difference.
func (r *redisServer) compare(t *testing.T, snippet string) {
	t.Helper()
	want, got := r.eval(t, harness+snippet+ending), runIn(t, r.here, snippet)
	if got == want {
		return
	}
	same := 0
	for same < min(len(want), len(got)) && want[same] == got[same] {
		same++
	}
	from := max(same-60, 0)
	t.Errorf("%.600s\n  redis: %.300s\n   here: %.300s", snippet, want[from:], got[from:])
}

// boundedState returns libraryState with a budget of the given instructions and bytes.
func boundedState(t testing.TB, instructions, bytes int64) *lua.LState {
	t.Helper()
	L := libraryState(t)
	L.Begin(lua.Budget{Instructions: instructions, Bytes: bytes})
	return L
}
