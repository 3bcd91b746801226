// The cjson library of Redis's Lua (lua-cjson 2.1.0 with Redis's settings): its table, its
// settings, and encoding, which writes keys in insertion order. Decoding is in lib_cjson_decode.go.

package script

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/fsm/script/lua"
)

// How encode writes NaN and infinities.
const (
	invalidNumbersOff  = iota // refuse
	invalidNumbersOn          // write nan, inf
	invalidNumbersNull        // write null
)

// cjsonConfig holds what scripts can set. Its default is defaultCJSON, not the zero value.
type cjsonConfig struct {
	sparseConvert        bool
	sparseRatio          int32
	sparseSafe           int32
	encodeMaxDepth       int
	decodeMaxDepth       int
	encodeInvalidNumbers int
	decodeInvalidNumbers bool
	keepBuffer           bool // without effect: there is no buffer
	numberPrecision      int  // significant digits
}

// defaultCJSON is Redis's configuration of cjson.
var defaultCJSON = cjsonConfig{
	sparseRatio: 2, sparseSafe: 10, encodeMaxDepth: 1000, decodeMaxDepth: 1000,
	decodeInvalidNumbers: true, keepBuffer: true, numberPrecision: 14,
}

// cjsonLibrary is one instance of the library: the global cjson, or a result of cjson.new. Its
// settings end with the run of a script. In Redis they last until a restart, but a node that was
// restored from a snapshot must not differ from one that ran the scripts.
type cjsonLibrary struct {
	_ byte // instances need distinct addresses
}

// config returns the settings of L's run, to read or to change.
func (lib *cjsonLibrary) config(L *lua.LState) *cjsonConfig {
	run := runOf(L)
	if cfg, ok := run.notes[lib].(*cjsonConfig); ok {
		return cfg
	}
	if run.notes == nil {
		run.notes = map[any]any{}
	}
	cfg := new(cjsonConfig)
	*cfg = defaultCJSON
	run.notes[lib] = cfg
	return cfg
}

// openCJSON returns the table of the cjson library. The caller makes it the global `cjson`.
func openCJSON(L *lua.LState) *lua.LTable {
	lib := &cjsonLibrary{}
	t := newLibrary(L, []libraryFunction{
		{"encode", lib.encode},
		{"decode", lib.decode},
		{"encode_sparse_array", lib.encodeSparseArray},
		{"encode_max_depth", lib.integerSetting(func(c *cjsonConfig) *int {
			return &c.encodeMaxDepth
		}, math.MaxInt32)},
		{"decode_max_depth", lib.integerSetting(func(c *cjsonConfig) *int {
			return &c.decodeMaxDepth
		}, math.MaxInt32)},
		{"encode_number_precision", lib.integerSetting(func(c *cjsonConfig) *int {
			return &c.numberPrecision
		}, 14)},
		{"encode_keep_buffer", lib.booleanSetting(func(c *cjsonConfig) *bool {
			return &c.keepBuffer
		})},
		{"encode_invalid_numbers", lib.setEncodeInvalidNumbers},
		{"decode_invalid_numbers", lib.booleanSetting(func(c *cjsonConfig) *bool {
			return &c.decodeInvalidNumbers
		})},
		{"new", func(L *lua.LState) int {
			budgetOf(L).ChargeBytes(L, 4096)
			L.Push(openCJSON(L))
			return 1
		}},
	})
	t.RawSetString("null", nullOf(L))
	t.RawSetString("_NAME", lua.LString("cjson"))
	t.RawSetString("_VERSION", lua.LString("2.1.0"))
	return t
}

// null marks the userdata cjson.null, which stands for C Lua's NULL light userdata.
type null struct{}

// nullKey is its key in the registry of a Lua state: all libraries of the state share one.
const nullKey = "coordd.null"

// nullOf returns the one null of L's state.
func nullOf(L *lua.LState) *lua.LUserData {
	if ud, ok := L.G.Registry.RawGetString(nullKey).(*lua.LUserData); ok {
		return ud
	}
	ud := &lua.LUserData{Value: null{}}
	L.G.Registry.RawSetString(nullKey, ud)
	return ud
}

// isNull reports whether v is cjson.null.
func isNull(v lua.LValue) bool {
	ud, ok := v.(*lua.LUserData)
	return ok && ud.Value == null{}
}

// atMost raises an error if the function was called with more than n arguments.
func atMost(L *lua.LState, n int) {
	if L.GetTop() > n {
		argError(L, n+1, "found too many arguments")
	}
}

