// The changes to a script's syntax tree between parsing and compiling. gopher-lua has no hook where these are needed:
//   - where a is a local variable, `a, b = b, a` writes to a before it reads it, `a = f() and b` may leave a as it is, and `a = (f(a))` gives f
//     itself: the values get variables of their own first;
//   - `%` is exact where C Lua 5.1's is rounded: it becomes one call of a hidden function;
//   - a jump back to a jump, the first thing in a loop, goes astray: constants before `and`, `or` and behind `not` are folded, and conditions that are false do
//     not begin with a jump;
//   - the numbers of a loop may not be strings: a hidden function makes numbers of them;
//   - a call that is the last value of a constructor gives all its results to the array, though it has a key: it is cut to one;
//   - `..` writes numbers in Go's way, in the virtual machine itself: a chain becomes one call of a hidden function;
//   - `#` walks over an array's nils, and t[1e7] = 1 fills a gap with them, in one instruction: hidden functions count that;
//   - a global must not be assigned: that becomes an assignment to a field of a table that refuses it;
//   - `...` copies any number of values in one instruction: a hidden function counts them;
//   - tables take memory that no instruction counts: the hidden function round a constructor does.
//
// A hidden name begins with a zero byte, which no identifier has.

package fsm

import (
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// The hidden names.
const (
	hiddenConcat   = "\x00concat"
	hiddenLength   = "\x00length"
	hiddenKey      = "\x00key"
	hiddenTable    = "\x00table"
	hiddenReadonly = "\x00readonly"
	hiddenVararg   = "\x00vararg"
	hiddenModulo   = "\x00modulo"
	hiddenNumber   = "\x00number"
)

// hiddenNames are all of them.
var hiddenNames = [...]string{hiddenConcat, hiddenLength, hiddenKey, hiddenTable, hiddenReadonly, hiddenVararg, hiddenModulo, hiddenNumber}

// Bounds of a script's syntax tree. The compiler recurses over it, and searches a function's constants one by one.
const (
	maxTreeDepth     = 1000
	maxTreeConstants = 20_000
	// maxConcat is how many operands of `..` one chain may have: as many as C Lua takes, and each needs a register.
	maxConcat = 200
	// smallKey is a table key that cannot leave a gap worth counting.
	smallKey = 64
)

// rewriter walks over a tree once.
type rewriter struct {
	declared    map[string]int // how many visible local variables have the name
	visible     []string       // names of visible local variables, innermost last
	depth       int
	constants   int
	problem     string // why the tree cannot be compiled
	problemLine int
}

// enter counts one level; it is false where the tree is too deep, and the walk goes no further there.
func (r *rewriter) enter(at ast.PositionHolder) bool {
	r.depth++
	if r.depth > maxTreeDepth {
		r.fail(at, "chunk has too many syntax levels")
	}
	return r.problem == ""
}

func (r *rewriter) fail(at ast.PositionHolder, problem string) {
	if r.problem == "" {
		r.problem, r.problemLine = problem, at.Line()
	}
}

func (r *rewriter) constant(at ast.PositionHolder) {
	if r.constants++; r.constants > maxTreeConstants {
		r.fail(at, "chunk has too many constants")
	}
}

func (r *rewriter) declare(names ...string) {
	for _, n := range names {
		r.declared[n]++
		r.visible = append(r.visible, n)
	}
}

// leave ends the scope that began when n names were visible.
func (r *rewriter) leave(n int) {
	for _, name := range r.visible[n:] {
		r.declared[name]--
	}
	r.visible = r.visible[:n]
}

func (r *rewriter) block(statements []ast.Stmt) {
	n := len(r.visible)
	r.statements(statements)
	r.leave(n)
}

func (r *rewriter) statements(statements []ast.Stmt) {
	for i, s := range statements {
		if r.enter(s) {
			r.statement(s)
		}
		r.depth--
		if a, ok := s.(*ast.AssignStmt); ok {
			statements[i] = unfold(a)
		}
	}
}

func (r *rewriter) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		for i, e := range s.Lhs {
			s.Lhs[i] = r.target(e)
		}
		r.exprs(s.Rhs)
	case *ast.LocalAssignStmt:
		r.local(s)
	case *ast.FuncCallStmt:
		s.Expr = r.expr(s.Expr)
	case *ast.DoBlockStmt:
		r.block(s.Stmts)
	case *ast.WhileStmt:
		s.Condition = condition(r.expr(s.Condition))
		r.block(s.Stmts)
	case *ast.RepeatStmt:
		n := len(r.visible)
		r.statements(s.Stmts)
		s.Condition = condition(r.expr(s.Condition)) // sees the block's variables
		r.leave(n)
	case *ast.IfStmt:
		s.Condition = condition(r.expr(s.Condition))
		r.block(s.Then)
		r.block(s.Else)
	case *ast.NumberForStmt:
		s.Init, s.Limit, s.Step = number(r.expr(s.Init)), number(r.expr(s.Limit)), number(r.expr(s.Step))
		r.loop(s.Stmts, s.Name)
	case *ast.GenericForStmt:
		r.exprs(s.Exprs)
		r.loop(s.Stmts, s.Names...)
	case *ast.FuncDefStmt:
		if s.Name.Func == nil {
			s.Name.Receiver = r.expr(s.Name.Receiver)
			r.function(s.Func, "self")
		} else {
			s.Name.Func = r.target(s.Name.Func)
			r.function(s.Func)
		}
	case *ast.ReturnStmt:
		r.exprs(s.Exprs)
	case *ast.GotoStmt: // Lua 5.1 has none
		r.fail(s, "'=' expected near '"+s.Label+"'")
	case *ast.LabelStmt:
		r.fail(s, "unexpected symbol near ':'")
	}
}

