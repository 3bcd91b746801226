// What a call of a user is denied, and the errors that say so.

package commands

import "github.com/coordd/coordd/commands/acl"

// Denied returns what the user of the call lacks to run spec, and charges for finding out.
func (x *Call) Denied(spec *Spec) (d acl.Denial, denied bool) {
	if x.User == nil {
		return d, false
	}
	d, denied, units := spec.checkAt(x.Level, x.User, x.Args)
	x.Work += uint64(units)
	return d, denied
}

// readsAllKeys reports whether the user may run the command of the call even if it reads any key.
func (x *Call) readsAllKeys() bool {
	if x.User == nil || x.User.Full() {
		return true
	}
	call := x.Spec.aclCall(x.Args)
	ok, units := x.User.ReadsAllKeys(&call, MaxRequestWork)
	x.Spend(units)
	return ok
}

// DeniedError returns the error for a denied command.
func DeniedError(d acl.Denial) error {
	switch d.Reason {
	case acl.DeniedCommand:
		return Errorf("NOPERM this user has no permissions to run the '%s' command", d.Object)
	case acl.DeniedKey:
		return errDeniedKey
	case acl.DeniedChannel:
		return errDeniedChannel
	}
	return errDeniedWork
}

const (
	errDeniedKey Error = "NOPERM this user has no permissions to access one of the keys used as " +
		"arguments"
	errDeniedChannel Error = "NOPERM this user has no permissions to access one of the channels " +
		"used as arguments"
	errDeniedWork Error = "ERR the command has too many keys or channels for a user with that " +
		"many patterns, nothing was changed"
)

// DeniedInExec returns the error for a command that was queued for EXEC before its user lost the
// right to it.
func DeniedInExec(d acl.Denial) error {
	why := ""
	switch d.Reason {
	case acl.DeniedCommand:
		why = "no permission to execute the command or subcommand"
	case acl.DeniedKey:
		why = "no permission to touch the specified keys"
	case acl.DeniedChannel:
		why = "no permission to access one of the channels used as arguments"
	default:
		return errDeniedWork
	}
	return Errorf("NOPERM ACLs rules changed between the moment the transaction was accumulated "+
		"and the EXEC call. This command is no longer allowed for the following reason: %s", why)
}

// DeniedInScript returns the error for a denied command of a script.
func DeniedInScript(d acl.Denial) string {
	const user = "ERR The user executing the script can't "
	switch d.Reason {
	case acl.DeniedCommand:
		return user + "run this command or subcommand"
	case acl.DeniedKey:
		return user + "access at least one of the keys mentioned in the command arguments"
	case acl.DeniedChannel:
		return user + "publish to the channel mentioned in the command"
	}
	return string(errDeniedWork)
}
