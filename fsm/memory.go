// The limit of the data, which all nodes share. The machine's own count is compared with it, not
// the memory of a process: every node refuses the same commands, at replay too.

package fsm

import (
	"slices"

	"github.com/coordd/coordd/commands"
)

// memoryLimit is what the data may count.
type memoryLimit struct {
	bytes int64 // 0: as much as there is
	set   bool  // somebody has set it, also to 0
}

const errMaxMemory commands.Error = "ERR maxmemory must be a number of bytes"

// setMaxMemory sets the limit.
func (m *Machine) setMaxMemory(_ *commands.Env, text []byte) error {
	n, ok := commands.ParseInt(text)
	if !ok || n < 0 {
		return errMaxMemory
	}
	m.limit = memoryLimit{bytes: n, set: true}
	m.ks.Fold(append([]byte(commands.SettingMaxMemory), text...))
	return nil
}

// encode returns the limit as a number: 0 if nobody has set it, else one more than it is.
func (l memoryLimit) encode() uint64 {
	if !l.set {
		return 0
	}
	return uint64(l.bytes) + 1
}

// decodeLimit returns the limit of a number that encode returned. It is negative if that was no
// such number.
func decodeLimit(n uint64) memoryLimit {
	if n == 0 {
		return memoryLimit{}
	}
	return memoryLimit{bytes: int64(n - 1), set: true}
}

// memory returns what counts: keys, scripts, libraries, users, leases, and requests that run once.
func (m *Machine) memory() int64 {
	return m.ks.Size() + int64(m.engine.Size()) + int64(m.users.Size()) +
		int64(m.leases.Bytes()) + int64(m.once.Bytes())
}

// oom reports whether the data exceeds the limit.
func (m *Machine) oom() bool { return m.limit.bytes > 0 && m.memory() > m.limit.bytes }

// resolveWork is the cost of finding a command, in units of commands.Env.Work.
const resolveWork = 4

// refuses returns the error of a transaction that the limit refuses as a whole: one of its commands
// may use more memory.
func (r *runner) refuses(x *commands.Call, cmds [][][]byte) error {
	if !r.tx.OOM || !slices.ContainsFunc(cmds, func(args [][]byte) bool {
		x.Spend(resolveWork)
		x.Args = args
		spec, err := r.m.table.ResolveAt(r.env.Level, args)
		return err == nil && x.NeedsMemory(spec)
	}) {
		return nil
	}
	return commands.ErrExecOOM
}
