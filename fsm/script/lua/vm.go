package lua

// How a call began.
const (
	callDone  = iota // a Go function has run
	callLua          // a Lua frame is on top
	callYield        // the thread is suspended
)

// run executes the frame on top until the fresh one returns or the thread is suspended.
//
//nolint:gocyclo // one case an instruction
func (L *LState) run() (suspended bool) {
	b := &L.G.Budget
frame:
	cf := &L.frames[L.depth-1]
	proto := cf.fn.Proto
	code := proto.Code
	base := int(cf.localBase)
	end := base + int(proto.NumUsedRegisters)
	R := L.reg[base:end:end]
	for {
		inst := code[cf.pc]
		cf.pc++
		if b.Instructions--; b.Instructions < b.watched {
			L.look()
		}
		A := int(inst>>18) & 0xff
		switch inst >> 26 {
		case OP_MOVE:
			R[A] = R[inst&0x1ff]
		case OP_MOVEN:
			R[A] = R[inst&0x1ff]
			n := int32(inst>>9) & 0x1ff
			for _, move := range code[cf.pc : cf.pc+n] {
				R[int(move>>18)&0xff] = R[move&0x1ff]
			}
			cf.pc += n
			b.Instructions -= int64(n) / 8
		case OP_LOADK:
			R[A] = proto.Constants[inst&0x3ffff]
		case OP_LOADBOOL:
			if inst&0x1ff != 0 {
				R[A] = LTrue
			} else {
				R[A] = LFalse
			}
			if inst>>9&0x1ff != 0 {
				cf.pc++
			}
		case OP_LOADNIL:
			for i := A; i <= int(inst&0x1ff); i++ {
				R[i] = LNil
			}
			b.Instructions -= int64(int(inst&0x1ff)-A) / slotsSet
			L.ChargeSlots(int(inst&0x1ff) - A)
		case OP_GETUPVAL:
			R[A] = *cf.fn.Upvalues[inst&0x1ff].v
		case OP_SETUPVAL:
			uv := cf.fn.Upvalues[inst&0x1ff]
			if uv.watched {
				L.G.Touched = true
			}
			*uv.v = R[A]
		case OP_GETGLOBAL:
			name := proto.Constants[inst&0x3ffff].(LString)
			v := cf.fn.Env.getConstant(string(name), &proto.places[inst&0x3ffff])
			if v == LNil {
				v = L.getField(cf.fn.Env, name)
				cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			}
			R[A] = v
		case OP_SETGLOBAL:
			L.RaiseError(errReadOnly)
		case OP_GETTABLE:
			key := L.operand(proto, R, inst>>9&0x1ff)
			if tb, ok := R[inst&0x1ff].(*LTable); ok {
				if n, ok := key.(LNumber); ok {
					if i := int(n); i >= 1 && i <= len(tb.array) && LNumber(i) == n {
						if v := tb.array[i-1]; v != LNil {
							R[A] = v
							continue
						}
					}
				}
			}
			v := L.getField(R[inst&0x1ff], key)
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			R[A] = v
		case OP_GETTABLEKS:
			o := inst >> 9 & 0x1ff
			key := L.operand(proto, R, o)
			if tb, ok := R[inst&0x1ff].(*LTable); ok {
				if name := key.(LString); len(name) < bytesHashed {
					var v LValue
					if o&opBitRk != 0 {
						v = tb.getConstant(string(name), &proto.places[o&^opBitRk])
					} else {
						v = tb.RawGetString(string(name))
					}
					if v != LNil {
						R[A] = v
						continue
					}
				}
			}
			v := L.getField(R[inst&0x1ff], key)
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			R[A] = v
		case OP_SELF:
			object := R[inst&0x1ff]
			v := L.getField(object, L.operand(proto, R, inst>>9&0x1ff))
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			R[A], R[A+1] = v, object
		case OP_SETTABLE, OP_SETTABLEKS:
			L.setField(R[A], L.operand(proto, R, inst&0x1ff), L.operand(proto, R, inst>>9&0x1ff))
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
		case OP_NEWTABLE:
			keyed := int(inst >> 9 & 0x1ff)
			tb := L.NewTable(fb2int(int(inst&0x1ff)), fb2int(keyed&^oneMore))
			if keyed&oneMore != 0 && L.G.Strict {
				tb.begin(int(tb.size), fb2int(keyed&^oneMore)-1)
			}
			R[A] = tb
		case OP_SETLIST:
			n := int(inst & 0x1ff)
			if n == 0 {
				n = L.top - base - A - 1
				L.top = end
			}
			block := int(inst >> 9 & 0x1ff)
			if block == 0 {
				block = int(code[cf.pc] & 0x3ffff)
				cf.pc++
			}
			L.setList(R[A].(*LTable), (block-1)*fieldsPerFlush, L.reg[base+A+1:base+A+1+n])
		case OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_MOD, OP_POW:
			x, y := L.operand(proto, R, inst&0x1ff), L.operand(proto, R, inst>>9&0x1ff)
			if f, ok := x.(LNumber); ok {
				if g, ok := y.(LNumber); ok {
					var r LNumber
					switch inst >> 26 {
					case OP_ADD:
						r = f + g
					case OP_SUB:
						r = f - g
					case OP_MUL:
						r = LNumber(f * g)
					case OP_DIV:
						r = f / g
					default:
						b.Instructions -= powerUnits
						r = LNumber(L.arithmetic(int(inst>>26), float64(f), float64(g)))
					}
					R[A] = number(r)
					continue
				}
			}
			v := L.arith(int(inst>>26), x, y)
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			R[A] = v
		case OP_UNM:
			x := R[inst&0x1ff]
			if f, ok := x.(LNumber); ok {
				R[A] = signed(-f)
				continue
			}
			v := L.negative(x)
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			R[A] = v
		case OP_NOT:
			if LVAsBool(R[inst&0x1ff]) {
				R[A] = LFalse
			} else {
				R[A] = LTrue
			}
		case OP_LEN:
			switch v := R[inst&0x1ff].(type) {
			case LString:
				R[A] = number(LNumber(len(v)))
			case *LTable:
				R[A] = number(LNumber(L.Length(v)))
			default:
				L.RaiseError("attempt to get length of a " + v.Type().String() + " value")
			}
		case OP_CONCAT:
			v := L.concat(base+int(inst&0x1ff), base+int(inst>>9&0x1ff))
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			R[A] = v
		case OP_JMP:
			cf.pc += int32(inst&0x3ffff) - opMaxArgSbx
		case OP_EQ:
			x, y := L.operand(proto, R, inst&0x1ff), L.operand(proto, R, inst>>9&0x1ff)
			same := L.equal(x, y)
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			if same != (A != 0) {
				cf.pc++
			}
		case OP_LT, OP_LE:
			x, y := L.operand(proto, R, inst&0x1ff), L.operand(proto, R, inst>>9&0x1ff)
			var less bool
			f, ok := x.(LNumber)
			g, ok2 := y.(LNumber)
			switch {
			case !ok || !ok2:
				less = L.compare(x, y, inst>>26 == OP_LE)
				cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			case inst>>26 == OP_LT:
				less = f < g
			default:
				less = f <= g
			}
			if less != (A != 0) {
				cf.pc++
			}
		case OP_TEST:
			if LVAsBool(R[A]) == (inst>>9&0x1ff == 0) {
				cf.pc++
			}
		case OP_TESTSET:
			if v := R[inst&0x1ff]; LVAsBool(v) != (inst>>9&0x1ff == 0) {
				R[A] = v
			} else {
				cf.pc++
			}
		case OP_CALL:
			at := base + A
			if n := int(inst & 0x1ff); n != 0 {
				L.top = at + n
			} else {
				b.Instructions -= int64(L.top-at) / slotsCleared
			}
			results := int(inst>>9&0x1ff) - 1
			switch L.precall(at, L.top-at-1, results, at) {
			case callLua:
				goto frame
			case callYield:
				return true
			}
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			if results >= 0 {
				L.top = end
			}
		case OP_RETURN:
			if n := len(L.open); n > 0 && int(L.open[n-1].index) >= base {
				L.closeUpvalues(base)
			}
			n := int(inst&0x1ff) - 1
			if n < 0 {
				n = L.top - base - A
				b.Instructions -= int64(n) / slotsCleared
			}
			fresh := cf.fresh
			results := cf.nret
			L.finish(cf, base+A, n)
			if fresh || L.depth == 0 {
				return false
			}
			if results != MultRet {
				caller := &L.frames[L.depth-1]
				L.top = int(caller.localBase) + int(caller.fn.Proto.NumUsedRegisters)
			}
			goto frame
		case OP_FORPREP:
			L.prepareLoop(R[A : A+3])
			cf.pc += int32(inst&0x3ffff) - opMaxArgSbx
		case OP_FORLOOP:
			index, limit, step := R[A].(LNumber), R[A+1].(LNumber), R[A+2].(LNumber)
			index += step
			if step > 0 && index <= limit || step <= 0 && index >= limit {
				v := number(index)
				R[A], R[A+3] = v, v
				cf.pc += int32(inst&0x3ffff) - opMaxArgSbx
			}
		case OP_TFORLOOP:
			at := base + A + 3
			L.reserve(at + 3)
			copy(L.reg[at:at+3], L.reg[base+A:at])
			L.top = at + 3
			results := int(inst >> 9 & 0x1ff)
			L.Call(2, results)
			L.top = end
			cf, R = &L.frames[L.depth-1], L.reg[base:end:end]
			if v := L.reg[at]; v != LNil {
				R[A+2] = v
				cf.pc += int32(code[cf.pc]&0x3ffff) - opMaxArgSbx
			}
			cf.pc++
		case OP_CLOSE:
			L.closeUpvalues(base + A)
		case OP_CLOSURE:
			p := proto.FunctionPrototypes[inst&0x3ffff]
			n := int64(p.NumUpvalues)
			b.Instructions -= 2 + n/4
			b.ChargeBytes(L, closureBytes+8*n)
			f := newClosure(p, cf.fn.Env)
			for i := range f.Upvalues {
				inst := code[cf.pc]
				cf.pc++
				if inst>>26 == OP_MOVE {
					f.Upvalues[i] = L.findUpvalue(base + int(inst&0x1ff))
				} else {
					f.Upvalues[i] = cf.fn.Upvalues[inst&0x1ff]
				}
			}
			R[A] = f
		case OP_VARARG:
			from := int(cf.base) + 1 + int(proto.NumParameters)
			have := max(0, base-from)
			n := int(inst&0x1ff) - 1
			if n < 0 {
				n = have
				L.top = base + A + n
				b.Charge(L, int64(n)/slotsCleared)
			}
			L.ChargeSlots(n)
			L.reserve(base + A + n)
			R = L.reg[base:end:end]
			for i := range n {
				if i < have {
					L.reg[base+A+i] = L.reg[from+i]
				} else {
					L.reg[base+A+i] = LNil
				}
			}
		case OP_NOP:
		default:
			panic("lua: unknown instruction")
		}
	}
}

