// The checker of purity_test.go. It reads a package's syntax and types and finds what would make
// two nodes that apply the same log differ: clocks, randomness, concurrency, I/O, and orders and
// addresses that Go leaves undefined.

package fsm

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"math"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// The rules, by the names that exceptions use.
const (
	ruleImport    = "import"
	ruleGoroutine = "goroutine"
	ruleChannel   = "channel"
	ruleMapOrder  = "map order"
	ruleAddress   = "address"
	ruleCall      = "call"
	ruleGlobal    = "global"
	ruleFusedSum  = "fused sum"
)

// freeImports are the packages that every pure file may use. Any other is an exception with a
// reason.
var freeImports = map[string]bool{
	"bufio": true, "bytes": true, "cmp": true, "errors": true, "fmt": true, "io": true,
	"iter": true, "slices": true, "sort": true,
	"strconv": true, "strings": true, "unicode": true, "unicode/utf8": true, "math": true,
	"math/big": true, "math/bits": true,
	"crypto/sha1": true, "crypto/sha256": true, "crypto/subtle": true,
	"encoding/base64": true, "encoding/binary": true, "encoding/hex": true,
	"hash": true, "hash/crc32": true, "hash/crc64": true,
	"github.com/cespare/xxhash/v2": true, "github.com/zeebo/xxh3": true,
	"github.com/tidwall/btree":                        true,
	"github.com/coordd/coordd/commands":               true,
	"github.com/coordd/coordd/commands/acl":           true,
	"github.com/coordd/coordd/commands/geo":           true,
	"github.com/coordd/coordd/commands/glob":          true,
	"github.com/coordd/coordd/commands/hll":           true,
	"github.com/coordd/coordd/commands/once":          true,
	"github.com/coordd/coordd/commands/rdb":           true,
	"github.com/coordd/coordd/commands/keyspace":      true,
	"github.com/coordd/coordd/commands/leases":        true,
	"github.com/coordd/coordd/commands/radix":         true,
	"github.com/coordd/coordd/commands/subscriptions": true,
	"github.com/coordd/coordd/internal/ascii":         true,
	"github.com/coordd/coordd/internal/invariant":     true, // it tells, and nothing depends on it
	"github.com/coordd/coordd/internal/libm":          true,
	"github.com/coordd/coordd/internal/resp":          true,
	"github.com/coordd/coordd/internal/wire":          true,
	"github.com/coordd/coordd/fsm/script":             true,
}

// luaImports are allowed only in fsm/script and in themselves.
var luaImports = map[string]bool{
	"github.com/coordd/coordd/fsm/script/lua":       true,
	"github.com/coordd/coordd/fsm/script/lua/ast":   true,
	"github.com/coordd/coordd/fsm/script/lua/parse": true,
}

// insteadOf names the alternative to a forbidden package.
var insteadOf = map[string]string{
	"time": "a handler gets the time from Call.ClockMs, Call.WallUs, Keyspace.Now; an " +
		"entry carries it",
	"math/rand":    "take randomness from Env.Seed, which is the same on every node",
	"math/rand/v2": "take randomness from Env.Seed, which is the same on every node",
	"crypto/rand":  "take randomness from Env.Seed, which is the same on every node",
	"hash/maphash": "its seed differs from process to process: use xxhash",
	"maps": "its iterators have Go's random order: keep a sorted structure (btree) or a " +
		"slice beside the map",
	"os": "the machine does no I/O: return an effect as a value, server/ and cluster/ " +
		"act",
	"net": "the machine does no I/O: return an effect as a value, server/ and cluster/ " +
		"act",
	"log":           "the machine does no I/O: return an error or an event",
	"log/slog":      "the machine does no I/O: return an error or an event",
	"sync":          "one Apply at a time owns the machine, and the adapter has the lock",
	"sync/atomic":   "one Apply at a time owns the machine, and the adapter has the lock",
	"reflect":       "it shows addresses and map orders: write the cases out",
	"runtime":       "its results differ between nodes",
	"context":       "nothing here waits or is cancelled",
	"encoding/json": "write the encoding out: its order and its limits are part of a reply",
	"unsafe":        "only keyspace's views of bytes have a reason to",
}

// asciiFold: two folds of one name find a function in one place and none in another.
const asciiFold = "names ignore the case of ASCII letters alone: use package ascii"

// rounded is what to use in place of package math's functions of inexact results.
const rounded = "its last bits differ between processors and versions of Go: use internal/libm, " +
	"or operations that are exact but for one rounding"

