//go:build linux

// The prices of what tables do besides: keys that are hashed again as others come and go, and
// look-ups one after the other.

package script

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/tier"
)

// longKeys are the lengths of keys that are parts of one string, longKeysBytes the most of a table:
// more, and one operation takes a tenth of a budget.
var longKeys = []int{31, 600, 7_100, 70_000, 1 << 20, 3 << 20}

const longKeysBytes = 30 << 20

// churn are other keys that come to the table T and go.
var churn = []string{
	`local k = "k" .. n % 50 T[k] = 1 T[k] = nil`,
	`local k = "k" .. n T[k] = 1 T[k] = nil`,
	`local k = n % 50 + 0.5 T[k] = 1 T[k] = nil`,
	`local k = 60 - n % 50 T[k] = 1 T[k] = nil`,
	// C Lua begins to look for these at the same node of 8, 16, 32 or 64: each key's is free again.
	`local k = 1024 + n % 100 * 9765 / 1024 T[k] = 1 T[k] = nil`,
	`for k = 1, 9 do T[k] = 1 end T["k" .. n] = 1 for k = 1, 9 do T[k] = nil end T["k" .. n] = nil`,
	`T["k" .. n % 50] = 1 T[long:sub(60 + n % 50)] = 1 T[long:sub(60 + n % 50)] = nil`,
}

// churned are tables of all shapes, and with long keys, while other keys come and go.
func churned(t *testing.T) []snippet {
	var all []snippet
	add := func(before string) {
		for _, body := range churn {
			all = append(all, snippet{before: before + ` local n = 0`, body: `n = n + 1 ` + body})
		}
	}
	L := newInterpreter(testTable(), true).L
	L.G.Budget = lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40}
	for _, name := range makers {
		v, err := evalHere(L, shapes[name]+` return `+name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v.Type() == lua.LTTable {
			add(shapes[name] + ` local T, long = ` + name + `, ("a"):rep(1000)`)
		}
	}
	for _, bytes := range longKeys {
		for _, keys := range []int{7, 8, 9, 10, 15, 40} {
			if bytes*keys > longKeysBytes {
				continue
			}
			add(fmt.Sprintf(`local T, long = {}, ("a"):rep(%d) for i = 1, %d do T[long:sub(i)] = 1 end`,
				bytes, keys))
		}
	}
	for _, bytes := range longKeys { // a constructor chooses the sizes again
		all = append(all, snippet{
			before: fmt.Sprintf(`local a = ("a"):rep(%d) local b, c, d, e, f, g, h, i, j = a:sub(2), a:sub(3), a:sub(4), a:sub(5), a:sub(6), a:sub(7), a:sub(8), a:sub(9), a:sub(10)`, bytes),
			body:   `local t = {[a] = 1, [b] = 1, [c] = 1, [d] = 1, [e] = 1, [f] = 1, [g] = 1, [h] = 1, [i] = 1, [j] = 1, unpack({1, 2, 3})}`,
		})
	}
	return all
}

// mostLookup is the most that look-ups may take instead of mostFactor: most take half.
const mostLookup = 6

// lookups are look-ups, one after the other, that one operation makes.
func lookups() []snippet {
	var all []snippet
	for _, bytes := range []int{200, 900, 20_000, 1 << 20, 10 << 20} {
		for _, body := range []string{`local c = a == b`, `local c = a ~= b`, `local c = a < b`,
			`rawequal(a, b)`} {
			all = append(all, snippet{
				before: fmt.Sprintf(`local a, b = ("a"):rep(%d), ("a"):rep(%[1]d)`, bytes), body: body})
		}
	}
	const chain = `local function make(next, name) local t, m = {}, {} for i = 1, KEYS do t[("x"):rep(30) .. i] = i end for i = 11, 9 + KEYS do m[name:sub(1, -3) .. i] = 1 end m[name] = next return setmetatable(t, m) end local k = ("x"):rep(30) .. "9" local t = {[k] = 1} for i = 1, 90 do t = make(t, "NAME") end `
	for _, keys := range []int{1, 8, 9, 100} {
		for name, body := range map[string]string{"__index": `local x = t[k]`,
			"__newindex": `t[k] = 1`} {
			before := strings.NewReplacer("KEYS", fmt.Sprint(keys), "NAME", name).Replace(chain)
			if name == "__index" {
				before += `k = ("x"):rep(30) .. "0" `
			}
			all = append(all, snippet{before: before, body: body})
		}
	}
	for _, keys := range []int{8, 4000, 60_000} { // in the hash part: few look-ups hit a cache
		hashed := fmt.Sprintf(`local n, t = %d, {} for i = n, 1, -1 do t[i + 1e6] = "" end `, keys)
		for _, body := range []string{
			`table.concat(t, "", 1e6 + 1, 1e6 + n)`,
			`for i = 1, n, 7000 do unpack(t, 1e6 + i, 1e6 + i + 6999) end`,
			`for i = 1, n, 7000 do unpack(t, 2e6 + i, 2e6 + i + 6999) end`,
		} {
			all = append(all, snippet{before: hashed, body: body})
		}
		sparse := fmt.Sprintf(`cjson.encode_sparse_array(true, 0) local t = {} for i = 1, %d do t[i * 100] = 1 end `, keys)
		all = append(all, snippet{before: sparse, body: `cjson.encode(t)`})
		// the hash part has room for these, since it was made for others: no array is chosen
		list := fmt.Sprintf(`local t = {} for i = 1, %d do t["k" .. i] = 1 end for k in pairs(t) do t[k] = nil end for i = 1, %d do t[i] = i end `,
			1<<bits.Len(uint(keys))+1, keys)
		for _, body := range []string{
			`for i, v in ipairs(t) do end`, `table.foreachi(t, function() end)`,
			`cjson.encode(t)`, `cmsgpack.pack(t)`, `unpack(t, 1, 7000)`, `table.concat(t)`,
			`table.sort(t)`, `table.remove(t, 1)`, `table.insert(t, 1, 1)`,
		} {
			all = append(all, snippet{before: list, body: body})
		}
	}
	return append(all, snippet{
		before: `local t = {} for i = 1, 70000 do t["k" .. i] = 1 end for k in pairs(t) do t[k] = nil end for i = 1, 60000 do t[i] = i end`,
		result: `t`,
	})
}