// operand returns a register or a constant.
func (L *LState) operand(p *FunctionProto, r []LValue, o uint32) LValue {
	if o&opBitRk != 0 {
		return p.Constants[o&^opBitRk]
	}
	return r[o]
}

// precall begins a call of the value in a register with the nargs values after it, which are the
// last on the stack. Results go to the registers from ret on.
func (L *LState) precall(at, nargs, nret, ret int) int {
	fn, ok := L.reg[at].(*LFunction)
	if !ok {
		v := L.reg[at]
		if fn, ok = L.GetMetaField(v, "__call").(*LFunction); !ok {
			L.raiseNotCallable(v)
		}
		L.Push(LNil)
		copy(L.reg[at+1:L.top], L.reg[at:L.top-1])
		L.reg[at] = fn
		nargs++
	}
	if L.depth == len(L.frames) {
		L.growFrames()
	}
	cf := &L.frames[L.depth]
	L.depth++
	*cf = callFrame{fn: fn, base: int32(at), localBase: int32(at + 1), returnBase: int32(ret),
		nargs: int32(nargs), nret: int32(nret)}
	if !fn.IsG {
		L.enter(cf, at, nargs)
		return callLua
	}
	L.ChargeSlots(4 * nargs)
	n := fn.GFunction(L)
	if n == yielding {
		return callYield
	}
	L.G.Budget.Instructions -= goCall + int64(n)/slotsCleared
	L.finish(&L.frames[L.depth-1], L.top-n, n)
	return callDone
}

