package mutations

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Dir is where the patches are, relative to the top of the repository.
const Dir = "testdata/mutations"

// Classes are the kinds of bugs of which there is at least one each.
var Classes = []string{
	"reads by State()==Leader",
	"a confirmation that counts old answers",
	"reply before commit",
	"retry of an unknown write",
	"expiry by wall clock",
	"expiry by a follower's clock",
	"idle time given back",
	"a rest that misses a deadline",
	"a slow node that leads",
	"a member that catches up slowly",
	"what is swept shows",
	"old backups removed for a new cluster",
	"barrier skipped",
	"crossed replies in forwarding",
	"a frame sent again after a goodbye",
	"map order in the machine",
	"state that depends on a node's clients",
	"TIME that does not rise",
	"floats formatted by the platform",
	"elementary functions of the platform",
	"snapshot without the script cache",
	"snapshot without waiters",
	"snapshot without idle times",
	"a count of how a node came by its state",
	"restore that keeps the old epoch",
	"tokens from the copy alone",
	"two members changed at once",
	"birth not checked",
	"silence taken for a first start",
	"a certificate taken for membership",
	"fsync dropped in the leader",
	"fsync dropped in a follower",
	"fsync dropped in the stable store",
	"sealed tail not repaired",
	"suffix cut without rollback",
	"changed bytes taken for the end",
	"an inspection that writes",
	"dry run that leaves a trace",
	"invalidation before the reply",
	"ACL checked on the follower only",
	"delivery that drops on a full queue",
	"a goodbye that overtakes a reply",
	"log and snapshot that do not meet",
	"no room for the snapshot that makes room",
	"names folded by two rules",
	"panic outside the recover",
	"a count that saturates",
	"a client that goes unnoticed",
	"a message in place of a reply",
	"a repair that undoes what came since",
	"one wrong node that ends right ones",
	"state that cannot be read again",
	"snapshot that is not read back",
	"a vote without what was acknowledged",
	"a step that the models do not allow",
	"a refused candidate that holds up the election",
	"a late request that deposes a leader",
	"a change under way that stops elections",
	"a gate that waits for what it holds back",
	"a message of two logs",
	"a decision of a former leader",
	"a member that is ended by another's word",
	"a watch that is fed by what it looks for",
	"a small thing that is kept points into a large one",
	"work that nobody pays for",
	"keys times clients",
	"a length that is not that of C Lua",
	"order of arrival lost with the leader",
	"caches kept on a node that is cut off",
	"a refusal that is forgotten",
	"a subscription that begins too late",
	"subscribers that do not count",
	"answers of one node for all",
	"unknown users taken for none",
	"strangers who take what users share",
	"a share that is not the connection's",
	"one client delays all others",
	"a waiter that is overtaken",
	"a grant to nobody that is kept",
	"a grant that is passed on and not claimed",
	"a request that runs twice",
	"keys of a lease that end one by one",
	"a refused hit that is charged",
	"more permits than there are",
	"a hold that ends before its time",
	"a refusal that reads as a success",
	"a token that does not rise",
	"an answer taken for health",
}

// Mutation is one planted bug: a file NAME.patch. Lines before the diff are its head:
//
//	what is broken, in one or more lines
//	class: one of Classes
//	find: the command that fails because of it
type Mutation struct {
	Name  string
	What  string // a sentence
	Class string
	Find  Command
	Path  string // where the patch is
}

// Command is a run of tests.
type Command struct {
	Env     []string // NAME=value
	Package string   // ./cluster
	Run     string   // the regular expression of -run
	Flags   []string // all flags of go test
}

// String returns the command as the patch has it.
func (c Command) String() string {
	words := append(slices.Clone(c.Env), "go", "test", c.Package)
	return strings.Join(append(words, c.Flags...), " ")
}

// Load reads the patches of the repository at root, in the order of their names.
func Load(root string) ([]Mutation, error) {
	paths, err := filepath.Glob(filepath.Join(root, Dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var list []Mutation
	for _, path := range paths {
		m, err := read(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, m)
	}
	return list, nil
}

func read(path string) (Mutation, error) {
	m := Mutation{Name: strings.TrimSuffix(filepath.Base(path), ".patch"), Path: path}
	text, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	head, _, ok := strings.Cut(string(text), "\ndiff --git ")
	if !ok {
		return m, fmt.Errorf("it has no head and no diff")
	}
	var what []string
	find := ""
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if class, ok := strings.CutPrefix(line, "class: "); ok {
			m.Class = class
		} else if command, ok := strings.CutPrefix(line, "find: "); ok {
			find = command
		} else if line != "" {
			what = append(what, line)
		}
	}
	m.What = strings.Join(what, " ")
	if !strings.HasSuffix(m.What, ".") {
		return m, fmt.Errorf("its head has no sentence that says what is broken")
	}
	if !slices.Contains(Classes, m.Class) {
		return m, fmt.Errorf("its class is %q, none of those in mutations.go", m.Class)
	}
	m.Find, err = parseCommand(find)
	return m, err
}

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

// parseCommand reads [NAME=value …] go test PACKAGE -run EXPRESSION -count N [FLAG …].
func parseCommand(text string) (Command, error) {
	var c Command
	words := strings.Fields(text)
	for len(words) > 0 && assignment.MatchString(words[0]) {
		c.Env, words = append(c.Env, words[0]), words[1:]
	}
	if len(words) < 7 || words[0] != "go" || words[1] != "test" ||
		!strings.HasPrefix(words[2], "./") || words[3] != "-run" || words[5] != "-count" {
		return c, fmt.Errorf("find: %q is not go test PACKAGE -run EXPRESSION -count N", text)
	}
	c.Package, c.Run, c.Flags = words[2], words[4], words[3:]
	return c, nil
}
