// The global table redis: the server's API for scripts.

package script

import (
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
)

// The errors of redis.call, byte-equal with Redis 7.0.
const (
	errNoCommand      = "ERR Please specify at least one argument for this redis lib call"
	errCommandArgs    = "ERR Lua redis lib command arguments must be strings or integers"
	errUnknownCommand = "ERR Unknown Redis command called from script"
	errCommandArity   = "ERR Wrong number of args calling Redis command from script"
	errNotFromScript  = "ERR This Redis command is not allowed from script"
	errReadOnlyScript = "ERR Write commands are not allowed from read-only scripts."
)

// openRedis makes the read-only table, in the form for scripts or the one for functions.
func (in *interpreter) openRedis(ofScripts bool) *lua.LTable {
	list := []libraryFunction{
		{"call", in.redisCall},
		{"pcall", in.redisPcall},
		{"log", redisLog},
		{"setresp", in.redisSetResp},
		{"sha1hex", in.redisSHA1Hex},
		{"error_reply", redisErrorReply},
		{"status_reply", redisStatusReply},
		{"set_repl", redisSetRepl},
		{"acl_check_cmd", in.redisACLCheck},
	}
	if ofScripts {
		list = append(list, []libraryFunction{
			{"replicate_commands", pushTrue},
			{"breakpoint", func(L *lua.LState) int { L.Push(lua.LFalse); return 1 }},
			{"debug", func(*lua.LState) int { return 0 }},
		}...)
	}
	lib := newLibrary(in.L, list)
	addConstants(lib)
	for _, c := range replConstants {
		lib.RawSetString(c.name, c.value)
	}
	return readOnly(lib)
}

type namedNumber struct {
	name  string
	value lua.LNumber
}

var (
	logConstants = [...]namedNumber{{"LOG_DEBUG", 0}, {"LOG_VERBOSE", 1}, {"LOG_NOTICE", 2},
		{"LOG_WARNING", 3}}
	replConstants = [...]namedNumber{{"REPL_NONE", 0}, {"REPL_AOF", 1}, {"REPL_SLAVE", 2},
		{"REPL_REPLICA", 2}, {"REPL_ALL", 3}}
)

// addConstants adds the constants that library code sees while it loads, too.
func addConstants(lib *lua.LTable) {
	for _, c := range logConstants {
		lib.RawSetString(c.name, c.value)
	}
	lib.RawSetString("REDIS_VERSION_NUM", lua.LNumber(commands.RedisVersionNumber))
	lib.RawSetString("REDIS_VERSION", lua.LString(commands.RedisVersion))
}

func pushTrue(L *lua.LState) int {
	L.Push(lua.LTrue)
	return 1
}

// errorTable is an error as scripts see it.
func errorTable(L *lua.LState, msg string) *lua.LTable {
	L.ChargeString(len(msg))
	t := L.NewTable(0, 1)
	t.RawSetString("err", lua.LString(msg))
	return t
}

// raiseReply raises an error in the form of an error reply.
func raiseReply(L *lua.LState, msg string) { L.Error(errorTable(L, msg)) }

// redisCall runs a command and raises its error.
func (in *interpreter) redisCall(L *lua.LState) int {
	if err := in.command(L); err != "" {
		L.Error(in.commandError(L, err))
	}
	L.Push(in.reply.result)
	return 1
}

// redisPcall runs a command and returns its error as a table.
func (in *interpreter) redisPcall(L *lua.LState) int {
	if err := in.command(L); err != "" {
		L.Push(in.commandError(L, err))
		return 1
	}
	L.Push(in.reply.result)
	return 1
}

// countedField marks the error of a command, which has been counted, as in Redis 7.0.
const countedField = "ignore_error_stats_update"

// commandError is the error of a command.
func (in *interpreter) commandError(L *lua.LState, msg string) *lua.LTable {
	budgetOf(L).Charge(L, errorInstructions)
	L.ChargeString(len(msg))
	in.x.ScriptCalls.Erred(msg, 1)
	t := L.NewTable(0, 2)
	t.RawSetString(countedField, lua.LTrue)
	t.RawSetString("err", lua.LString(msg))
	return t
}

// errorInstructions is the additional cost of a command that fails.
const errorInstructions = 25

// The cost of a command besides its own work (Env.Work): for the call, and for each argument.
const (
	callInstructions     = 10
	argumentInstructions = 5
)

