package lua

import (
	"fmt"

	"github.com/coordd/coordd/fsm/script/lua/ast"
	"github.com/coordd/coordd/fsm/script/lua/parse"
)

// The bounds of a function, and of nested statements and expressions: the compiler recurses over
// those.
const (
	maxRegisters = 200
	maxUpvalues  = 255
	maxDepth     = 1000
	// maxConcat is how many operands of `..` one chain may have: as many as in C Lua. Each needs a
	// register.
	maxConcat = 200
)

// CompileError is the reason why a source does not compile.
type CompileError struct {
	Source  string
	Line    int
	Message string
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.Source, e.Line, e.Message)
}

func raiseCompileError(context *funcContext, line int, format string, args ...any) {
	panic(&CompileError{Source: context.proto.SourceName, Line: line,
		Message: fmt.Sprintf(format, args...)})
}

// Limits bounds what Compile reads, and says where the result runs.
type Limits struct {
	Tokens int // 0: any number
	// Released makes a chunk that also runs as at feature level 1, in a state that does not round
	// powers, and counts tokens as there. Otherwise each variable of outer functions that a
	// function uses, itself or for functions within it, counts as a token: nested functions may use
	// many more than the source names.
	Released bool
}

// links counts the variables of outer functions that functions use.
type links struct{ count, most int }

// Compile compiles a source within limits. Errors call it name, and are *parse.Error and
// *CompileError. Compile also returns the number of tokens: time and memory are linear in that and
// in the length of the source.
func Compile(source, name string,
	limits Limits) (proto *FunctionProto, tokens int, err error) {
	f := &folding{rounded: true}
	proto, tokens, err = compileWith(source, name, limits, f)
	if err == nil && limits.Released && f.differs {
		proto.released, _, err = compileWith(source, name, limits, &folding{})
	}
	return proto, tokens, err
}

func compileWith(source, name string, limits Limits,
	fold *folding) (proto *FunctionProto, tokens int, err error) {
	chunk, tokens, err := parse.Parse(source, name, limits.Tokens)
	if err != nil {
		return nil, tokens, err
	}
	defer func() {
		if caught := recover(); caught != nil {
			e, ok := caught.(*CompileError)
			if !ok {
				panic(caught)
			}
			proto, err = nil, e
		}
	}()
	f := &ast.FunctionExpr{ParList: &ast.ParList{HasVargs: true}, Stmts: chunk}
	if len(chunk) > 0 {
		f.SetLastLine(eline(chunk[len(chunk)-1]) + 1)
	}
	linked := &links{}
	if !limits.Released {
		if limits.Tokens > 0 {
			linked.most = limits.Tokens - tokens + 1
		}
		defer func() { tokens += linked.count }()
	}
	context := newFuncContext(name, nil)
	context.fold, context.links = fold, linked
	compileFunctionExpr(context, f, ecnone(0))
	return context.proto, tokens, nil
}

// The destinations of a value.
type expContextType int

const (
	ecGlobal expContextType = iota
	ecUpvalue
	ecLocal
	ecTable
	ecVararg
	ecMethod
	ecNone
)

const (
	regNotDefined = opMaxArgsA + 1
	labelNoJump   = 0
)

type expcontext struct {
	ctype expContextType
	reg   int
	// varargopt >= 0: wants varargopt+1 results, i.e  a = func()
	// varargopt = -1: ignore results             i.e  func()
	// varargopt = -2: receive all results        i.e  a = {func()}
	varargopt int
}

type lblabels struct {
	t int
	f int
	e int
	b bool
}

var ecfuncdef = &expcontext{ecMethod, regNotDefined, 0}

func ecupdate(ec *expcontext, ctype expContextType, reg, varargopt int) {
	ec.ctype = ctype
	ec.reg = reg
	ec.varargopt = varargopt
}

func ecnone(varargopt int) *expcontext { return &expcontext{ecNone, regNotDefined, varargopt} }

func shouldmove(ec *expcontext, reg int) bool {
	return ec.ctype == ecLocal && ec.reg != regNotDefined && ec.reg != reg
}

func sline(pos ast.PositionHolder) int { return pos.Line() }

func eline(pos ast.PositionHolder) int {
	line := pos.LastLine()
	if line == 0 {
		return pos.Line()
	}
	return line
}

