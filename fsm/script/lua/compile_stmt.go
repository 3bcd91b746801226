package lua

import "github.com/coordd/coordd/fsm/script/lua/ast"

func compileChunk(context *funcContext, chunk []ast.Stmt) {
	for _, stmt := range chunk {
		context.enter(stmt)
		compileStmt(context, stmt)
		context.leave()
	}
}

func compileBlock(context *funcContext, chunk []ast.Stmt) {
	if len(chunk) == 0 {
		return
	}
	ph := &ast.Node{}
	ph.SetLine(sline(chunk[0]))
	ph.SetLastLine(eline(chunk[len(chunk)-1]))
	context.EnterBlock(labelNoJump, ph)
	compileChunk(context, chunk)
	context.LeaveBlock()
}

func compileStmt(context *funcContext, stmt ast.Stmt) {
	switch st := stmt.(type) {
	case *ast.AssignStmt:
		compileAssignStmt(context, st)
	case *ast.LocalAssignStmt:
		compileLocalAssignStmt(context, st)
	case *ast.FuncCallStmt:
		compileFuncCallExpr(context, context.RegTop(), st.Expr.(*ast.FuncCallExpr), ecnone(-1))
	case *ast.DoBlockStmt:
		context.EnterBlock(labelNoJump, st)
		compileChunk(context, st.Stmts)
		context.LeaveBlock()
	case *ast.WhileStmt:
		compileWhileStmt(context, st)
	case *ast.RepeatStmt:
		compileRepeatStmt(context, st)
	case *ast.FuncDefStmt:
		compileFuncDefStmt(context, st)
	case *ast.ReturnStmt:
		compileReturnStmt(context, st)
	case *ast.IfStmt:
		compileIfStmt(context, st)
	case *ast.BreakStmt:
		compileBreakStmt(context, st)
	case *ast.NumberForStmt:
		compileNumberForStmt(context, st)
	case *ast.GenericForStmt:
		compileGenericForStmt(context, st)
	case *ast.LabelStmt: // Lua 5.1 has none
		raiseCompileError(context, sline(st), "unexpected symbol near ':'")
	case *ast.GotoStmt:
		raiseCompileError(context, sline(st), "'=' expected near '%s'", st.Label)
	}
}

// compileAssignStmt compiles an assignment. As in C Lua the tables and keys of the targets are
// evaluated first, then the values, then the targets are assigned from last to first.
func compileAssignStmt(context *funcContext, stmt *ast.AssignStmt) {
	if len(stmt.Lhs) == 1 && len(stmt.Rhs) == 1 {
		compileSingleAssign(context, stmt.Lhs[0], stmt.Rhs[0])
		return
	}
	context.EnterBlock(labelNoJump, stmt)
	targets := make([]target, len(stmt.Lhs))
	for i, lhs := range stmt.Lhs {
		targets[i] = compileTarget(context, lhs)
	}
	first := context.RegTop()
	names := make([]string, len(stmt.Lhs))
	compileRegAssignment(context, names, stmt.Rhs, first, len(names), sline(stmt))
	for range names {
		context.RegisterLocalVar(hiddenName)
	}
	for i := len(targets) - 1; i >= 0; i-- {
		targets[i].store(context, first+i)
	}
	context.LeaveBlock()
}

// hiddenName is the name of variables that no identifier can name.
const hiddenName = ""

// target is the left side of an assignment.
type target struct {
	expr   ast.Expr
	kind   expContextType
	index  int // where the variable is, the global's name, or the table
	key    int // register or constant
	string bool
}

// compileTarget stores the table and the key of a target in hidden variables.
func compileTarget(context *funcContext, expr ast.Expr) target {
	switch e := expr.(type) {
	case *ast.IdentExpr:
		return variableTarget(context, e)
	case *ast.AttrGetExpr:
		t := target{expr: expr, kind: ecTable, index: keepHidden(context, e.Object)}
		if s, ok := e.Key.(*ast.StringExpr); ok {
			t.string = true
			if i := context.ConstIndex(LString(s.Value)); i <= opMaxIndexRk {
				t.key = opRkAsk(i)
				return t
			}
		}
		t.key = keepHidden(context, e.Key)
		return t
	}
	panic("lua: an assignment to no variable")
}