// unfold makes an assignment to local variables one that the compiler does rightly: one of several values, or of `and` and `or`, becomes a block: first come the tables and keys of the targets, then the
// values, each in a variable of its own, then the assignments from the last one to the first, as in C Lua.
func unfold(s *ast.AssignStmt) ast.Stmt {
	variables := 0
	for _, e := range s.Lhs {
		if _, ok := e.(*ast.IdentExpr); ok {
			variables++
		}
	}
	if variables == 0 && !lateRead(s.Rhs) {
		return s
	}
	if variables == len(s.Lhs) && len(s.Rhs) == 1 {
		one := cutToOne(s.Rhs[0])
		if one != nil && len(s.Lhs) == 1 {
			*one = false // one variable takes one value in any case, and then the values get registers of their own
		}
		if _, logical := s.Rhs[0].(*ast.LogicalOpExpr); !logical && (one == nil || !*one) {
			return s
		}
	}
	b := unfolder{line: s}
	for _, e := range s.Lhs {
		if t, ok := e.(*ast.AttrGetExpr); ok {
			t.Object = b.keep(t.Object)
			if _, constant := t.Key.(*ast.StringExpr); !constant {
				t.Key = b.keep(t.Key)
			}
		}
	}
	values := make([]string, len(s.Lhs))
	for i := range values {
		values[i] = b.name()
	}
	b.add(&ast.LocalAssignStmt{Names: values, Exprs: s.Rhs})
	for i := len(s.Lhs) - 1; i >= 0; i-- {
		b.add(&ast.AssignStmt{Lhs: s.Lhs[i : i+1], Rhs: []ast.Expr{ident(s.Lhs[i], values[i])}})
	}
	block := &ast.DoBlockStmt{Stmts: b.statements}
	block.SetLine(s.Line())
	block.SetLastLine(s.LastLine())
	return block
}

// lateRead says whether the compiler reads a variable for a value only after it has evaluated others, which may change it.
func lateRead(values []ast.Expr) bool {
	variable := false
	for _, e := range values {
		switch e.(type) {
		case *ast.IdentExpr:
			variable = true
		case *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr, *ast.NumberExpr, *ast.StringExpr, *ast.FunctionExpr:
		default:
			if variable {
				return true
			}
		}
	}
	return false
}

// unfolder gathers the statements of a block.
type unfolder struct {
	line       ast.PositionHolder
	statements []ast.Stmt
	names      int
}