// command runs the command that the arguments on L's stack name. Its reply is in in.reply.result,
// unless it fails with err.
func (in *interpreter) command(L *lua.LState) (err string) {
	if err := in.readArgs(L); err != "" {
		return err
	}
	in.reply.start(L, in.resp)
	x := &in.call
	left := uint64(max(in.budget.Instructions, 0))
	*x = commands.Call{Env: in.x.Env, Tx: &in.tx, Args: in.args, Out: &in.reply,
		Stop: in.x.Work + left + 1, Room: int(max(in.budget.Bytes, 1))}
	in.tx.Proto = in.resp
	spec, notResolved := in.table.ResolveNamed(in.named(L.Get(1)), x.Level, in.args)
	switch {
	case spec == nil: // scripts get less detail than clients
		return errUnknownCommand
	case notResolved != nil:
		return in.rejected(spec, errCommandArity)
	case spec.Has(commands.NoScript) || spec.Handler == nil || x.Level < spec.HandlerLevel:
		return in.rejected(spec, errNotFromScript)
	case spec.RequestID != nil && spec.RequestID(in.args) != nil &&
		x.Level >= commands.LevelSecond:
		return in.rejected(spec, string(commands.ErrScriptID))
	}
	if x.User != nil {
		before := x.Work
		d, denied := x.Denied(spec)
		in.budget.Charge(L, int64(x.Work-before))
		if denied {
			x.Deny("lua", d)
			return in.rejected(spec, commands.DeniedInScript(d))
		}
	}
	if in.readOnly && (spec.Kind == commands.Write || spec.Has(commands.MayReplicate)) {
		return in.rejected(spec, errReadOnlyScript)
	}
	if in.x.Called != nil && spec.Kind != commands.Admin {
		in.x.Called(in.tx.DB, in.args)
	}
	if x.Reads != nil {
		x.Reads.Add(spec, in.args)
	}
	before, copied := x.Work, x.Copied
	if in.tx.OOM && spec.Writes() && !x.NeedsMemory(spec) {
		in.tx.OOM = false
	}
	var failed error
	if x.DryRun || x.Most > 0 {
		failed = in.dryRun(L, x, spec)
	} else {
		failed = x.Handle(spec)
	}
	if failed == commands.ErrOOM { // as outside of scripts
		x.ScriptCalls.Rejected(spec)
	} else {
		x.ScriptCalls.Ran(spec, x.Work-before, failed != nil || in.reply.err != "")
	}
	// also stops a script whose reply exceeded its budget
	in.budget.Charge(L, int64(x.Work-before)+1)
	copied = x.Copied - copied
	in.budget.Charge(L, int64(copied)/commands.FreshBytes)
	in.budget.ChargeBytes(L, 1+int64(copied))
	if failed != nil {
		return commands.ErrorLine(failed.Error())
	}
	return in.reply.err
}

// rejected counts a command that does not run, and returns its error.
func (in *interpreter) rejected(spec *commands.Spec, err string) string {
	in.x.ScriptCalls.Rejected(spec)
	return err
}

// readArgs copies the arguments from L's stack into in.args.
func (in *interpreter) readArgs(L *lua.LState) (err string) {
	if L.GetTop() == 0 {
		return errNoCommand
	}
	in.args, in.arena = in.args[:0], in.arena[:0]
	if !in.chargeArgs(L) {
		return errCommandArgs
	}
	for _, v := range L.Stack() {
		start := len(in.arena)
		switch v := v.(type) {
		case lua.LString:
			in.arena = append(in.arena, v...)
		case lua.LNumber:
			in.arena = lua.AppendNumber(in.arena, float64(v), 17)
		}
		in.args = append(in.args, in.arena[start:len(in.arena):len(in.arena)])
	}
	return ""
}

// named returns the command that a script calls by name, or nil. It remembers the names that
// scripts used, as they wrote them.
func (in *interpreter) named(name lua.LValue) *commands.Spec {
	text, ok := name.(lua.LString)
	if !ok || text == "" {
		return in.table.Get(in.args[0])
	}
	n := len(text)
	hash := (uint32(n)<<24 | uint32(text[0])<<16 | uint32(text[n/2])<<8 | uint32(text[n-1])) *
		0x9e3779b1
	known := &in.names[hash>>(32-namesBits)]
	if known.name != string(text) {
		spec := in.table.Get(in.args[0])
		if spec == nil {
			return nil
		}
		*known = namedSpec{strings.Clone(string(text)), spec}
	}
	return known.spec
}

// namedSpec is the command that a name means.
type namedSpec struct {
	name string
	spec *commands.Spec
}

