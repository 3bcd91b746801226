// Keeps the documents true where a program can tell: their links, the files, functions, tests,
// flags, variables and make targets that they name, and the walk and the import graph in
// docs/architecture.md.

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const root = "../../.."

// document is a Markdown file of the repository.
type document struct {
	path string // from the root, with slashes
	text string
}

// repository is what the documents describe.
type repository struct {
	files map[string]bool // with directories
	docs  []document
	// declared has the names that Go files declare: F of functions, T and T.M of types, their
	// methods and fields, and pkg.N of what a package declares.
	declared map[string]bool
	packages map[string]bool
	// literals are the strings of cmd/coordd outside of tests, among them its flags.
	literals map[string]bool
	// subcommands of coordd: the first words of what cobra calls Use, and its own.
	subcommands map[string]bool
	env         map[string]bool // variables that sources read
}

func load(t *testing.T) *repository {
	r := &repository{
		files: map[string]bool{}, declared: map[string]bool{}, packages: map[string]bool{},
		literals: map[string]bool{}, env: map[string]bool{},
		subcommands: map[string]bool{"help": true, "completion": true},
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		r.files[rel] = true
		if d.IsDir() {
			return nil
		}
		isGo := path.Ext(rel) == ".go"
		isScript := strings.HasPrefix(rel, ".ci/") || rel == "Makefile"
		if !isGo && !isScript && path.Ext(rel) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		switch {
		case isGo:
			r.parse(t, rel, text)
			fallthrough
		case isScript:
			for _, v := range variable.FindAllString(string(text), -1) {
				r.env[v] = true
			}
		default:
			r.docs = append(r.docs, document{rel, string(text)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.docs) == 0 || len(r.declared) == 0 {
		t.Fatalf("found %d documents and %d declarations under %s", len(r.docs), len(r.declared),
			root)
	}
	return r
}

func (r *repository) parse(t *testing.T, name string, text []byte) {
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	pkg := f.Name.Name
	r.packages[pkg] = true
	for _, d := range f.Decls {
		for _, n := range declaredBy(d) {
			r.declared[n], r.declared[pkg+"."+n] = true, true
		}
	}
	if path.Dir(name) != "cmd/coordd" || strings.HasSuffix(name, "_test.go") {
		return
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil {
				r.literals[s] = true
			}
		case *ast.KeyValueExpr:
			key, _ := n.Key.(*ast.Ident)
			if use, ok := joined(n.Value); ok && key != nil && key.Name == "Use" {
				r.subcommands[strings.Fields(use)[0]] = true
			}
		}
		return true
	})
}

// declaredBy returns the names that a declaration declares.
func declaredBy(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		names = append(names, funcName(d))
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				for _, m := range members(s.Type) {
					names = append(names, s.Name.Name+"."+m)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// funcName returns the name of a function, with the type of its receiver: Machine.Apply.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// members returns the fields of a struct, or the methods of an interface.
func members(typ ast.Expr) (names []string) {
	var list *ast.FieldList
	switch x := typ.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
	}
	return names
}

var (
	variable = regexp.MustCompile(`COORDD_[A-Z_]+`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	span     = regexp.MustCompile("`([^`\n]+)`")
	goFile   = regexp.MustCompile(`^[\w./-]+\.go$`)
	member   = regexp.MustCompile(`^([A-Za-z]\w*)\.([A-Za-z]\w*)$`)
	testName = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	flagName = regexp.MustCompile(`(?:^|\s)--([a-z][a-z-]+)`)
	target   = regexp.MustCompile(`\bmake ([a-z]+)`)
	importer = regexp.MustCompile("(?m)^- `([a-z/]+)` → (nothing|(?:`[a-z/]+`,?\\s*)+)$")
	walkStop = regexp.MustCompile("(?m)^\\| (\\d) \\| `([^`]+)` \\| `([^`]+)` \\|")
)

func TestLinks(t *testing.T) {
	r := load(t)
	anchors := map[string]map[string]bool{}
	for _, d := range r.docs {
		anchors[d.path] = anchorsOf(d.text)
	}
	for _, d := range r.docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(d.text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			to := d.path
			if file != "" {
				to = path.Join(path.Dir(d.path), file)
			}
			switch {
			case !r.files[to]:
				t.Errorf("%s links to %s, which does not exist", d.path, m[1])
			case anchor != "" && !anchors[to][anchor]:
				t.Errorf("%s links to %s, and %s has no such heading", d.path, m[1], to)
			}
		}
	}
}

// anchorsOf returns the anchors that GitHub gives the headings of a document.
func anchorsOf(text string) map[string]bool {
	anchors := map[string]bool{}
	for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		anchors[strings.Map(func(c rune) rune {
			switch {
			case c == ' ':
				return '-'
			case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
				return c
			}
			return -1
		}, heading)] = true
	}
	return anchors
}

// own returns the documents about coordd itself; testdata's are about its programs.
func (r *repository) own() []document {
	return slices.DeleteFunc(slices.Clone(r.docs), func(d document) bool {
		return strings.HasPrefix(d.path, "testdata/")
	})
}

// TestNames compares the names in code spans with the sources.
func TestNames(t *testing.T) {
	r := load(t)
	types := map[string]bool{}
	for n := range r.declared {
		if typ, _, ok := strings.Cut(n, "."); ok && !r.packages[typ] {
			types[typ] = true
		}
	}
	for _, d := range r.own() {
		for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(d.text, ""), -1) {
			s := m[1]
			if goFile.MatchString(s) && !r.hasFile(d, s) {
				t.Errorf("%s names the file %s, which does not exist", d.path, s)
			}
			if m := member.FindStringSubmatch(s); m != nil && !goFile.MatchString(s) &&
				(r.packages[m[1]] || types[m[1]]) && !r.declared[s] {
				t.Errorf("%s names %s, which no source declares", d.path, s)
			}
		}
		for _, s := range testName.FindAllString(d.text, -1) {
			if !r.declared[s] && d.path != "docs/suites.md" { // which names tests of others
				t.Errorf("%s names %s, which does not exist", d.path, s)
			}
		}
	}
}

