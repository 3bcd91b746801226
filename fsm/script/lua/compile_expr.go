package lua

import (
	"math"
	"slices"

	"github.com/coordd/coordd/fsm/script/lua/ast"
	"github.com/coordd/coordd/internal/libm"
)

// compileExpr evaluates an expression into the register reg, or into the variable that ec names,
// and returns how many registers it used, from reg.
func compileExpr(context *funcContext, reg int, expr ast.Expr, ec *expcontext) int {
	context.enter(expr)
	n := compileExprHere(context, reg, expr, ec)
	context.leave()
	return n
}

func compileExprHere(context *funcContext, reg int, expr ast.Expr, ec *expcontext) int {
	code := &context.code
	sreg := savereg(ec, reg)
	sused := 1
	if sreg < reg {
		sused = 0
	}

	switch ex := expr.(type) {
	case *ast.StringExpr:
		code.AddABx(OP_LOADK, sreg, context.ConstIndex(LString(ex.Value)), sline(ex))
		return sused
	case *ast.NumberExpr:
		code.AddABx(OP_LOADK, sreg, context.ConstIndex(numeral(context, ex)), sline(ex))
		return sused
	case *ast.NilExpr:
		code.AddABC(OP_LOADNIL, sreg, sreg, 0, sline(ex))
		return sused
	case *ast.FalseExpr:
		code.AddABC(OP_LOADBOOL, sreg, 0, 0, sline(ex))
		return sused
	case *ast.TrueExpr:
		code.AddABC(OP_LOADBOOL, sreg, 1, 0, sline(ex))
		return sused
	case *ast.IdentExpr:
		switch getIdentRefType(context, ex) {
		case ecGlobal:
			code.AddABx(OP_GETGLOBAL, sreg, context.ConstIndex(LString(ex.Value)), sline(ex))
		case ecUpvalue:
			code.AddABC(OP_GETUPVAL, sreg, context.UpvalueIndex(ex.Value, sline(ex)), 0, sline(ex))
		case ecLocal:
			b := context.FindLocalVar(ex.Value)
			code.AddABC(OP_MOVE, sreg, b, 0, sline(ex))
		}
		return sused
	case *ast.Comma3Expr:
		if context.proto.IsVarArg == 0 {
			raiseCompileError(context, sline(ex),
				"cannot use '...' outside a vararg function near '...'")
		}
		context.proto.IsVarArg &^= varArgNeedsArg
		code.AddABC(OP_VARARG, sreg, 2+ec.varargopt, 0, sline(ex))
		if context.RegTop() > (sreg+2+ec.varargopt) || ec.varargopt < -1 {
			return 0
		}
		return (sreg + 1 + ec.varargopt) - reg
	case *ast.AttrGetExpr:
		a := sreg
		b := reg
		compileExprWithMVPropagation(context, ex.Object, &reg, &b)
		c := reg
		compileExprWithKMVPropagation(context, ex.Key, &reg, &c)
		opcode := OP_GETTABLE
		if _, ok := ex.Key.(*ast.StringExpr); ok {
			opcode = OP_GETTABLEKS
		}
		code.AddABC(opcode, a, b, c, sline(ex))
		return sused
	case *ast.TableExpr:
		compileTableExpr(context, reg, ex, ec)
		return 1
	case *ast.ArithmeticOpExpr:
		compileArithmeticOpExpr(context, reg, ex, ec)
		return sused
	case *ast.StringConcatOpExpr:
		compileStringConcatOpExpr(context, reg, ex, ec)
		return sused
	case *ast.UnaryMinusOpExpr, *ast.UnaryNotOpExpr, *ast.UnaryLenOpExpr:
		compileUnaryOpExpr(context, reg, ex, ec)
		return sused
	case *ast.RelationalOpExpr:
		compileRelationalOpExpr(context, reg, ex, ec)
		return sused
	case *ast.LogicalOpExpr:
		compileLogicalOpExpr(context, reg, ex, ec)
		return sused
	case *ast.FuncCallExpr:
		return compileFuncCallExpr(context, reg, ex, ec)
	case *ast.FunctionExpr:
		compileClosure(context, sreg, ex, ec)
		return sused
	}
	panic("lua: an unknown expression")
}

