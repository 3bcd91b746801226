// The base library as Redis 7.0 leaves it to scripts: functions of gopher-lua's own that write errors in its own words, cost what no budget
// sees, or reach out of the sandbox are written anew here.

package fsm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (in *interpreter) baseFunctions() []libraryFunction {
	return []libraryFunction{
		{"assert", luaAssert},
		{"collectgarbage", in.collectGarbage},
		{"error", luaError},
		{"gcinfo", in.gcInfo},
		{"getmetatable", in.getMetatable},
		{"ipairs", in.ipairs()},
		{"load", in.load},
		{"loadstring", in.loadString},
		{"next", in.next},
		{"pairs", in.pairs()},
		{"pcall", in.pcall},
		{"rawequal", rawEqual},
		{"rawget", in.rawGet},
		{"rawset", in.rawSet},
		{"select", baseSelect},
		{"setmetatable", in.setMetatable},
		{"tonumber", luaToNumber},
		{"tostring", luaToString},
		{"type", baseType},
		{"unpack", luaUnpack},
		{"xpcall", in.xpcall},
	}
}

func baseType(L *lua.LState) int { return push(L, checkAny(L, 1).Type().String()) }

func rawEqual(L *lua.LState) int {
	a, b := checkAny(L, 1), checkAny(L, 2)
	if s, ok := a.(lua.LString); ok {
		budgetOf(L).charge(L, int64(len(s))/bytesEqual)
	}
	L.Push(lua.LBool(L.RawEqual(a, b)))
	return 1
}

// rawGet does not tell the hidden globals.
func (in *interpreter) rawGet(L *lua.LState) int {
	t, key := in.behind(checkTable(L, 1)), checkAny(L, 2)
	in.budget.charge(L, keyCost(key))
	if hidden(key) && t == in.globals {
		key = lua.LNil
	}
	L.Push(t.RawGet(key))
	return 1
}

func (in *interpreter) rawSet(L *lua.LState) int {
	t, key, value := checkTable(L, 1), checkAny(L, 2), checkAny(L, 3)
	in.checkWritable(L, 1)
	in.budget.charge(L, keyCost(key))
	L.Push(key)
	L.Push(t)
	L.Insert(key, 1) // the hidden function takes (key, table)
	L.Insert(t, 2)
	in.key(L)
	if key == lua.LNil {
		raiseBare(L, "table index is nil")
	}
	if f, ok := key.(lua.LNumber); ok && f != f {
		raiseBare(L, "table index is NaN")
	}
	t.RawSet(key, value)
	L.SetTop(0)
	L.Push(t)
	return 1
}

func baseSelect(L *lua.LState) int {
	n := L.GetTop()
	if s, ok := L.Get(1).(lua.LString); ok && s != "" && s[0] == '#' {
		L.Push(lua.LNumber(n - 1))
		return 1
	}
	i := checkInt(L, 1)
	if i < 0 {
		i += n
	} else if i > n {
		i = n
	}
	if i < 1 {
		argError(L, 1, "index out of range")
	}
	return n - i
}

// getMetatable shows the string metatable's stand-in, and none for a library.
func (in *interpreter) getMetatable(L *lua.LState) int {
	v := checkAny(L, 1)
	if t, ok := v.(*lua.LTable); ok && t != in.globalsStandIn && in.behind(t) != t {
		v = lua.LNil
	}
	if v == in.globalsStandIn {
		L.Push(in.globalsMeta)
		return 1
	}
	L.Push(L.GetMetatable(v))
	return 1
}

func (in *interpreter) setMetatable(L *lua.LState) int {
	t := checkTable(L, 1)
	meta := L.Get(2)
	if _, ok := meta.(*lua.LTable); !ok && (meta != lua.LNil || L.GetTop() < 2) {
		argError(L, 2, "nil or table expected")
	}
	if old, ok := t.Metatable.(*lua.LTable); ok && in.behind(t) == t && old.RawGetString("__metatable") != lua.LNil {
		raise(L, "cannot change a protected metatable")
	}
	in.checkWritable(L, 1)
	if m, ok := meta.(*lua.LTable); ok {
		m = in.behind(m)
		in.linked(m)
		meta = m
	}
	t.Metatable = meta
	L.SetTop(1)
	return 1
}

// linked counts the metatables of a script: tables that are each other's __index are walked over in one instruction, and can be no more
// than there are metatables.
func (in *interpreter) linked(meta *lua.LTable) {
	if len(in.metatables) >= maxLinks || in.metatables[meta] {
		return
	}
	if in.metatables == nil {
		in.metatables = map[*lua.LTable]bool{}
	}
	in.metatables[meta] = true
	in.budget.links(len(in.metatables))
}

// next walks over a table in the order of insertion.
func (in *interpreter) next(L *lua.LState) int {
	t := in.behind(checkTable(L, 1))
	L.SetTop(2)
	key := L.Get(2)
	in.budget.charge(L, deadKeys(t)/2+keyCost(key))
	if !knownKey(t, key) {
		raiseBare(L, "invalid key to 'next'")
	}
	for {
		next, value := t.Next(key)
		in.chargeGap(L, key, next)
		key = next
		if key == lua.LNil {
			L.Push(lua.LNil)
			return 1
		}
		if t == in.globals && hidden(key) {
			continue
		}
		L.Push(key)
		L.Push(value)
		return 2
	}
}