// name is the name of a new variable, which no identifier can have.
func (b *unfolder) name() string {
	b.names++
	return "\x00" + strconv.Itoa(b.names)
}

func (b *unfolder) add(s ast.Stmt) {
	s.SetLine(b.line.Line())
	s.SetLastLine(b.line.LastLine())
	b.statements = append(b.statements, s)
}

// keep evaluates an expression into a variable and returns that.
func (b *unfolder) keep(e ast.Expr) ast.Expr {
	name := b.name()
	b.add(&ast.LocalAssignStmt{Names: []string{name}, Exprs: []ast.Expr{single(e)}})
	return ident(e, name)
}

func (r *rewriter) local(s *ast.LocalAssignStmt) {
	if len(s.Names) == 1 && len(s.Exprs) == 1 {
		if f, ok := s.Exprs[0].(*ast.FunctionExpr); ok { // the compiler lets the function see its own name
			r.declare(s.Names[0])
			r.function(f)
			return
		}
	}
	r.exprs(s.Exprs)
	r.declare(s.Names...)
}

// number lets a loop take a string that reads as a number. It takes nil, for a step that is absent.
func number(e ast.Expr) ast.Expr {
	switch e.(type) {
	case nil, *ast.NumberExpr:
		return e
	}
	return call(e, hiddenNumber, single(e))
}

func (r *rewriter) loop(body []ast.Stmt, names ...string) {
	n := len(r.visible)
	r.declare(names...)
	r.statements(body)
	r.leave(n)
}

func (r *rewriter) function(f *ast.FunctionExpr, implicit ...string) {
	n := len(r.visible)
	r.declare(implicit...)
	r.declare(f.ParList.Names...)
	if f.ParList.HasVargs {
		r.declare("arg")
	}
	r.statements(f.Stmts)
	r.leave(n)
}

func (r *rewriter) exprs(list []ast.Expr) {
	for i, e := range list {
		list[i] = r.expr(e)
	}
}

// expr changes an expression and returns what stands for it. It takes nil, for a part that is absent.
func (r *rewriter) expr(e ast.Expr) ast.Expr {
	if e == nil {
		return nil
	}
	if r.enter(e) {
		e = r.change(e)
	}
	r.depth--
	return e
}

func (r *rewriter) change(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.NumberExpr, *ast.StringExpr, *ast.IdentExpr:
		r.constant(e)
	case *ast.AttrGetExpr:
		e.Object, e.Key = r.expr(e.Object), r.expr(e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			if f.Key != nil {
				f.Key = r.key(nil, r.expr(f.Key))
			}
			f.Value = r.expr(f.Value)
			if f.Key != nil { // else the compiler takes all results of a call that is last, and puts them in the array too
				f.Value = single(f.Value)
			}
		}
		return call(e, hiddenTable, e)
	case *ast.FuncCallExpr:
		e.Func, e.Receiver = r.expr(e.Func), r.expr(e.Receiver)
		r.constant(e)
		r.exprs(e.Args)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = r.expr(e.Lhs), r.expr(e.Rhs)
		return fold(e)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = r.expr(e.Lhs), r.expr(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = r.expr(e.Lhs), r.expr(e.Rhs)
		if e.Operator == "%" {
			return call(e, hiddenModulo, single(e.Lhs), single(e.Rhs))
		}
	case *ast.StringConcatOpExpr:
		return r.concat(e)
	case *ast.UnaryMinusOpExpr:
		e.Expr = r.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = r.expr(e.Expr)
		if yes, constant := truth(e.Expr); constant && yes {
			return at(e, &ast.FalseExpr{})
		} else if constant {
			return at(e, &ast.TrueExpr{})
		}
	case *ast.UnaryLenOpExpr:
		return call(e, hiddenLength, single(r.expr(e.Expr)))
	case *ast.FunctionExpr:
		r.function(e)
	case *ast.Comma3Expr:
		if !e.AdjustRet {
			return at(e, &ast.FuncCallExpr{Func: ident(e, hiddenVararg), Args: []ast.Expr{e}})
		}
	}
	return e
}

