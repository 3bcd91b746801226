// Dry runs: a command that may write runs on the applied state, which it cannot change. Where it
// would, it is aborted and nothing has happened: the command belongs in the log. Otherwise its
// reply is that of a read (docs/adr/0009-writes-that-change-nothing.md).

package fsm

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// abort ends a dry run that would change something.
func abort() { panic(keyspace.ErrClosed) }

// beginDryRun makes the environment one for a command that may write. A key that has expired by the
// read clock but is not swept yet aborts it as well: the entry would sweep it first, and could find
// a lock free that the state still holds.
func (r *runner) beginDryRun() {
	env := r.env
	if env.DryRun {
		return
	}
	env.DryRun, env.Emit = true, func(commands.Event) { abort() }
	if r.notifies {
		env.Notify = func(commands.NotifyClass, string, int, []byte) { abort() }
	}
	if atMs, ok := env.Keyspace.NextDeadline(); ok && atMs < env.ClockMs {
		// without what the entry would sweep first, the data may not exceed its limit
		env.Aborted = r.tx.OOM
		if r.view == nil {
			r.view = env.Keyspace.At(env.ClockMs)
		}
		env.Keyspace = r.view
	}
	if r.tx.OOM && (r.m.leases.Over(env.ClockMs) || r.m.once.Over(env.ClockMs)) { // likewise
		env.Aborted = true
	}
}