// goCall is the cost of calling a Go function besides the instruction.
const goCall = 1

// yielding is what a Go function returns to suspend its thread.
const yielding = -1

func (L *LState) growFrames() {
	if L.depth >= L.maxFrames {
		L.RaiseError("stack overflow")
	}
	size := min(2*len(L.frames), L.maxFrames)
	L.G.Budget.ChargeBytes(L, int64(size-len(L.frames))*frameBytes)
	grown := make([]callFrame, size)
	copy(grown, L.frames)
	L.frames = grown
}

// enter prepares the registers of a Lua function.
func (L *LState) enter(cf *callFrame, at, nargs int) {
	proto := cf.fn.Proto
	params, used := int(proto.NumParameters), int(proto.NumUsedRegisters)
	base := at + 1
	if proto.IsVarArg&varArgIsVarArg == 0 {
		L.reserve(base + used)
		r := L.reg[base : base+used]
		for i := min(nargs, params); i < used; i++ {
			r[i] = LNil
		}
		L.G.Budget.Instructions -= int64(used) / slotsSet
		L.ChargeSlots(used)
		L.top = base + used
		return
	}
	L.reserve(base + max(nargs, params) + used)
	L.G.Budget.Instructions -= int64(used) / slotsSet
	L.ChargeSlots(max(nargs, params) + 2*used)
	for ; nargs < params; nargs++ {
		L.reg[base+nargs] = LNil
	}
	local := base + nargs
	for i := range used {
		L.reg[local+i] = LNil
	}
	for i := range params {
		L.reg[local+i], L.reg[base+i] = L.reg[base+i], LNil
	}
	cf.localBase = int32(local)
	L.top = local + used
	if proto.IsVarArg&varArgNeedsArg != 0 {
		values := L.reg[base+params : local]
		t := L.NewTable(len(values), 1)
		L.setList(t, 0, values)
		t.RawSetString("n", number(LNumber(len(values))))
		L.reg[local+params] = t
	}
}

