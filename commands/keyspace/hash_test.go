// Hashes: random changes against a model, across the change from the small form to the large one.

package keyspace

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hashModel is a hash as a map that knows the order of insertion.
type hashModel struct {
	fields   map[string]modelField
	inserted int
}

type modelField struct {
	value    string
	position int
}

func newHashModel() *hashModel { return &hashModel{fields: map[string]modelField{}} }

func (m *hashModel) clone() *hashModel { return &hashModel{maps.Clone(m.fields), m.inserted} }

func (m *hashModel) set(name, value string) (created bool) {
	f, exists := m.fields[name]
	if !exists {
		m.inserted++
		f.position = m.inserted
	}
	f.value = value
	m.fields[name] = f
	return !exists
}

func (m *hashModel) remove(name string) bool {
	_, exists := m.fields[name]
	delete(m.fields, name)
	return exists
}

// names returns the fields in the order that h must have.
func (m *hashModel) names(h *Hash) []string {
	names := slices.Collect(maps.Keys(m.fields))
	slices.SortFunc(names, func(a, b string) int {
		if h.Compact() {
			return m.fields[a].position - m.fields[b].position
		}
		return compareHashed(hashOf(a), a, hashOf(b), b)
	})
	return names
}

// check compares everything that h shows with the model.
func (m *hashModel) check(t *testing.T, h *Hash) {
	t.Helper()
	m.checkContent(t, h)
	m.checkSum(t, h)
}

// checkContent is check without the Sum.
func (m *hashModel) checkContent(t *testing.T, h *Hash) {
	t.Helper()
	if h.Len() != len(m.fields) {
		t.Fatalf("Len is %d, want %d", h.Len(), len(m.fields))
	}
	want := m.names(h)
	var listed []string
	h.Each(func(name string, value []byte) bool {
		if string(value) != m.fields[name].value {
			t.Fatalf("%q is %q, want %q", name, value, m.fields[name].value)
		}
		listed = append(listed, name)
		return true
	})
	if !slices.Equal(listed, want) {
		t.Fatalf("Each gives %q, want %q", listed, want)
	}
}

// checkSum compares h's Sum with that of the same content built backwards, with a detour for some
// fields. A small hash is searched field by field, so this is the costly check.
func (m *hashModel) checkSum(t *testing.T, h *Hash) {
	t.Helper()
	rebuilt := NewHash()
	for i, name := range slices.Backward(m.names(h)) {
		if i%8 == 0 {
			rebuilt.Set([]byte(name), []byte("detour"))
		}
		rebuilt.Set([]byte(name), []byte(m.fields[name].value))
	}
	if h.Sum() != rebuilt.Sum() {
		t.Fatalf("Sum is %x, that of the same content built again %x", h.Sum(), rebuilt.Sum())
	}
	countsRight(t, h)
}

func compareHashed(hashA uint64, a string, hashB uint64, b string) int {
	switch {
	case hashA < hashB:
		return -1
	case hashA > hashB:
		return 1
	}
	return strings.Compare(a, b)
}

func TestHashAgainstModel(t *testing.T) {
	r := dbRand(t)
	for round := range 8 {
		h, m := NewHash(), newHashModel()
		large := false
		var clones []*Hash
		var models []*hashModel
		var sums []uint64
		// As many names as fit in the small form, fewer, and more.
		names := []int{20, smallFields, smallFields + 1, 3 * smallFields}[round%4]
		for step := range 3000 {
			name := "f" + strconv.Itoa(r.IntN(names))
			value := strings.Repeat("v", r.IntN(4)) + strconv.Itoa(r.IntN(9))
			if round >= 4 && r.IntN(500) == 0 {
				value = strings.Repeat("v", smallBytes+r.IntN(2))
			}
			if r.IntN(4) == 0 {
				if got, want := h.Delete([]byte(name)), m.remove(name); got != want {
					t.Fatalf("Delete(%q) is %v, want %v", name, got, want)
				}
			} else {
				if got, want := h.Set([]byte(name), []byte(value)),
					m.set(name, value); got != want {
					t.Fatalf("Set(%q) is %v, want %v", name, got, want)
				}
				large = large || len(m.fields) > smallFields || len(value) > smallBytes
			}
			if h.Compact() == large {
				t.Fatalf("with %d fields Compact is %v", h.Len(), h.Compact())
			}
			if step%300 == 0 {
				m.check(t, h)
				clones, models, sums = append(clones, h.Clone().(*Hash)), append(models, m.clone()),
					append(sums, h.Sum())
			}
		}
		for i, c := range clones {
			models[i].checkContent(t, c)
			if c.Sum() != sums[i] { // the whole content is as it was, so its Sum must be too
				t.Fatalf("Sum of clone %d is %x, at its making it was %x", i, c.Sum(), sums[i])
			}
			c.Set([]byte("only in the clone"), nil)
			c.Delete([]byte("f1"))
		}
		m.check(t, h)
	}
}