func variableTarget(context *funcContext, e *ast.IdentExpr) target {
	t := target{expr: e, kind: getIdentRefType(context, e)}
	switch t.kind {
	case ecGlobal:
		t.index = context.ConstIndex(LString(e.Value))
	case ecUpvalue:
		t.index = context.UpvalueIndex(e.Value, sline(e))
	case ecLocal:
		t.index = context.FindLocalVar(e.Value)
	}
	return t
}

// keepHidden evaluates an expression into a hidden variable.
func keepHidden(context *funcContext, e ast.Expr) int {
	compileRegAssignment(context, []string{hiddenName}, []ast.Expr{e}, context.RegTop(), 1,
		sline(e))
	return context.RegisterLocalVar(hiddenName)
}

// store assigns a register, or a constant if the target is a field.
func (t *target) store(context *funcContext, value int) {
	code, line := &context.code, sline(t.expr)
	switch t.kind {
	case ecLocal:
		code.AddABC(OP_MOVE, t.index, value, 0, line)
	case ecGlobal:
		code.AddABx(OP_SETGLOBAL, value, t.index, line)
	case ecUpvalue:
		code.AddABC(OP_SETUPVAL, value, t.index, 0, line)
	case ecTable:
		op := OP_SETTABLE
		if t.string {
			op = OP_SETTABLEKS
		}
		code.AddABC(op, t.index, t.key, value, line)
	}
}

// compileSingleAssign compiles an assignment of one value to one target. It needs no hidden
// variables.
func compileSingleAssign(context *funcContext, lhs, rhs ast.Expr) {
	reg := context.RegTop()
	e, isField := lhs.(*ast.AttrGetExpr)
	if isField {
		t := target{expr: lhs, kind: ecTable}
		compileExprWithKMVPropagation(context, e.Object, &reg, &t.index)
		if opIsK(t.index) { // a constant has no register to index
			t.index = reg
			reg += compileExpr(context, reg, e.Object, ecnone(0))
		}
		_, t.string = e.Key.(*ast.StringExpr)
		compileExprWithKMVPropagation(context, e.Key, &reg, &t.key)
		value := 0
		compileExprWithKMVPropagation(context, rhs, &reg, &value)
		t.store(context, value)
		return
	}
	t := variableTarget(context, lhs.(*ast.IdentExpr))
	if t.kind == ecLocal && intoRegister(rhs) {
		compileExpr(context, reg, rhs, &expcontext{ecLocal, t.index, 0})
		return
	}
	compileExpr(context, reg, rhs, ecnone(0))
	t.store(context, reg)
}

// intoRegister reports whether an expression can be evaluated into the register of a variable that
// it may read.
func intoRegister(e ast.Expr) bool {
	switch e.(type) {
	case *ast.StringExpr, *ast.NumberExpr, *ast.NilExpr, *ast.TrueExpr, *ast.FalseExpr,
		*ast.IdentExpr, *ast.AttrGetExpr,
		*ast.ArithmeticOpExpr, *ast.StringConcatOpExpr, *ast.UnaryMinusOpExpr, *ast.UnaryNotOpExpr,
		*ast.UnaryLenOpExpr,
		*ast.RelationalOpExpr, *ast.TableExpr, *ast.FunctionExpr:
		return true
	}
	return false
}

