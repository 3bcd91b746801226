// The rules of ACL SETUSER before they leave the session: passwords become hashes, and what is no
// rule does not go into the log, since a mistake may contain a password.

package server

import (
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
)

// hasSetUser follows ACL SETUSER: who gives the default user a password knows it.
func (s *session) hasSetUser(args [][]byte) {
	if string(args[2]) != userDefault {
		return
	}
	for _, r := range args[3:] {
		if len(r) > 0 && r[0] == '#' {
			s.knowsPassword(r[1:])
		}
	}
}

// rewriteSetUser returns the arguments of ACL SETUSER as they may leave the session, or the error
// for those that are no rules.
func (s *session) rewriteSetUser(args [][]byte) ([][]byte, error) {
	users, err := s.knownUsers()
	if err != nil {
		return nil, err
	}
	rules, err := acl.HashRules(args[3:])
	if err == nil {
		err = users.CheckRules(rules)
	}
	if err != nil {
		return nil, commands.Errorf("ERR %v", err)
	}
	return slices.Concat(args[:3], rules), nil
}