func savereg(ec *expcontext, reg int) int {
	if ec.ctype != ecLocal || ec.reg == regNotDefined {
		return reg
	}
	return ec.reg
}

func isVarArgReturnExpr(expr ast.Expr) bool {
	switch ex := expr.(type) {
	case *ast.FuncCallExpr:
		return !ex.AdjustRet
	case *ast.Comma3Expr:
		return !ex.AdjustRet
	}
	return false
}

// codeStore is the code of a function under construction. A jump holds a label in place of its
// distance.
type codeStore struct {
	codes  []uint32
	lines  []int32
	labels []int32
}

func (cd *codeStore) Add(inst uint32, line int) {
	cd.codes = append(cd.codes, inst)
	cd.lines = append(cd.lines, int32(line))
	cd.labels = append(cd.labels, -1)
}

func (cd *codeStore) AddABC(op int, a int, b int, c int, line int) {
	cd.Add(opCreateABC(op, a, b, c), line)
}

func (cd *codeStore) AddABx(op int, a int, bx int, line int) {
	cd.Add(opCreateABx(op, a, bx), line)
}

// AddJump adds a jump to a label.
func (cd *codeStore) AddJump(label int, line int) {
	cd.Add(opCreateABx(OP_JMP, 0, 0), line)
	cd.labels[len(cd.labels)-1] = int32(label)
}

func (cd *codeStore) PropagateKMV(top int, save *int, reg *int, inc int) {
	lastinst := cd.Last()
	if opGetArgA(lastinst) >= top {
		switch opGetOpCode(lastinst) {
		case OP_LOADK:
			cindex := opGetArgBx(lastinst)
			if cindex <= opMaxIndexRk {
				cd.Pop()
				*save = opRkAsk(cindex)
				return
			}
		case OP_MOVE:
			cd.Pop()
			*save = opGetArgB(lastinst)
			return
		}
	}
	*save = *reg
	*reg += inc
}

func (cd *codeStore) PropagateMV(top int, save *int, reg *int, inc int) {
	lastinst := cd.Last()
	if opGetArgA(lastinst) >= top && opGetOpCode(lastinst) == OP_MOVE {
		cd.Pop()
		*save = opGetArgB(lastinst)
		return
	}
	*save = *reg
	*reg += inc
}

func (cd *codeStore) SetA(pc int, v int)  { opSetArgA(&cd.codes[pc], v) }
func (cd *codeStore) SetB(pc int, v int)  { opSetArgB(&cd.codes[pc], v) }
func (cd *codeStore) SetC(pc int, v int)  { opSetArgC(&cd.codes[pc], v) }
func (cd *codeStore) LastPC() int         { return len(cd.codes) - 1 }
func (cd *codeStore) SetOp(pc int, v int) { opSetOpCode(&cd.codes[pc], v) }

func (cd *codeStore) Last() uint32 {
	if len(cd.codes) == 0 {
		return opInvalidInstruction
	}
	return cd.codes[len(cd.codes)-1]
}

func (cd *codeStore) Pop() {
	n := len(cd.codes) - 1
	cd.codes, cd.lines, cd.labels = cd.codes[:n], cd.lines[:n], cd.labels[:n]
}

// jumpsTo reports whether the last instruction is a jump to a label.
func (cd *codeStore) jumpsTo(label int) bool {
	n := len(cd.codes) - 1
	return n >= 0 && cd.labels[n] == int32(label)
}

// variable is a local variable in scope: a register of a function.
type variable struct {
	owner *funcContext
	block *codeBlock
	reg   int
}

// scopes are the variables in scope by name, the innermost last. Lookup does not walk over the
// functions and blocks in between.
type scopes map[string][]variable

type codeBlock struct {
	names      []string
	offset     int // the first register
	breakLabel int
	parent     *codeBlock
	refUpvalue bool
	lastLine   int
}

// lastIndex returns the register after the block's variables.
func (b *codeBlock) lastIndex() int { return b.offset + len(b.names) }

// funcContext is a function that is being compiled.
type funcContext struct {
	proto    *FunctionProto
	code     codeStore
	parent   *funcContext
	upvalues []string
	upvalue  map[string]int
	block    *codeBlock
	regTop   int
	labelPc  []int32
	constant map[LValue]int
	visible  scopes // those of enclosing functions, too
	links    *links // the same
	depth    int    // how deep the syntax is nested, enclosing functions included
	fold     *folding
}

