// FUNCTION and FCALL. The engine behind Env.Scripts compiles and runs functions (scripts.go).

package commands

import (
	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of the function commands.
const (
	errNoFunction    Error = "ERR Function not found"
	errFunctionKeys  Error = "ERR Bad number of keys provided"
	errNoLibrary     Error = "ERR Library not found"
	errNoLibraryName Error = "ERR library name argument was not given"
	errFunctionFlush Error = "ERR FUNCTION FLUSH only supports SYNC|ASYNC option"
	errRestorePolicy Error = "ERR Wrong restore policy given, value should be either FLUSH, " +
		"APPEND or REPLACE."
)

const fcallSyntax = "function numkeys:integer [key [key ...]] [arg [arg ...]]"

var functionSpecs = []Spec{
	{
		Name: "fcall", Kind: Write, Arity: -3, ArgWork: cheapArg, Flags: evalFlags | Unflagged,
		Keys: KeySpec{Numkeys: 2}.does(KeyRW | KeyAccess | KeyUpdate), Group: "scripting",
		Since:  "7.0.0",
		Syntax: fcallSyntax, Summary: "Calls a function of a library.",
		Complexity: "Depends on the function that is executed.",
		Script:     scriptByFunction,
		Handler:    callFunction,
	},
	{
		Name: "fcall_ro", Kind: Read, Arity: -3, ArgWork: cheapArg, Flags: evalFlags,
		Keys: KeySpec{Numkeys: 2}.does(KeyRO | KeyAccess), Group: "scripting", Since: "7.0.0",
		Syntax: fcallSyntax, Summary: "Calls a read-only function of a library.",
		Complexity: "Depends on the function that is executed.",
		Script:     scriptByFunction,
		Handler:    callFunction,
	},
	{
		Name: "function", Kind: Read, Arity: -2, Group: "scripting", Since: "7.0.0",
		Audit:  AuditName, // LOAD and RESTORE have values
		Syntax: "subcommand", Summary: "Manages function libraries.",
		Complexity:  "Depends on subcommand.",
		Subcommands: functionSubcommands,
	},
}

var functionSubcommands = []Spec{
	{
		Name: "load", Kind: Write, Arity: -3, Flags: DenyOOM | NoScript, Group: "scripting",
		Since: "7.0.0", Syntax: "[REPLACE] function-code",
		Summary:    "Loads a function library on every node.",
		Complexity: "O(N) with N being the length of the code, and what it runs.",
		Handler:    functionLoad,
	},
	{
		Name: "delete", Kind: Write, Arity: 3, Flags: NoScript, Group: "scripting", Since: "7.0.0",
		Syntax:     "library-name",
		Summary:    "Deletes a library and its functions.",
		Audit:      AuditArgs,
		Complexity: "O(N) with N being the number of libraries.",
		Handler:    functionDelete,
	},
	{
		Name: "flush", Kind: Write, Arity: -2, Flags: NoScript, Group: "scripting", Since: "7.0.0",
		Syntax:  "[ASYNC|SYNC]",
		Summary: "Deletes all libraries.", Complexity: "O(1)",
		Handler: functionFlush,
	},
	{
		Name: "list", Kind: Read, Arity: -2, Flags: NoScript | Unflagged, Group: "scripting",
		Since:      "7.0.0",
		Syntax:     "[LIBRARYNAME library-name-pattern] [WITHCODE]",
		Summary:    "Lists the libraries and their functions.",
		Complexity: "O(N) with N being the number of functions.",
		Handler:    functionList,
	},
	{
		Name: "dump", Kind: Read, Arity: 2, Flags: NoScript | Unflagged, Group: "scripting",
		Since:      "7.0.0",
		Summary:    "Returns all libraries as a serialized value for FUNCTION RESTORE.",
		Complexity: "O(N) with N being the bytes of all libraries.",
		Handler:    functionDump,
	},
	{
		Name: "restore", Kind: Write, Arity: -3, Flags: DenyOOM | NoScript, Group: "scripting",
		Since:      "7.0.0",
		Syntax:     "serialized-value [FLUSH|APPEND|REPLACE]",
		Summary:    "Loads the libraries of a serialized value, of coordd or of Redis.",
		Complexity: "O(N) with N being the bytes of the libraries, and what they run.",
		Handler:    functionRestore,
	},
	{
		Name: "stats", Kind: Read, Arity: 2, Flags: NoScript | AllowBusy | Unflagged,
		Group: "scripting", Since: "7.0.0",
		Summary:    "Counts the libraries and the functions.",
		Complexity: "O(N) with N being the number of libraries.",
		Handler:    functionStats,
	},
	{
		Name: "kill", Kind: Read, Arity: 2, Flags: NoScript | AllowBusy | Unflagged,
		Group: "scripting", Since: "7.0.0",
		Summary: "Returns an error, since a function never runs while another command is " +
			"served.",
		Complexity: "O(1)",
		Handler:    func(*Call) error { return errScriptKill },
	},
	{
		Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale, Group: "scripting",
		Since:   "7.0.0",
		Summary: "Lists the subcommands of FUNCTION.", Complexity: "O(1)",
		Handler: functionHelp,
	},
}

// nameBytes is how many bytes of a function's name a unit of work looks up, which happens some
// times in a call.
const nameBytes = 8

// callFunction runs FCALL and FCALL_RO. As on Redis, an unknown function is reported before any
// other error.
func callFunction(x *Call) error {
	s := x.script()
	if x.Level >= LevelSecond {
		x.Spend(len(s.Function) / nameBytes)
	}
	if !x.Scripts.HasFunction(x.Level, s.Function) {
		return errNoFunction
	}
	if err := s.readKeys(x.Args, errFunctionKeys); err != nil {
		return err
	}
	x.Commit()
	return x.Scripts.Eval(x, s)
}

func functionLoad(x *Call) error {
	last := len(x.Args) - 1
	replace := false
	for _, option := range x.Args[2:last] {
		if !isWord(option, "REPLACE") {
			return Errorf("ERR Unknown option given: %s", resp.CText(option))
		}
		replace = true
	}
	x.Commit()
	name, err := x.Scripts.LoadLibrary(x, x.Args[last], replace)
	if err != nil {
		return err
	}
	x.Out.BulkString(name)
	return nil
}

func functionDelete(x *Call) error {
	x.Commit()
	if !x.Scripts.DeleteLibrary(x, x.Args[2]) {
		return errNoLibrary
	}
	x.Out.Status("OK")
	return nil
}

func functionFlush(x *Call) error {
	switch {
	case len(x.Args) > 3:
		return SubcommandSyntax(x.Args)
	case len(x.Args) == 3 && !isWord(x.Args[2], "SYNC") && !isWord(x.Args[2], "ASYNC"):
		return errFunctionFlush
	}
	x.Commit()
	x.Scripts.FlushLibraries()
	x.Out.Status("OK")
	return nil
}

func functionList(x *Call) error {
	var pattern []byte
	filter, withCode := false, false
	for i := 2; i < len(x.Args); i++ {
		switch arg := x.Args[i]; {
		case !withCode && isWord(arg, "WITHCODE"):
			withCode = true
		case !filter && isWord(arg, "LIBRARYNAME"):
			if i++; i == len(x.Args) {
				return errNoLibraryName
			}
			pattern, filter = ascii.AppendLower(nil, x.Args[i]), true
		default:
			// Unlike in other errors, line breaks at the end stay, as spaces.
			return Errorf("ERR Unknown argument %s", spaceForBreak.Replace(string(resp.CText(arg))))
		}
	}
	if err := CheckPattern(pattern); err != nil {
		return err
	}
	var chosen []*Library
	var m glob.Matcher
	for _, l := range x.libraries() {
		if !filter || x.matches(&m, pattern, l.Name) {
			chosen = append(chosen, l)
		}
	}
	x.Out.Array(len(chosen))
	for _, l := range chosen {
		l.reply(x.Out, withCode)
	}
	return nil
}

// libraries returns all libraries and charges for a walk over them.
func (x *Call) libraries() []*Library {
	all := x.Scripts.Libraries()
	if x.Level >= LevelSecond {
		x.Spend(walkedWork * len(all))
	}
	return all
}

// matches reports whether a name, in lower case, matches a pattern, and charges for that.
func (x *Call) matches(m *glob.Matcher, pattern []byte, name string) bool {
	x.spendBytesOf(len(name))
	before := m.Work
	matches := m.Match(pattern, ascii.AppendLower(nil, name))
	if x.Level >= LevelSecond {
		x.Spend(m.Work - before)
	}
	return matches
}

func (l *Library) reply(out Reply, withCode bool) {
	pairs := 3
	if withCode {
		pairs++
	}
	out.Map(pairs)
	out.BulkString("library_name")
	out.BulkString(l.Name)
	out.BulkString("engine")
	out.BulkString(engineName)
	out.BulkString("functions")
	out.Array(len(l.Functions))
	for i := range l.Functions {
		l.Functions[i].reply(out)
	}
	if withCode {
		out.BulkString("library_code")
		out.BulkString(l.Source)
	}
}

func (f *Function) reply(out Reply) {
	out.Map(3)
	out.BulkString("name")
	out.BulkString(f.Name)
	out.BulkString("description")
	if f.Described {
		out.BulkString(f.Description)
	} else {
		out.Null()
	}
	out.BulkString("flags")
	flags := f.Flags.names()
	out.Set(len(flags))
	for _, name := range flags {
		out.Status(name)
	}
}

// functionStats reports that nothing runs: while a function runs, no other command does.
func functionStats(x *Call) error {
	libraries, functions := x.libraries(), 0
	for _, l := range libraries {
		functions += len(l.Functions)
	}
	x.Out.Map(2)
	x.Out.BulkString("running_script")
	x.Out.Null()
	x.Out.BulkString("engines")
	x.Out.Map(1)
	x.Out.BulkString(engineName)
	x.Out.Map(2)
	x.Out.BulkString("libraries_count")
	x.Out.Int(int64(len(libraries)))
	x.Out.BulkString("functions_count")
	x.Out.Int(int64(functions))
	return nil
}

func functionDump(x *Call) error {
	all, size := x.libraries(), 0
	for _, l := range all {
		size += len(l.Source)
	}
	if x.Level >= LevelSecond {
		x.Expect(1, size)
		x.Spend(size / dumpSpent)
	}
	x.Out.Bulk(dumpLibraries(all))
	return nil
}

func functionRestore(x *Call) error {
	policy := RestoreAppend
	switch {
	case len(x.Args) > 4:
		return SubcommandSyntax(x.Args)
	case len(x.Args) < 4 || isWord(x.Args[3], "APPEND"):
	case isWord(x.Args[3], "REPLACE"):
		policy = RestoreReplace
	case isWord(x.Args[3], "FLUSH"):
		policy = RestoreFlush
	default:
		return errRestorePolicy
	}
	if x.Level >= LevelSecond {
		x.Spend(len(x.Args[2]) / restoredBytes) // its checksum
	}
	sources, err := dumpedSources(x.Args[2])
	if err != nil {
		return err
	}
	x.Commit()
	if err := x.Scripts.RestoreLibraries(x, sources, policy); err != nil {
		return err
	}
	x.Out.Status("OK")
	return nil
}

func functionHelp(x *Call) error {
	replyHelp(x.Out,
		"FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"DELETE <library>",
		"    Forget a library and its functions, on every node.",
		"DUMP",
		"    Give all libraries as one value, which FUNCTION RESTORE takes here and on a Redis.",
		"FLUSH [ASYNC|SYNC]",
		"    Forget all libraries, on every node.",
		"KILL",
		"    No function ever runs long: each is stopped after a count of instructions.",
		"LIST [LIBRARYNAME <pattern>] [WITHCODE]",
		"    Tell what libraries and functions there are, and their code.",
		"LOAD [REPLACE] <code>",
		"    Make a library known, on every node.",
		"RESTORE <value> [FLUSH|APPEND|REPLACE]",
		"    Make the libraries of a FUNCTION DUMP known: instead of those that are there, "+
			"beside them (the default),",
		"    or beside them and instead of those with the same names.",
		"STATS",
		"    Count libraries and functions.",
		"HELP",
		"    Print this help.",
	)
	return nil
}
