// The marked parts of docs/compatibility.md derive from the command table: what coordd has that
// Redis 7.0 lacks, and the reverse. The options are compared with a real redis-server.

package docs

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/server"
)

// derivedPart is a part of a document that a test writes, with its name in the mark before it.
var derivedPart = regexp.MustCompile(`(?s)<!-- derived: (\w+) -->\n(.*?)<!-- end -->`)

func TestCompatibilityDoc(t *testing.T) {
	const name = "docs/compatibility.md"
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	table := commands.NewTable(commands.Specs(), server.Specs())
	redis := redisOptions(t)
	parts := map[string]string{"commands": newerCommands(table), "absent": absentCommands(),
		"missing": missingSince(t, ownOptions(t, table))}
	if redis == nil {
		t.Log(commandtest.RedisMissing + ": the options are not compared")
	} else {
		parts["options"] = optionsTable(ownOptions(t, table), redis)
		checkAbsent(t, table, redis)
	}
	known := map[string]bool{"commands": true, "absent": true, "options": true, "missing": true}
	want := derivedPart.ReplaceAllStringFunc(string(text), func(old string) string {
		m := derivedPart.FindStringSubmatch(old)
		if !known[m[1]] {
			t.Errorf("%s has a part %q twice, or no test derives it", name, m[1])
		}
		delete(known, m[1])
		if part, ok := parts[m[1]]; ok {
			return fmt.Sprintf("<!-- derived: %s -->\n%s<!-- end -->", m[1], part)
		}
		return old
	})
	for part := range known {
		t.Errorf("%s lacks the part %q", name, part)
	}
	keep(t, name, want)
}

// version takes "7.0.15" apart, to be compared.
func version(t string) (v [3]int) {
	for i, s := range strings.SplitN(t, ".", 3) {
		v[i], _ = strconv.Atoi(s)
	}
	return v
}

// newerCommands lists what Redis 7.0 lacks: commands of later versions, and coordd's own.
func newerCommands(table *commands.Table) string {
	bySince := map[string][]string{}
	add := func(s *commands.Spec) {
		v := version(s.Since)
		if redis70 := v[0] > 0 && slices.Compare(v[:2], []int{7, 0}) <= 0; !redis70 {
			bySince[s.Since] = append(bySince[s.Since], docName(s.FullName()))
		}
	}
	for _, s := range table.All() {
		if s.Subcommands == nil {
			add(s)
		}
		for i := range s.Subcommands {
			add(&s.Subcommands[i])
		}
	}
	var b strings.Builder
	b.WriteString("| Since | Commands |\n|---|---|\n")
	for _, since := range slices.SortedFunc(maps.Keys(bySince), func(a, b string) int {
		va, vb := version(a), version(b)
		return slices.Compare(va[:], vb[:])
	}) {
		slices.SortFunc(bySince[since], func(a, b string) int {
			return cmp.Compare(strings.Trim(a, "`"), strings.Trim(b, "`"))
		})
		fmt.Fprintf(&b, "| %s | %s |\n", since, strings.Join(bySince[since], ", "))
	}
	return b.String()
}

// absentCommands lists what coordd refuses, with the reasons that it gives.
func absentCommands() string {
	var b strings.Builder
	b.WriteString("| Commands | Why, and what to use |\n|---|---|\n")
	for _, r := range server.Refusals {
		var names []string
		for name := range strings.FieldsSeq(r.Names) {
			names = append(names, docName(name))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names, ", "), r.Why)
	}
	return b.String()
}

// docName writes "client|kill" as documents do, "debug|*" as "DEBUG …".
func docName(name string) string {
	return "`" + strings.ToUpper(strings.NewReplacer("|*", " …", "|", " ").Replace(name)) + "`"
}

// options are the words in the arguments of each command, by its full name.
type options map[string][]string