func newFuncContext(source string, parent *funcContext) *funcContext {
	fc := &funcContext{
		proto: &FunctionProto{SourceName: source}, parent: parent, block: &codeBlock{},
		labelPc: make([]int32, 1, 16),
	}
	if parent != nil {
		fc.visible, fc.links, fc.depth = parent.visible, parent.links, parent.depth
		fc.fold = parent.fold
	} else {
		fc.visible = scopes{}
	}
	return fc
}

// enter counts one level of nesting.
func (fc *funcContext) enter(at ast.PositionHolder) {
	if fc.depth++; fc.depth > maxDepth {
		raiseCompileError(fc, at.Line(), "chunk has too many syntax levels")
	}
}

func (fc *funcContext) leave() { fc.depth-- }

func (fc *funcContext) NewLabel() int {
	fc.labelPc = append(fc.labelPc, 0)
	return len(fc.labelPc) - 1
}

func (fc *funcContext) SetLabelPc(label int, pc int) { fc.labelPc[label] = int32(pc) }

// ConstIndex returns the index of a constant.
func (fc *funcContext) ConstIndex(value LValue) int {
	if i, ok := fc.constant[value]; ok {
		return i
	}
	i := len(fc.proto.Constants)
	if i > opMaxArgBx {
		raiseCompileError(fc, fc.proto.LineDefined, "too many constants")
	}
	fc.proto.Constants = append(fc.proto.Constants, value)
	if fc.constant == nil {
		fc.constant = map[LValue]int{}
	}
	fc.constant[value] = i
	return i
}

// RegisterLocalVar brings a variable into scope, in the next register.
func (fc *funcContext) RegisterLocalVar(name string) int {
	reg := fc.block.lastIndex()
	fc.block.names = append(fc.block.names, name)
	fc.visible[name] = append(fc.visible[name], variable{fc, fc.block, reg})
	fc.SetRegTop(fc.regTop + 1)
	return reg
}

// find returns the variable that a name means; ok is false for a global.
func (fc *funcContext) find(name string) (v variable, ok bool) {
	list := fc.visible[name]
	if len(list) == 0 {
		return variable{}, false
	}
	return list[len(list)-1], true
}

func (fc *funcContext) FindLocalVar(name string) int {
	if v, ok := fc.find(name); ok && v.owner == fc {
		return v.reg
	}
	return -1
}

// UpvalueIndex returns the index of an upvalue.
func (fc *funcContext) UpvalueIndex(name string, line int) int {
	if i, ok := fc.upvalue[name]; ok {
		return i
	}
	i := len(fc.upvalues)
	if i >= maxUpvalues {
		raiseCompileError(fc, line, "function at line %d has more than %d upvalues",
			fc.proto.LineDefined, maxUpvalues)
	}
	if fc.links.count++; fc.links.count == fc.links.most {
		raiseCompileError(fc, line, parse.TooLong)
	}
	if fc.upvalue == nil {
		fc.upvalue = map[string]int{}
	}
	fc.upvalues = append(fc.upvalues, name)
	fc.upvalue[name] = i
	return i
}

func (fc *funcContext) EnterBlock(blabel int, pos ast.PositionHolder) {
	fc.block = &codeBlock{offset: fc.regTop, breakLabel: blabel, parent: fc.block}
	if pos != nil {
		fc.block.lastLine = pos.LastLine()
	}
}

func (fc *funcContext) CloseUpvalues() int {
	n := -1
	if fc.block.refUpvalue {
		n = fc.block.parent.lastIndex()
		fc.code.AddABC(OP_CLOSE, n, 0, 0, fc.block.lastLine)
	}
	return n
}

func (fc *funcContext) LeaveBlock() int {
	closed := fc.CloseUpvalues()
	fc.EndScope()
	fc.block = fc.block.parent
	fc.SetRegTop(fc.block.lastIndex())
	return closed
}

// EndScope ends the scope of the block's variables.
func (fc *funcContext) EndScope() {
	for _, name := range fc.block.names {
		list := fc.visible[name]
		if len(list) == 1 {
			delete(fc.visible, name)
			continue
		}
		fc.visible[name] = list[:len(list)-1]
	}
}

