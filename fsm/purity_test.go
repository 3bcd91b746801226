// The purity of commands/ and fsm/ ("Determinism" in docs/architecture.md), and tests of its
// checker.

package fsm

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/detector"
)

// exception lets one file break one rule. For imports, what names the package.
type exception struct{ file, rule, what, reason string }

// exceptions are the places with a reason. An unused one fails the test.
var exceptions = []exception{
	{"keyspace/db.go", ruleImport, "unsafe",
		"reads a key's bytes as a string without a copy, for the time of one lookup"},
	{"keyspace/entry_form.go", ruleImport, "unsafe",
		"a short key and its value follow the fields of their entry in one block"},
	{"keyspace/element_ttl.go", ruleImport, `"sync/atomic"`,
		"reads may ask at the same time how many elements have expired: all find the same"},
	{"fsm/script/engine.go", ruleImport, `"github.com/coordd/coordd/internal/lockorder"`,
		"reads may run scripts at the same time: it guards compiled forms, which are no part of " +
			"the state"},
	{"fsm/script/lua/power.go", ruleCall, "math.Pow",
		"the operator ^ of feature level 1, which was released so"},
	{"fsm/script/lib_math_released.go", ruleCall, "math.",
		"the functions of feature level 1, which was released so"},
	{"fsm/script/lua/place.go", ruleImport, `"sync/atomic"`,
		"reads may run a function at the same time: each may leave a guess, which only speed " +
			"depends on"},
}

// notPure are the files and folders that the rules do not cover.
var notPure = []string{"internal/tests/detector", "commands/commandtest", "fsm/adapter.go",
	"fsm/overseer.go"}

// TestPurity reads every source of commands/ and fsm/.
func TestPurity(t *testing.T) {
	detector.Skip(t)
	exports := exportData(t, "./commands/...", "./internal/libm", "./fsm/...",
		"./server")
	needed := make([]bool, len(exceptions))
	inspected := 0
	for _, dir := range pureDirs(t) {
		fset := token.NewFileSet()
		files, all := parseDir(t, fset, dir)
		info, err := typeCheck(fset, dir, all, exports)
		if err != nil {
			t.Fatal(err)
		}
		inspected += len(files)
		for _, f := range check(fset, files, info) {
			i := slices.IndexFunc(exceptions, func(e exception) bool {
				return strings.HasSuffix(f.pos.Filename, "/"+e.file) && f.rule == e.rule &&
					strings.Contains(f.message, e.what)
			})
			if i >= 0 {
				needed[i] = true
				continue
			}
			t.Errorf("%s:%d: %s: %s", strings.TrimPrefix(f.pos.Filename, "../"), f.pos.Line, f.rule,
				f.message)
		}
	}
	for _, f := range serverHandlers(t, exports) {
		t.Error(f)
	}
	for i, e := range exceptions {
		if !needed[i] {
			t.Errorf("the exception %+v is not needed: remove it", e)
		}
	}
	if inspected < 10 {
		t.Errorf("only %d files were found", inspected)
	}
}

// serverHandlers checks the handlers of package server that run in the machine (TIME, PUBLISH …)
// and the functions that they use.
func serverHandlers(t *testing.T, exports map[string]string) []finding {
	fset := token.NewFileSet()
	_, all := parseDir(t, fset, "../server")
	info, err := typeCheck(fset, "../server", all, exports)
	if err != nil {
		t.Fatal(err)
	}
	found, handlers := checkHandlers(fset, all, info)
	if handlers == 0 {
		t.Error("no handler was found in package server")
	}
	return found
}

// pureDirs are the folders with Go files under commands/ and fsm/, from here.
func pureDirs(t *testing.T) []string {
	var dirs []string
	roots := []string{"../commands", "../fsm", "../internal/ascii", "../internal/libm",
		"../fsm/script/lua",
		"../internal/resp", "../internal/wire"}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case !d.IsDir():
				return nil
			case d.Name() == "testdata", slices.Contains(notPure, strings.TrimPrefix(path, "../")):
				return filepath.SkipDir
			}
			if sources, _ := filepath.Glob(filepath.Join(path, "*.go")); len(sources) > 0 {
				dirs = append(dirs, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return dirs
}

// parseDir reads a package without its tests: the files to inspect, and all that its types need.
func parseDir(t *testing.T, fset *token.FileSet, dir string) (inspect, all []*ast.File) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		built, err := build.Default.MatchFile(dir, filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") || !built {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
		if !slices.Contains(notPure, strings.TrimPrefix(path, "../")) {
			inspect = append(inspect, f)
		}
	}
	return inspect, all
}