// badCalls are forbidden functions of allowed packages, with the alternative. A key that ends in a
// star is a prefix.
var badCalls = map[string]string{
	"fmt.Print*":  "the machine does no I/O: return an error or an event",
	"fmt.Scan*":   "the machine does no I/O",
	"println":     "the machine does no I/O: return an error or an event",
	"print":       "the machine does no I/O: return an error or an event",
	"time.Now":    "a handler gets the time from Call.ClockMs, Call.WallUs, Keyspace.Now",
	"time.Since":  "a handler gets the time from Call.ClockMs, Call.WallUs, Keyspace.Now",
	"time.Until":  "a handler gets the time from Call.ClockMs, Call.WallUs, Keyspace.Now",
	"time.After*": "nothing here waits",
	"time.Sleep":  "nothing here waits",
	"time.Tick":   "nothing here waits",
	"time.New*":   "nothing here waits",
	"time.Local":  "the time zone differs from node to node",

	"math.Exp*":  rounded,
	"math.Log*":  rounded,
	"math.Pow*":  rounded,
	"math.Sin*":  rounded,
	"math.Cos*":  rounded,
	"math.Tan*":  rounded,
	"math.As*":   rounded,
	"math.Ac*":   rounded,
	"math.At*":   rounded,
	"math.Cbrt":  rounded,
	"math.Hypot": rounded,
	"math.Erf*":  rounded,
	"math.Gamma": rounded,
	"math.Lg*":   rounded,
	"math.J*":    rounded,
	"math.Y*":    rounded,

	"context.With*": "a script is stopped by a count of instructions, never by a clock or " +
		"from outside",
	"context.After*":    "nothing here waits",
	"strings.ToLower":   asciiFold,
	"strings.ToUpper":   asciiFold,
	"strings.EqualFold": asciiFold,
	"bytes.ToLower":     asciiFold,
	"bytes.ToUpper":     asciiFold,
	"bytes.EqualFold":   asciiFold,

	"(*sync.Map).Range": "its order is random: keep a sorted structure",
}

// finding is a place that breaks a rule.
type finding struct {
	pos           token.Position
	rule, message string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", path.Base(f.pos.Filename), f.pos.Line, f.rule, f.message)
}

// checker inspects the files of one package.
type checker struct {
	fset     *token.FileSet
	info     *types.Info
	findings []finding
	rounded  map[ast.Expr]bool // operands of explicit conversions, which round
}

func (c *checker) report(pos token.Pos, rule, format string, args ...any) {
	c.findings = append(c.findings, finding{c.fset.Position(pos), rule,
		fmt.Sprintf(format, args...)})
}

// check finds the impure code of a package. A comment "//purity: reason" on a line, or alone on the
// line before, excuses it; one that excuses nothing is a finding. Imports cannot be excused by a
// comment.
func check(fset *token.FileSet, files []*ast.File, info *types.Info) []finding {
	c := &checker{fset: fset, info: info, rounded: map[ast.Expr]bool{}}
	excuses := map[string]token.Pos{}
	for _, f := range files {
		c.imports(f)
		ast.Inspect(f, c.node)
		for _, batch := range f.Comments {
			for _, comment := range batch.List {
				if reason, ok := strings.CutPrefix(comment.Text, "//purity:"); ok &&
					strings.TrimSpace(reason) != "" {
					excuses[lineOf(fset.Position(comment.Pos()), 0)] = comment.Pos()
				}
			}
		}
	}
	used := map[string]bool{}
	var left []finding
	for _, f := range c.findings {
		excused := false
		for back := range 2 {
			line := lineOf(f.pos, -back)
			if _, ok := excuses[line]; ok && f.rule != ruleImport {
				excused, used[line] = true, true
			}
		}
		if !excused {
			left = append(left, f)
		}
	}
	for line, pos := range excuses {
		if !used[line] {
			left = append(left, finding{fset.Position(pos), "comment",
				"this //purity: comment excuses nothing: remove it"})
		}
	}
	return left
}

// checkHandlers checks the functions of an impure package that are commands.Handlers, and the
// functions of that package that they use. It also counts the handlers.
func checkHandlers(fset *token.FileSet, files []*ast.File,
	info *types.Info) (found []finding, handlers int) {
	c := &checker{fset: fset, info: info, rounded: map[ast.Expr]bool{}}
	bodies := map[types.Object]*ast.BlockStmt{}
	var work []*ast.BlockStmt
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				obj := info.Defs[n.Name]
				bodies[obj] = n.Body
				if isHandler(obj.Type()) {
					work = append(work, n.Body)
				}
			case *ast.FuncLit:
				if isHandler(info.TypeOf(n)) {
					work = append(work, n.Body)
				}
			}
			return true
		})
	}
	handlers = len(work)
	for len(work) > 0 {
		body := work[0]
		work = work[1:]
		ast.Inspect(body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				obj := info.Uses[id]
				if next := bodies[obj]; next != nil {
					bodies[obj] = nil // once is enough
					work = append(work, next)
				}
				c.foreign(id, obj)
			}
			return c.node(n)
		})
	}
	return c.findings, handlers
}