// fold is the value of `and` or `or` whose left side is a constant, and any other one as it is.
func fold(e *ast.LogicalOpExpr) ast.Expr {
	yes, constant := truth(e.Lhs)
	switch {
	case !constant:
		return e
	case yes == (e.Operator == "and"):
		return single(e.Rhs)
	}
	return e.Lhs
}

// truth says what a constant is as a condition.
func truth(e ast.Expr) (yes, constant bool) {
	switch e.(type) {
	case *ast.TrueExpr, *ast.NumberExpr, *ast.StringExpr:
		return true, true
	case *ast.FalseExpr, *ast.NilExpr:
		return false, true
	}
	return false, false
}

// condition makes the condition false, for which the compiler has a jump alone, one that begins with another instruction.
func condition(e ast.Expr) ast.Expr {
	if yes, constant := truth(e); constant && !yes {
		return at(e, &ast.UnaryNotOpExpr{Expr: at(e, &ast.TrueExpr{})})
	}
	return e
}

// concat makes a chain of `..`, which groups from the right, one call.
func (r *rewriter) concat(e *ast.StringConcatOpExpr) ast.Expr {
	var operands []ast.Expr
	for {
		operands = append(operands, single(r.expr(e.Lhs)))
		right, ok := e.Rhs.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		e = right
	}
	operands = append(operands, single(r.expr(e.Rhs)))
	if len(operands) > maxConcat {
		r.fail(e, "chunk has too many syntax levels")
	}
	return call(e, hiddenConcat, operands...)
}

// target changes the left side of an assignment.
func (r *rewriter) target(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.IdentExpr:
		r.constant(e)
		if r.declared[e.Value] == 0 {
			return &ast.AttrGetExpr{ExprBase: e.ExprBase, Object: ident(e, hiddenReadonly), Key: text(e, e.Value)}
		}
	case *ast.AttrGetExpr:
		e.Object = r.expr(e.Object)
		e.Key = r.key(e.Object, r.expr(e.Key))
	}
	return e
}

// key puts the count of the gap round a key that is assigned to. object is the table's expression; it is evaluated once more
// where that has no effect. Elsewhere, or when it is nil, the count takes the table to be empty.
func (r *rewriter) key(object, key ast.Expr) ast.Expr {
	switch k := key.(type) {
	case *ast.StringExpr, *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr:
		return key
	case *ast.NumberExpr:
		if n, err := strconv.Atoi(k.Value); err == nil && n <= smallKey {
			return key
		}
	}
	if !repeatable(object) {
		object = at(key, &ast.NilExpr{})
	}
	return call(key, hiddenKey, single(key), object)
}

// repeatable says whether an expression is a variable, or a field of one by a constant name.
func repeatable(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.IdentExpr:
			return true
		case *ast.AttrGetExpr:
			if _, ok := x.Key.(*ast.StringExpr); !ok {
				return false
			}
			e = x.Object
		default:
			return false
		}
	}
}

// cutToOne points to what says that an expression which may have several values is cut to its first; nil for one that has one value.
func cutToOne(e ast.Expr) *bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return &e.AdjustRet
	case *ast.Comma3Expr:
		return &e.AdjustRet
	}
	return nil
}

// single cuts an expression that may have several values to its first.
func single(e ast.Expr) ast.Expr {
	if one := cutToOne(e); one != nil {
		*one = true
	}
	return e
}

// call makes a call of a hidden function with one result, at the place of e.
func call(e ast.Expr, name string, args ...ast.Expr) ast.Expr {
	return at(e, &ast.FuncCallExpr{Func: ident(e, name), Args: args, AdjustRet: true})
}

func ident(e ast.Expr, name string) ast.Expr { return at(e, &ast.IdentExpr{Value: name}) }

func text(e ast.Expr, s string) ast.Expr { return at(e, &ast.StringExpr{Value: s}) }

// at gives a new expression the lines of e.
func at(e, made ast.Expr) ast.Expr {
	made.SetLine(e.Line())
	made.SetLastLine(e.LastLine())
	return made
}