func compileLocalAssignStmt(context *funcContext, stmt *ast.LocalAssignStmt) {
	reg := context.RegTop()
	if len(stmt.Names) == 1 && len(stmt.Exprs) == 1 {
		if _, ok := stmt.Exprs[0].(*ast.FunctionExpr); ok {
			context.RegisterLocalVar(stmt.Names[0])
			compileRegAssignment(context, stmt.Names, stmt.Exprs, reg, len(stmt.Names), sline(stmt))
			return
		}
	}

	compileRegAssignment(context, stmt.Names, stmt.Exprs, reg, len(stmt.Names), sline(stmt))
	for _, name := range stmt.Names {
		context.RegisterLocalVar(name)
	}
}

func compileRegAssignment(context *funcContext, names []string, exprs []ast.Expr, reg int,
	nvars int, line int) {
	lennames := len(names)
	lenexprs := len(exprs)
	namesassigned := 0
	ec := &expcontext{}

	for namesassigned < lennames && namesassigned < lenexprs {
		if isVarArgReturnExpr(exprs[namesassigned]) && (lenexprs-namesassigned-1) <= 0 {

			varargopt := nvars - namesassigned
			ecupdate(ec, ecVararg, reg, varargopt-1)
			compileExpr(context, reg, exprs[namesassigned], ec)
			reg += varargopt
			namesassigned = lennames
		} else {
			ecupdate(ec, ecLocal, reg, 0)
			compileExpr(context, reg, exprs[namesassigned], ec)
			reg += 1
			namesassigned += 1
		}
	}

	// extra left names
	if lennames > namesassigned {
		restleft := lennames - namesassigned - 1
		context.code.AddABC(OP_LOADNIL, reg, reg+restleft, 0, line)
		reg += restleft
	}

	// extra right exprs
	for i := namesassigned; i < lenexprs; i++ {
		varargopt := -1
		if i != lenexprs-1 {
			varargopt = 0
		}
		ecupdate(ec, ecNone, reg, varargopt)
		reg += compileExpr(context, reg, exprs[i], ec)
	}
}

func compileReturnStmt(context *funcContext, stmt *ast.ReturnStmt) {
	lenexprs := len(stmt.Exprs)
	code := &context.code
	reg := context.RegTop()
	a := reg
	lastisvaarg := false

	if lenexprs == 1 {
		switch ex := stmt.Exprs[0].(type) {
		case *ast.IdentExpr:
			if idx := context.FindLocalVar(ex.Value); idx > -1 {
				code.AddABC(OP_RETURN, idx, 2, 0, sline(stmt))
				return
			}
		case *ast.FuncCallExpr:
			if ex.AdjustRet { // return (func())
				compileExpr(context, reg, ex, ecnone(0))
				code.AddABC(OP_RETURN, a, 2, 0, sline(stmt))
			} else {
				compileExpr(context, reg, ex, ecnone(-2))
				code.AddABC(OP_RETURN, a, 0, 0, sline(stmt))
			}
			return
		}
	}

	for i, expr := range stmt.Exprs {
		if i == lenexprs-1 && isVarArgReturnExpr(expr) {
			compileExpr(context, reg, expr, ecnone(-2))
			lastisvaarg = true
		} else {
			reg += compileExpr(context, reg, expr, ecnone(0))
		}
	}
	count := reg - a + 1
	if lastisvaarg {
		count = 0
	}
	context.code.AddABC(OP_RETURN, a, count, 0, sline(stmt))
}

func compileIfStmt(context *funcContext, stmt *ast.IfStmt) {
	thenlabel := context.NewLabel()
	elselabel := context.NewLabel()
	endlabel := context.NewLabel()

	compileBranchCondition(context, context.RegTop(), stmt.Condition, thenlabel, elselabel, false)
	context.SetLabelPc(thenlabel, context.code.LastPC())
	compileBlock(context, stmt.Then)
	if len(stmt.Else) > 0 {
		context.code.AddJump(endlabel, sline(stmt))
	}
	context.SetLabelPc(elselabel, context.code.LastPC())
	if len(stmt.Else) > 0 {
		compileBlock(context, stmt.Else)
		context.SetLabelPc(endlabel, context.code.LastPC())
	}

}