// finish ends the call on top. Its results are the n registers from first on.
func (L *LState) finish(cf *callFrame, first, n int) {
	ret, want := int(cf.returnBase), int(cf.nret)
	L.depth--
	if want == MultRet {
		want = n
	}
	L.reserve(ret + want)
	L.ChargeSlots(want)
	copied := min(n, want)
	copy(L.reg[ret:ret+copied], L.reg[first:first+copied])
	for i := copied; i < want; i++ {
		L.reg[ret+i] = LNil
	}
	L.top = ret + want
}

// setList stores values of a constructor after the first offset ones.
func (L *LState) setList(tb *LTable, offset int, values []LValue) {
	need := offset + len(values)
	bytes := int64(0)
	if need > cap(tb.array) {
		bytes = int64(need-cap(tb.array)) * slotBytes
	}
	for _, v := range values {
		bytes += valueBytes(v)
	}
	b := &L.G.Budget
	b.Instructions -= int64(len(values)) / (slotsCleared / 2)
	b.ChargeBytes(L, bytes)
	if need > cap(tb.array) {
		tb.reserve(need)
	}
	if need > int(tb.size) {
		L.resizeArray(tb, need)
	}
	for i, v := range values {
		tb.setArray(offset+i+1, v)
	}
}

// resizeArray gives a table's array the size that a constructor needs.
func (L *LState) resizeArray(tb *LTable, size int) {
	if tb.shape == nil && len(tb.entries) == 0 {
		tb.size = int32(size)
		return
	}
	n := int64(len(tb.entries))
	L.G.Budget.ChargeBytes(L, 64+16*n)
	L.G.Budget.Charge(L, tb.indexing())
	tb.needsShape()
	tb.resize(size, len(tb.shape.nodes))
}