// numeral returns the value of a number in the source.
func numeral(context *funcContext, e *ast.NumberExpr) LNumber {
	f, ok := ParseNumber(e.Value)
	if !ok {
		raiseCompileError(context, sline(e), "malformed number near '%s'", e.Value)
	}
	return LNumber(f)
}

func compileClosure(context *funcContext, sreg int, ex *ast.FunctionExpr, ec *expcontext) {
	child := newFuncContext(context.proto.SourceName, context)
	compileFunctionExpr(child, ex, ec)
	index := len(context.proto.FunctionPrototypes)
	if index > opMaxArgBx {
		raiseCompileError(context, sline(ex), "too many functions")
	}
	context.proto.FunctionPrototypes = append(context.proto.FunctionPrototypes, child.proto)
	context.code.AddABx(OP_CLOSURE, sreg, index, sline(ex))
	for _, name := range child.upvalues {
		if v, ok := context.find(name); ok && v.owner == context {
			context.code.AddABC(OP_MOVE, 0, v.reg, 0, sline(ex))
			v.block.refUpvalue = true
		} else {
			context.code.AddABC(OP_GETUPVAL, 0, context.UpvalueIndex(name, sline(ex)), 0, sline(ex))
		}
	}
}

func compileExprWithPropagation(context *funcContext, expr ast.Expr, reg *int, save *int,
	propergator func(int, *int, *int, int)) {
	reginc := compileExpr(context, *reg, expr, ecnone(0))
	if _, ok := expr.(*ast.LogicalOpExpr); ok {
		*save = *reg
		*reg = *reg + reginc
	} else {
		propergator(context.RegTop(), save, reg, reginc)
	}
}

func compileExprWithKMVPropagation(context *funcContext, expr ast.Expr, reg *int, save *int) {
	compileExprWithPropagation(context, expr, reg, save, context.code.PropagateKMV)
}

func compileExprWithMVPropagation(context *funcContext, expr ast.Expr, reg *int, save *int) {
	compileExprWithPropagation(context, expr, reg, save, context.code.PropagateMV)
}

func compileFunctionExpr(context *funcContext, funcexpr *ast.FunctionExpr, ec *expcontext) {
	proto := context.proto
	proto.LineDefined = sline(funcexpr)
	names := funcexpr.ParList.Names
	if len(names) >= maxRegisters {
		raiseCompileError(context, proto.LineDefined, "register overflow")
	}
	proto.NumParameters = uint8(len(names))
	if ec.ctype == ecMethod {
		proto.NumParameters++
		context.RegisterLocalVar("self")
	}
	for _, name := range names {
		context.RegisterLocalVar(name)
	}
	if funcexpr.ParList.HasVargs {
		proto.IsVarArg = varArgIsVarArg
		if context.parent != nil {
			proto.IsVarArg |= varArgHasArg | varArgNeedsArg
			context.RegisterLocalVar("arg")
		}
	}
	compileChunk(context, funcexpr.Stmts)
	context.code.AddABC(OP_RETURN, 0, 1, 0, eline(funcexpr))
	context.EndScope()
	patchCode(context)
	proto.Code = slices.Clone(context.code.codes)
	proto.lines = slices.Clone(context.code.lines)
	proto.calls = slices.Clone(proto.calls)
	proto.Constants = slices.Clone(proto.Constants)
	proto.places = make([]place, len(proto.Constants))
	proto.FunctionPrototypes = slices.Clone(proto.FunctionPrototypes)
	proto.NumUpvalues = uint8(len(context.upvalues))
}

