// ACL. There is one user, "default", with no password and all permissions. Queries answer for that
// user; commands that would create others are refused.

package server

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
)

const errNoACLFile commands.Error = "ERR This Redis instance is not configured to use an ACL " +
	"file. You may want to specify users via the ACL SETUSER " +
	"command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) " +
	"in order to store users in the Redis configuration."

var aclSpecs = []commands.Spec{{
	Name: "acl", Kind: commands.Session, Arity: -2, Group: "server", Since: "6.0.0",
	Summary: "Reports about users; the only one is default.", Complexity: "That of the subcommand",
	Subcommands: []commands.Spec{
		aclSub(commands.Session, "whoami", 2, "", "Returns the user of the connection.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.BulkString(s.userName())
			}),
		aclSub(commands.Session, "cat", -2, "[category]",
			"Lists the command categories, or the commands of one.", aclCat),
		aclSub(commands.Session, "genpass", -2, "[bits:integer]",
			"Generates a random password, in hexadecimal.", aclGenPass),
		aclSub(commands.Admin, "list", 2, "", "Lists the users and their permissions.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.Array(1)
				s.w.BulkString("user " + userDefault + " on nopass ~* &* +@all")
			}),
		aclSub(commands.Admin, "users", 2, "", "Lists the user names.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.w.Array(1)
				s.w.BulkString(userDefault)
			}),
		aclSub(commands.Admin, "getuser", 3, "username", "Returns the permissions of a user.",
			aclGetUser),
		aclSub(commands.Admin, "deluser", -3, "username [username ...]",
			"Returns 0, the number of users that can be removed.", aclDelUser),
		aclSub(commands.Admin, "dryrun", -4, "username command [arg [arg ...]]",
			"Reports whether a user may run a command.", aclDryRun),
		aclSub(commands.Admin, "log", -2, "[count:integer | RESET]",
			"Returns what clients of this node were denied, newest first, or clears the list.",
			aclLog),
		aclSub(commands.Admin, "load", 2, "", "Returns an error, since there is no ACL file.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.fail(errNoACLFile)
			}),
		aclSub(commands.Admin, "save", 2, "", "Returns an error, since there is no ACL file.",
			func(s *session, _ *commands.Spec, _ [][]byte) {
				s.fail(errNoACLFile)
			}),
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
			"USERS", "    List all the registered usernames.",
			"WHOAMI", "    Return the current connection username."),
	},
}}

func aclSub(kind commands.Kind, name string, arity int, syntax, summary string,
	run func(*session, *commands.Spec, [][]byte)) commands.Spec {
	return commands.Spec{
		Name: name, Kind: kind, Arity: arity, Group: "server", Since: "6.0.0",
		Flags:  commands.NoScript | commands.Loading | commands.Stale,
		Syntax: syntax, Summary: summary, Complexity: "O(N) where N is the number of commands",
		Local: &commands.Local{Run: serve(run), Works: true},
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
			s.fail(commands.Errorf("ERR Unknown category '%s'", args[2]))
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

func aclGetUser(s *session, _ *commands.Spec, args [][]byte) {
	if string(args[2]) != userDefault {
		s.w.Null()
		return
	}
	s.w.Map(6)
	s.w.BulkString("flags")
	s.w.Set(2)
	s.w.BulkString("on")
	s.w.BulkString("nopass")
	s.w.BulkString("passwords")
	s.w.Array(0)
	for _, pair := range [][2]string{{"commands", "+@all"}, {"keys", "~*"}, {"channels", "&*"}} {
		s.w.BulkString(pair[0])
		s.w.BulkString(pair[1])
	}
	s.w.BulkString("selectors")
	s.w.Array(0)
}

func aclDelUser(s *session, _ *commands.Spec, args [][]byte) {
	for _, name := range args[2:] {
		if string(name) == userDefault {
			s.fail(commands.Error("ERR The 'default' user cannot be removed"))
			return
		}
	}
	s.w.Int(0)
}

func aclDryRun(s *session, _ *commands.Spec, args [][]byte) {
	if string(args[2]) != userDefault {
		s.fail(commands.Errorf("ERR User '%s' not found", args[2]))
		return
	}
	c := s.srv.table.Get(args[3])
	if c == nil || (c.Subcommands != nil && len(args) > 4 &&
		s.srv.table.Subcommand(c, args[4]) == nil) {
		s.fail(commands.Errorf("ERR Command '%s' not found", args[3]))
		return
	}
	if _, err := s.srv.table.Resolve(args[3:]); err != nil {
		s.fail(err)
		return
	}
	s.w.Status("OK")
}
