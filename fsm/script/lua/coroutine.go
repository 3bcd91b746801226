package lua

import "fmt"

// Status returns the status of th, as the running thread L sees it.
func (L *LState) Status(th *LState) string {
	switch {
	case th == L:
		return "running"
	case th.Dead:
		return "dead"
	case th.Parent != nil:
		return "normal"
	}
	return "suspended"
}

// CanYield reports whether the running Go function may suspend its thread: a Lua function called
// it, and no other Go function or metamethod waits for a result.
func (L *LState) CanYield() bool { return L.Parent != nil && L.nested == 0 }

// Yield returns what a Go function must return to suspend its thread. The values on its stack go to
// the thread that resumed it.
func (L *LState) Yield() int { return yielding }

// Resume runs a suspended thread with the nargs values on top of L's stack, which it pops. It
// pushes what the thread yields or returns, and returns the number of those values.
func (L *LState) Resume(th *LState, nargs int) (n int, err *ApiError) {
	b := &L.G.Budget
	b.Charge(L, resumeUnits+int64(nargs)/slotsCleared)
	args := L.reg[L.top-nargs : L.top]
	L.top -= nargs
	top := L.top
	th.Parent, L.G.CurrentThread = L, th
	defer func() {
		th.Parent, L.G.CurrentThread = nil, L
		caught := recover()
		if caught == nil {
			return
		}
		e, ok := caught.(*ApiError)
		if !ok {
			e = &ApiError{Object: LString(fmt.Sprint(caught)), Broken: true}
		}
		th.closeUpvalues(0)
		th.kill()
		L.top = top
		n, err = 0, e
	}()
	if th.start(args) == callLua {
		if !th.run() {
			return L.moveValues(th, 0, true), nil
		}
	}
	return L.moveValues(th, int(th.frames[th.depth-1].localBase), false), nil
}

// resumeUnits is the cost of resuming.
const resumeUnits = 4

// start passes a thread the values that it is resumed with.
func (L *LState) start(args []LValue) int {
	if !L.started {
		L.started = true
		for _, v := range args {
			L.Push(v)
		}
		return L.precall(0, len(args), MultRet, 0)
	}
	cf := &L.frames[L.depth-1] // the function that yielded
	L.top = int(cf.localBase)
	for _, v := range args {
		L.Push(v)
	}
	results := cf.nret
	L.finish(cf, int(cf.localBase), len(args))
	if results != MultRet {
		caller := &L.frames[L.depth-1]
		L.top = int(caller.localBase) + int(caller.fn.Proto.NumUsedRegisters)
	}
	return callLua
}

// moveValues moves a thread's values, from a register on, to L.
func (L *LState) moveValues(th *LState, from int, ended bool) int {
	values := th.reg[from:th.top]
	L.G.Budget.Instructions -= int64(len(values)) / slotsCleared
	for _, v := range values {
		L.Push(v)
	}
	if ended {
		th.kill()
	}
	return len(values)
}

func (L *LState) kill() {
	L.Dead = true
	L.depth, L.top, L.used = 0, 0, 0
	L.reg, L.frames, L.open = nil, nil, nil
}