// isHandler reports whether t is func(*commands.Call) error.
func isHandler(t types.Type) bool {
	f, ok := t.(*types.Signature)
	return ok && f.Recv() == nil && f.Params().Len() == 1 &&
		strings.HasSuffix(f.Params().At(0).Type().String(), "coordd/commands.Call")
}

// foreign finds a function or variable of a package that pure code may not import.
func (c *checker) foreign(id *ast.Ident, obj types.Object) {
	if name, ok := obj.(*types.PkgName); ok && !freeImports[name.Imported().Path()] {
		c.report(id.Pos(), ruleImport, "%q: %s", name.Imported().Path(),
			insteadOf[name.Imported().Path()])
	}
}

func lineOf(p token.Position, offset int) string {
	return p.Filename + ":" + strconv.Itoa(p.Line+offset)
}

func (c *checker) imports(f *ast.File) {
	for _, spec := range f.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		dir := path.Base(path.Dir(c.fset.Position(f.Package).Filename))
		if freeImports[name] || (luaImports[name] &&
			(dir == "script" || dir == "lua" || dir == "parse")) {
			continue
		}
		why := insteadOf[name]
		if why == "" {
			why = "pure code uses what freeImports in purity_check_test.go lists; a package that " +
				"is pure itself may be added there"
		}
		c.report(spec.Pos(), ruleImport, "%q: %s", name, why)
	}
}

func (c *checker) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.report(n.Pos(), ruleGoroutine,
			"the order of goroutines differs from node to node: return the work as an event, "+
				"server/ and cluster/ do it")
	case *ast.SelectStmt:
		c.report(n.Pos(), ruleChannel,
			"select chooses at random: nothing here waits, return an event instead")
	case *ast.SendStmt:
		c.report(n.Pos(), ruleChannel, "return an event instead of sending it")
	case *ast.ChanType:
		c.report(n.Pos(), ruleChannel, "nothing here waits for another goroutine: use a slice")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.report(n.Pos(), ruleChannel,
				"nothing here waits: what is needed comes with the entry")
		}
	case *ast.RangeStmt:
		c.rangeOver(n)
	case *ast.CallExpr:
		if tv := c.info.Types[n.Fun]; tv.IsType() && len(n.Args) == 1 && c.isFloat(n) {
			c.rounded[ast.Unparen(n.Args[0])] = true
		}
		c.call(n)
	case *ast.Ident:
		c.use(n)
	case *ast.BasicLit:
		if n.Kind == token.STRING && addressVerb.MatchString(n.Value) {
			c.report(n.Pos(), ruleAddress,
				"%%p shows an address, which differs from node to node: show a number that the "+
					"entry decides")
		}
	case *ast.AssignStmt:
		c.assign(n)
	case *ast.IncDecStmt:
		c.global(n.X)
	case *ast.BinaryExpr:
		c.fused(n)
	}
	return true
}

var addressVerb = regexp.MustCompile(`%[-+# 0]*[0-9]*p`)

func (c *checker) rangeOver(n *ast.RangeStmt) {
	t := c.info.TypeOf(n.X)
	if t == nil {
		return
	}
	if p, ok := t.(*types.TypeParam); ok {
		t = p.Constraint()
	}
	switch kindOf(t) {
	case "map":
		c.report(n.Pos(), ruleMapOrder,
			"the order is random: keep a sorted structure (btree) or a slice beside the map; "+
				"where no order can be seen, say so on the line: //purity: reason")
	case "chan":
		c.report(n.Pos(), ruleChannel, "nothing here waits: use a slice")
	}
}

// kindOf returns "map" or "chan" if t, or a type of its constraint, is one.
func kindOf(t types.Type) string {
	switch u := t.Underlying().(type) {
	case *types.Map:
		return "map"
	case *types.Chan:
		return "chan"
	case *types.Interface:
		for i := range u.NumEmbeddeds() {
			if k := kindOf(u.EmbeddedType(i)); k != "" {
				return k
			}
		}
	case *types.Union:
		for i := range u.Len() {
			if k := kindOf(u.Term(i).Type()); k != "" {
				return k
			}
		}
	}
	return ""
}

