// EVAL and SCRIPT. The engine behind Env.Scripts runs scripts; these commands parse its arguments
// and reply.

package commands

import (
	"bytes"

	"github.com/coordd/coordd/internal/ascii"
)

// Errors of the script commands.
const (
	errKeysNegative Error = "ERR Number of keys can't be negative"
	errKeysTooMany  Error = "ERR Number of keys can't be greater than number of args"
	errScriptFlush  Error = "ERR SCRIPT FLUSH only support SYNC|ASYNC option"
	errScriptKill   Error = "NOTBUSY No scripts in execution right now."
	errScriptDebug  Error = "ERR SCRIPT DEBUG is not supported: scripts run on every node, none " +
		"stops for a debugger"
	errDebugMode Error = "ERR Use SCRIPT DEBUG YES/SYNC/NO"
)

const (
	evalSyntax     = "script numkeys:integer [key [key ...]] [arg [arg ...]]"
	evalSHASyntax  = "sha1 numkeys:integer [key [key ...]] [arg [arg ...]]"
	evalComplexity = "Depends on the script that is executed."
	evalFlags      = NoScript | Stale | SkipMonitor | MovableKeys | NoMandatoryKeys
)

var scriptSpecs = []Spec{
	{
		Name: "eval", Kind: Write, Arity: -3, ArgWork: cheapArg, Flags: evalFlags | Unflagged,
		Keys: KeySpec{Numkeys: 2}.does(KeyRW | KeyAccess | KeyUpdate), Group: "scripting",
		Since:  "2.6.0",
		Syntax: evalSyntax, Summary: "Executes a Lua script.", Complexity: evalComplexity,
		Script:  scriptBySource,
		Handler: eval,
	},
	{
		Name: "evalsha", Kind: Write, Arity: -3, ArgWork: cheapArg, Flags: evalFlags | Unflagged,
		Keys: KeySpec{Numkeys: 2}.does(KeyRW | KeyAccess | KeyUpdate), Group: "scripting",
		Since:  "2.6.0",
		Syntax: evalSHASyntax, Summary: "Executes a cached Lua script by its SHA1 digest.",
		Complexity: evalComplexity,
		Script:     scriptBySHA,
		Handler:    evalSHA,
	},
	{
		Name: "eval_ro", Kind: Read, Arity: -3, ArgWork: cheapArg, Flags: evalFlags,
		Keys: KeySpec{Numkeys: 2}.does(KeyRO | KeyAccess), Group: "scripting", Since: "7.0.0",
		Syntax: evalSyntax, Summary: "Executes a read-only Lua script.", Complexity: evalComplexity,
		Script:  scriptBySource,
		Handler: eval,
	},
	{
		Name: "evalsha_ro", Kind: Read, Arity: -3, ArgWork: cheapArg, Flags: evalFlags,
		Keys: KeySpec{Numkeys: 2}.does(KeyRO | KeyAccess), Group: "scripting", Since: "7.0.0",
		Syntax:     evalSHASyntax,
		Summary:    "Executes a cached read-only Lua script by its SHA1 digest.",
		Complexity: evalComplexity,
		Script:     scriptBySHA,
		Handler:    evalSHA,
	},
	{
		Name: "script", Kind: Read, Arity: -2, Group: "scripting", Since: "2.6.0",
		Syntax: "subcommand", Summary: "Manages the cache of Lua scripts.",
		Complexity:  "Depends on subcommand.",
		Subcommands: scriptSubcommands,
	},
}

var scriptSubcommands = []Spec{
	{
		Name: "load", Kind: Write, Arity: 3, Flags: NoScript | Stale | Unflagged,
		Group: "scripting", Since: "2.6.0", Syntax: "script",
		Summary:    "Loads a Lua script into the cache.",
		Complexity: "O(N) with N being the length in bytes of the script body.",
		Handler:    scriptLoad,
	},
	{
		Name: "exists", Kind: Read, Arity: -3, Flags: NoScript | Unflagged, Group: "scripting",
		Since: "2.6.0", Syntax: "sha1 [sha1 ...]",
		Summary:    "Reports which Lua scripts are cached.",
		Complexity: "O(N) with N being the number of scripts to check.",
		Handler:    scriptExists,
	},
	{
		Name: "flush", Kind: Write, Arity: -2, Flags: NoScript | Unflagged, Group: "scripting",
		Since: "2.6.0", Syntax: "[ASYNC|SYNC]",
		Summary:    "Removes all Lua scripts from the cache.",
		Audit:      AuditArgs,
		Complexity: "O(N) with N being the number of scripts in cache",
		Handler:    scriptFlush,
	},
	{
		Name: "kill", Kind: Read, Arity: 2, Flags: NoScript | AllowBusy | Unflagged,
		Group: "scripting", Since: "2.6.0",
		Summary:    "Returns an error, since a script never runs while another command is served.",
		Complexity: "O(1)",
		Handler:    func(*Call) error { return errScriptKill },
	},
	{
		Name: "debug", Kind: Read, Arity: 3, Flags: NoScript | Unflagged, Group: "scripting",
		Since: "3.2.0", Syntax: "YES|SYNC|NO",
		Summary:    "Accepts a debugging mode without effect, since there is no debugger.",
		Complexity: "O(1)",
		Handler:    scriptDebug,
	},
	{
		Name: "show", Kind: Read, Arity: 3, Flags: NoScript | Unflagged, Level: LevelSecond,
		Group: "scripting", Since: "8.0.0", Syntax: "sha1",
		Summary:    "Returns the source of a cached Lua script.",
		Complexity: "O(N) with N being the length in bytes of the script body.",
		Handler:    scriptShow,
	},
	{
		Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale, Group: "scripting",
		Since:   "5.0.0",
		Summary: "Lists the subcommands of SCRIPT.", Complexity: "O(1)",
		Handler: scriptHelp,
	},
}

