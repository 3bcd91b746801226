package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/tests/derived"
	"github.com/coordd/coordd/internal/tests/mutations"
)

// shown is how long a test takes that has a row of its own.
const shown = time.Second

// row is a test in the table.
type row struct {
	ended
	check bool // only make check runs it
	finds string
}

// times runs each package's tests alone, those of make check too, and writes the table.
func times(ctx context.Context, all *suite) error {
	if err := os.Setenv("COORDD_CHECK", "1"); err != nil {
		return err
	}
	known, err := readKnown()
	if err != nil {
		return err
	}
	var table strings.Builder
	table.WriteString("| Package | Test | Seconds | In | What it finds, or tests |\n" +
		"|---|---|---|---|---|\n")
	var errs []error
	for _, b := range all.binaries {
		o, err := b.run(ctx)
		if err != nil {
			return err
		}
		for _, name := range o.failures() {
			errs = append(errs, fmt.Errorf("%s: %s failed", b.dir, name))
		}
		tests, err := readTests(b.dir)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %.1f s, of processors %.1f s\n", b.dir, o.took.Seconds(), o.cpu.Seconds())
		writeRows(&table, b, o, tests, known)
	}
	return errors.Join(append(errs, derived.Write(mutations.Doc, "times", table.String()))...)
}

// writeRows writes the rows of a package.
func writeRows(table *strings.Builder, b binary, o outcome, tests map[string]row,
	known map[string][]string) {
	var quick, slow time.Duration
	var rows []row
	for _, t := range o.tests {
		r := tests[t.name]
		r.ended = t
		found := slices.Concat(known[b.dir+" "+t.name], known[t.name])
		if len(found) > 0 {
			r.finds = strings.Join(found, "; ")
		}
		if r.check {
			slow += t.took
		} else {
			quick += t.took
		}
		if t.took >= shown {
			rows = append(rows, r)
		}
	}
	watched := ""
	if b.race {
		watched = ", with the race detector"
	}
	fmt.Fprintf(table, "| `%s` | all %d%s | %.1f + %.1f | test + check | |\n", b.dir, len(o.tests),
		watched, quick.Seconds(), slow.Seconds())
	slices.SortFunc(rows, func(a, b row) int { return int(b.took - a.took) })
	for _, r := range rows {
		in := "test"
		if r.check {
			in = "check"
		}
		fmt.Fprintf(table, "| | `%s` | %.1f | %s | %s |\n", r.name, r.took.Seconds(), in, r.finds)
	}
}

// readTests returns what the sources of a package say of its tests.
func readTests(dir string) (map[string]row, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	tests := map[string]row{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				text := new(doc.Package).Synopsis(f.Doc.Text())
				text = strings.TrimPrefix(strings.TrimPrefix(text, f.Name.Name), ": ")
				tests[f.Name.Name] = row{check: callsCheck(f), finds: strings.TrimSpace(text)}
			}
		}
	}
	return tests, nil
}

// callsCheck reports whether the first thing that a test does is to call tier.Check.
func callsCheck(f *ast.FuncDecl) bool {
	if f.Body == nil || len(f.Body.List) == 0 {
		return false
	}
	first, ok := f.Body.List[0].(*ast.ExprStmt)
	return ok && types.ExprString(first.X) == "tier.Check(t)"
}

var (
	// mended is a row of the table of mended bugs: what was found, by what, and the tests.
	mended = regexp.MustCompile("(?m)^\\| ([^|]+) \\| [^|]+ \\| (`Test[^|]+) \\|$")
	named  = regexp.MustCompile(`Test\w+`)
)

// readKnown returns what is known to be found by tests: planted bugs, by package and test, and
// mended ones, by test.
func readKnown() (map[string][]string, error) {
	known := map[string][]string{}
	list, err := mutations.Load(".")
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		for _, test := range named.FindAllString(m.Find.Run, -1) {
			name := filepath.Clean(m.Find.Package) + " " + test
			known[name] = append(known[name], "planted: "+m.Name)
		}
	}
	text, err := os.ReadFile(mutations.Doc)
	if err != nil {
		return nil, err
	}
	for _, m := range mended.FindAllStringSubmatch(string(text), -1) {
		for _, test := range named.FindAllString(m[2], -1) {
			known[test] = append(known[test], "mended: "+m[1])
		}
	}
	return known, nil
}
