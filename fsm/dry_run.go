package fsm

// This file holds dry runs: a command that may write is run on the applied state, which it cannot change. Where it would, it is trapped, and
// nothing was done; where it would not, its reply is that of a read, and the command need not be put in the log
// (docs/adr/0009-writes-that-change-nothing.md). Dry runs run beside each other and beside reads.

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// trap is where a dry run ends that would change something.
func trap() { panic(keyspace.ErrClosed) }

// beginDryRun makes the environment one for a command that may write. What is over by the clock at which is read, but not in the state, traps as well: an
// entry, which sweeps before anything else, could find a lock free that is held in the state.
func (r *runner) beginDryRun() {
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
