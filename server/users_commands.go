// ACL. The machine runs the subcommands that show and change users (commands/users.go). Here are
// those about the connection and the node, and what the session adds to the others.

package server

import (
	"crypto/rand"
	"encoding/hex"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/internal/resp"
)

var aclSpecs = []commands.Spec{{
	Name: "acl", Kind: commands.Session, Arity: -2, Group: "server", Since: "6.0.0",
	Summary: "Shows and changes users and their rules.", Complexity: "That of the subcommand",
	Audit: commands.AuditFirst, // ACL SETUSER shows the name, not the rules
	Subcommands: slices.Concat(machineACLSpecs(), []commands.Spec{
		shows(aclSub(commands.Session, false, "whoami", 2, "",
			"Returns the user of the connection.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.BulkString(s.userName())
			})),
		shows(aclSub(commands.Session, true, "cat", -2, "[category]",
			"Lists the command categories, or the commands of one.", aclCat)),
		shows(aclSub(commands.Session, false, "genpass", -2,
			"[bits:integer]", "Generates a random password, in hexadecimal.", aclGenPass)),
		audited(auditReset, aclSub(commands.Admin, true, "log", -2, "[count:integer | RESET]",
			"Returns what clients of this node were denied, newest first, or clears the list.",
			aclLog)),
		aclSub(commands.Admin, false, "load", 2, "",
			"Replaces all users by those of the node's --users-file.", aclLoad),
		aclSub(commands.Admin, false, "save", 2, "",
			"Writes all users to the node's --users-file.", aclSave),
		helpSpec("ACL", "6.0.0", "server",
			"CAT [<category>]",
			"    List all commands that belong to <category>, or all command categories",
			"    when no category is specified.",
			"DELUSER <username> [<username> ...]", "    Delete a list of users.",
			"DRYRUN <username> <command> [<arg> ...]",
			"    Returns whether the user can execute the given command without executing the "+
				"command.",
			"GETUSER <username>", "    Get the user's details.",
			"GENPASS [<bits>]",
			"    Generate a secure 256-bit user password. The optional `bits` argument can",
			"    be used to specify a different size.",
			"LIST", "    Show users details in config file format.",
			"LOAD", "    Reload users from the ACL file.",
			"LOG [<count> | RESET]", "    Show the ACL log entries.",
			"SAVE", "    Save the current config to the ACL file.",
			"SETUSER <username> <attribute> [<attribute> ...]",
			"    Create or modify a user with the specified attributes.",
			"USERS", "    List all the registered usernames.",
			"WHOAMI", "    Return the current connection username."),
	}),
}}

// machineACLSpecs returns the subcommands that the machine runs, with what the session does first.
func machineACLSpecs() []commands.Spec {
	specs := commands.ACLSubcommands()
	for i := range specs {
		spec := &specs[i]
		run := showUsers
		if spec.Kind == commands.Write {
			run = changeUsers
			spec.Ran = func(c commands.Client, _ [][]byte) { c.(*session).newUsers = true }
		}
		spec.Local = &commands.Local{Raw: true, Run: serve(run)}
		if spec.Carries > 0 { // what the call hides does not leave the session
			spec.Rewrite = func(c commands.Client, args [][]byte) ([][]byte, error) {
				return redact(c.(*session).srv.table, spec, args), nil
			}
		}
		if spec.Secret != nil { // its passwords do not leave the session
			spec.Rewrite = func(c commands.Client, args [][]byte) ([][]byte, error) {
				return c.(*session).rewriteSetUser(args)
			}
			changed := spec.Ran
			spec.Ran = func(c commands.Client, args [][]byte) {
				changed(c, args)
				c.(*session).hasSetUser(args)
			}
		}
	}
	return specs
}

// changeUsers passes a subcommand that changes the users on. Below LevelSecond the machine does not
// know it.
func changeUsers(s *session, spec *commands.Spec, args [][]byte) {
	switch users, err := s.knownUsers(); {
	case err != nil:
		s.failRaw(spec, args, err)
	case users.Level < commands.LevelSecond:
		s.failRaw(spec, args, commands.Errorf("ERR %v", errUsersLevel))
	default:
		s.request(spec, args)
		s.flush() // what it changes concerns the next command
		s.awaitRevoked()
	}
}

// showUsers answers a subcommand that reads the users. Below LevelSecond the machine does not know
// it, and nothing has changed the users that this node has.
func showUsers(s *session, spec *commands.Spec, args [][]byte) {
	users, err := s.knownUsers()
	if err != nil {
		s.failRaw(spec, args, err)
		return
	}
	if users.Level >= commands.LevelSecond {
		s.request(spec, args)
		return
	}
	replied := 0
	s.answer(func() {
		x := commands.Call{
			Env: &commands.Env{Table: s.srv.table, Users: users.Users, Level: users.Level},
			Tx:  &commands.Tx{Proto: s.proto}, Args: args, Out: s.w,
		}
		start := len(s.w.Buf)
		x.Run(spec, nil)
		replied = len(s.w.Buf) - start
	})
	s.count(spec, args, endedOK, 0, replied)
}

// aclSub declares a subcommand. One that works does nothing but compute: it asks the cluster for
// nothing.
func aclSub(kind commands.Kind, works bool, name string, arity int, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: kind, Arity: arity, Group: "server", Since: "6.0.0",
		Flags:  commands.NoScript | commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of commands",
		Local: &commands.Local{Run: serve(run), Works: works},
	}
}

// aclCat lists the categories, or the commands of one, as COMMAND LIST FILTERBY ACLCAT does.
func aclCat(s *session, _ *commands.Spec, args [][]byte) {
	switch len(args) {
	case 2:
		s.bulks(acl.AllCategories.Names())
	case 3:
		category := acl.ParseCategory(string(args[2]))
		if category == 0 {
			s.fail(commands.Errorf("ERR Unknown category '%s'", resp.Shown(args[2])))
			return
		}
		s.bulks(s.namesOf(func(c *commands.Spec) bool { return c.Categories()&category != 0 }))
	default:
		s.fail(subcommandSyntax(args))
	}
}

func aclGenPass(s *session, _ *commands.Spec, args [][]byte) {
	bits := int64(256)
	switch len(args) {
	case 2:
	case 3:
		n, ok := commands.ParseInt(args[2])
		if !ok {
			s.fail(commands.ErrNotInteger)
			return
		}
		if n < 1 || n > 4096 {
			s.fail(commands.Error(
				"ERR ACL GENPASS argument must be the number of bits for the output password, a " +
					"positive number up to 4096"))
			return
		}
		bits = n
	default:
		s.fail(subcommandSyntax(args))
		return
	}
	random := make([]byte, (bits+7)/8)
	_, _ = rand.Read(random) // never fails
	s.w.BulkString(hex.EncodeToString(random)[:(bits+3)/4])
}
