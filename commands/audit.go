// What the audit trail, MONITOR and the slow log show of a call.

package commands

// Audit says which arguments of a call the audit trail shows, given those after the command's name,
// and whether the trail has the call at all. Values and secrets are never shown.
type Audit func(args [][]byte) (shown [][]byte, audited bool)

// Secret says which arguments of a call are hidden.
type Secret func(args [][]byte, hide func(i int))

// SecretFrom hides the arguments from args[first] on.
func SecretFrom(first int) Secret {
	return func(args [][]byte, hide func(i int)) {
		for i := first; i < len(args); i++ {
			hide(i)
		}
	}
}

// AuditName shows no argument.
func AuditName([][]byte) ([][]byte, bool) { return nil, true }

// AuditFirst shows the first argument.
func AuditFirst(args [][]byte) ([][]byte, bool) { return args[:min(len(args), 1)], true }

// AuditArgs shows all arguments.
func AuditArgs(args [][]byte) ([][]byte, bool) { return args, true }

// Audited returns the arguments of a call that the audit trail shows, and whether it has the call.
func (s *Spec) Audited(args [][]byte) (shown [][]byte, audited bool) {
	if s.Audit == nil {
		return nil, false
	}
	names := 1
	if s.parent != "" {
		names = 2
	}
	return s.Audit(args[min(len(args), names):])
}
