package server

// What users without rights may do with commands that this node answers, and what is kept of it.

import (
	"strings"
	"testing"
)

// DEBUG has a handler, but the session answers most of its subcommands.
func TestDebugNeedsRights(t *testing.T) {
	n := start(t, nil)
	n.dial(t).call("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "-debug", "~*")
	bob := n.dial(t)
	bob.call("AUTH", "bob", "secret")
	const denied = "-NOPERM this user has no permissions to run the 'debug' command\r\n"
	for _, words := range [][]string{{"SLEEP", "0"}, {"HELP"}, {"OBJECT", "k"}, {"JMAP"}} {
		if got := bob.call(append([]string{"DEBUG"}, words...)...); got != denied {
			t.Errorf("DEBUG %s: %q", words[0], got)
		}
	}
}

// Who has no rights cannot fill a node's memory with what it was denied.
func TestLogOfDenialsKeepsBeginnings(t *testing.T) {
	n := start(t, nil)
	admin, bob := n.dial(t), n.dial(t)
	admin.call("ACL", "SETUSER", "bob", "on", ">secret", "+@all", "~k")
	bob.call("AUTH", "bob", "secret")
	long := strings.Repeat("x", 100_000)
	for _, words := range [][]string{{"SUBSCRIBE", long}, {"AUTH", long, "wrong"}, {"GET", long},
		{"MULTI"}, {"GET", long + "y"}, {"DISCARD"}} {
		bob.call(words...)
	}
	log := admin.call("ACL", "LOG")
	if n := strings.Count(log, "client-info"); n != 4 {
		t.Errorf("%d entries", n)
	}
	if len(log) > 16<<10 || !strings.Contains(log, long[:maxDenied]) {
		t.Errorf("%d bytes", len(log))
	}
}
