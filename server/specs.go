// The specs of the commands that the server declares.

package server

import (
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
)

// Specs returns every command that sessions answer, or take part in answering.
func Specs() []commands.Spec {
	return slices.Concat(connectionSpecs, transactionSpecs, pubsubSpecs, clientSpecs, serverSpecs,
		introspectSpecs,
		monitorSpecs, slowlogSpecs, latencySpecs,
		memorySpecs, aclSpecs, debugSpecs, adminSpecs, raftSpecs, clusterSpecs, sentinelSpecs)
}

// helpSpec returns the HELP subcommand of a container; lines describe the others in Redis's words,
// which tools show.
func helpSpec(container, since, group string, lines ...string) commands.Spec {
	return commands.Spec{
		Name: "help", Kind: commands.Session, Arity: 2, Group: group, Since: since,
		Flags:   commands.Loading | commands.Stale | commands.Shows,
		Summary: "Lists the subcommands of " + container + ".", Complexity: "O(1)",
		Local: &commands.Local{Early: true,
			Run: serve(func(s *session, _ *commands.Spec, _ [][]byte) {
				help(s, container, lines)
			})},
	}
}

// audited returns the spec of a subcommand with what the audit trail shows of it.
func audited(by commands.Audit, spec commands.Spec) commands.Spec {
	spec.Audit = by
	return spec
}

// shows declares that a command changes nothing and stops nobody.
func shows(spec commands.Spec) commands.Spec {
	spec.Flags |= commands.Shows
	return spec
}

// carries declares where a call of another command begins in the arguments.
func carries(first int, spec commands.Spec) commands.Spec {
	spec.Carries = first
	return spec
}

func help(s *session, container string, lines []string) {
	s.w.Array(len(lines) + 3)
	s.w.Status(container + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, l := range lines {
		s.w.Status(l)
	}
	s.w.Status("HELP")
	s.w.Status("    Prints this help.")
}

// secret declares which arguments of a command MONITOR and the slow log hide.
func secret(spec commands.Spec, hidden commands.Secret) commands.Spec {
	spec.Secret = hidden
	return spec
}

// subcommandSyntax returns the error for a subcommand with too many arguments.
func subcommandSyntax(args [][]byte) error {
	return commands.SubcommandSyntax(args)
}

// lowerWord returns an argument in lower case.
func lowerWord(arg []byte) string { return ascii.Lower(arg) }

// is reports whether an argument is a word, given in lower case, in any case.
func is(arg []byte, word string) bool {
	return len(arg) == len(word) && ascii.Equal(arg, word)
}