func compileBranchCondition(context *funcContext, reg int, expr ast.Expr, thenlabel, elselabel int,
	hasnextcond bool) {
	context.enter(expr)
	defer context.leave()
	code := &context.code
	flip := 0
	jumplabel := elselabel
	if hasnextcond {
		flip = 1
		jumplabel = thenlabel
	}

	switch ex := expr.(type) {
	case *ast.FalseExpr, *ast.NilExpr:
		if !hasnextcond {
			code.AddJump(elselabel, sline(expr))
			return
		}
	case *ast.TrueExpr, *ast.NumberExpr, *ast.StringExpr:
		if !hasnextcond {
			return
		}
	case *ast.UnaryNotOpExpr:
		compileBranchCondition(context, reg, ex.Expr, elselabel, thenlabel, !hasnextcond)
		return
	case *ast.LogicalOpExpr:
		switch ex.Operator {
		case "and":
			nextcondlabel := context.NewLabel()
			compileBranchCondition(context, reg, ex.Lhs, nextcondlabel, elselabel, false)
			context.SetLabelPc(nextcondlabel, context.code.LastPC())
			compileBranchCondition(context, reg, ex.Rhs, thenlabel, elselabel, hasnextcond)
		case "or":
			nextcondlabel := context.NewLabel()
			compileBranchCondition(context, reg, ex.Lhs, thenlabel, nextcondlabel, true)
			context.SetLabelPc(nextcondlabel, context.code.LastPC())
			compileBranchCondition(context, reg, ex.Rhs, thenlabel, elselabel, hasnextcond)
		}
		return
	case *ast.RelationalOpExpr:
		compileRelationalOpExprAux(context, reg, ex, flip, jumplabel)
		return
	}

	a := reg
	compileExprWithMVPropagation(context, expr, &reg, &a)
	code.AddABC(OP_TEST, a, 0, 0^flip, sline(expr))
	code.AddJump(jumplabel, sline(expr))
}

func compileWhileStmt(context *funcContext, stmt *ast.WhileStmt) {
	thenlabel := context.NewLabel()
	elselabel := context.NewLabel()
	condlabel := context.NewLabel()

	context.SetLabelPc(condlabel, context.code.LastPC())
	compileBranchCondition(context, context.RegTop(), stmt.Condition, thenlabel, elselabel, false)
	context.SetLabelPc(thenlabel, context.code.LastPC())
	context.EnterBlock(elselabel, stmt)
	compileChunk(context, stmt.Stmts)
	context.CloseUpvalues()
	context.code.AddJump(condlabel, eline(stmt))
	context.LeaveBlock()
	context.SetLabelPc(elselabel, context.code.LastPC())
}

func compileRepeatStmt(context *funcContext, stmt *ast.RepeatStmt) {
	initlabel := context.NewLabel()
	thenlabel := context.NewLabel()
	elselabel := context.NewLabel()

	context.SetLabelPc(initlabel, context.code.LastPC())
	context.SetLabelPc(elselabel, context.code.LastPC())
	context.EnterBlock(thenlabel, stmt)
	compileChunk(context, stmt.Stmts)
	compileBranchCondition(context, context.RegTop(), stmt.Condition, thenlabel, elselabel, false)

	context.SetLabelPc(thenlabel, context.code.LastPC())
	n := context.LeaveBlock()

	if n > -1 {
		label := context.NewLabel()
		context.code.AddJump(label, eline(stmt))
		context.SetLabelPc(elselabel, context.code.LastPC())
		context.code.AddABC(OP_CLOSE, n, 0, 0, eline(stmt))
		context.code.AddJump(initlabel, eline(stmt))
		context.SetLabelPc(label, context.code.LastPC())
	}

}

