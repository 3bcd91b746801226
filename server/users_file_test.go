package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ACL SAVE on a node that lags writes the users of the cluster. The machine decides who may.
func TestSaveOnANodeThatLags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.acl")
	n := start(t, func(c *Config) { c.UsersFile = file })
	admin, bob := n.dial(t), n.dial(t)
	n.fake.setUser(t, "bob", "on", "nopass", "+@all")
	bob.call("AUTH", "bob", "any")
	before := n.fake.Users()
	n.fake.setUser(t, "bob", "-acl|save", "~new:*")
	n.fake.users.Store(before)
	if got := admin.call("ACL", "SAVE"); got != "+OK\r\n" {
		t.Error(got)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "~new:*") ||
		!strings.HasSuffix(string(text), "\n") || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%q, %v", text, err)
	}
	if got := bob.call("ACL", "SAVE"); !strings.HasPrefix(got, "-NOPERM ") {
		t.Error(got)
	}
	if got := admin.call("ACL", "LOG"); !strings.Contains(got, "acl|save") {
		t.Error(got)
	}
}
