package lint

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/wrap"
)

const root = "../../.."

// sources calls f with each file of the project whose name ends in suffix, and its slash-separated
// path.
func sources(t *testing.T, suffix string, f func(path string, src []byte)) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "node_modules" || strings.HasPrefix(name, ".") && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, suffix) {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files++
		f(filepath.ToSlash(rel), src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Fatalf("no file ends in %s", suffix)
	}
}

// goSources is sources for Go files that people write.
func goSources(t *testing.T, f func(path string, src []byte)) {
	sources(t, ".go", func(path string, src []byte) {
		if !generated.Match(src) {
			f(path, src)
		}
	})
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestGofmt(t *testing.T) {
	goSources(t, func(path string, src []byte) {
		formatted, err := format.Source(src)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		} else if !bytes.Equal(src, formatted) {
			t.Errorf("%s: gofmt would change it", path)
		}
	})
}

// Lines of Go are no wider than wrap.Columns, unless a string that cannot be broken is in them.
func TestGoWidth(t *testing.T) {
	goSources(t, func(path string, src []byte) {
		unbroken := unbrokenLines(src)
		for i, line := range strings.Split(string(src), "\n") {
			if wrap.Width(line) > wrap.Columns && !unbroken[i+1] {
				t.Errorf("%s:%d: %d columns", path, i+1, wrap.Width(line))
			}
		}
	})
}

// unbrokenLines returns the lines with a raw string, with a string without blanks that is wide by
// itself, or with an address.
func unbrokenLines(src []byte) map[int]bool {
	const wide = 60
	lines := map[int]bool{}
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		raw := tok == token.STRING && lit[0] == '`'
		long := tok == token.STRING && len(lit) > wide && !strings.Contains(lit, " ")
		if raw || long || tok == token.COMMENT && strings.Contains(lit, "://") {
			for i := range strings.Count(lit, "\n") + 1 {
				lines[file.Line(pos)+i] = true
			}
		}
	}
}

// Prose in Markdown is wrapped. Wrapping a table destroys it.
func TestMarkdownWidth(t *testing.T) {
	sources(t, ".md", func(path string, src []byte) {
		if wrap.Markdown(string(src)) != string(src) {
			t.Errorf("%s has lines that are too wide: make fmt", path)
		}
		code := false
		for i, line := range strings.Split(string(src), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if !code && strings.Contains(line, "|---") && strings.Trim(line, " |:-") != "" {
				t.Errorf("%s:%d: the rows of a table in one line", path, i+1)
			}
		}
	})
}