func scriptBySource(args [][]byte) Script {
	if args[1] == nil {
		return Script{Source: []byte{}} // nil would mean a call by SHA1
	}
	return Script{Source: args[1]}
}

func scriptBySHA(args [][]byte) Script { return Script{SHA: args[1]} }

func scriptByFunction(args [][]byte) Script { return Script{Function: args[1]} }

// script returns what the call runs, but for its keys and arguments.
func (x *Call) script() Script {
	s := x.Spec.Script(x.Args)
	s.ReadOnly = x.Spec.Kind == Read
	return s
}

// eval runs EVAL and EVAL_RO.
func eval(x *Call) error {
	s := x.script()
	if err := s.readKeys(x.Args, ErrNotInteger); err != nil {
		return err
	}
	x.Commit()
	return x.Scripts.Eval(x, s)
}

// evalSHA runs EVALSHA and EVALSHA_RO. As on Redis, an argument that cannot be a SHA1 is reported
// before any other error.
func evalSHA(x *Call) error {
	s := x.script()
	if len(s.SHA) != 40 {
		return ErrNoScript
	}
	if err := s.readKeys(x.Args, ErrNotInteger); err != nil {
		return err
	}
	x.Commit()
	return x.Scripts.Eval(x, s)
}

// readKeys parses numkeys and what follows. notNumber is the error if numkeys is not a number.
func (s *Script) readKeys(args [][]byte, notNumber error) error {
	n, ok := ParseInt(args[2])
	switch {
	case !ok:
		return notNumber
	case n > int64(len(args)-3):
		return errKeysTooMany
	case n < 0:
		return errKeysNegative
	}
	s.Keys, s.Args = args[3:3+n], args[3+n:]
	return nil
}

func scriptLoad(x *Call) error {
	x.Commit()
	sha, err := x.Scripts.Load(x, x.Args[2])
	if err != nil {
		return err
	}
	x.Out.BulkString(sha)
	return nil
}

func scriptExists(x *Call) error {
	x.Out.Array(len(x.Args) - 2)
	for _, sha := range x.Args[2:] {
		known := int64(0)
		if x.Scripts.Exists(sha) {
			known = 1
		}
		x.Out.Int(known)
	}
	return nil
}

func scriptShow(x *Call) error {
	source, ok := x.Scripts.Source(x.Args[2])
	if !ok {
		return ErrNoScript
	}
	x.Out.BulkString(source)
	return nil
}

func scriptFlush(x *Call) error {
	if len(x.Args) > 3 || len(x.Args) == 3 && !x.isReleased("async") && !x.isReleased("sync") {
		return errScriptFlush
	}
	x.Commit()
	x.Scripts.Flush()
	x.Out.Status("OK")
	return nil
}

// isReleased reports whether the second argument is a word. Below LevelSecond the case of all
// Unicode letters is ignored, as in 0.1.
func (x *Call) isReleased(word string) bool {
	if x.Level < LevelSecond {
		return bytes.EqualFold(x.Args[2], []byte(word)) //purity: 0.1 did, and its log is replayed
	}
	return ascii.Equal(x.Args[2], word)
}

func scriptDebug(x *Call) error {
	for _, mode := range []string{"no", "yes", "sync"} {
		if ascii.Equal(x.Args[2], mode) {
			if mode == "no" {
				x.Out.Status("OK")
				return nil
			}
			return errScriptDebug
		}
	}
	return errDebugMode
}

func scriptHelp(x *Call) error {
	lines := []string{
		"SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"DEBUG (YES|SYNC|NO)",
		"    Not supported; NO is accepted.",
		"EXISTS <sha1> [<sha1> ...]",
		"    Tell which scripts are known.",
		"FLUSH [ASYNC|SYNC]",
		"    Forget all scripts, on every node.",
		"KILL",
		"    No script ever runs long: each is stopped after a count of instructions.",
		"LOAD <script>",
		"    Make a script known, on every node, without running it.",
	}
	if x.Level >= LevelSecond {
		lines = append(lines, "SHOW <sha1>", "    Return the source of a script.")
	}
	replyHelp(x.Out, append(lines, "HELP", "    Print this help.")...)
	return nil
}
