package crashdisk

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Tests of the model, without a kernel. made is a disk with one operation a call.
type made struct{ *Disk }

func (m made) create(at string) *node {
	dir, name := m.root, at
	if i := strings.LastIndexByte(at, '/'); i >= 0 {
		dir, name = m.find(at[:i]), at[i+1:]
	}
	n := m.add(syscall.S_IFREG)
	m.rename(false, edit{dir, name, n})
	return n
}

func (n *node) write(at int64, text string) { n.change(change{at: at, bytes: []byte(text)}) }

// tree returns what a disk holds, one path with its content a word.
func tree(d *Disk) string {
	var words []string
	var walk func(n *node, at string)
	walk = func(n *node, at string) {
		for _, name := range d.Names(at) {
			child := n.entries[name]
			if child.isDir() {
				words = append(words, at+name+"/")
				walk(child, at+name+"/")
			} else {
				words = append(words, at+name+"="+string(child.data.bytes))
			}
		}
	}
	walk(d.root, "")
	return strings.Join(words, " ")
}

// What is synced survives, and nothing else.
func TestSurvivors(t *testing.T) {
	m := made{New()}
	m.PutDir("d")
	synced, named := m.create("d/synced"), m.create("d/named")
	synced.write(0, "abc")
	named.write(0, "abc")
	m.syncDir(m.find("d"))
	synced.sync()
	synced.write(1, "x") // not synced
	m.create("d/late").sync()
	m.rename(false, edit{m.root, "moved", synced}, edit{m.find("d"), "synced", nil})
	for outcome, want := range map[Outcome]string{
		Kept: "d/ d/late= d/named=abc moved=axc",
		Lost: "d/ d/named= d/synced=abc",
	} {
		if got := tree(m.Survivor(outcome, nil)); got != want {
			t.Errorf("%s: %s, want %s", outcome, got, want)
		}
	}
	// the other directory's sync includes what came before in this one
	m.syncDir(m.root)
	if got := tree(m.Survivor(Lost, nil)); got != "d/ d/late= d/named= moved=abc" {
		t.Error(got)
	}
}

// Names come and go in their order, sectors by chance, and each outcome in between occurs.
func TestTorn(t *testing.T) {
	m := made{New()}
	f := m.create("f")
	m.syncDir(m.root)
	f.write(0, strings.Repeat("-", 2*Sector))
	f.sync()
	f.write(0, strings.Repeat("+", 2*Sector))
	m.create("a")
	m.create("b")
	names, contents := map[string]int{}, map[string]int{}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		s := m.Survivor(Torn, rnd)
		names[strings.Join(s.Names("/"), "")]++
		b, err := s.ReadFile("f")
		if err != nil || len(b) != 2*Sector {
			t.Fatal(len(b), err)
		}
		contents[string([]byte{b[0], b[Sector-1], b[Sector], b[2*Sector-1]})]++
	}
	if fmt.Sprint(len(names), len(contents)) != "3 4" || names["f"] == 0 || names["af"] == 0 ||
		names["abf"] == 0 {
		t.Error(names, contents)
	}
}

// The operation at which the power fails is taken in no outcome but torn, and there in part.
func TestAttempted(t *testing.T) {
	m := made{New()}
	f := m.create("f")
	m.syncDir(m.root)
	f.change(change{bytes: bytes.Repeat([]byte("x"), 2*Sector), attempted: true})
	m.rename(true, edit{m.root, "g", f})
	for _, outcome := range []Outcome{Kept, Lost} {
		if got := tree(m.Survivor(outcome, nil)); got != "f=" {
			t.Errorf("%s: %s", outcome, got)
		}
	}
	sizes := map[string]bool{}
	rnd := rand.New(rand.NewPCG(2, 2))
	for range 100 {
		s := m.Survivor(Torn, rnd)
		b, _ := s.ReadFile("f")
		sizes[fmt.Sprint(len(b), s.Names("/"))] = true
	}
	if !sizes["0 [f]"] || !sizes["512 [f g]"] || !sizes["1024 [f g]"] {
		t.Error(sizes)
	}
}

// A sync that failed lost its data; another does not bring them back, writing them again does.
func TestFailedSync(t *testing.T) {
	m := made{New()}
	f := m.create("f")
	m.syncDir(m.root)
	f.write(0, "abc")
	f.lose()
	f.write(3, "d")
	f.sync()
	if got := tree(m.Survivor(Lost, nil)); got != "f=\x00\x00\x00d" || tree(m.Disk) != "f=abcd" {
		t.Errorf("%q", got)
	}
	f.write(0, "abc")
	f.sync()
	if got := tree(m.Survivor(Lost, nil)); got != "f=abcd" {
		t.Errorf("%q", got)
	}
}

// Blocks are reserved by writes without gaps and by request, and sizes alone reserve none.
func TestReserved(t *testing.T) {
	f := made{New()}.create("f")
	for _, step := range []struct {
		do   change
		want int64
	}{
		{change{size: 10}, 0}, {change{at: 5, bytes: []byte("x")}, 0},
		{change{bytes: []byte("x")}, 1}, {change{size: 100, reserves: true}, 100},
		{change{at: 100, bytes: []byte("x")}, 101}, {change{size: 50}, 50}, {change{size: 60}, 50},
	} {
		f.change(step.do)
		if f.data.reserved != step.want {
			t.Errorf("%+v: %d reserved, want %d", step.do, f.data.reserved, step.want)
		}
	}
}

// The survivor of hard links is one file; what is put on a disk is durable and can be extracted.
func TestLinksAndCopies(t *testing.T) {
	d := New()
	d.Put("a/b/c", []byte("old"))
	d.Put("a/b/c", []byte("text"))
	n := d.find("a/b/c")
	d.rename(false, edit{d.root, "link", n})
	s := d.Survivor(Kept, nil)
	if s.find("link") != s.find("a/b/c") || s.find("link").links != 2 {
		t.Error("the links lead to different files")
	}
	dir := t.TempDir()
	if err := d.Survivor(Lost, nil).Extract(dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(dir + "/a/b/c"); string(b) != "text" || err != nil {
		t.Error(string(b), err)
	}
	loaded, err := Load(dir)
	if err != nil || tree(loaded.Survivor(Lost, nil)) != "a/ a/b/ a/b/c=text" {
		t.Error(tree(loaded), err)
	}
}
