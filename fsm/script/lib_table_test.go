// The table library and unpack compared with Redis's, and their use of the budget.

package script

import (
	"fmt"
	"github.com/coordd/coordd/internal/tests/seeds"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestTableLikeRedis(t *testing.T) {
	compare(t, []string{
		`return table.concat({1, 2, 3}), table.concat({'a', 'b', 'c'}, ', '), table.concat({1, 2.5, 1e15}, ' '), table.concat({}), table.concat({}, 'x')`,
		`return table.concat({1, 2, 3}, ',', 2), table.concat({1, 2, 3}, ',', 2, 2), table.concat({1, 2, 3}, ',', 3, 2), table.concat({[0] = 'z', 'a'}, ',', 0), table.concat({[-1] = 'm', [0] = 'z', 'a'}, ',', -1, 1)`,
		`return table.concat({1, {}, 3})`, `return table.concat({1, nil, 3})`,
		`return table.concat({1, 2}, ',', 1, 3)`, `return table.concat({true})`,
		`return table.concat()`, `return table.concat('a')`, `return table.concat({1, 2}, {})`,
		`return table.concat({1, 2}, 5), table.concat({1, 2}, nil, 2), table.concat({1, 2}, ',', '1', '2')`, `return table.concat({1, 2}, ',', 'x')`, `return table.concat({1}, ',', 1, {})`, `return table.concat(nil)`, `return table.concat({1}, ',', -5, 1)`,
		`local t = {} table.insert(t, 'a') table.insert(t, 'c') table.insert(t, 2, 'b') table.insert(t, 1, 'z') return t, #t`, `local t = {1, 2, 3} table.insert(t, 4, 'x') table.insert(t, 6, 'y') return t`,
		`local t = {1, 2, 3} table.insert(t, 0, 'x') return t`,
		`local t = {1, 2, 3} table.insert(t, -2, 'x') return t`,
		`local t = {} table.insert(t, 5, 'x') return t`,
		`local t = {1, 2} table.insert(t, '1', 'x') return t`,
		`return table.insert({})`, `return table.insert({}, 1, 2, 3)`, `return table.insert()`,
		`return table.insert(nil, 1)`, `return table.insert({}, 'x', 1)`,
		`return table.insert({}, 1.7, 'x'), 1`, `return table.insert({1}, nil, 'x')`,
		`local t = {1, 2} table.insert(t, nil) return t, #t`,
		`local t = {1, 2, 3} table.insert(t, 2, nil) return t`,
		`return pcall(table.insert, nil, 'x')`, `return pcall(table.insert, {1, 2, 3}, 1, 2, 3)`,
		`local t = {'a', 'b', 'c'} return table.remove(t), table.remove(t, 1), t, table.remove(t, 5), table.remove(t), table.remove(t), t`, `return table.remove({}), 1`, `return select('#', table.remove({})), select('#', table.remove({1}, 2))`,
		`local t = {1, 2, 3} return table.remove(t, 0), table.remove(t, -1), table.remove(t, 4), t`,
		`local t = {1, 2, 3} t[3] = nil return table.remove(t), t`, `return table.remove()`,
		`return table.remove('a')`, `return table.remove({1}, 'x')`,
		`return table.remove({1}, '1')`,
		`local t = {} for i = 1, 100 do t[i] = i end for i = 1, 50 do table.remove(t, 1) end for i = 1, 20 do table.remove(t) end return t, #t`, `local t = {1, 2, 3} for i = 1, 3 do t[i] = nil end table.insert(t, 'x') return t, table.getn(t)`,
		`return table.getn({1, 2, 3}), table.getn({}), table.maxn({1, 2, [10] = 1, [2.5] = 1}), table.maxn({}), table.maxn({[-1] = 1}), table.maxn({a = 1, [0.5] = 1}), table.maxn({[1e300] = 1})`, `return table.getn()`, `return table.maxn()`, `return table.getn('a')`, `return table.setn({}, 1)`, `return table.setn()`,
		`local r = {} table.foreachi({'a', 'b'}, function(i, v) r[#r + 1] = i .. v end) return r`,
		`return table.foreachi({'a', 'b'}, function(i, v) if i == 2 then return v end end)`,
		`local r = {} table.foreach({'a', x = 'y'}, function(k, v) r[k] = v end) return r`,
		`return table.foreach({a = 1}, function(k, v) return k end)`,
		`return table.foreach({}, 1)`, `return table.foreach()`, `return table.foreachi({1}, nil)`,
		`return table.foreach({1}, function() return false end)`,
		`return unpack({1, 2, 3})`, `return unpack({1, 2, 3}, 2)`, `return unpack({1, 2, 3}, 2, 5)`,
		`return unpack({1, 2, 3}, 3, 2), 'x'`, `return unpack({[0] = 'z', 'a', [-1] = 'm'}, -1, 1)`,
		`return unpack()`, `return unpack('a')`, `return unpack({1}, 'x')`,
		`return unpack({1}, 1, 'x')`, `return unpack({1, 2}, '2')`,
		`return select('#', unpack({}, 1, 7990))`, `return unpack({}, 1, 8000)`,
		`return unpack({}, 1, 1e8)`, `return unpack({}, -2147483648, 2147483647)`,
		`return unpack({}, 1, 2147483647)`,
		`return select('#', unpack({}, 2147483647, 2147483647))`, `return unpack({1, nil, 3})`,
		`return unpack({1, 2, 3}, nil, 2)`,
		`local t = {3, 1, 2} table.sort(t) return t`,
		`local t = {'b', 'a', 'C', ''} table.sort(t) return t`,
		`local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t`,
		`local t = {} table.sort(t) return t`,
		`local t = {5} table.sort(t, function() error('x') end) return t`,
		`local t = {3, 1, 2} table.sort(t, nil) return t`, `return table.sort({3, 1}, 1)`,
		`return table.sort()`, `return table.sort({1, 'a'})`, `return table.sort({{}, {}})`,
		`return table.sort({1, 2, {}})`, `return table.sort({true, false})`,
		`return table.sort({1, 2, nil, 4})`, `return table.sort({'10', 9})`,
		`local t = {3, 1, 2} table.sort(t, function() return true end) return t`,
		`local t = {} for i = 1, 50 do t[i] = i end table.sort(t, function() return true end) return t`, `local t = {} for i = 1, 100 do t[i] = 1 end table.sort(t, function(a, b) return a <= b end) return t`,
		`local t = {3, 1, 2} table.sort(t, function(a, b) return a < b and 1 end) return t`,
		`local t = {1, 2, 3} table.sort(t, function(a, b) error('oops') end) return t`,
		`local t = {1, 2, 3} return pcall(table.sort, t, function(a, b) error({}) end)`,
		`return pcall(table.sort, {1, 'x'})`,
		`local m = {__lt = function(a, b) return a.v < b.v end} local t = {} for i, v in ipairs{3, 1, 2} do t[i] = setmetatable({v = v}, m) end table.sort(t) return t[1].v, t[2].v, t[3].v`, `local t = {setmetatable({}, {__lt = function() return true end}), setmetatable({}, {__lt = function() return true end})} table.sort(t)`,
		`local t = {0/0, 1, 2} table.sort(t) return t`,
		`local t = {5, 0/0, 3, 1, 0/0, 2, 4} table.sort(t) return t`,
	})
}

func TestSortLikeRedis(t *testing.T) {
	redis := startRedis(t)
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 0))
	orders := []string{"a.k < b.k", "a.k > b.k", "a.k <= b.k", "a.k % 3 < b.k % 3", "a.n < b.n",
		"(a.k * 7 + b.k * 3) % 5 < 2"}
	for range 40 {
		var list strings.Builder
		for i := range rnd.IntN(60) {
			fmt.Fprintf(&list, "{k = %d, n = %d},", rnd.IntN(10), i)
		}
		// The order of the calls must agree too, and so must the errors of inconsistent
		// comparisons. After such an error an element may be nil, so #t is not compared.
		snippet := fmt.Sprintf(
			`local t, calls, order = {%s}, {}, {} local n = #t local ok, err = pcall(table.sort, t, function(a, b) `+
				`a, b = a or {k = 5, n = 98}, b or {k = 5, n = 99} calls[#calls + 1] = a.n * 100 + b.n return %s end) `+
				`for i = 1, n + 1 do order[i] = t[i] and t[i].n or 'nil' end return ok, err, table.concat(order, ' '), #calls, table.concat(calls, ' ')`,
			list.String(), orders[rnd.IntN(len(orders))])
		redis.compare(t, snippet)
	}
}