// ownOptions takes the words from the Specs.
func ownOptions(t *testing.T, table *commands.Table) options {
	own := options{}
	var walk func(name string, args []commands.Arg)
	walk = func(name string, args []commands.Arg) {
		for _, a := range args {
			if a.Token != "" {
				own[name] = append(own[name], strings.ToUpper(a.Token))
			}
			walk(name, a.Args)
		}
	}
	add := func(s *commands.Spec) {
		args, err := commands.ParseSyntax(s.Syntax)
		if err != nil {
			t.Fatal(err)
		}
		own[s.FullName()] = nil
		walk(s.FullName(), args)
	}
	for _, s := range table.All() {
		add(s)
		for i := range s.Subcommands {
			add(&s.Subcommands[i])
		}
	}
	return own
}

// redisOptions takes the words from the COMMAND DOCS of a redis-server, if one is installed.
func redisOptions(t *testing.T) options {
	socket := commandtest.StartRedis(t)
	if socket == "" {
		return nil
	}
	c, err := commandtest.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.Do(commandtest.Args("COMMAND", "DOCS"))
	if err != nil {
		t.Fatal(err)
	}
	docs, err := commandtest.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	redis := options{}
	var args func(name string, list commandtest.Value)
	args = func(name string, list commandtest.Value) {
		for _, arg := range list.Elems {
			for field := arg.Elems; len(field) > 1; field = field[2:] {
				switch field[0].Text {
				case "token":
					redis[name] = append(redis[name], strings.ToUpper(field[1].Text))
				case "arguments":
					args(name, field[1])
				}
			}
		}
	}
	var walk func(docs commandtest.Value)
	walk = func(docs commandtest.Value) {
		for pair := docs.Elems; len(pair) > 1; pair = pair[2:] {
			redis[pair[0].Text] = nil
			for field := pair[1].Elems; len(field) > 1; field = field[2:] {
				switch field[0].Text {
				case "arguments":
					args(pair[0].Text, field[1])
				case "subcommands":
					walk(field[1])
				}
			}
		}
	}
	walk(docs)
	return redis
}

// undocumented are words that both servers take and the documentation of only one shows.
var undocumented = map[string][]string{
	"bitop":       {"AND", "OR", "XOR", "NOT"},
	"client|kill": {"YES", "NO", "SLAVE"},
	"debug":       {"ERROR", "SLEEP", "OBJECT", "HELP"},
}

// optionsTable lists the words that only one of the servers has, of commands that both have.
func optionsTable(own, redis options) string {
	var b strings.Builder
	b.WriteString("| Command | Only in coordd | Only in Redis 7.0.15 |\n|---|---|---|\n")
	for _, name := range slices.SortedFunc(maps.Keys(own), cmp.Compare) {
		if _, shared := redis[name]; !shared {
			continue
		}
		both := undocumented[name]
		more := without(own[name], slices.Concat(redis[name], both))
		fewer := without(redis[name], slices.Concat(own[name], both))
		if more+fewer != "" {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", docName(name), more, fewer)
		}
	}
	return b.String()
}

// without lists the words of a that b lacks.
func without(a, b []string) string {
	var only []string
	for _, word := range a {
		if name := "`" + word + "`"; !slices.Contains(b, word) && !slices.Contains(only, name) {
			only = append(only, name)
		}
	}
	return strings.Join(only, ", ")
}

// checkAbsent fails for a command of Redis that coordd neither has nor refuses with a reason.
func checkAbsent(t *testing.T, table *commands.Table, redis options) {
	refused := map[string]bool{}
	for _, r := range server.Refusals {
		for name := range strings.FieldsSeq(r.Names) {
			refused[name] = true
		}
	}
	for name := range redis {
		container, sub, _ := strings.Cut(name, "|")
		c := table.Get([]byte(container))
		has := c != nil && (sub == "" || table.Subcommand(c, []byte(sub)) != nil)
		if !has && !refused[name] && !refused[container] && !refused[container+"|*"] {
			t.Errorf("coordd neither has %s nor lists it in server.Refusals", name)
		}
	}
}
