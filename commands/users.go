// Commands that show and change the users of the cluster. Package server declares ACL, with the
// subcommands that concern a connection or a node.

package commands

import (
	"bytes"

	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/resp"
)

const errDefaultUser Error = "ERR The 'default' user cannot be removed"

// ACLSubcommands returns the subcommands of ACL that the machine runs.
func ACLSubcommands() []Spec {
	const flags = NoScript | Loading | Stale | Unflagged | Administrative
	return []Spec{
		{
			Name: "setuser", Kind: Write, Arity: -3, Flags: flags, Level: LevelSecond,
			Group: "server", Since: "6.0.0", Syntax: "username [rule [rule ...]]",
			Summary:    "Creates and modifies a user and its rules.",
			Complexity: "O(N) where N is the number of rules, of the user and given",
			Secret:     SecretFrom(2),
			Handler:    aclSetUser,
		},
		{
			Name: "deluser", Kind: Write, Arity: -3, Flags: flags, Level: LevelSecond,
			Group: "server", Since: "6.0.0", Syntax: "username [username ...]",
			Summary:    "Deletes users and closes their connections.",
			Audit:      AuditArgs,
			Complexity: "O(N) where N is the number of users",
			Handler:    aclDelUser,
		},
		{
			Name: "getuser", Kind: Read, Arity: 3, Flags: flags, Level: LevelSecond,
			Group: "server", Since: "6.0.0", Syntax: "username",
			Summary:    "Returns the rules of a user.",
			Complexity: "O(N) where N is the number of rules",
			Handler:    aclGetUser,
		},
		{
			Name: "list", Kind: Read, Arity: 2, Flags: flags, Level: LevelSecond,
			Group: "server", Since: "6.0.0",
			Summary:    "Lists the users with their rules.",
			Complexity: "O(N) where N is the number of users",
			Handler:    aclList,
		},
		{
			Name: "users", Kind: Read, Arity: 2, Flags: flags, Level: LevelSecond,
			Group: "server", Since: "6.0.0",
			Summary:    "Lists the names of the users.",
			Complexity: "O(N) where N is the number of users",
			Handler:    aclUsers,
		},
		{
			Name: "dryrun", Kind: Read, Arity: -4, Flags: flags, Level: LevelSecond,
			Group: "server", Since: "7.0.0", Syntax: "username command [arg [arg ...]]",
			Carries:    3,
			Summary:    "Reports whether a user may run a command, without running it.",
			Complexity: "O(N) where N is the number of rules",
			Handler:    aclDryRun,
		},
	}
}

// What users cost, in units of Env.Work.
const (
	listedUsers  = 4   // users whose places in the set of all are one unit to copy
	ruleBytes    = 8   // bytes of rules that are one unit to write
	describeWork = 800 // deriving what a selector shows
)

// spendUser charges for describing a user.
func (x *Call) spendUser(u *acl.User) {
	x.Spend(describeWork*u.Len() + u.Bytes()/ruleBytes)
}

func aclSetUser(x *Call) error {
	name, rules := x.Args[2], x.Args[3:]
	old := x.Users.Get(name)
	users, units, err := x.Users.Change(name, uint64(x.Keyspace.CurrentRevision()), rules)
	x.Spend(units + x.Users.Len()/listedUsers)
	if err != nil {
		return Errorf("ERR %v", err)
	}
	if old == nil || !bytes.Equal(old.AppendTo(nil), users.Get(name).AppendTo(nil)) {
		x.SetUsers(users, string(name))
	}
	x.Out.Status("OK")
	return nil
}

func aclDelUser(x *Call) error {
	names := x.Args[2:]
	for _, name := range names {
		if string(name) == acl.DefaultUser {
			return errDefaultUser
		}
	}
	users, deleted := x.Users, []string(nil)
	for _, name := range names {
		if users.Get(name) != nil {
			x.Spend(users.Len() / listedUsers)
			users = users.Without(name)
			deleted = append(deleted, string(name))
		}
	}
	if deleted != nil {
		x.SetUsers(users, deleted...)
	}
	x.Out.Int(int64(len(deleted)))
	return nil
}

func aclGetUser(x *Call) error {
	u := x.Users.Get(x.Args[2])
	if u == nil {
		x.Out.Null()
		return nil
	}
	x.spendUser(u)
	x.Out.Map(6)
	x.Out.BulkString("flags")
	x.Out.Set(len(u.Flags()))
	for _, f := range u.Flags() {
		x.Out.BulkString(f)
	}
	x.Out.BulkString("passwords")
	x.Out.Array(len(u.Hashes()))
	for _, h := range u.Hashes() {
		x.Out.BulkString(h)
	}
	selectors := u.Selectors()
	x.replySelector(selectors[0])
	x.Out.BulkString("selectors")
	x.Out.Array(len(selectors) - 1)
	for _, s := range selectors[1:] {
		x.Out.Map(3)
		x.replySelector(s)
	}
	return nil
}

// replySelector replies with the three pairs of a selector.
func (x *Call) replySelector(s acl.Selector) {
	for _, text := range []string{"commands", s.Commands, "keys", s.Keys, "channels", s.Channels} {
		x.Out.BulkString(text)
	}
}

func aclList(x *Call) error {
	x.Out.Array(x.Users.Len())
	for _, u := range x.Users.All() {
		x.spendUser(u)
		x.Out.BulkString(u.String())
	}
	return nil
}

func aclUsers(x *Call) error {
	x.Out.Array(x.Users.Len())
	for _, u := range x.Users.All() {
		x.Out.BulkString(u.Name())
	}
	return nil
}

func aclDryRun(x *Call) error {
	u := x.Users.Get(x.Args[2])
	if u == nil {
		return Errorf("ERR User '%s' not found", resp.Shown(x.Args[2]))
	}
	args := x.Args[3:]
	spec, err := x.Table.ResolveAt(x.Level, args)
	switch {
	case spec == nil:
		return Errorf("ERR Command '%s' not found", resp.Shown(args[0]))
	case err != nil:
		return err
	case spec.Keys.Carried:
		if _, err := spec.carriedAt(x.Level, args); err != nil {
			return err
		}
	}
	d, denied, units := spec.checkAt(x.Level, u, args)
	x.Spend(units)
	object := resp.CText(d.Object)
	switch {
	case !denied:
		x.Out.Status("OK")
	case d.Reason == acl.DeniedCommand:
		x.Out.BulkString("This user has no permissions to run the '" + object + "' command")
	case d.Reason == acl.DeniedWork:
		return errDeniedWork
	default:
		x.Out.BulkString("This user has no permissions to access the '" + object + "' " +
			d.Reason.String())
	}
	return nil
}
