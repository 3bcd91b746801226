// The base library as Redis 7.0 exposes it to scripts. Functions of gopher-lua are rewritten here
// if they use other error texts, do work that no budget sees, or reach out of the sandbox.

package script

import (
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

func (in *interpreter) baseFunctions() []libraryFunction {
	return []libraryFunction{
		{"assert", luaAssert},
		{"collectgarbage", in.collectGarbage},
		{"error", luaError},
		{"gcinfo", in.gcInfo},
		{"getmetatable", getMetatable},
		{"ipairs", in.ipairs()},
		{"load", in.load},
		{"loadstring", in.loadString},
		{"next", luaNext},
		{"pairs", in.pairs()},
		{"pcall", in.pcall},
		{"rawequal", rawEqual},
		{"rawget", rawGet},
		{"rawset", rawSet},
		{"select", baseSelect},
		{"setmetatable", setMetatable},
		{"tonumber", luaToNumber},
		{"tostring", luaToString},
		{"type", baseType},
		{"unpack", luaUnpack},
		{"xpcall", in.xpcall},
	}
}

func baseType(L *lua.LState) int { return push(L, checkAny(L, 1).Type().String()) }

func rawEqual(L *lua.LState) int {
	L.Push(lua.LBool(L.RawEqual(checkAny(L, 1), checkAny(L, 2))))
	return 1
}

// chargeKey charges what release 0.1 took for looking a key up in a walk, beyond one instruction.
func chargeKey(L *lua.LState, key lua.LValue) {
	if s, ok := key.(lua.LString); ok && !L.G.Strict {
		L.G.Budget.Charge(L, int64(len(s))/keyBytes)
	}
}

// keyBytes is how many bytes of a key one instruction pays for.
const keyBytes = 128

func rawGet(L *lua.LState) int {
	t, key := checkTable(L, 1), checkAny(L, 2)
	L.Push(L.RawGet(t, key))
	return 1
}

func rawSet(L *lua.LState) int {
	t, key, value := checkTable(L, 1), checkAny(L, 2), checkAny(L, 3)
	checkWritable(L, 1)
	if key == lua.LNil {
		raiseBare(L, "table index is nil")
	}
	if f, ok := key.(lua.LNumber); ok && f != f {
		raiseBare(L, "table index is NaN")
	}
	L.RawSet(t, key, value)
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

func getMetatable(L *lua.LState) int {
	meta := L.Metatable(checkAny(L, 1))
	if meta == nil {
		L.Push(lua.LNil)
	} else if shown := meta.RawGetString("__metatable"); shown != lua.LNil {
		L.Push(shown)
	} else {
		L.Push(meta)
	}
	return 1
}

func setMetatable(L *lua.LState) int {
	t := checkTable(L, 1)
	meta, isTable := L.Get(2).(*lua.LTable)
	if !isTable && (L.Get(2) != lua.LNil || L.GetTop() < 2) {
		argError(L, 2, "nil or table expected")
	}
	if !t.ReadOnly() && t.Metatable != nil && t.Metatable.RawGetString("__metatable") != lua.LNil {
		raise(L, "cannot change a protected metatable")
	}
	checkWritable(L, 1)
	t.Metatable = meta
	L.SetTop(1)
	return 1
}

// luaNext walks over a table in insertion order.
func luaNext(L *lua.LState) int {
	t, key := checkTable(L, 1), L.Get(2)
	chargeKey(L, key)
	next, value, ok := L.Next(t, key)
	if !ok {
		raiseBare(L, "invalid key to 'next'")
	}
	L.Push(next)
	if next == lua.LNil {
		return 1
	}
	L.Push(value)
	return 2
}

func (in *interpreter) pairs() lua.LGFunction {
	next := in.L.NewFunction(luaNext)
	return func(L *lua.LState) int {
		t := checkTable(L, 1)
		L.Push(next)
		L.Push(t)
		L.Push(lua.LNil)
		return 3
	}
}

func (in *interpreter) ipairs() lua.LGFunction {
	step := in.L.NewFunction(func(L *lua.LState) int {
		t, i := checkTable(L, 1), checkInt(L, 2)+1
		v := L.RawGetInt(t, i)
		if v == lua.LNil {
			return 0
		}
		budgetOf(L).Charge(L, 1)
		L.PushNumber(float64(i))
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

// collectGarbage collects nothing. Its count comes from the script's own budget. A step of so many
// KB ends a cycle if no more are in use.
func (in *interpreter) collectGarbage(L *lua.LState) int {
	option := optString(L, 1, "collect")
	stepKB := in.usedKB() // release 0.1 read no second argument
	if L.G.Strict {
		switch option {
		case "collect", "stop", "restart", "step", "count", "setpause", "setstepmul":
			stepKB = int64(optInt(L, 2, 0))
		}
	}
	switch option {
	case "collect", "stop", "restart":
		L.Push(lua.LNumber(0))
	case "step":
		L.Push(lua.LBool(stepKB >= in.usedKB()))
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

// usedKB is what the script has built so far, plus a base for the interpreter: never zero.
func (in *interpreter) usedKB() int64 { return 64 + (scriptBytes-in.budget.Bytes)/1024 }

// What loadstring charges per byte of source: compiling costs more than reading.
const (
	compileInstructions = 16
	compileBytes        = 16
)

// compileFor pushes the function that source compiles to, or nil and the error.
func (in *interpreter) compileFor(L *lua.LState, source, name string) int {
	in.budget.Charge(L, 250+compileInstructions*int64(len(source)))
	in.budget.ChargeBytes(L, compileBytes*int64(len(source)))
	chunk := chunkID(name)
	proto, tokens, err := compileChunk([]byte(source), chunk, lua.Limits{
		Tokens: int(max(in.budget.Instructions, 0)/tokenWork) + 1, Released: !L.G.Strict})
	in.budget.Charge(L, int64(tokens*tokenWork-compileInstructions*len(source)))
	if proto != nil && L.G.Strict {
		in.budget.ChargeBytes(L, int64(proto.Size()-compileBytes*len(source)))
	}
	if err != nil {
		text := err.Error()
		L.ChargeString(len(text))
		L.Push(lua.LNil)
		L.Push(lua.LString(text))
		return 2
	}
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

// load compiles the pieces that a function returns, until nil or an empty string.
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
		L.ChargeString(len(s))
		source.WriteString(s)
	}
}

// chunkID is how C Lua shows a chunk's name in errors: `=name` and `@name` as they are, a source by
// its first line.
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
	end := min(len(name), text)
	if line := strings.IndexAny(name[:end], "\r\n"); line >= 0 {
		end = line
	}
	if end < len(name) {
		return `[string "` + name[:end] + `..."]`
	}
	return `[string "` + name + `"]`
}
