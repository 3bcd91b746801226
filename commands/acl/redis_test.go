package acl

// Compares rules and what is shown of users with a real redis-server, with its own commands in the
// catalog.

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// redis is a real server.
type redis struct {
	t    *testing.T
	conn *commandtest.Conn
}

func startRedis(t *testing.T, more ...string) *redis {
	t.Helper()
	socket := commandtest.StartRedis(t, more...)
	if socket == "" {
		t.Skip(commandtest.RedisMissing)
	}
	conn, err := commandtest.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &redis{t, conn}
}

func (r *redis) call(words ...string) commandtest.Value {
	r.t.Helper()
	raw, err := r.conn.Do(commandtest.Args(words...))
	if err != nil {
		r.t.Fatal(err)
	}
	v, err := commandtest.Parse(raw)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// catalog makes a catalog of the server's commands.
func (r *redis) catalog() *Catalog {
	var all []Command
	var add func(v commandtest.Value)
	add = func(v commandtest.Value) {
		c := Command{Name: v.Elems[0].Text, Container: len(v.Elems[9].Elems) > 0}
		for _, flag := range v.Elems[2].Elems {
			c.Always = c.Always || flag.Text == "no_auth"
		}
		for _, category := range v.Elems[6].Elems {
			c.Categories |= CategoriesOf(strings.TrimPrefix(category.Text, "@"))
		}
		all = append(all, c)
		for _, sub := range v.Elems[9].Elems {
			add(sub)
		}
	}
	for _, v := range r.call("COMMAND").Elems {
		add(v)
	}
	return NewCatalog(all)
}

// randomRule returns a rule, mostly one that is valid.
func randomRule(rnd *rand.Rand, c *Catalog) string {
	pick := func(words ...string) string { return words[rnd.IntN(len(words))] }
	sign := pick("+", "-")
	command := c.commands[rnd.IntN(len(c.commands))].Name
	pattern := pick("a", "*", "b*", "", "x:?", "[a-c]", "a b", `"q`, "x)", "(")
	switch rnd.IntN(24) {
	case 0, 1, 2, 3, 4:
		return sign + command
	case 5, 6, 7, 8:
		return sign + "@" + pick(categoryNames[:]...)
	case 9:
		return pick("+@all", "-@all", "allcommands", "nocommands", "+@ALL")
	case 10:
		return pick("+", "+", "-") + command + "|" + pick("a", "B", "b", "")
	case 11:
		return "+" + pick("select", "get", "config", "ping") + "|" + pick("0", "get", "GET", "set")
	case 12, 13:
		return pick("~", "%R~", "%W~", "%RW~", "%r~", "%wr~", "%RR~", "%", "%R", "%~") + pattern
	case 14:
		return "&" + pattern
	case 15:
		return pick("allkeys", "resetkeys", "allchannels", "resetchannels", "ALLKEYS")
	case 16:
		return pick("on", "off", "nopass", "resetpass", "On", "sanitize-payload",
			"skip-sanitize-payload")
	case 17:
		return pick(">", "<") + pick("a", "b", "c", "")
	case 18:
		return pick("#", "!") + pick(Hash([]byte("a")), Hash([]byte("b")), "x",
			strings.Repeat("A", 64))
	case 19, 20:
		rules := make([]string, rnd.IntN(4))
		for i := range rules {
			rules[i] = randomRule(rnd, c)
		}
		return "(" + strings.Join(rules, pick(" ", "  ")) + pick(")", ")", ")", ")", "")
	case 21:
		return pick("clearselectors", "reset", "", "(", ")", "()", "foo")
	}
	return sign + strings.ToUpper(command)
}

// sameUser reports whether two lines of ACL LIST are equal. The server lists single commands in the
// order of a hash table, containers before their subcommands.
func sameUser(a, b string) bool {
	return slices.Equal(sortedCommands(a), sortedCommands(b))
}

// sortedCommands returns the words of a line, with runs of single commands sorted.
func sortedCommands(line string) []string {
	words := strings.Fields(strings.ReplaceAll(line, ")", " )"))
	single := func(w string) bool {
		return (w[0] == '+' || w[0] == '-') && !strings.HasPrefix(w[1:], "@")
	}
	for i := 0; i < len(words); i++ {
		end := i
		for end < len(words) && single(words[end]) {
			end++
		}
		slices.Sort(words[i:end])
		i = max(i, end-1)
	}
	return words
}

func TestRulesAsRedis(t *testing.T) {
	r := startRedis(t)
	c := r.catalog()
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	users, refused, shown := New(c), 0, 0
	rounds := 2000
	if tier.Soaking() {
		rounds = 20_000
	}
	for n := range rounds {
		name := fmt.Sprintf("u%d", rnd.IntN(4))
		rules := make([]string, 1+rnd.IntN(5))
		for i := range rules {
			rules[i] = randomRule(rnd, c)
		}
		want := r.call(append([]string{"ACL", "SETUSER", name}, rules...)...)
		changed, _, err := users.Change([]byte(name), 0, commandtest.Args(rules...))
		have := "OK"
		if err != nil {
			refused++
			have = "ERR " + err.Error()
		} else {
			users = again(t, changed, rnd)
		}
		if have != want.Text {
			t.Fatalf("%d: %q: %s, Redis %s", n, rules, have, want)
		}
		if n%20 > 0 {
			continue
		}
		list := r.call("ACL", "LIST")
		for i, u := range users.All() {
			if shown++; !sameUser(u.String(), list.Elems[i].Text) {
				t.Fatalf("%d: %s\nRedis: %s", n, u, list.Elems[i].Text)
			}
		}
		if n%200 == 0 {
			for _, u := range users.All()[1:] {
				r.call("ACL", "SETUSER", u.Name(), "reset")
				users = change(t, users, u.Name(), "reset")
			}
		}
	}
	if refused < rounds/12 || shown < rounds/6 {
		t.Fatalf("%d refused, %d shown: too few", refused, shown)
	}
}

// Random files of users. Without a line for the default user the test keeps its rights.
func TestFilesAsRedis(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := startRedis(t, "--aclfile", path)
	c := r.catalog()
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	users, refused, loaded := New(c), 0, 0
	rounds := 600
	if tier.Soaking() {
		rounds = 6000
	}
	for n := range rounds {
		var file strings.Builder
		for range rnd.IntN(4) {
			words := []string{"user", "a"}
			switch rnd.IntN(30) {
			case 0:
				words[0] = "usr"
			case 1:
				words = words[:1]
			}
			if len(words) == 2 {
				words[1] = string(rune('a' + rnd.IntN(26)))
			}
			for range rnd.IntN(4) {
				rule := randomRule(rnd, c)
				for strings.HasPrefix(rule, "(") != strings.HasSuffix(rule, ")") {
					rule = randomRule(rnd, c) // Redis crashes if a parenthesis is not closed
				}
				if len(words) > 1 || rule != "" { // Redis takes an empty name
					words = append(words, rule)
				}
			}
			file.WriteString(strings.Join(words, " ") + "\n")
		}
		if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		want := r.call("ACL", "LOAD")
		replaced, _, err := users.Replace(path, []byte(file.String()), 0, maxTestWork)
		have := "OK"
		if err != nil {
			refused++
			have = "ERR " + err.Error()
		} else {
			loaded++
			users = again(t, replaced, rnd)
		}
		if have != want.Text {
			t.Fatalf("%d: %q: %s, Redis %s", n, file.String(), have, want)
		}
		list := r.call("ACL", "LIST")
		if len(list.Elems) != users.Len() {
			t.Fatalf("%d: %d users, Redis %d", n, users.Len(), len(list.Elems))
		}
		for i, u := range users.All() {
			if !sameUser(u.String(), list.Elems[i].Text) {
				t.Fatalf("%d: %s\nRedis: %s", n, u, list.Elems[i].Text)
			}
		}
	}
	if refused < rounds/15 || loaded < rounds/15 {
		t.Fatalf("%d refused, %d loaded: too few", refused, loaded)
	}
}