// compileArithmeticOpExpr compiles an operator. If both operands are constant it computes the
// value.
func compileArithmeticOpExpr(context *funcContext, reg int, expr *ast.ArithmeticOpExpr,
	ec *expcontext) {
	if n, ok := constant(context, expr); ok {
		context.code.AddABx(OP_LOADK, savereg(ec, reg), context.ConstIndex(n), sline(expr))
		return
	}
	a := savereg(ec, reg)
	b := reg
	compileExprWithKMVPropagation(context, expr.Lhs, &reg, &b)
	c := reg
	compileExprWithKMVPropagation(context, expr.Rhs, &reg, &c)
	context.code.AddABC(operators[expr.Operator], a, b, c, sline(expr))
}

var operators = map[string]int{"+": OP_ADD, "-": OP_SUB, "*": OP_MUL, "/": OP_DIV, "%": OP_MOD,
	"^": OP_POW}

// folding is how constant powers are computed.
type folding struct {
	rounded bool // as from feature level 3 on
	differs bool // one of them has another value below
}

// power returns a power, unless it is hard: then the script pays for it when it runs.
func (f *folding) power(a, b float64) (z float64, ok bool) {
	before := releasedPower(a, b)
	if !f.rounded {
		return before, true
	}
	z, ok = libm.QuickPow(a, b)
	same := math.Float64bits(z) == math.Float64bits(before) || z != z && before != before
	f.differs = f.differs || !ok || !same
	return z, ok
}

// constant returns the value of an expression that consists of numbers. Each expression is
// evaluated once: its node keeps the result.
func constant(context *funcContext, e ast.Expr) (n LNumber, ok bool) {
	switch e := e.(type) {
	case *ast.NumberExpr:
		return numeral(context, e), true
	case *ast.UnaryMinusOpExpr:
		if e.Folded.Known {
			return LNumber(e.Folded.Value), e.Folded.Constant
		}
		context.enter(e)
		n, ok = constant(context, e.Expr)
		context.leave()
		n = -n
		e.Folded = ast.Folded{Known: true, Constant: ok, Value: float64(n)}
	case *ast.ArithmeticOpExpr:
		if e.Folded.Known {
			return LNumber(e.Folded.Value), e.Folded.Constant
		}
		context.enter(e)
		x, okX := constant(context, e.Lhs)
		y, okY := constant(context, e.Rhs)
		context.leave()
		switch ok = okX && okY; {
		case !ok:
		case e.Operator == "^":
			var z float64
			z, ok = context.fold.power(float64(x), float64(y))
			n = LNumber(z)
		default:
			n = LNumber(arithmetic(operators[e.Operator], float64(x), float64(y)))
		}
		e.Folded = ast.Folded{Known: true, Constant: ok, Value: float64(n)}
	}
	return n, ok
}

// compileStringConcatOpExpr compiles a chain of `..`, which groups from the right, to one
// instruction.
func compileStringConcatOpExpr(context *funcContext, reg int, expr *ast.StringConcatOpExpr,
	ec *expcontext) {
	a := savereg(ec, reg)
	first, operands := reg, 1
	var last ast.Expr
	for e := expr; ; operands++ {
		if operands >= maxConcat {
			raiseCompileError(context, sline(expr), "chunk has too many syntax levels")
		}
		reg += compileExpr(context, reg, e.Lhs, ecnone(0))
		last = e.Rhs
		next, ok := e.Rhs.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		e = next
	}
	compileExpr(context, reg, last, ecnone(0))
	context.code.AddABC(OP_CONCAT, a, first, reg, sline(expr))
}