// exportData returns the compiled declarations of packages and of all their imports, by import
// path.
func exportData(t *testing.T, packages ...string) map[string]string {
	cmd := exec.Command("go",
		append([]string{"list", "-deps", "-export", "-f", "{{.ImportPath}}\t{{.Export}}"},
			packages...)...)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[name] = file
	}
	return exports
}

func typeCheck(fset *token.FileSet, name string, files []*ast.File,
	exports map[string]string) (*types.Info, error) {
	open := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %q", path)
		}
		return os.Open(exports[path])
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{},
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	_, err := config.Check(name, fset, files, info)
	return info, err
}

// snippet is code that breaks a rule, with words of the message; without a rule it is pure.
type snippet struct{ rule, words, code string }

var snippets = []snippet{
	{ruleImport, "Call.ClockMs", `import "time"; var _ time.Duration`},
	{ruleImport, "Env.Seed", `import "math/rand"; var _ rand.Source`},
	{ruleImport, "does no I/O", `import "os"; var _ os.File`},
	{ruleImport, "does no I/O", `import "net"; var _ net.Addr`},
	{ruleImport, "the adapter has the lock", `import "sync"; var _ sync.Mutex`},
	{ruleImport, "sorted structure", `import "maps"; var _ = maps.Keys[map[int]int]`},
	{ruleImport, "freeImports", `import "net/http"; var _ http.Header`},
	{ruleImport, "freeImports",
		`import "github.com/coordd/coordd/fsm/script/lua"; var _ lua.LNumber`},
	{ruleImport, "Call.ClockMs", `import t "time" //purity: a comment excuses no import
var _ t.Duration`},
	{ruleGoroutine, "event", `func f() { go f() }`},
	{ruleChannel, "chooses at random", `func f() { select {} }`},
	{ruleChannel, "use a slice", `var c chan int`},
	{ruleChannel, "instead of sending", `func f[T interface{ ~chan int }](c T) { c <- 1 }`},
	{ruleChannel, "comes with the entry", `import "io"
func f(c T) { <-c }
type T = <-chan io.Reader //purity: the type alone`},
	{ruleChannel, "use a slice", `func f(c T) { for range c { } }
type T = <-chan int //purity: the type alone`},
	{ruleMapOrder, "//purity: reason", `func f(m map[int]int) { for range m { } }`},
	{ruleMapOrder, "btree", `type T map[string]bool
func f(m T) (s string) { for k := range m { s += k }; return }`},
	{ruleMapOrder, "btree", `func f[M ~map[K]V, K comparable, V any](m M) { for range m { } }`},
	{ruleMapOrder, "btree", `func f(m map[int]int) {
	for range m { //purity:
	}
}`},
	{ruleCall, "Keyspace.Now", `import "time"
func f() { _ = time.Now() }`},
	{ruleCall, "Keyspace.Now", `import "time"
var now = time.Now`},
	{ruleCall, "nothing here waits", `import . "time"
func f() { Sleep(1) }`},
	{ruleCall, "does no I/O", `import "fmt"
func f() { fmt.Println(1) }`},
	{ruleCall, "does no I/O", `func f() { println(1) }`},
	{ruleCall, "never by a clock", `import "context"
func f(c context.Context) { _, _ = context.WithTimeout(c, 1) }`},
	{ruleCall, "package ascii", `import "strings"
func f(s string) string { return strings.ToLower(s) }`},
	{ruleCall, "package ascii", `import "bytes"
func f(a, b []byte) bool { return bytes.EqualFold(a, b) }`},
	{ruleAddress, "an address", `import "fmt"
func f(x any) string { return fmt.Sprintf("%p", x) }`},
	{ruleAddress, "an address", "const format = `%#10p`"},
	{ruleAddress, "the address of a *int", `import "fmt"
func f(x *int) string { return fmt.Sprint(x) }`},
	{ruleAddress, "the address of a func", `import "fmt"
func f() string { return fmt.Sprintf("%v", f) }`},
	{ruleAddress, "hash the content", `import "unsafe"
func f(x *int) uintptr { return uintptr(unsafe.Pointer(x)) }`},
	{ruleGlobal, "no snapshot", `var n int
func f() { n++ }`},
	{ruleGlobal, "no snapshot", `var m = map[int]struct{ a []int }{}
func f() { m[1].a[2] = 3 }`},
	{ruleGlobal, "no snapshot", `import "io"
func f() { io.EOF = nil }`},
	{ruleFusedSum, "float64(x*y)", `func f(x, y, z float64) float64 { return z - (x*y) }`},
	{ruleFusedSum, "float64(x*y)", `func f(x, y, z float64) float64 { z += x*y; return z }`},
	{ruleFusedSum, "float64(x*y)", `func f(x, y, z float64) float64 { p := x * y; return p + z }`},
	{ruleFusedSum, "float64(x*y)", `func f(x, y, z float64) float64 { x *= y; return x + z }`},
	{ruleCall, "internal/libm", `import "math"
func f(x float64) float64 { return math.Exp(x) }`},
	{ruleCall, "internal/libm", `import "math"
var f = math.Sincos`},
	{ruleFusedSum, "float64(x/c)", `func f(x, z float64) float64 { return z + x/64 }`},
	{"comment", "excuses nothing", `func f(m []int) {
	for range m { //purity: once it was a map
	}
}`},
	{"", "", `func f(m map[int]int) (n int) {
	for _, v := range m { //purity: a sum does not depend on the order
		n += v
	}
	//purity: nor does a product
	for _, v := range m {
		n *= v
	}
	return
}`},
	{"", "", `import "fmt"
type T struct{ n int }
func (t *T) String() string { return "t" }
func f(e error, t *T, s *struct{}) string { t.n++; x := 1; x = 2; return fmt.Sprintf("%5d%% %v %v %v %v", x, e, t, s, []int{1}) }`},
	{"", "", `const c = 2.5
func f(x, y, z float64, a, b int) (float64, int, float64) { return float64(x*y) + z, a*b + 1, c*c + x/3 }`},
	{"", "", `import "math"
func f(x float64) float64 { return math.Sqrt(math.Floor(x)) + math.FMA(x, x, x) }`},
	{"", "", `import "github.com/coordd/coordd/fsm/script/lua"
func f(t *lua.LTable) { t.Next(lua.LNil) }`},
}