func compileBreakStmt(context *funcContext, stmt *ast.BreakStmt) {
	captured := false
	for block := context.block; block != nil; block = block.parent {
		captured = captured || block.refUpvalue
		if label := block.breakLabel; label != labelNoJump {
			if captured {
				context.code.AddABC(OP_CLOSE, block.parent.lastIndex(), 0, 0, sline(stmt))
			}
			context.code.AddJump(label, sline(stmt))
			return
		}
	}
	raiseCompileError(context, sline(stmt), "no loop to break")
}

func compileFuncDefStmt(context *funcContext, stmt *ast.FuncDefStmt) {
	if stmt.Name.Func == nil {
		reg := context.RegTop()
		var treg, kreg int
		compileExprWithKMVPropagation(context, stmt.Name.Receiver, &reg, &treg)
		kreg = loadRk(context, &reg, stmt.Func, LString(stmt.Name.Method))
		compileExpr(context, reg, stmt.Func, ecfuncdef)
		context.code.AddABC(OP_SETTABLE, treg, kreg, reg, sline(stmt.Name.Receiver))
	} else {
		astmt := &ast.AssignStmt{Lhs: []ast.Expr{stmt.Name.Func}, Rhs: []ast.Expr{stmt.Func}}
		astmt.SetLine(sline(stmt.Func))
		astmt.SetLastLine(eline(stmt.Func))
		compileAssignStmt(context, astmt)
	}
}

func compileNumberForStmt(context *funcContext, stmt *ast.NumberForStmt) {
	code := &context.code
	endlabel := context.NewLabel()
	ec := &expcontext{}

	context.EnterBlock(endlabel, stmt)
	reg := context.RegTop()
	rindex := context.RegisterLocalVar("(for index)")
	ecupdate(ec, ecLocal, rindex, 0)
	compileExpr(context, reg, stmt.Init, ec)

	reg = context.RegTop()
	rlimit := context.RegisterLocalVar("(for limit)")
	ecupdate(ec, ecLocal, rlimit, 0)
	compileExpr(context, reg, stmt.Limit, ec)

	reg = context.RegTop()
	rstep := context.RegisterLocalVar("(for step)")
	if stmt.Step == nil {
		stmt.Step = &ast.NumberExpr{Value: "1"}
		stmt.Step.SetLine(sline(stmt.Init))
	}
	ecupdate(ec, ecLocal, rstep, 0)
	compileExpr(context, reg, stmt.Step, ec)

	code.AddABx(OP_FORPREP, rindex, 0, sline(stmt))

	context.RegisterLocalVar(stmt.Name)

	bodypc := code.LastPC()
	compileChunk(context, stmt.Stmts)

	context.LeaveBlock()

	flpc := code.LastPC()
	code.AddABx(OP_FORLOOP, rindex, 0, sline(stmt))
	setDistance(context, flpc+1, bodypc-(flpc+1))

	context.SetLabelPc(endlabel, code.LastPC())
	setDistance(context, bodypc, flpc-bodypc)

}

func compileGenericForStmt(context *funcContext, stmt *ast.GenericForStmt) {
	code := &context.code
	endlabel := context.NewLabel()
	bodylabel := context.NewLabel()
	fllabel := context.NewLabel()
	nnames := len(stmt.Names)

	context.EnterBlock(endlabel, stmt)
	rgen := context.RegisterLocalVar("(for generator)")
	context.RegisterLocalVar("(for state)")
	context.RegisterLocalVar("(for control)")

	compileRegAssignment(context, make([]string, 3), stmt.Exprs, context.RegTop()-3, 3, sline(stmt))

	code.AddJump(fllabel, sline(stmt))

	for _, name := range stmt.Names {
		context.RegisterLocalVar(name)
	}

	context.SetLabelPc(bodylabel, code.LastPC())
	compileChunk(context, stmt.Stmts)

	context.LeaveBlock()

	context.SetLabelPc(fllabel, code.LastPC())
	code.AddABC(OP_TFORLOOP, rgen, 0, nnames, sline(stmt))
	code.AddJump(bodylabel, sline(stmt))

	context.SetLabelPc(endlabel, code.LastPC())
}
