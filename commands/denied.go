// Whether the user of a request may make a call, and Redis's errors if it may not.

package commands

import "github.com/coordd/coordd/commands/acl"

// Denied returns what the user of the request lacks for a call of spec, and charges for finding out.
func (x *Call) Denied(spec *Spec) (d acl.Denial, denied bool) {
	d, denied, units := spec.Check(x.User, x.Args)
	x.Work += uint64(units)
	return d, denied
}

// DeniedError returns the error for a call that the user may not make.
func DeniedError(d acl.Denial) error {
	switch d.Reason {
	case acl.DeniedCommand:
		return Errorf("NOPERM this user has no permissions to run the '%s' command", d.Object)
	case acl.DeniedKey:
		return Error(
			"NOPERM this user has no permissions to access one of the keys used as arguments")
	}
	return Error(
		"NOPERM this user has no permissions to access one of the channels used as arguments")
}

// DeniedInExec returns the error for a queued call that the user may not make any more.
func DeniedInExec(d acl.Denial) error {
	why := "no permission to execute the command or subcommand"
	switch d.Reason {
	case acl.DeniedKey:
		why = "no permission to touch the specified keys"
	case acl.DeniedChannel:
		why = "no permission to access one of the channels used as arguments to the command"
	}
	return Errorf("NOPERM ACLs rules changed between the moment the transaction was accumulated "+
		"and the EXEC call. This command is no longer allowed for the following reason: %s", why)
}

// DeniedInScript returns the error for a call that the user of a script may not make.
func DeniedInScript(d acl.Denial) string {
	switch d.Reason {
	case acl.DeniedCommand:
		return "ERR The user executing the script can't run this command or subcommand"
	case acl.DeniedKey:
		return "ERR The user executing the script can't access at least one of the keys " +
			"mentioned in the command arguments"
	}
	return "ERR The user executing the script can't publish to the channel mentioned in the command"
}