func (fc *funcContext) SetRegTop(top int) {
	if top > maxRegisters {
		raiseCompileError(fc, fc.proto.LineDefined, "too many local variables")
	}
	fc.regTop = top
}

func (fc *funcContext) RegTop() int { return fc.regTop }

func getIdentRefType(context *funcContext, expr *ast.IdentExpr) expContextType {
	v, ok := context.find(expr.Value)
	switch {
	case !ok:
		return ecGlobal
	case v.owner == context:
		return ecLocal
	}
	return ecUpvalue
}

// patchCode sets the distances of jumps, finds how many registers the function needs, and joins
// moves.
func patchCode(context *funcContext) {
	code := context.code.codes
	target := jumpTargets(context)
	maxreg := max(1, int(context.proto.NumParameters))
	if context.proto.IsVarArg&varArgHasArg != 0 {
		maxreg = max(maxreg, int(context.proto.NumParameters)+1)
	}
	moven := 0
	for pc := 0; pc < len(code); pc++ {
		inst := code[pc]
		curop := opGetOpCode(inst)
		reg := 0
		switch curop {
		case OP_CLOSURE:
			reg = opGetArgA(inst)
		case OP_SETGLOBAL, OP_SETUPVAL, OP_EQ, OP_LT, OP_LE, OP_TEST, OP_RETURN, OP_SETLIST,
			OP_CLOSE:
		case OP_FORPREP, OP_FORLOOP:
			reg = opGetArgA(inst) + 3
		case OP_TFORLOOP:
			reg = opGetArgA(inst) + 2 + max(3, opGetArgC(inst))
		case OP_CALL:
			reg = max(opGetArgA(inst)+opGetArgC(inst)-2, opGetArgA(inst)+opGetArgB(inst)-1)
		case OP_VARARG:
			reg = opGetArgA(inst) + opGetArgB(inst) - 1
		case OP_SELF:
			reg = opGetArgA(inst) + 1
		case OP_LOADNIL:
			reg = opGetArgB(inst)
		case OP_JMP:
			setJump(context, target, pc)
		default:
			reg = opGetArgA(inst)
		}
		maxreg = max(maxreg, reg)
		if curop == OP_MOVE {
			moven++
		} else {
			joinMoves(&context.code, pc, moven)
			moven = 0
		}
		switch {
		case curop == OP_CLOSURE: // the instructions after it name the upvalues
			pc += int(context.proto.FunctionPrototypes[opGetArgBx(inst)].NumUpvalues)
		case curop == OP_SETLIST && opGetArgC(inst) == 0: // the next word is a number
			pc++
		}
	}
	maxreg++
	if maxreg > maxRegisters {
		raiseCompileError(context, context.proto.LineDefined,
			"register overflow(too many local variables)")
	}
	context.proto.NumUsedRegisters = uint8(maxreg)
}

// joinMoves makes one instruction of the moves that end before pc.
func joinMoves(code *codeStore, pc, moves int) {
	if moves > 1 {
		code.SetOp(pc-moves, OP_MOVEN)
		code.SetC(pc-moves, min(moves-1, opMaxArgsC))
	}
}

// jumpTargets returns where jumps lead, by the position of the jump; 0 for other instructions.
func jumpTargets(context *funcContext) []int32 {
	targets := make([]int32, len(context.code.codes))
	for pc, label := range context.code.labels {
		if label >= 0 {
			targets[pc] = context.labelPc[label] + 1
		}
	}
	return targets
}

// setJump sets the distance of a jump. A jump to another jump leads to the target of that.
func setJump(context *funcContext, targets []int32, pc int) {
	labels := context.code.labels
	if labels[pc] < 0 {
		return // a loop's own jump
	}
	to := int(targets[pc])
	for range 5 {
		if to >= len(labels) || labels[to] < 0 {
			break
		}
		to = int(targets[to])
	}
	distance := to - pc - 1
	if distance == 0 {
		context.code.SetOp(pc, OP_NOP)
	}
	setDistance(context, pc, distance) // also if 0: OP_TFORLOOP reads the one that follows it
}

func setDistance(context *funcContext, pc, distance int) {
	if distance > opMaxArgSbx || distance < -opMaxArgSbx {
		raiseCompileError(context, context.proto.LineDefined, "control structure too long")
	}
	opSetArgSbx(&context.code.codes[pc], distance)
}