// prepareLoop converts the initial values of a loop to numbers and takes one step back.
func (L *LState) prepareLoop(r []LValue) {
	for i, name := range [...]string{"initial value", "limit", "step"} {
		f, ok := L.ToNumber(r[i])
		if !ok {
			L.RaiseError("'for' " + name + " must be a number")
		}
		if _, is := r[i].(LNumber); !is {
			r[i] = number(LNumber(f))
		}
	}
	r[0] = number(r[0].(LNumber) - r[2].(LNumber))
}

// ToNumber returns a number, or a numeric string as one, and charges for reading that.
func (L *LState) ToNumber(v LValue) (f float64, ok bool) {
	switch v := v.(type) {
	case LNumber:
		return float64(v), true
	case LString:
		L.ChargeNumeral(string(v))
		return ParseNumber(string(v))
	}
	return 0, false
}

// ChargeNumeral charges for reading a string as a number. Go reads some numbers digit by digit:
// long ones, and those with a large exponent.
func (L *LState) ChargeNumeral(s string) {
	units := numeralUnits + int64(len(s))/4
	if len(s) > 20 {
		units += 2 * int64(len(s))
	}
	i := len(s) - 1
	for i >= 0 && s[i]|0x20 != 'e' && s[i]|0x20 != 'p' {
		i--
	}
	if i >= 0 {
		units += 3 * largestExponent(s[i:])
		if L.G.Strict { // what follows the number may have the mark of an exponent
			units += 3 * largestExponent(s[:i])
		}
	}
	L.G.Budget.Charge(L, units)
}

// largestExponent returns the largest number after the mark of an exponent, at most 400.
func largestExponent(s string) (largest int64) {
	exponent := int64(-1) // none begins
	for _, c := range []byte(s) {
		switch {
		case c|0x20 == 'e' || c|0x20 == 'p':
			exponent = 0
		case isNumeral(c) && exponent >= 0 && exponent < 400:
			exponent = 10*exponent + int64(c-'0')
			largest = max(largest, exponent)
		}
	}
	return min(largest, 400)
}

// The cost of reading or writing a number, and of a power or a remainder.
const (
	numeralUnits = 6
	powerUnits   = 4
)

var arithEvents = map[int]string{OP_ADD: "__add", OP_SUB: "__sub", OP_MUL: "__mul", OP_DIV: "__div",
	OP_MOD: "__mod", OP_POW: "__pow"}

// arithmetic is an operator other than ^.
func arithmetic(op int, a, b float64) float64 {
	switch op {
	case OP_ADD:
		return a + b
	case OP_SUB:
		return a - b
	case OP_MUL:
		return float64(a * b)
	case OP_DIV:
		return a / b
	}
	return Modulo(a, b)
}

// arith is an operator with an operand that is not a number: it tries numeric strings, then
// metamethods.
func (L *LState) arith(op int, x, y LValue) LValue {
	f, ok := L.ToNumber(x)
	if ok {
		var g float64
		if g, ok = L.ToNumber(y); ok {
			return signed(LNumber(L.arithmetic(op, f, g)))
		}
	}
	meta := L.GetMetaField(x, arithEvents[op])
	if meta == LNil {
		meta = L.GetMetaField(y, arithEvents[op])
	}
	if meta.Type() == LTFunction {
		return L.callMeta(meta, x, y)
	}
	if _, number := L.ToNumber(x); number {
		x = y
	}
	L.RaiseError("attempt to perform arithmetic on a " + x.Type().String() + " value")
	return nil
}

func (L *LState) negative(x LValue) LValue {
	if f, ok := L.ToNumber(x); ok {
		return signed(LNumber(-f))
	}
	if meta := L.GetMetaField(x, "__unm"); meta.Type() == LTFunction {
		return L.callMeta(meta, x, x)
	}
	L.RaiseError("attempt to perform arithmetic on a " + x.Type().String() + " value")
	return nil
}