// setInteger sets *setting to argument n, if that is present and within bounds. Like the
// original's, its error names argument 1.
func setInteger(L *lua.LState, n int, setting *int, low, high int) {
	if L.Get(n) == lua.LNil {
		return
	}
	v := checkInt(L, n)
	if v < low || v > high {
		argError(L, 1, "expected integer between "+strconv.Itoa(low)+" and "+strconv.Itoa(high))
	}
	*setting = v
}

// setBoolean sets *setting to argument n, if that is present: a boolean, "on" or "off".
func setBoolean(L *lua.LState, n int, setting *bool) {
	switch v := L.Get(n).(type) {
	case *lua.LNilType:
	case lua.LBool:
		*setting = bool(v)
	default:
		*setting = checkOption(L, n, "off", "on") == 1
	}
}

// checkOption returns the index of the option that argument n names.
func checkOption(L *lua.LState, n int, options ...string) int {
	s := checkString(L, n)
	for i, o := range options {
		if s == o {
			return i
		}
	}
	argError(L, n, "invalid option '"+cString(s)+"'")
	return 0
}

// integerSetting makes a function that sets and returns an integer from 1 to high.
func (lib *cjsonLibrary) integerSetting(field func(*cjsonConfig) *int, high int) lua.LGFunction {
	return func(L *lua.LState) int {
		atMost(L, 1)
		setting := field(lib.config(L))
		setInteger(L, 1, setting, 1, high)
		L.Push(lua.LNumber(*setting))
		return 1
	}
}

// booleanSetting makes a function that sets and returns a boolean.
func (lib *cjsonLibrary) booleanSetting(field func(*cjsonConfig) *bool) lua.LGFunction {
	return func(L *lua.LState) int {
		atMost(L, 1)
		setting := field(lib.config(L))
		setBoolean(L, 1, setting)
		L.Push(lua.LBool(*setting))
		return 1
	}
}

// setEncodeInvalidNumbers is cjson.encode_invalid_numbers: a boolean, "on", "off" or "null".
func (lib *cjsonLibrary) setEncodeInvalidNumbers(L *lua.LState) int {
	atMost(L, 1)
	cfg := lib.config(L)
	switch v := L.Get(1).(type) {
	case *lua.LNilType:
	case lua.LBool:
		cfg.encodeInvalidNumbers = invalidNumbersOff
		if v {
			cfg.encodeInvalidNumbers = invalidNumbersOn
		}
	default:
		cfg.encodeInvalidNumbers = checkOption(L, 1, "off", "on", "null")
	}
	if cfg.encodeInvalidNumbers == invalidNumbersNull {
		return push(L, "null")
	}
	L.Push(lua.LBool(cfg.encodeInvalidNumbers == invalidNumbersOn))
	return 1
}

// encodeSparseArray is cjson.encode_sparse_array([convert [, ratio [, safe]]]).
func (lib *cjsonLibrary) encodeSparseArray(L *lua.LState) int {
	atMost(L, 3)
	cfg := lib.config(L)
	ratio, safe := int(cfg.sparseRatio), int(cfg.sparseSafe)
	setBoolean(L, 1, &cfg.sparseConvert)
	setInteger(L, 2, &ratio, 0, math.MaxInt32)
	cfg.sparseRatio = int32(ratio)
	setInteger(L, 3, &safe, 0, math.MaxInt32)
	cfg.sparseSafe = int32(safe)
	L.Push(lua.LBool(cfg.sparseConvert))
	L.Push(lua.LNumber(ratio))
	L.Push(lua.LNumber(safe))
	return 3
}

// jsonEncoder builds one text.
type jsonEncoder struct {
	L       *lua.LState
	b       *lua.Budget
	cfg     *cjsonConfig
	out     text
	charged int // bytes of out that are paid for
	numeral [32]byte
}

// encode is cjson.encode(value).
func (lib *cjsonLibrary) encode(L *lua.LState) int {
	if L.GetTop() != 1 {
		argError(L, 1, "expected 1 argument")
	}
	e := jsonEncoder{L: L, b: budgetOf(L), cfg: lib.config(L), out: text{L: L}}
	e.value(L.Get(1), 0, 1)
	e.chargeElement()
	return push(L, e.out.done())
}

// chargeElement charges for one element and for the bytes written since the last charge.
func (e *jsonEncoder) chargeElement() {
	n := e.out.size - e.charged
	e.charged = e.out.size
	chargeWork(e.L, n)
}

// fail raises the error that v cannot be encoded.
func (e *jsonEncoder) fail(v lua.LValue, reason string) {
	raise(e.L, "Cannot serialise "+v.Type().String()+": "+reason)
}

