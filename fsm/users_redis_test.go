// What random users may do, compared with redis-server: by ACL DRYRUN, for commands that both have.

package fsm

import (
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/acl"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/random"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// bothHave returns the commands of the table that a real server has, too.
func bothHave(t *testing.T, real *commandtest.Conn,
	specs []*commands.Spec) (both []*commands.Spec) {
	t.Helper()
	for _, s := range specs {
		raw, err := real.Do(commandtest.Args("COMMAND", "INFO", s.FullName()))
		if err != nil {
			t.Fatal(err)
		}
		v, err := commandtest.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !v.Elems[0].Null {
			both = append(both, s)
		}
	}
	return both
}

// ruleMaker makes random rules.
type ruleMaker struct {
	*random.Calls
	both []*commands.Spec
}

func (g *ruleMaker) rules() []string {
	rules := make([]string, 1+g.IntN(6))
	for i := range rules {
		rules[i] = g.rule()
	}
	if g.IntN(3) == 0 {
		rules = slices.Insert(rules, 0, "+@all")
	}
	if g.IntN(5) == 0 {
		rules = append(rules, "allkeys")
	}
	return rules
}

func (g *ruleMaker) rule() string {
	sign := g.Pick([]string{"+", "+", "-"})
	pattern := g.Pick([]string{"k*", "?1", "[hz]*", "*", "k1", "*2", "", "l[^1]", "ch*", "a"})
	switch g.IntN(6) {
	case 0:
		return sign + g.both[g.IntN(len(g.both))].FullName()
	case 1, 2:
		return sign + "@" + g.Pick(acl.AllCategories.Names())
	case 3:
		return "&" + pattern
	case 4:
		return "+" + g.Pick([]string{"get", "select", "set", "ping", "expire"}) + "|" +
			g.Pick(random.KeyPool[:8])
	}
	return g.Pick([]string{"~", "%R~", "%W~", "%RW~"}) + pattern
}

// isCondition reports whether a word is IFEQ or one of its kin.
func isCondition(word []byte) bool {
	return slices.Contains([]string{"IFEQ", "IFNE", "IFDEQ", "IFDNE"},
		strings.ToUpper(string(word)))
}

func TestDryRunsAsRedis(t *testing.T) {
	detector.Skip(t)
	real := commandtest.DialRedis(t)
	table := testTable()
	g := &ruleMaker{Calls: random.NewCalls(table, seeds.Of(t))}
	g.Pools = append([]random.Pool{
		{Part: "channel", Values: []string{"ch", "ch1", "a", "x", "ch*"}},
		{Part: "subscribe pattern", Values: []string{"ch*", "ch1", "*"}},
	}, g.Pools...)
	all := table.All()
	for _, s := range all {
		for i := range s.Subcommands {
			all = append(all, &s.Subcommands[i])
		}
	}
	g.both = bothHave(t, real, slices.DeleteFunc(all, func(s *commands.Spec) bool {
		// Redis 7.0.15 takes fewer arguments where the arity was another one before
		return s.Subcommands != nil || s.Name == "debug" || s.ArityBefore != 0 ||
			s.Name == "purge" // for administrators here
	}))
	node := &scenarioNode{table: table, machine: newestMachine(table)}
	own := &scenarioSession{node: node, proto: 2}
	answers := map[string]int{}
	ask := func(words [][]byte) string {
		t.Helper()
		want, err := real.Do(words)
		if err != nil {
			t.Fatal(err)
		}
		have, err := own.Do(words)
		if err != nil {
			t.Fatal(err)
		}
		if string(have) != string(want) {
			list, _ := own.Do(commandtest.Args("ACL", "LIST"))
			t.Fatalf("%.2000q: %.500q, Redis %.500q\n%s", words, have, want, list)
		}
		return string(have)
	}
	for range 400 {
		rules := append([]string{"ACL", "SETUSER", "u", "reset"}, g.rules()...)
		if g.IntN(2) == 0 {
			rules = append(rules, "("+strings.Join(g.rules(), " ")+")")
		}
		ask(commandtest.Args(rules...))
		for range 50 {
			call := g.Call(g.both)
			if slices.ContainsFunc(call, isCondition) { // SET's of Redis 8.4 need another right
				continue
			}
			reply := ask(append(commandtest.Args("ACL", "DRYRUN", "u"), call...))
			switch {
			case reply == "+OK\r\n":
				answers["OK"]++
			case strings.Contains(reply, " has no permissions to "):
				_, reply, _ = strings.Cut(reply, "permissions to ")
				words := strings.Fields(reply)
				answers[words[len(words)-1]]++ // command, key or channel
			}
		}
	}
	for _, answer := range []string{"OK", "command", "key", "channel"} {
		if answers[answer] < 20 {
			t.Errorf("only %v", answers)
		}
	}
}
