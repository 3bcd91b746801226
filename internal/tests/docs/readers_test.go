// What documents say to users: error texts, subcommands, commands of the server, addresses.

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/server"
)

// TestErrorTexts looks for each text that docs/troubleshooting.md quotes in the sources: those in
// the first column of its tables, and other spans of five words or more.
func TestErrorTexts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(texts(t, "server", "cluster", "cluster/disk", "cluster/raftlog",
		"commands", "fsm", "fsm/script", "internal/node", "cmd/coordd"), "\n")
	quoted := 0
	for line := range strings.Lines(string(text)) {
		for _, m := range span.FindAllStringSubmatchIndex(line, -1) {
			quote := line[m[2]:m[3]]
			if first := strings.HasPrefix(line, "| `") && m[0] == 2; !first &&
				len(strings.Fields(quote)) < 5 {
				continue
			}
			quoted++
			for part := range strings.SplitSeq(quote, "…") {
				if !strings.Contains(said, strings.TrimSpace(part)) {
					t.Errorf("no source says %q, which docs/troubleshooting.md quotes", part)
				}
			}
		}
	}
	if quoted < 20 {
		t.Errorf("docs/troubleshooting.md quotes %d texts", quoted)
	}
}

// texts returns the strings in the sources of packages, those that + joins as one.
func texts(t *testing.T, dirs ...string) (found []string) {
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				s, ok := joined(e)
				if ok {
					found = append(found, s)
				}
				return !ok
			})
		}
	}
	return found
}

func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, okA := joined(e.X)
		b, okB := joined(e.Y)
		return a + b, okA && okB && e.Op == token.ADD
	}
	return "", false
}

var (
	subcommand = regexp.MustCompile("(?m)(?:`|^    |^    \\$ )(?:\\./)?coordd ([a-z][a-z-]+)")
	redisWords = regexp.MustCompile(`^([A-Z]{2,}(?:\.[A-Z]+)?)(?: ([A-Z][A-Z-]+))?\b`)
	redisCLI   = regexp.MustCompile(`redis-cli(?: -[hp] \S+)* ([A-Z.]{2,})(?: ([A-Z][A-Z-]+))?`)
)

func TestSubcommands(t *testing.T) {
	r := load(t)
	for _, d := range r.own() {
		for _, m := range subcommand.FindAllStringSubmatch(d.text, -1) {
			if !r.subcommands[m[1]] {
				t.Errorf("%s names coordd %s, which does not exist", d.path, m[1])
			}
		}
	}
}

// TestRedisCommands checks the documents for readers: each command that a code span begins with, or
// that redis-cli is given, is in the table, or refused with a reason, or an option of one that is.
func TestRedisCommands(t *testing.T) {
	table := commands.NewTable(commands.Specs(), server.Specs())
	known := map[string]bool{}
	for _, word := range notCommands {
		known[word] = true
	}
	for _, words := range ownOptions(t, table) {
		for _, word := range words {
			known[word] = true
		}
	}
	for _, r := range server.Refusals {
		for name := range strings.FieldsSeq(r.Names) {
			known[strings.ToUpper(strings.NewReplacer("|", " ").Replace(name))] = true
		}
	}
	for _, s := range table.All() {
		for _, sub := range s.Subcommands {
			_, name, _ := strings.Cut(sub.FullName(), "|")
			known[strings.ToUpper(name)] = true
		}
	}
	// the first word of each error
	for _, text := range texts(t, "server", "cluster", "commands", "fsm", "internal/node") {
		if word, _, ok := strings.Cut(text, " "); ok && word == strings.ToUpper(word) {
			known[word] = true
		}
	}
	checked := 0
	for _, d := range load(t).own() {
		if !readersDoc.MatchString(d.path) {
			continue
		}
		var named [][]string
		for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(d.text, ""), -1) {
			if words := redisWords.FindStringSubmatch(m[1]); words != nil {
				named = append(named, words)
			}
		}
		for _, words := range append(named, redisCLI.FindAllStringSubmatch(d.text, -1)...) {
			checked++
			command := table.Get([]byte(words[1]))
			switch {
			case known[words[1]] || known[words[1]+" "+words[2]]:
			case command == nil:
				t.Errorf("%s names %s, which coordd lacks", d.path, words[0])
			case words[2] != "" && command.Subcommands != nil && command.Handler == nil &&
				command.Local == nil && table.Subcommand(command, []byte(words[2])) == nil:
				t.Errorf("%s names %s, which coordd lacks", d.path, words[0])
			}
		}
	}
	if checked < 100 {
		t.Errorf("the documents name %d commands", checked)
	}
}

// readersDoc are the documents for users and operators.
var readersDoc = regexp.MustCompile(`^README.md$|^docs/(guide/.*|install|migration|operations|` +
	`security|sizing|troubleshooting).md$`)

// notCommands are other words in capitals: of files, of signals, of Go, of push messages, of the
// page, and of RedisRaft.
var notCommands = strings.Fields("LOCK SIGHUP SIGTERM GOMEMLIMIT GOMAXPROCS GOGC AUTOMEMLIMIT " +
	"MOVING MIGRATING FAILING SKIPPED WINDOWS QUEUES TLS RAFT.NODE RAFT.CLUSTER")

// TestAddresses checks the form of links to other sites.
func TestAddresses(t *testing.T) {
	for _, d := range load(t).docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(d.text, ""), -1) {
			if !strings.Contains(m[1], "://") {
				continue
			}
			u, err := url.Parse(m[1])
			if err != nil || u.Scheme != "https" || !strings.Contains(u.Host, ".") {
				t.Errorf("%s links to %s, which is no address of https", d.path, m[1])
			}
		}
	}
}