// use checks a function or variable against badCalls, called or not.
func (c *checker) use(id *ast.Ident) {
	obj := c.info.Uses[id]
	name := ""
	switch obj := obj.(type) {
	case *types.Func:
		name = obj.Origin().FullName()
	case *types.Var:
		if obj.Pkg() != nil && obj.Parent() == obj.Pkg().Scope() {
			name = obj.Pkg().Path() + "." + obj.Name()
		}
	case *types.Builtin:
		name = obj.Name()
	}
	if name == "" {
		return
	}
	for bad, why := range badCalls {
		prefix, star := strings.CutSuffix(bad, "*")
		if name == bad || (star && strings.HasPrefix(name, prefix)) {
			c.report(id.Pos(), ruleCall, "%s: %s", name, why)
		}
	}
}

// call finds addresses that become numbers or text.
func (c *checker) call(n *ast.CallExpr) {
	if tv, ok := c.info.Types[n.Fun]; ok && tv.IsType() && len(n.Args) == 1 {
		if isBasic(tv.Type, types.Uintptr) &&
			isBasic(c.info.TypeOf(n.Args[0]), types.UnsafePointer) {
			c.report(n.Pos(), ruleAddress,
				"an address differs from node to node: count or hash the content")
		}
		return
	}
	sel, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return
	}
	if f, ok := c.info.Uses[sel.Sel].(*types.Func); ok && f.Pkg() != nil &&
		f.Pkg().Path() == "fmt" {
		for _, arg := range n.Args {
			if t := c.info.TypeOf(arg); t != nil && printsAddress(t) {
				c.report(arg.Pos(), ruleAddress,
					"fmt shows the address of a %s: show what it holds", t)
			}
		}
	}
}

func isBasic(t types.Type, kind types.BasicKind) bool {
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Kind() == kind
}

// printsAddress reports whether fmt writes a value of type t as an address: a function, a channel,
// or a pointer without a text form to something other than a struct, array, slice or map.
func printsAddress(t types.Type) bool {
	for _, name := range []string{"Error", "String", "Format", "GoString", "Write"} {
		if m, _, _ := types.LookupFieldOrMethod(t, false, nil, name); m != nil {
			return false
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Signature, *types.Chan:
		return true
	case *types.Basic:
		return u.Kind() == types.UnsafePointer
	case *types.Pointer:
		switch u.Elem().Underlying().(type) {
		case *types.Struct, *types.Array, *types.Slice, *types.Map:
			return false
		}
		return true
	}
	return false
}

func (c *checker) assign(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE {
		return
	}
	for _, lhs := range n.Lhs {
		c.global(lhs)
	}
	if n.Tok == token.MUL_ASSIGN && c.isFloat(n.Lhs[0]) {
		c.report(n.Pos(), ruleFusedSum, fusedSum)
	}
}

// global finds a change of a package's variable or of its content.
func (c *checker) global(e ast.Expr) {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.IndexExpr:
			e = x.X
			continue
		case *ast.StarExpr:
			e = x.X
			continue
		case *ast.SelectorExpr:
			if _, qualified := c.info.Uses[x.Sel].(*types.Var); qualified && c.isPackage(x.X) {
				c.globalVar(x.Sel)
				return
			}
			e = x.X
			continue
		case *ast.Ident:
			c.globalVar(x)
		}
		return
	}
}

func (c *checker) isPackage(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	_, ok = c.info.Uses[id].(*types.PkgName)
	return ok
}

func (c *checker) globalVar(id *ast.Ident) {
	v, ok := c.info.Uses[id].(*types.Var)
	if ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
		c.report(id.Pos(), ruleGlobal,
			"%s belongs to all machines of the process and to no snapshot: keep state in Machine "+
				"or Keyspace", id.Name)
	}
}

const (
	fusedSum = "x*y+z may be rounded once or twice, by the processor, also across statements: " +
		"write float64(x*y)"
	fusedQuotient = "compilers make x/c a product if c is a power of two, and x/c+z may then be " +
		"rounded once or twice: write float64(x/c)"
)

// fused finds a product of floats, or a quotient that is one, that no conversion rounds. Some
// processors compute it together with an addition in one rounding, others in two, so nodes could
// differ. The Go specification allows that across statements; an explicit conversion prevents it.
func (c *checker) fused(product *ast.BinaryExpr) {
	if !c.isFloat(product) || c.info.Types[product].Value != nil || c.rounded[product] {
		return
	}
	switch product.Op {
	case token.MUL:
		c.report(product.Pos(), ruleFusedSum, fusedSum)
	case token.QUO:
		if divisor := c.info.Types[product.Y].Value; divisor != nil {
			d, _ := constant.Float64Val(constant.ToFloat(divisor))
			if m, _ := math.Frexp(math.Abs(d)); m == 0.5 {
				c.report(product.Pos(), ruleFusedSum, fusedQuotient)
			}
		}
	}
}

// isFloat reports whether an expression is a floating-point number.
func (c *checker) isFloat(e ast.Expr) bool {
	t := c.info.TypeOf(e)
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsFloat != 0
}
