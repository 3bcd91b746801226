package lua

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
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
	"resize":          "shapeGrowth charges for what moves",
	"rebuild":         "shapeGrowth charges for the keys",
	"replaceEntries":  "shapeGrowth charges for the keys",
	"hasIntegers":     "shapeGrowth charges for the keys",
	"dropLost":        "shapeGrowth charges for the keys; most of them are gone",
	"needsShape":      "once in the life of a table, for the keys that were paid for",
	"hasFree":         "it goes down once over the nodes that were paid for",
	"mainPosition":    "over a number's words, or some bytes of a string",
	"index":           "at most smallTable entries, which have no index yet",
	"placeString":     "at most smallTable entries, which have no index yet",
	"addEntry":        "smallTable entries, once",
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

// TestLoopsArePaidFor reads the sources of the virtual machine. Compiling is limited and charged by
// tokens.
func TestLoopsArePaidFor(t *testing.T) {
	fset := token.NewFileSet()
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "compile") ||
			name == "opcode.go" {
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
			charges := strings.Contains(text, "Charge") || strings.Contains(text, ".Take(") ||
				strings.Contains(text, "Instructions")
			switch {
			case unpaid[f.Name.Name] != "":
				seen[f.Name.Name] = true
			case !charges:
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