// value writes v. depth is the number of enclosing tables. slots is how full C Lua's stack would
// be, which bounds the nesting if a script has raised the depth limit.
func (e *jsonEncoder) value(v lua.LValue, depth, slots int) {
	e.chargeElement()
	switch v := v.(type) {
	case lua.LString:
		e.string(string(v))
	case lua.LNumber:
		e.number(v)
	case lua.LBool:
		e.out.add(strconv.FormatBool(bool(v)))
	case *lua.LNilType:
		e.out.add("null")
	case *lua.LTable:
		depth++
		if depth > e.cfg.encodeMaxDepth || slots+3 > maxStackSlots {
			raise(e.L, "Cannot serialise, excessive nesting ("+strconv.Itoa(depth)+")")
		}
		if n := e.arrayLength(v); n > 0 {
			e.array(v, n, depth, slots)
		} else {
			e.object(v, depth, slots)
		}
	default:
		if !isNull(v) {
			e.fail(v, "type not supported")
		}
		e.out.add("null")
	}
}

// arrayLength returns the largest key of a table that is encoded as an array, 0 for an empty table,
// and -1 for an object.
func (e *jsonEncoder) arrayLength(t *lua.LTable) int32 {
	var largest, items int32 // a C int, overflow included
	chargeWalk(e.L, t)
	for key := range t.Pairs() {
		e.b.Charge(e.L, 1)
		n, ok := key.(lua.LNumber)
		if !ok || float64(n) != math.Floor(float64(n)) || n < 1 {
			return -1
		}
		if n > lua.LNumber(largest) {
			largest = truncate32(float64(n))
		}
		items++
	}
	if e.cfg.sparseRatio > 0 && largest > items*e.cfg.sparseRatio && largest > e.cfg.sparseSafe {
		if !e.cfg.sparseConvert {
			e.fail(t, "excessively sparse array")
		}
		return -1
	}
	return largest
}

// truncate32 converts as the x86-64 instruction behind C's (int)f does.
func truncate32(f float64) int32 {
	if f > math.MinInt32-1 && f < math.MaxInt32+1 {
		return int32(f)
	}
	return math.MinInt32
}

func (e *jsonEncoder) array(t *lua.LTable, n int32, depth, slots int) {
	e.out.addByte('[')
	for i := range int(n) {
		if i > 0 {
			e.out.addByte(',')
		}
		e.value(e.L.RawGetInt(t, i+1), depth, slots+1)
	}
	e.out.addByte(']')
}

func (e *jsonEncoder) object(t *lua.LTable, depth, slots int) {
	e.out.addByte('{')
	chargeWalk(e.L, t)
	first := true
	for key, value := range t.Pairs() {
		if !first {
			e.out.addByte(',')
		}
		first = false
		e.chargeElement()
		switch key := key.(type) {
		case lua.LNumber:
			e.out.addByte('"')
			e.number(key)
			e.out.addByte('"')
		case lua.LString:
			e.string(string(key))
		default:
			e.fail(key, "table key must be a number or string")
		}
		e.out.addByte(':')
		e.value(value, depth, slots+2)
	}
	e.out.addByte('}')
}

// number writes n with the configured precision.
func (e *jsonEncoder) number(n lua.LNumber) {
	f := float64(n)
	e.b.Charge(e.L, numeralInstructions)
	if f != f || math.IsInf(f, 0) {
		switch e.cfg.encodeInvalidNumbers {
		case invalidNumbersOff:
			e.fail(n, "must not be NaN or Inf")
		case invalidNumbersNull:
			e.out.add("null")
			return
		}
		if f != f {
			e.out.add("nan")
			return
		}
	}
	e.out.addBytes(lua.AppendNumber(e.numeral[:0], f, e.cfg.numberPrecision))
}

// jsonEscapes are the short escapes. The other control bytes are written as \u00XX.
var jsonEscapes = [256]string{
	'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`,
}

// settledAhead is how many bytes are written before they are charged.
const settledAhead = 1024

// string writes s in quotes. Bytes from 128 up stay as they are, valid UTF-8 or not.
func (e *jsonEncoder) string(s string) {
	const hex = "0123456789abcdef"
	chargeWork(e.L, len(s))
	e.charged += len(s)
	e.out.addByte('"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if !isControl(c) && jsonEscapes[c] == "" {
			continue
		}
		e.out.add(s[start:i])
		start = i + 1
		if jsonEscapes[c] != "" {
			e.out.add(jsonEscapes[c])
		} else {
			e.out.addBytes(append(e.numeral[:0], '\\', 'u', '0', '0', hex[c>>4], hex[c&15]))
		}
		if e.out.size-e.charged > settledAhead {
			e.chargeElement()
		}
	}
	e.out.add(s[start:])
	e.out.addByte('"')
}