// compileTableExpr compiles a constructor. Values without a key are collected in registers and
// stored in blocks.
func compileTableExpr(context *funcContext, reg int, ex *ast.TableExpr, ec *expcontext) {
	code := &context.code
	tablereg := reg
	reg++
	code.AddABC(OP_NEWTABLE, tablereg, 0, 0, sline(ex))
	tablepc := code.LastPC()
	regbase := reg
	stored, pending := 0, 0
	flush := func(n, line int) {
		block := stored/fieldsPerFlush + 1
		if block > opMaxArgsC {
			code.AddABC(OP_SETLIST, tablereg, n, 0, line)
			// not as an instruction, which later code could remove
			code.Add(opCreateABx(OP_NOP, 0, 0)|uint32(block), line)
		} else {
			code.AddABC(OP_SETLIST, tablereg, n, block, line)
		}
		stored += pending
		pending, reg = 0, regbase
	}
	for i, field := range ex.Fields {
		switch {
		case field.Key != nil:
			compileField(context, tablereg, reg, field, sline(ex))
		case i == len(ex.Fields)-1 && isVarArgReturnExpr(field.Value):
			compileExpr(context, reg, field.Value, ecnone(-2))
			flush(0, sline(field.Value))
		default:
			reg += compileExpr(context, reg, field.Value, ecnone(0))
			if pending++; pending == fieldsPerFlush {
				flush(pending, sline(field.Value))
			}
		}
	}
	if pending > 0 {
		last := ex.Fields[len(ex.Fields)-1]
		at := last.Value
		if last.Key != nil {
			at = last.Key
		}
		flush(pending, sline(at))
	}
	code.SetB(tablepc, int2fb(stored))
	keyed := int2fb(len(ex.Fields) - stored)
	if n := len(ex.Fields); n > 0 && ex.Fields[n-1].Key == nil &&
		isVarArgReturnExpr(ex.Fields[n-1].Value) {
		keyed |= oneMore // the last one counted has no key
	}
	code.SetC(tablepc, keyed)
	if shouldmove(ec, tablereg) {
		code.AddABC(OP_MOVE, ec.reg, tablereg, 0, sline(ex))
	}
}

// oneMore marks the operand of OP_NEWTABLE that counts one key too many, as release 0.1 did.
const oneMore = 1 << 8

// compileField compiles a constructor's value that has a key.
func compileField(context *funcContext, tablereg, reg int, field *ast.Field, line int) {
	b := reg
	compileExprWithKMVPropagation(context, field.Key, &reg, &b)
	c := reg
	compileExprWithKMVPropagation(context, field.Value, &reg, &c)
	op := OP_SETTABLE
	if _, ok := field.Key.(*ast.StringExpr); ok {
		op = OP_SETTABLEKS
	}
	context.code.AddABC(op, tablereg, b, c, line)
}

func compileUnaryOpExpr(context *funcContext, reg int, expr ast.Expr, ec *expcontext) {
	opcode := 0
	code := &context.code
	var operandexpr ast.Expr
	switch ex := expr.(type) {
	case *ast.UnaryMinusOpExpr:
		if n, ok := constant(context, ex); ok {
			code.AddABx(OP_LOADK, savereg(ec, reg), context.ConstIndex(n), sline(expr))
			return
		}
		operandexpr = ex.Expr
		opcode = OP_UNM
	case *ast.UnaryNotOpExpr:
		switch ex.Expr.(type) {
		case *ast.TrueExpr:
			code.AddABC(OP_LOADBOOL, savereg(ec, reg), 0, 0, sline(expr))
			return
		case *ast.FalseExpr, *ast.NilExpr:
			code.AddABC(OP_LOADBOOL, savereg(ec, reg), 1, 0, sline(expr))
			return
		default:
			opcode = OP_NOT
			operandexpr = ex.Expr
		}
	case *ast.UnaryLenOpExpr:
		opcode = OP_LEN
		operandexpr = ex.Expr
	}

	a := savereg(ec, reg)
	b := reg
	compileExprWithMVPropagation(context, operandexpr, &reg, &b)
	code.AddABC(opcode, a, b, 0, sline(expr))
}