func TestHashGet(t *testing.T) {
	for _, n := range []int{0, 3, smallFields, smallFields + 1} {
		h := NewHash()
		for i := range n {
			h.Set(fmt.Appendf(nil, "f%d", i), fmt.Appendf(nil, "v%d", i))
		}
		h.Set([]byte(""), nil)
		for i := range n {
			if v, ok := h.Get(fmt.Appendf(nil, "f%d", i)); !ok ||
				string(v) != fmt.Sprintf("v%d", i) {
				t.Fatalf("of %d fields, f%d is %q, %v", n, i, v, ok)
			}
		}
		if v, ok := h.Get([]byte("")); !ok || v == nil || len(v) != 0 {
			t.Errorf("the empty field is %q, %v, want an empty value", v, ok)
		}
		if v, ok := h.Get([]byte("absent")); ok {
			t.Errorf("a field that is absent is %q", v)
		}
	}
}

// The hash keeps copies of what its caller passes.
func TestHashKeepsCopies(t *testing.T) {
	for _, n := range []int{1, smallFields + 1} {
		h := NewHash()
		for i := range n {
			h.Set(fmt.Appendf(nil, "other%d", i), nil)
		}
		name, value := []byte("name"), []byte("value")
		h.Set(name, value)
		copy(name, "xxxx")
		copy(value, "xxxxx")
		if v, ok := h.Get([]byte("name")); !ok || string(v) != "value" {
			t.Errorf("after the arguments were overwritten the field is %q, %v", v, ok)
		}
	}
}

// A long name makes a hash large as a long value does; at the bound it stays small.
func TestHashBounds(t *testing.T) {
	at, over := strings.Repeat("x", smallBytes), strings.Repeat("x", smallBytes+1)
	for _, c := range []struct {
		name, value string
		small       bool
	}{{at, at, true}, {over, "", false}, {"", over, false}} {
		h := NewHash()
		h.Set([]byte(c.name), []byte(c.value))
		if h.Compact() != c.small {
			t.Errorf("with a name of %d and a value of %d bytes Compact is %v", len(c.name),
				len(c.value), h.Compact())
		}
	}
}

// A step returns at least count elements while there are as many, a whole iteration each element
// once.
func TestHashScan(t *testing.T) {
	for _, n := range []int{0, 5, smallFields, 5 * smallFields} {
		h := NewHash()
		for i := range n {
			h.Set(fmt.Appendf(nil, "f%d", i), fmt.Appendf(nil, "%d", i))
		}
		for _, count := range []int{1, 7, 100, 10 * smallFields} {
			seen := map[string]int{}
			cursor, left := uint64(0), n
			for {
				step := 0
				cursor = h.Scan(cursor, count, func(name string, value []byte) {
					if "f"+string(value) != name {
						t.Fatalf("%s has the value %q", name, value)
					}
					seen[name]++
					step++
				})
				if step < min(count, left) {
					t.Fatalf("a step of %d gave %d of %d", count, step, left)
				}
				left -= step
				if cursor == 0 {
					break
				}
			}
			if left != 0 || len(seen) != n {
				t.Errorf("steps of %d gave %d different of %d fields, %d missing", count, len(seen),
					n, left)
			}
		}
	}
}