// namesBits is the logarithm of how many names an interpreter remembers.
const namesBits = 8

// chargeArgs charges for the arguments of a command before they are copied: each may be the same
// long string. It makes room for them, and returns false if one is neither a string nor a number.
func (in *interpreter) chargeArgs(L *lua.LState) bool {
	const numeral = 24 // at most
	total := 0
	stack := L.Stack()
	for _, v := range stack {
		switch v := v.(type) {
		case lua.LString:
			total += len(v)
		case lua.LNumber:
			total += numeral
		default:
			return false
		}
	}
	in.budget.Charge(L, callInstructions+argumentInstructions*int64(len(stack))+int64(total/16))
	if more := total - max(in.arenaCharged, freeArena); more > 0 {
		// the next command reuses the memory
		in.budget.ChargeBytes(L, int64(more))
		in.arenaCharged = total
	}
	if cap(in.arena) < total {
		in.arena = make([]byte, 0, total+total/4)
	}
	return true
}

// freeArena is how many bytes of arguments cost no memory budget.
const freeArena = 64 << 10

// redisLog checks its arguments and logs nothing, because the script runs on every node.
func redisLog(L *lua.LState) int {
	if L.GetTop() < 2 {
		raiseReply(L, "ERR redis.log() requires two arguments or more.")
	}
	level, ok := L.ToNumber(L.Get(1))
	if !ok {
		raiseReply(L, "ERR First argument must be a number (log level).")
	}
	if n := truncate(level); n < 0 || n > 3 {
		raiseReply(L, "ERR Invalid debug level.")
	}
	return 0
}

func (in *interpreter) redisSetResp(L *lua.LState) int {
	if L.GetTop() != 1 {
		raiseReply(L, "ERR redis.setresp() requires one argument.")
	}
	f, _ := L.ToNumber(L.Get(1))
	n := truncate(f)
	if n != 2 && n != 3 {
		raiseReply(L, "ERR RESP version must be 2 or 3.")
	}
	in.resp = int(n)
	return 0
}

func (in *interpreter) redisSHA1Hex(L *lua.LState) int {
	if L.GetTop() != 1 {
		raiseReply(L, "ERR wrong number of arguments")
	}
	s, _ := toString(L.Get(1))
	in.budget.Charge(L, 20+int64(len(s)/4))
	return push(L, shaOf(s))
}

// redisErrorReply makes an error table. Like Redis 7.0, it prefixes a text of one word with ERR.
func redisErrorReply(L *lua.LState) int {
	s, ok := L.Get(1).(lua.LString)
	if !ok || L.GetTop() != 1 {
		L.Push(errorTable(L, "ERR wrong number or type of arguments"))
		return 1
	}
	chargeWork(L, len(s))
	text := strings.TrimPrefix(string(s), "-")
	code, msg, found := strings.Cut(text, " ")
	if !found {
		code, msg = "ERR", text
	}
	L.Push(errorTable(L, code+" "+strings.Trim(msg, "\r\n")))
	return 1
}

func redisStatusReply(L *lua.LState) int {
	s, ok := L.Get(1).(lua.LString)
	if !ok || L.GetTop() != 1 {
		L.Push(errorTable(L, "ERR wrong number or type of arguments"))
		return 1
	}
	t := L.NewTable(0, 1)
	t.RawSetString("ok", s)
	L.Push(t)
	return 1
}

// redisSetRepl only checks its argument. Every node runs the script, so its changes are always
// replicated.
func redisSetRepl(L *lua.LState) int {
	if L.GetTop() != 1 {
		raiseReply(L, "ERR redis.set_repl() requires two arguments.")
	}
	f, _ := L.ToNumber(L.Get(1))
	if truncate(f)&^3 != 0 {
		raiseReply(L,
			"ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
	}
	return 0
}

// redisACLCheck reports whether the script's user may call a command.
func (in *interpreter) redisACLCheck(L *lua.LState) int {
	if err := in.readArgs(L); err != "" {
		raiseReply(L, err)
	}
	spec, err := in.table.ResolveAt(in.x.Level, in.args)
	if spec == nil {
		raiseReply(L, "ERR Invalid command passed to redis.acl_check_cmd()")
	}
	denied := false
	if in.x.User != nil && err == nil {
		var units int
		_, denied, units = spec.Check(in.x.User, in.args)
		in.budget.Charge(L, int64(units))
	}
	L.Push(lua.LBool(!denied))
	return 1
}
