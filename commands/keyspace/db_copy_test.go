// Creating, renaming, copying and picking keys.

package keyspace

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRename(t *testing.T) {
	ks := writable(1, 1)
	db := ks.DB(0)
	db.SetDeadline(db.SetString(k(1), []byte("one")), 50)
	db.SetDeadline(db.SetString(k(2), []byte("two")), 60)
	ks.Freeze()
	ks.Begin(2, NewRevision(0, 2, 0))
	if db.Rename(k(9), k(1)) || !db.Rename(k(1), k(1)) || db.Rename(k(9), k(9)) {
		t.Fatal("a key that does not exist was renamed, or one was not to itself")
	}
	if !db.Rename(k(1), k(2)) || db.Find(k(1)) != nil {
		t.Fatal("the key is there under its old name")
	}
	e := db.Find(k(2))
	if string(e.Bytes()) != "one" || e.Deadline() != 50 || e.Created() != NewRevision(0, 2, 0) ||
		e.Changed() != e.Created() {
		t.Fatalf("renamed: %q deadline %d created %d", e.Bytes(), e.Deadline(), e.Created())
	}
	if db.Len() != 1 || db.Volatile() != 1 {
		t.Fatalf("%d keys, %d volatile", db.Len(), db.Volatile())
	}
	ks.Begin(55, NewRevision(0, 3, 0))
	if db.Len() != 0 {
		t.Fatal("the deadline did not go along")
	}
}

func TestCopyIsIndependent(t *testing.T) {
	ks := writable(1, 1)
	db := ks.DB(0)
	long := strings.Repeat("1", maxPacked+1) // a short one is never changed in place
	db.AppendString(k(1), []byte(long))
	db.AppendString(k(1), []byte("6"))
	if s := db.Find(k(1)).Bytes(); len(s) == cap(s) {
		t.Fatal("no spare room after the string: the test shows nothing")
	}
	if !db.Copy(k(1), db, k(2)) || db.Copy(k(9), db, k(2)) {
		t.Fatal("Copy does not say whether the key existed")
	}
	db.AppendString(k(2), []byte("c"))
	db.AppendString(k(1), []byte("o"))
	db.AppendString(k(2), []byte("opy"))
	if a, b := string(db.Find(k(1)).Bytes()), string(db.Find(k(2)).Bytes()); a != long+"6o" ||
		b != long+"6copy" {
		t.Fatalf("the strings are %q and %q", a, b)
	}
	for _, n := range []int{1, 600} {
		h, z := NewHash(), NewZSet()
		for i := range n {
			h.Set(k(i), []byte("v"))
			z.Add(k(i), 1)
		}
		for i, c := range []Collection{h, z} {
			from, to := k(10+i), k(20+i)
			db.Changed(db.SetCollection(from, c))
			db.Copy(from, ks.DB(1), to)
			edit := db.Edit(from)
			switch c := edit.Collection().(type) {
			case *Hash:
				c.Delete(k(0))
				c.Set(k(n), nil)
			case *ZSet:
				c.Remove(k(0))
				c.Add(k(n), 5)
			}
			db.Changed(edit)
			got := ks.DB(1).Find(to)
			var there, foreign bool
			switch c := got.Collection().(type) {
			case *Hash:
				_, there = c.Get(k(0))
				_, foreign = c.Get(k(n))
			case *ZSet:
				_, there = c.Score(k(0))
				_, foreign = c.Score(k(n))
			}
			if got.Collection().Len() != n || !there || foreign ||
				got.Created() != NewRevision(0, 1, 0) {
				t.Errorf("%v of %d elements: the copy has %d, the removed one %v, the added one %v",
					got.Kind(), n, got.Collection().Len(), there, foreign)
			}
		}
	}
}

func TestCreateIsSetString(t *testing.T) {
	a, b := writable(1, 1), writable(1, 1)
	for i := range 100 {
		a.DB(0).SetString(k(i), k(i))
		b.DB(0).Create(k(i), k(i))
	}
	if a.Sum() != b.Sum() || !sameRecords(records(t, a.Freeze()), records(t, b.Freeze())) {
		t.Error("Create made something else than SetString")
	}
}

func TestRandomPicksEveryKeyThatExists(t *testing.T) {
	ks := writable(1, 1)
	db := ks.DB(0)
	if db.Random(7) != nil {
		t.Fatal("a key of an empty database")
	}
	const n = 50
	for i := range n {
		db.SetString(k(i), nil)
	}
	picked := map[string]bool{}
	for seed := range uint64(n) {
		picked[db.Random(seed).Key()] = true
	}
	if len(picked) != n {
		t.Errorf("%d consecutive seeds picked %d of %d keys", n, len(picked), n)
	}
	// Expired keys are skipped, also around the end of the tree.
	ks = past(30)
	var got []string
	for seed := range uint64(31) {
		got = append(got, ks.DB(0).Random(seed).Key())
	}
	if slices.ContainsFunc(got, func(s string) bool { return s != "stays" }) {
		t.Errorf("picked %v", got)
	}
	ks.DB(0).Delete([]byte("stays"))
	if e := ks.DB(0).Random(3); e != nil {
		t.Errorf("picked %s, which is past its deadline", e.Key())
	}
}

// A dry run of a copy marks nothing as shared: dry runs run beside reads.
func TestDryRunOfCopyChangesNothing(t *testing.T) {
	ks := New()
	ks.Begin(1, NewRevision(0, 1, 0))
	db := ks.DB(0)
	db.WriteAt([]byte("string"), 0, make([]byte, 1000))
	s := NewStream()
	s.Add(StreamID{Ms: 1}, [][]byte{[]byte("f"), []byte("v")})
	db.Changed(db.SetCollection([]byte("stream"), s))
	own, owner := db.Find([]byte("string")).text().own, s.owner
	ks.End()
	for _, key := range []string{"string", "stream"} {
		func() {
			defer func() {
				if p := recover(); p != ErrClosed {
					t.Errorf("%s: %v", key, p)
				}
			}()
			db.Copy([]byte(key), db, []byte("copy"))
		}()
	}
	if e := db.Find([]byte("string")); e.text().own != own || !own || s.owner != owner {
		t.Error("the dry run changed what the copy would share")
	}
}

// TestValuesAreSharedInOnePlace: what shares the nodes of a value marks them, which a dry run must
// not do beside reads. The race detector rarely sees it, as taking a mark synchronizes.
func TestValuesAreSharedInOnePlace(t *testing.T) {
	allowed := map[string]string{"db_copy.go": "share", "entry_form.go": "clone"}
	paths, err := filepath.Glob("../*.go")
	own, err2 := filepath.Glob("*.go")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	found := 0
	for _, path := range append(paths, own...) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) > 0 {
					return true
				}
				if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Clone" {
					if found++; allowed[path] != function.Name.Name {
						t.Errorf("%s: %s shares a value: DB.share does it", path,
							function.Name.Name)
					}
				}
				return true
			})
		}
	}
	if found != len(allowed) {
		t.Errorf("%d places share values, want %d", found, len(allowed))
	}
}
