package acl

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// FuzzRules gives a user rules, one a line. Whatever they are, they are bounded and deterministic:
// what CheckRules refuses no user gets, a refused change leaves the user as it was, and an accepted
// one comes back from a snapshot and from a file.
func FuzzRules(f *testing.F) {
	c := testCatalog()
	for _, rules := range []string{
		"on\nnopass\n~*\n&*\n+@all", "reset\n>secret\n%R~a*\n%W~b\n%RW~*",
		"-@all\n+get|x\n-@read\n+get|x", "(~a +@read)\n(%R~b\\) +get)\nclearselectors",
		"#" + strings.Repeat("a", 64), "!x\n<y\n&", "(", "()", "~",
		"+@nosuch\n+config|get\n-config", "allkeys\n~b",
		"resetkeys\nresetchannels\nallchannels\n&b",
	} {
		f.Add(rules)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rules := args(strings.Split(text, "\n"))
		users := New(c)
		hashed, err := HashRules(rules)
		if err != nil {
			if len(rules) <= maxRules {
				t.Fatal(err)
			}
			return
		}
		refused := users.CheckRules(hashed)
		changed, units, err := users.Change([]byte("u"), 7, hashed)
		if refused != nil && err == nil {
			t.Fatalf("CheckRules says %v, Change nothing", refused)
		}
		if units < 0 || units > maxTestWork {
			t.Fatalf("%d units", units)
		}
		if users.Get([]byte("u")) != nil {
			t.Fatal("the users that were there changed")
		}
		if err != nil {
			return
		}
		if changed.bytes > maxBytes || strings.Contains(string(changed.File()), "secret") {
			t.Fatalf("%d bytes: %.200s", changed.bytes, changed.File())
		}
		again(t, changed, rand.New(rand.NewPCG(1, 1)))
	})
}
