package fsm

// This file holds trials: a command that may write is run on the applied state, which it cannot change. Where it would, it is trapped, and
// nothing was done; where it would not, its reply is that of a read, and the command need not be put in the log
// (docs/adr/0009-writes-that-change-nothing.md). Trials run beside each other and beside reads.

import (
	"iter"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/lua"
)

// trap is where a trial ends that would change something.
func trap() { panic(keyspace.ErrClosed) }

// beginTrial makes the environment one for a command that may write. What is over by the clock at which is read, but not in the state, traps as well: an
// entry, which sweeps before anything else, could find a lock free that is held in the state.
func (r *runner) beginTrial() {
	env := r.env
	if env.Trial {
		return
	}
	env.Trial, env.Emit = true, func(commands.Event) { trap() }
	if r.tells {
		env.Notify = func(commands.NotifyClass, string, int, []byte) { trap() }
	}
	if atMs, ok := env.Keyspace.NextDeadline(); ok && atMs < env.ClockMs {
		if r.view == nil {
			r.view = env.Keyspace.At(env.ClockMs)
		}
		env.Keyspace = r.view
	}
}

// try calls a handler for a script that is tried, and ends the script when it is trapped: no pcall brings it back.
func (in *interpreter) try(L *lua.LState, x *commands.Call, spec *commands.Spec) (failed error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case keyspace.ErrClosed:
			x.Trapped, in.trapped = true, true
			in.budget.Instructions = -1
			in.budget.Charge(L, 1)
		default:
			panic(p)
		}
	}()
	return x.Handle(spec)
}

// trialScripts are the scripts of an engine for reads and trials: nothing changes them, and several run at a time.
type trialScripts struct{ e *engine }

// Eval runs what is known. To run a script that is not would make it known; to run one that is about to be forgotten, as others were used since,
// would put that off.
func (t trialScripts) Eval(x *commands.Call, script commands.Script) error {
	c, err := t.e.choose(script)
	if err != nil {
		return err
	}
	if noted := script.Function == nil && !script.ReadOnly; noted && (c.cached == nil || t.e.fading(c.cached)) {
		trap()
	}
	return t.e.runReader(x, c)
}

// fading says whether it matters when a script was used last: the cache may come to drop it.
func (e *engine) fading(s *cachedScript) bool {
	return !s.loaded && (e.cachedCount > maxCachedScripts/2 || e.cachedSize > maxCachedSize/2) && e.cached.root.prev != s
}

func (t trialScripts) Load(_ *commands.Call, source []byte) (sha string, err error) {
	s := t.e.bySource[string(source)]
	if s == nil || !s.loaded {
		trap()
	}
	return s.sha, nil
}

func (t trialScripts) Exists(sha []byte) bool { return t.e.Exists(sha) }

func (t trialScripts) Flush() { trap() }

func (t trialScripts) HasFunction(name []byte) bool { return t.e.HasFunction(name) }

func (t trialScripts) LoadLibrary(*commands.Call, []byte, bool) (string, error) {
	trap()
	return "", nil
}

func (t trialScripts) RestoreLibraries(*commands.Call, iter.Seq2[[]byte, error], commands.RestorePolicy) error {
	trap()
	return nil
}

func (t trialScripts) DeleteLibrary(name []byte) bool {
	if t.e.libraries.has(string(name)) {
		trap()
	}
	return false
}

func (t trialScripts) FlushLibraries() { trap() }

func (t trialScripts) Libraries() []*commands.Library { return t.e.Libraries() }

var _ commands.Scripts = trialScripts{}