func TestTableChargesTheBudget(t *testing.T) {
	for _, c := range []struct {
		instructions int64
		code, want   string
	}{
		{300_000, `local t = {} for i = 1, 1e9 do table.insert(t, 1, i) end`,
			errScriptInstructions},
		{1 << 40, `local t = {} for i = 1, 1e9 do table.insert(t, i) end`, errScriptMemory},
		{1 << 40, `local t = {} for i = 1, 30 do t[i] = string.rep('x', 10000) end while true do t[1] = table.concat(t) end`, errScriptMemory},
		{1 << 40, `string.rep('x', 2147483647)`, errScriptMemory},
		{1 << 40, `local s = 'x' while true do s = string.format('%s%s', s, s) end`,
			errScriptMemory},
		{1 << 40, `local s = 'x' while true do s = string.gsub(s, 'x', 'xx') end`, errScriptMemory},
		{1 << 40, `local s = 'x' while true do s = s:upper():lower():reverse() .. s end`,
			errScriptMemory},
		{300_000, `local t = {} for i = 1, 1000 do t[i] = i % 100 end while true do table.sort(t) end`, errScriptInstructions},
		{300_000, `table.sort({3, 1, 2}, function() while true do end end)`, errScriptInstructions},
		{300_000, `table.foreach({1}, function() while true do end end)`, errScriptInstructions},
		{300_000, `('x'):gsub('x', function() while true do end end)`, errScriptInstructions},
		{1 << 40, `while true do pcall(string.rep, 'x', 1e9) end`, errScriptMemory},
		{300_000, `tostring(setmetatable({}, {__tostring = function() while true do end end}))`,
			errScriptInstructions},
	} {
		L := boundedState(t, c.instructions, 1<<22)
		err := doString(L, c.code)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.code, err, c.want)
		}
	}
}
