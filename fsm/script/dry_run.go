// Dry runs: a script runs on the applied state and ends where it would change it (fsm/dry_run.go).

package script

import (
	"iter"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm/script/lua"
)

// abort ends a dry run that would change something.
func abort() { panic(keyspace.ErrClosed) }

// dryRun calls a handler for a script in a dry run, or in a read that may do less than others. If
// the handler aborts, the script ends: no pcall catches that.
func (in *interpreter) dryRun(L *lua.LState, x *commands.Call, spec *commands.Spec) (failed error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case keyspace.ErrClosed:
			x.Aborted, in.aborted = true, true
			in.unused, in.budget.Instructions = in.budget.Instructions, -1
			in.budget.Charge(L, 1)
		default:
			panic(p)
		}
	}()
	return x.Handle(spec)
}

// DryRun returns the engine for reads and dry runs: they never change it and may run concurrently.
func (e *Engine) DryRun() commands.Scripts { return dryRunScripts{e} }

// dryRunScripts implements commands.Scripts on an engine that must not change.
type dryRunScripts struct{ e *Engine }

// Eval runs a cached script. It aborts for any other, which the cache would have to add, and for
// one that the cache may soon drop, because using it would keep it longer.
func (t dryRunScripts) Eval(x *commands.Call, script commands.Script) error {
	c, err := t.e.choose(x.Level, script)
	if err != nil {
		return err
	}
	if noted := script.Function == nil && !script.ReadOnly; noted &&
		(c.cached == nil || t.e.fading(c.cached)) {
		abort()
	}
	return t.e.runReader(x, c)
}

// fading reports whether the cache may soon drop a script, so that its last use matters.
func (e *Engine) fading(s *cachedScript) bool {
	return !s.loaded && (e.cachedCount > maxCachedScripts/2 ||
		strict(e.level) && e.cachedBytes > maxCachedSize/2) &&
		e.cached.root.prev != s
}

func (t dryRunScripts) Flags(
	x *commands.Call, s commands.Script,
) (commands.FunctionFlags, bool) {
	return t.e.Flags(x, s)
}

func (t dryRunScripts) Load(_ *commands.Call, source []byte) (sha string, err error) {
	s := t.e.bySource[string(source)]
	if s == nil || !s.loaded {
		abort()
	}
	return s.sha, nil
}

func (t dryRunScripts) Exists(sha []byte) bool { return t.e.Exists(sha) }

func (t dryRunScripts) Source(sha []byte) (string, bool) { return t.e.Source(sha) }

func (t dryRunScripts) Flush() { abort() }

func (t dryRunScripts) HasFunction(level uint64, name []byte) bool {
	return t.e.HasFunction(level, name)
}

func (t dryRunScripts) LoadLibrary(*commands.Call, []byte, bool) (string, error) {
	abort()
	return "", nil
}

func (t dryRunScripts) RestoreLibraries(*commands.Call, iter.Seq2[[]byte, error],
	commands.RestorePolicy) error {
	abort()
	return nil
}

func (t dryRunScripts) DeleteLibrary(_ *commands.Call, name []byte) bool {
	if t.e.libraries.has(string(name)) {
		abort()
	}
	return false
}

func (t dryRunScripts) FlushLibraries() { abort() }

func (t dryRunScripts) Libraries() []*commands.Library { return t.e.Libraries() }

var _ commands.Scripts = dryRunScripts{}