func compileRelationalOpExprAux(context *funcContext, reg int, expr *ast.RelationalOpExpr, flip int,
	label int) {
	code := &context.code
	b := reg
	compileExprWithKMVPropagation(context, expr.Lhs, &reg, &b)
	c := reg
	compileExprWithKMVPropagation(context, expr.Rhs, &reg, &c)
	switch expr.Operator {
	case "<":
		code.AddABC(OP_LT, 0^flip, b, c, sline(expr))
	case ">":
		code.AddABC(OP_LT, 0^flip, c, b, sline(expr))
	case "<=":
		code.AddABC(OP_LE, 0^flip, b, c, sline(expr))
	case ">=":
		code.AddABC(OP_LE, 0^flip, c, b, sline(expr))
	case "==":
		code.AddABC(OP_EQ, 0^flip, b, c, sline(expr))
	case "~=":
		code.AddABC(OP_EQ, 1^flip, b, c, sline(expr))
	}
	code.AddJump(label, sline(expr))
}

func compileRelationalOpExpr(context *funcContext, reg int, expr *ast.RelationalOpExpr,
	ec *expcontext) {
	a := savereg(ec, reg)
	code := &context.code
	jumplabel := context.NewLabel()
	compileRelationalOpExprAux(context, reg, expr, 1, jumplabel)
	code.AddABC(OP_LOADBOOL, a, 0, 1, sline(expr))
	context.SetLabelPc(jumplabel, code.LastPC())
	code.AddABC(OP_LOADBOOL, a, 1, 0, sline(expr))
}

func compileFuncCallExpr(context *funcContext, reg int, expr *ast.FuncCallExpr,
	ec *expcontext) int {
	funcreg := reg
	argc := len(expr.Args)
	islastvararg := false
	name, kind := "(anonymous)", calledMethod

	if expr.Func != nil { // hoge.func()
		reg += compileExpr(context, reg, expr.Func, ecnone(0))
		name, kind = getExprName(context, expr.Func)
	} else { // hoge:method()
		b := reg
		compileExprWithMVPropagation(context, expr.Receiver, &reg, &b)
		c := loadRk(context, &reg, expr, LString(expr.Method))
		context.code.AddABC(OP_SELF, funcreg, b, c, sline(expr))
		// increments a register for an implicit "self"
		reg = b + 1
		reg2 := funcreg + 2
		if reg2 > reg {
			reg = reg2
		}
		argc += 1
		name = string(expr.Method)
	}

	for i, ar := range expr.Args {
		islastvararg = (i == len(expr.Args)-1) && isVarArgReturnExpr(ar)
		if islastvararg {
			compileExpr(context, reg, ar, ecnone(-2))
		} else {
			reg += compileExpr(context, reg, ar, ecnone(0))
		}
	}
	b := argc + 1
	if islastvararg {
		b = 0
	}
	context.code.AddABC(OP_CALL, funcreg, b, ec.varargopt+2, sline(expr))
	context.proto.calls = append(context.proto.calls,
		DbgCall{Pc: int32(context.code.LastPC()), Name: name, Kind: kind})

	if ec.varargopt == 0 && shouldmove(ec, funcreg) {
		context.code.AddABC(OP_MOVE, ec.reg, funcreg, 0, sline(expr))
		return 1
	}
	if context.RegTop() > (funcreg+2+ec.varargopt) || ec.varargopt < -1 {
		return 0
	}
	return ec.varargopt + 1
}

func loadRk(context *funcContext, reg *int, expr ast.Expr, cnst LValue) int {
	cindex := context.ConstIndex(cnst)
	if cindex <= opMaxIndexRk {
		return opRkAsk(cindex)
	} else {
		ret := *reg
		*reg++
		context.code.AddABx(OP_LOADK, ret, cindex, sline(expr))
		return ret
	}
}

func getExprName(context *funcContext, expr ast.Expr) (string, callKind) {
	switch ex := expr.(type) {
	case *ast.IdentExpr:
		return ex.Value, [...]callKind{ecGlobal: calledGlobal, ecUpvalue: calledUpvalue,
			ecLocal: calledLocal}[getIdentRefType(context, ex)]
	case *ast.AttrGetExpr:
		if key, ok := ex.Key.(*ast.StringExpr); ok {
			return key.Value, calledField
		}
		return "?", calledField
	}
	return "?", calledValue
}