// dir is where a snippet pretends to be: only fsm/script may import Lua.
func (s snippet) dir() string {
	if strings.Contains(s.code, "fsm/script/lua") && s.rule != ruleImport {
		return "script"
	}
	return "commands"
}

// The handlers of an impure package are found, and so is what they use.
func TestPuritySeesHandlers(t *testing.T) {
	exports := exportData(t, "time", "os", "./commands")
	const code = `package server
import ("os"; "time"; "github.com/coordd/coordd/commands")
func pure(x *commands.Call) error { x.Out.Int(x.ClockMs); return commands.ErrSyntax }
func made(deep bool) commands.Handler { return func(x *commands.Call) error { helper(); return nil } }
func helper() { helper(); _ = time.Now() }
func direct(x *commands.Call) error { _, err := os.Stat("/"); return err }
func session() { go session(); time.Sleep(1) }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "server/x.go", code,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info, err := typeCheck(fset, "server", []*ast.File{f}, exports)
	if err != nil {
		t.Fatal(err)
	}
	found, handlers := checkHandlers(fset, []*ast.File{f}, info)
	lines := map[int]bool{}
	for _, f := range found {
		lines[f.pos.Line] = true
	}
	if handlers != 3 || len(lines) != 2 || !lines[5] || !lines[6] {
		t.Errorf("%d handlers, findings %v; want 3, and findings in lines 5 and 6", handlers, found)
	}
}

// Without this, TestPurity might be green because it sees nothing.
func TestPuritySeesImpurity(t *testing.T) {
	exports := exportData(t, "fmt", "io", "os", "net/http", "math/rand", "maps", "sync", "context",
		"time", "math", "github.com/coordd/coordd/fsm/script/lua")
	for _, s := range snippets {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, s.dir()+"/x.go", "package x; "+s.code,
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("%v in %s", err, s.code)
		}
		info, err := typeCheck(fset, "x", []*ast.File{f}, exports)
		if err != nil {
			t.Fatalf("%v in %s", err, s.code)
		}
		found := check(fset, []*ast.File{f}, info)
		if s.rule == "" {
			if len(found) != 0 {
				t.Errorf("pure code gives %v\n%s", found, s.code)
			}
			continue
		}
		if !slices.ContainsFunc(found, func(f finding) bool {
			return f.rule == s.rule && strings.Contains(f.message, s.words)
		}) {
			t.Errorf("no finding %q with %q, but %v\n%s", s.rule, s.words, found, s.code)
		}
	}
}