// hasFile reports whether a document names an existing file: by its path from the root or from the
// document, or by its name alone.
func (r *repository) hasFile(d document, name string) bool {
	if r.files[name] || r.files[path.Join(path.Dir(d.path), name)] {
		return true
	}
	for f := range r.files {
		if !strings.Contains(name, "/") && path.Base(f) == name {
			return true
		}
	}
	return false
}

// foreignFlags are flags of other programs that the documents quote.
var foreignFlags = strings.Fields("appendonly appendfsync check eval scan bigkeys pipe help " +
	"tls cacert cert key ignore-missing now build from-literal set pattern")

func TestFlagsAndVariables(t *testing.T) {
	r := load(t)
	for _, d := range r.own() {
		for _, m := range flagName.FindAllStringSubmatch(strings.ReplaceAll(d.text, "`", " "), -1) {
			if !r.literals[m[1]] && !slices.Contains(foreignFlags, m[1]) {
				t.Errorf("%s names the flag --%s, which coordd does not have", d.path, m[1])
			}
		}
		for _, v := range variable.FindAllString(d.text, -1) {
			flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(v, "COORDD_"), "_", "-"))
			if !r.env[v] && !r.literals[flag] {
				t.Errorf("%s names the variable %s, which nothing reads", d.path, v)
			}
		}
	}
}

func TestMakeTargets(t *testing.T) {
	r := load(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.own() {
		for _, s := range span.FindAllStringSubmatch(d.text, -1) {
			for _, m := range target.FindAllStringSubmatch(s[1], -1) {
				if !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("%s names make %s, which does not exist", d.path, m[1])
				}
			}
		}
	}
}

// TestWalk follows "SET NX PX" in docs/architecture.md: each stop names a file and a function in
// it.
func TestWalk(t *testing.T) {
	const name = "docs/architecture.md"
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	stops := walkStop.FindAllStringSubmatch(string(text), -1)
	if len(stops) != 8 {
		t.Fatalf("the walk in %s has %d stops, want 8", name, len(stops))
	}
	for i, stop := range stops {
		number, file, function := stop[1], stop[2], stop[3]
		if number != strconv.Itoa(i+1) {
			t.Errorf("stop %d has number %s", i+1, number)
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		if err != nil {
			t.Errorf("stop %s: %v", number, err)
			continue
		}
		if !slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			fn, ok := d.(*ast.FuncDecl)
			return ok && funcName(fn) == function
		}) {
			t.Errorf("stop %s: %s declares no function %s", number, file, function)
		}
	}
}

// TestImportGraph compares the lists in docs/architecture.md with the imports of the packages. The
// packages below cluster are all listed.
func TestImportGraph(t *testing.T) {
	const (
		name   = "docs/architecture.md"
		module = "github.com/coordd/coordd/"
	)
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	lists := importer.FindAllStringSubmatch(string(text), -1)
	if len(lists) < 8 {
		t.Errorf("%s lists the imports of %d packages, want at least 8", name, len(lists))
	}
	listed := map[string]bool{}
	for _, list := range lists {
		listed[list[1]] = true
		var want []string
		for _, m := range span.FindAllStringSubmatch(list[2], -1) {
			want = append(want, m[1])
		}
		var got []string
		files, err := filepath.Glob(filepath.Join(root, list[1], "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				if own, ok := strings.CutPrefix(imported, module); ok {
					got = append(got, own)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s imports %q, %s says %q", list[1], got, name, want)
		}
	}
	rooms, err := filepath.Glob(filepath.Join(root, "cluster/*/doc.go"))
	if err != nil || len(rooms) == 0 {
		t.Fatal(rooms, err)
	}
	for _, room := range rooms { // what they import is what makes them packages
		if dir := "cluster/" + filepath.Base(filepath.Dir(room)); !listed[dir] {
			t.Errorf("%s does not list the imports of %s", name, dir)
		}
	}
}

// TestUnit compares the settings of a unit that docs/operations.md shows with the packages' unit.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(filepath.Join(root, "deploy/packages/coordd.service"))
	if err != nil {
		t.Fatal(err)
	}
	shown := unitSetting.FindAllStringSubmatch(string(text), -1)
	for _, m := range shown {
		if m[1] != "ExecStart" && !strings.Contains(string(unit), "\n"+m[0][4:]+"\n") {
			t.Errorf("docs/operations.md has a unit with %s, and the packages' has not", m[0][4:])
		}
	}
	if len(shown) < 4 {
		t.Errorf("%d settings found", len(shown))
	}
}

// TestFileOfSecrets: the file to which docs/operations.md has a password appended comes with the
// packages, and only root reads it.
func TestFileOfSecrets(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	files := secretTo.FindAllStringSubmatch(read("docs/operations.md"), -1)
	for _, m := range files {
		if !strings.Contains(read("deploy/packages/nfpm.yaml"), "dst: "+m[1]+
			"\n    type: config|noreplace\n    file_info: {mode: 0600}\n") {
			t.Errorf("a password goes to %s, which the packages do not have with mode 0600", m[1])
		}
	}
	if len(files) == 0 {
		t.Error("no file found")
	}
}

var secretTo = regexp.MustCompile(`(?m)^    \$ echo '.*PASSWORD=.*' >>(\S+)$`)

var unitSetting = regexp.MustCompile(`(?m)^    ([A-Z][A-Za-z]+)=.*$`)