// alike are tables whose keys have equal lengths and differ at their ends, so that finding one
// compares it with others.
func alike() []snippet {
	var all []snippet
	for _, bytes := range []int{12, 30, 300, 10_000, 300_000, 3 << 20} {
		for _, keys := range []int{8, 9, 1000} {
			if bytes*keys > longKeysBytes {
				continue
			}
			before := fmt.Sprintf(`local t, ks, p = {}, {}, ("a"):rep(%d) for i = 1, %d do ks[i] = p .. (100000 + i) t[ks[i]] = 1 end local n, k, m = #ks, ks[#ks], p .. "999999" local j, b = cjson.encode(t), cmsgpack.pack(t)`,
				bytes-6, keys)
			for _, body := range []string{
				`local x = t[k]`, `local x = t[m]`, `t[k] = nil t[k] = 1`, `t[m] = 1 t[m] = nil`,
				`for k in pairs(t) do end`, `next(t, k)`, `cmsgpack.pack(t)`, `cjson.encode(t)`,
				`cjson.decode(j)`, `cmsgpack.unpack(b)`, `table.sort(ks)`,
				`for i = 1, n do local x = t[ks[i * 7919 % n + 1]] end`,
				`local u = {} for i = 1, n do u[ks[i]] = 1 end`,
				`for k in pairs(t) do t[k] = nil end for i = 1, n do t[ks[i]] = 1 end`,
			} {
				all = append(all, snippet{before: before, body: body})
			}
		}
	}
	return all
}

// deep are encoders that fail at the most nested table, and arrays that grow.
func deep() []snippet {
	var all []snippet
	for _, depth := range []int{16, 1000, 1_000_000} {
		for _, before := range []string{`local t = {} t[1] = t`, `local t = {} t.x = t`,
			`local t = {} for i = 1, 8 do t[i] = t end`,
			`local t = {} for i = 1, 100 do t[i] = "" end t[101] = t`,
			`local t = {} for i = 1, 30 do t["k" .. i] = "" end t.t = t`,
		} {
			before = fmt.Sprintf(`cjson.encode_max_depth(%d) `, depth) + before
			for _, f := range []string{"cjson.encode", "cmsgpack.pack"} {
				all = append(all, snippet{before: before, body: `pcall(` + f + `, t)`},
					snippet{before: before, body: `pcall(coroutine.wrap(function() ` + f + `(t) end))`})
			}
		}
	}
	for _, n := range []int{8, 512, 4096} {
		before := fmt.Sprintf(`local a = {} for i = 1, %d do a[i] = 1 end`, n)
		for _, body := range []string{`local t = {unpack(a)} t[#t + 1] = 1`,
			`local t = {unpack(a)} table.insert(t, 1)`, `local t = {unpack(a)} t[0] = 1`,
			`coroutine.wrap(function() return unpack(a) end)()`} {
			all = append(all, snippet{before: before, body: body})
		}
	}
	for _, value := range []string{"true", "i"} {
		all = append(all, snippet{body: `local t = {} for i = 1, 4e6 do t[i] = ` + value + ` end`},
			snippet{body: `local t = {} for i = 1, 4e6 do table.insert(t, ` + value + `) end`})
	}
	return all
}

// TestTablesAreChargedForTheirTime runs for long enough that tables choose their sizes again. make
// test has some of each kind.
func TestTablesAreChargedForTheirTime(t *testing.T) {
	detector.Skip(t)
	for _, x := range []struct {
		scale scale
		list  []snippet
	}{
		{scale{units: 200_000}, churned(t)},
		{scale{units: 2_000_000, most: mostLookup}, lookups()},
		{scale{units: 2_000_000}, alike()},
		{scale{units: 8_000_000}, deep()},
	} {
		x.scale.t = t
		if !tier.Checking() {
			x.list = every(5, x.list)
		}
		check(t, &x.scale, x.list)
	}
}

// every returns each n-th snippet.
func every(n int, list []snippet) (some []snippet) {
	for i := 0; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}
