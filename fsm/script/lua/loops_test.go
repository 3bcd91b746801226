package lua

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unpaid are the functions with a loop that do not charge for it themselves, and why that is paid
// for or short. A loop over what a script made, such as the keys of a table, has no other place.
var unpaid = map[string]string{
	"border":          "returns what it costs; Length charges",
	"linearBorder":    "border counts its steps",
	"step":            "returns what it skipped; its callers charge",
	"Pairs":           "its caller charges for the walk before it, and for each pair",
	"concat":          "join and callMeta charge for each operand",
	"start":           "Resume charges for the arguments",
	"prepareLoop":     "three values",
	"sizesWith":       "shapeGrowth charges for the keys, before they are counted",
	"resize":          "shapeGrowth and resizeArray charge for what moves, indexing for the keys",
	"rebuild":         "shapeGrowth charges for the keys, of which it reads some bytes",
	"replaceEntries":  "indexing charges for the keys and their bytes, where it is asked",
	"indexing":        "over entries that are charged for next",
	"hasIntegers":     "shapeGrowth charges for the keys",
	"dropLost":        "entryGrowth asks indexing, for the keys and their bytes",
	"needsShape":      "once in the life of a table, for the keys that were paid for",
	"hasFree":         "it goes down once over the nodes that were paid for",
	"mainPosition":    "over a number's words, or some bytes of a string",
	"index":           "at most smallTable entries, which have no index yet",
	"placeString":     "at most smallTable entries, which have no index yet",
	"addEntry":        "smallTable entries, once, or again after indexing charged for them",
	"setArray":        "its caller charges for the slots",
	"trim":            "over nils, each of which was a value before",
	"ParseNumber":     "ChargeNumeral was called for the text",
	"ScanNumber":      "ChargeNumeral was called for the text",
	"parseDigits":     "ChargeNumeral was called for the text",
	"scanExponent":    "ChargeNumeral was called for the text",
	"scanMantissa":    "ChargeNumeral was called for the text",
	"scanWord":        "ChargeNumeral was called for the text",
	"largestExponent": "when the process starts",
	"SetTop":          "over registers that were paid for when they were filled",
	"End":             "after the run",
	"RaiseError":      "over Go functions on top of the stack: few",
	"Size":            "over the instructions and constants of a program that was compiled",
	"Watch":           "a library's tables when it is loaded, by maxKeptLibraryBytes",
	"function":        "as Watch",
	"table":           "as Watch",
}

// unpaidInLibraries are such functions of the libraries of scripts. A call of a library function is
// charged for its arguments and results where the virtual machine makes it.
var unpaidInLibraries = map[string]string{
	"writePairs":    "walks charges for the pairs, and write for each",
	"add":           "grow charges for the room",
	"addBytes":      "grow charges for the room",
	"bitToHex":      "eight digits",
	"checkOption":   "three options",
	"array":         "value charges for each element",
	"object":        "value charges for each pair, and scan for each token",
	"unescaped":     "decode charges for the bytes, scanString for the escapes",
	"hex4":          "four digits",
	"msgpackPack":   "value charges for each argument",
	"mathMax":       "over the arguments",
	"mathMin":       "over the arguments",
	"openRedis":     "a library's functions, when a state is made",
	"addConstants":  "a library's functions, when a state is made",
	"parseUnsigned": "ChargeNumeral was called for the text",
	"scanSpec":      "stringFormat charges for the format",
	"scanTwoDigits": "two digits",
	"pad":           "over a number's sign",
	"closeCapture":  "32 captures",
	"pushCaptures":  "32 captures",
	"expand":        "write charges for each piece",
	"number":        "newStructFormat charges for the format",
	"structPack":    "newStructFormat charges for each option of the format",
	"structUnpack":  "newStructFormat charges for each option of the format",
	"structSize":    "newStructFormat charges for each option of the format",
	"appendUint":    "32 bytes, for two characters of the format",
	"uint":          "32 bytes, for two characters of the format",
	"sort":          "isLess charges for each comparison",
	"partition":     "isLess charges for each comparison",
}

// TestLoopsArePaidFor reads the sources of the virtual machine. Compiling is limited and charged by
// tokens.
func TestLoopsArePaidFor(t *testing.T) {
	checkLoops(t, "*.go", func(name string) bool {
		return !strings.HasPrefix(name, "compile") && name != "opcode.go"
	}, unpaid)
}

// TestLoopsOfLibrariesArePaidFor reads the libraries, and how a result becomes a reply.
func TestLoopsOfLibrariesArePaidFor(t *testing.T) {
	checkLoops(t, "../*.go", func(name string) bool {
		name = filepath.Base(name)
		return strings.HasPrefix(name, "lib_") || name == "answer.go" || name == "text.go"
	}, unpaidInLibraries)
}

// paying are what a function that charges has in its text.
var paying = []string{"harge", ".Take(", "Instructions", ".step()", ".settle()"}

// checkLoops reads the functions of the files that want selects.
func checkLoops(t *testing.T, pattern string, want func(name string) bool,
	unpaid map[string]string) {
	fset := token.NewFileSet()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || !want(name) {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(fset, name, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || !loops(f) {
				continue
			}
			text := string(source[fset.Position(f.Pos()).Offset:fset.Position(f.End()).Offset])
			switch {
			case unpaid[f.Name.Name] != "":
				seen[f.Name.Name] = true
			case !slices.ContainsFunc(paying, func(s string) bool {
				return strings.Contains(text, s)
			}):
				t.Errorf("%s: %s has a loop and charges nothing", fset.Position(f.Pos()),
					f.Name.Name)
			}
		}
	}
	for name := range unpaid {
		if !seen[name] {
			t.Errorf("no function %s has a loop", name)
		}
	}
}

// uncharged are the functions of fsm/script that may read a table by a look-up which charges
// nothing, and why.
var uncharged = map[string]string{
	"element": "a reply is charged while it is measured",
}

// TestLookupsOfLibrariesArePaidFor refuses look-ups of positions that charge nothing:
// tb.RawGet(key) in place of L.RawGet(tb, key). Whether one is in a loop, only its callers tell.
func TestLookupsOfLibrariesArePaidFor(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	charged, seen := 0, map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			function := ""
			if f, ok := d.(*ast.FuncDecl); ok {
				function = f.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok || s.Sel.Name != "RawGet" && s.Sel.Name != "RawGetInt" {
					return true
				}
				switch {
				case isState(s.X):
					charged++
				case uncharged[function] != "":
					seen[function] = true
				default:
					t.Errorf("%s: %s looks a key up and charges nothing",
						fset.Position(s.Pos()), function)
				}
				return true
			})
		}
	}
	for name := range uncharged {
		if !seen[name] {
			t.Errorf("no function %s looks a key up", name)
		}
	}
	if charged == 0 {
		t.Error("no look-up is charged: the test reads something else")
	}
}

// isState reports whether an expression is an LState by its name: L, or a field L.
func isState(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "L"
	case *ast.SelectorExpr:
		return x.Sel.Name == "L"
	}
	return false
}

func loops(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			found = true
		}
		return !found
	})
	return found
}