// A package's own comment is in doc.go alone, a program's may be in main.go, so that go doc prints
// that and no list of files. What a file says of itself stands above an empty line.
func TestHeaders(t *testing.T) {
	documented := map[string]bool{}
	packages := map[string]bool{}
	goSources(t, func(path string, src []byte) {
		f, err := parser.ParseFile(token.NewFileSet(), path, src,
			parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		dir, name := filepath.Split(path)
		if !strings.HasSuffix(name, "_test.go") {
			packages[dir] = true
		}
		switch {
		case name == "doc.go", name == "main.go" && f.Name.Name == "main":
			documented[dir] = true
			checkPackageDoc(t, path, f)
		case f.Doc != nil:
			t.Errorf("%s: a comment of the file is attached to its package clause", path)
		}
	})
	for dir := range packages {
		if !documented[dir] {
			t.Errorf("%s: no file says what the package is", dir)
		}
	}
}

func checkPackageDoc(t *testing.T, path string, f *ast.File) {
	t.Helper()
	want := "Package " + f.Name.Name + " "
	if f.Name.Name == "main" {
		want = "Command " + filepath.Base(filepath.Dir(path)) + " "
	}
	if !strings.HasPrefix(f.Doc.Text(), want) {
		t.Errorf("%s does not begin with %q", path, want)
	}
}

// goWords and proseWords are some of what docs/architecture.md replaces by the field's own terms.
var (
	goWords = regexp.MustCompile(
		`(?i)\b(anew|oftener|says whether|tells whether|(is|are) told of)\b`)
	proseWords = regexp.MustCompile(`(?i)\b(anew|oftener)\b`)
)

func TestWords(t *testing.T) {
	check := func(path string, src []byte, words *regexp.Regexp) {
		for i, line := range strings.Split(string(src), "\n") {
			if found := words.FindString(line); found != "" {
				t.Errorf("%s:%d: %q", path, i+1, found)
			}
		}
	}
	goSources(t, func(path string, src []byte) {
		if path != "internal/tests/lint/lint_test.go" {
			check(path, src, goWords)
		}
	})
	sources(t, ".md", func(path string, src []byte) {
		if path != "docs/architecture.md" { // has the table
			check(path, src, proseWords)
		}
	})
}

// unicodeFold is a function that ignores the case of other letters than ASCII's.
var unicodeFold = regexp.MustCompile(`\b(?:strings|bytes)\.(?:ToLower|ToUpper|ToTitle|EqualFold)\(`)

// TestServerFoldsASCII: what clients name is looked up by one fold, that of the state machine.
// TestPurity holds the same of commands/ and fsm/.
func TestServerFoldsASCII(t *testing.T) {
	noLine(t, "use package ascii", func(path string) bool {
		return strings.HasPrefix(path, "server/") && !strings.HasSuffix(path, "_test.go")
	}, unicodeFold.MatchString)
}

// TestHashesAreReachedByTheirPrice: who walks over a hash or a set skips its expired elements, for
// which walkHash, walkHashOf and walkSet charge. Who reaches one by another way says why it skips
// none unpaid.
func TestHashesAreReachedByTheirPrice(t *testing.T) {
	reached := regexp.MustCompile(`(?:\.\(|case )\*keyspace\.(?:Hash|Set)\b`)
	paid := regexp.MustCompile(`//(?:hash|set): `)
	const instead = "use findHash, walkHash, walkHashOf, findSet or walkSet, or say why not with " +
		"//hash: or //set:"
	noLine(t, instead, func(path string) bool {
		return strings.HasPrefix(path, "commands/") && path != "commands/collections.go" &&
			!strings.HasSuffix(path, "_test.go")
	}, func(line string) bool {
		return reached.MatchString(line) && !paid.MatchString(line)
	})
}

// noLine reports each line of the Go files in a part of the repository that a rule refuses.
func noLine(t *testing.T, instead string, in, refused func(string) bool) {
	t.Helper()
	goSources(t, func(path string, src []byte) {
		if !in(path) {
			return
		}
		for n, line := range strings.Split(string(src), "\n") {
			if refused(line) {
				t.Errorf("%s:%d: %s", path, n+1, instead)
			}
		}
	})
}

// isProduct reports whether a file is none of internal/tests, testdata, commandtest, and no test.
func isProduct(path string) bool { return !strings.Contains(path, "test") }

// ownChance is a function that draws from a source which no seed repeats.
var ownChance = regexp.MustCompile(
	`\brand\.(?:Float\d+|N|Perm|Shuffle|U?[Ii]nt(?:\d+)?N?|Exp\w*|Norm\w*)\(`)

// TestRandomTestsHaveSeeds: a test takes what is random from package seeds, so that it fails for a
// change and can be repeated.
func TestRandomTestsHaveSeeds(t *testing.T) {
	noLine(t, "use package seeds", func(path string) bool {
		return strings.HasSuffix(path, "_test.go")
	}, func(line string) bool {
		return ownChance.MatchString(line) && !strings.Contains(line, "rand.Reader")
	})
}

// A test listens with internal/tests/ports: a port that the system chooses is another process's as
// soon as it is closed, and the test may listen there again, or tell a node to.
func TestPorts(t *testing.T) {
	chosen := regexp.MustCompile(`Listen\(.*"[^"]*:0"`)
	noLine(t, "a port that the system chooses", func(path string) bool {
		return strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/tests/")
	}, chosen.MatchString)
}

// TestWaitsForProcesses: how soon processes do something is the machine's. A test that gives them
// less than seconds fails on a busy one; how soon they should is for the benchmarks, and for
// clusters in simulated time.
func TestWaitsForProcesses(t *testing.T) {
	short := regexp.MustCompile(
		`wait\.(?:For|Receive)\(\w+, (?:(?:[1-4]\*)?time\.Second|\d+\*time\.Millisecond)\b`)
	noLine(t, "at least 5*time.Second", func(path string) bool {
		return strings.HasPrefix(path, "internal/tests/") && strings.HasSuffix(path, "_test.go")
	}, short.MatchString)
}

// TestMutexes: the order of all locks of a node can be checked.
func TestMutexes(t *testing.T) {
	bare := regexp.MustCompile(`\bsync\.(?:RW)?Mutex\b`)
	noLine(t, "use lockorder.Mutex or lockorder.RWMutex", func(path string) bool {
		return isProduct(path) && !strings.HasPrefix(path, "internal/lockorder/")
	}, bare.MatchString)
}

// TestReplies: a program reads the replies of a server with resp.Replies, which skips pushes. It
// may read values of bytes that it has.
func TestReplies(t *testing.T) {
	reads := regexp.MustCompile(`\bresp\.NewReader`)
	noLine(t, "use resp.NewReplies", isProduct, func(line string) bool {
		return reads.MatchString(line) && !strings.Contains(line, "(bytes.NewReader(")
	})
}

// filepath.Glob takes a directory's own name for a pattern, and errors of the disk for no match.
func TestGlob(t *testing.T) {
	noLine(t, "use os.ReadDir", isProduct, regexp.MustCompile(`\bfilepath\.Glob\(`).MatchString)
}

// TestNothingIsSwitchedOff: what somebody has switched off to try something else is not left so. A
// test then passes and looks at nothing.
func TestNothingIsSwitchedOff(t *testing.T) {
	off := regexp.MustCompile(`\b(?:if|for|&&|\|\|) *(?:false|true)\b|^\s*_ = \w+$`)
	noLine(t, "it does nothing", func(path string) bool {
		return path != "internal/tests/lint/lint_test.go"
	}, off.MatchString)
}

// mostFields is how many fields a struct has at most: more of them are several things, of which
// nobody sees any more who may use which.
const mostFields = 31

// TestStructsAreSmall: only options are many.
func TestStructsAreSmall(t *testing.T) {
	structs := 0
	productFiles(t, func(at *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			def, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := def.Type.(*ast.StructType)
			if !ok {
				return true
			}
			structs++
			if n := s.Fields.NumFields(); n > mostFields && def.Name.Name != "Config" {
				t.Errorf("%s: %s has %d fields", at.Position(def.Pos()), def.Name.Name, n)
			}
			return true
		})
	})
	if structs < 100 {
		t.Errorf("only %d structs: the test reads something else", structs)
	}
}

// TestCommentsReadAlone: a comment says what a field is. One that begins with "of" leaves the noun
// to the reader.
func TestCommentsReadAlone(t *testing.T) {
	comments := 0
	productFiles(t, func(at *token.FileSet, file *ast.File) {
		methods := map[*ast.CommentGroup]bool{} // those called of
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "of" {
				methods[f.Doc] = true
			}
		}
		for _, c := range file.Comments {
			comments++
			if strings.HasPrefix(c.Text(), "of ") && !methods[c] {
				t.Errorf("%s: a comment begins with \"of\": say what it is", at.Position(c.Pos()))
			}
		}
	})
	if comments < 10_000 {
		t.Errorf("only %d comments: the test reads something else", comments)
	}
}

// productFiles calls f with each Go file of the product that people write.
func productFiles(t *testing.T, f func(at *token.FileSet, file *ast.File)) {
	t.Helper()
	goSources(t, func(path string, src []byte) {
		if !isProduct(path) {
			return
		}
		at := token.NewFileSet()
		file, err := parser.ParseFile(at, path, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		f(at, file)
	})
}