// chargeGap charges for the nil slots of an array that a walk stepped over.
func (in *interpreter) chargeGap(L *lua.LState, from, to lua.LValue) {
	if n, ok := to.(lua.LNumber); ok {
		f, _ := from.(lua.LNumber)
		if gap := n - f; gap > 16 && n < lua.LNumber(lua.MaxArrayIndex) {
			in.budget.charge(L, int64(gap)/16)
		}
	}
}

func (in *interpreter) pairs() lua.LGFunction {
	next := in.L.NewFunction(in.next)
	return func(L *lua.LState) int {
		t := checkTable(L, 1)
		in.tableLength(L, in.behind(t)) // drops nil slots at the end, which the walk would go over
		L.Push(next)
		L.Push(t)
		L.Push(lua.LNil)
		return 3
	}
}

func (in *interpreter) ipairs() lua.LGFunction {
	step := in.L.NewFunction(func(L *lua.LState) int {
		t, i := in.behind(checkTable(L, 1)), checkInt(L, 2)+1
		v := element(t, i)
		if v == lua.LNil {
			return 0
		}
		L.Push(lua.LNumber(i))
		L.Push(v)
		return 2
	})
	return func(L *lua.LState) int {
		t := checkTable(L, 1)
		L.Push(step)
		L.Push(t)
		L.Push(lua.LNumber(0))
		return 3
	}
}

// collectGarbage collects nothing: what it tells is counted from the script's own budget.
func (in *interpreter) collectGarbage(L *lua.LState) int {
	option := optString(L, 1, "collect")
	switch option {
	case "collect", "stop", "restart":
		L.Push(lua.LNumber(0))
	case "step":
		L.Push(lua.LTrue)
	case "count":
		L.Push(lua.LNumber(in.usedKB()))
	case "setpause", "setstepmul":
		L.Push(lua.LNumber(200))
	default:
		argError(L, 1, "invalid option '"+option+"'")
	}
	return 1
}

func (in *interpreter) gcInfo(L *lua.LState) int {
	L.Push(lua.LNumber(in.usedKB()))
	return 1
}

// usedKB is what the script has built so far, with something for the interpreter: never zero.
func (in *interpreter) usedKB() int64 { return 64 + (scriptBytes-in.budget.bytes)/1024 }

// Compiling costs more than reading: what loadstring charges per byte of source.
const (
	compileInstructions = 16
	compileBytes        = 16
)

// compileChunkFor pushes the function that source compiles to, or nil and the error.
func (in *interpreter) compileFor(L *lua.LState, source, name string) int {
	in.budget.charge(L, 100+compileInstructions*int64(len(source)))
	in.budget.chargeBytes(L, compileBytes*int64(len(source)))
	chunk := chunkID(name)
	proto, err := compileChunk([]byte(source), chunk)
	if err != nil {
		L.Push(lua.LNil)
		L.Push(lua.LString(err.Error()))
		return 2
	}
	in.budget.charge(L, searchCost(proto))
	in.budget.sees(longestConstant(proto))
	if in.chunks == nil {
		in.chunks = map[string]string{}
	}
	in.chunks[chunk] = name
	L.Push(in.L.NewFunctionFromProto(proto))
	return 1
}

func (in *interpreter) loadString(L *lua.LState) int {
	source := checkString(L, 1)
	return in.compileFor(L, source, optString(L, 2, source))
}

// load compiles what a function gives piece by piece, until nil or an empty string.
func (in *interpreter) load(L *lua.LState) int {
	f := checkFunction(L, 1)
	name := optString(L, 2, "=(load)")
	var source strings.Builder
	for {
		L.Push(f)
		L.Call(0, 1)
		piece := L.Get(-1)
		L.Pop(1)
		s, ok := toString(piece)
		switch {
		case piece == lua.LNil || ok && s == "":
			return in.compileFor(L, source.String(), name)
		case !ok:
			L.Push(lua.LNil)
			L.Push(lua.LString("reader function must return a string"))
			return 2
		}
		in.budget.chargeString(L, len(s))
		source.WriteString(s)
	}
}

// chunkID is how C Lua shows a chunk's name in errors: `=name` and `@name` as they are, source text in its first line.
func chunkID(name string) string {
	const room, text = 59, 43
	switch {
	case strings.HasPrefix(name, "="):
		return name[1:min(len(name), 1+room)]
	case strings.HasPrefix(name, "@"):
		name = name[1:]
		if len(name) > room-8 {
			return "..." + name[len(name)-(room-8):]
		}
		return name
	}
	end := strings.IndexAny(name, "\r\n")
	if end < 0 {
		end = len(name)
	}
	if end = min(end, text); end < len(name) {
		return `[string "` + name[:end] + `..."]`
	}
	return `[string "` + name + `"]`
}
