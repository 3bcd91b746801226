// Sets: random changes against a model, across all changes of form, copies and snapshot records.

package keyspace

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// setModel is a set as a map; integers says which form it should have.
type setModel struct {
	members  map[string]bool
	integers bool
}

func newSetModel() *setModel { return &setModel{members: map[string]bool{}, integers: true} }

func (m *setModel) clone() *setModel { return &setModel{maps.Clone(m.members), m.integers} }

func (m *setModel) add(member string) bool {
	if m.members[member] {
		return false
	}
	m.members[member] = true
	n, err := strconv.ParseInt(member, 10, 64)
	m.integers = m.integers && err == nil && strconv.FormatInt(n, 10) == member &&
		len(m.members) <= smallIntegers
	return true
}

func (m *setModel) remove(member string) bool {
	exists := m.members[member]
	delete(m.members, member)
	return exists
}

// list gives the members in the order that the set has to have.
func (m *setModel) list() []string {
	return slices.SortedFunc(maps.Keys(m.members), func(a, b string) int {
		if m.integers {
			x, _ := strconv.ParseInt(a, 10, 64)
			y, _ := strconv.ParseInt(b, 10, 64)
			if x < y {
				return -1
			}
			return 1
		}
		return compareHashed(hashOf(a), a, hashOf(b), b)
	})
}

// check compares everything that s shows with the model.
func (m *setModel) check(t *testing.T, s *Set) {
	t.Helper()
	want := m.list()
	if s.Len() != len(want) || s.Integers() != m.integers {
		t.Fatalf("%d members, integers %v; want %d, %v", s.Len(), s.Integers(), len(want),
			m.integers)
	}
	var listed, scanned []string
	s.Each(func(member string) bool {
		listed = append(listed, member)
		return true
	})
	cursor := uint64(0)
	for {
		cursor = s.Scan(cursor, 7, func(member string) { scanned = append(scanned, member) })
		if cursor == 0 {
			break
		}
	}
	if !slices.Equal(listed, want) || !slices.Equal(scanned, want) {
		t.Fatalf("Each gives %q, Scan %q, want %q", listed, scanned, want)
	}
	rebuilt := NewSet()
	for i, member := range want {
		if s.Pick()(i) != member || !s.Has([]byte(member)) {
			t.Fatalf("Pick(%d) is %q, want %q, which is there: %v", i, s.Pick()(i), member,
				s.Has([]byte(member)))
		}
		rebuilt.Add([]byte(member))
	}
	countsRight(t, s)
	if s.Sum() != rebuilt.Sum() {
		t.Fatalf("Sum is %x, that of the same content built again %x", s.Sum(), rebuilt.Sum())
	}
	restored := readSet(newReader(s.appendTo(nil), nil, true))
	if restored.Sum() != s.Sum() || restored.Integers() != s.Integers() ||
		string(restored.appendTo(nil)) != string(s.appendTo(nil)) {
		t.Fatal("the record gives another set")
	}
}

func TestSetAgainstModel(t *testing.T) {
	r := dbRand(t)
	for _, c := range []struct{ members, names int }{{4, 0}, {40, 0}, {700, 0}, {40, 10},
		{300, 300}, {1000, 1}, {smallNames + 20, 1000}} {
		s, m := NewSet(), newSetModel()
		var clones []*Set
		var models []*setModel
		for step := range 4000 {
			member := strconv.Itoa(r.IntN(c.members) - c.members/2)
			if r.IntN(1000) < c.names {
				member = "m" + member
			}
			if (r.IntN(3) == 0) != (step > 3000) { // in the end it shrinks
				if got, want := s.Delete([]byte(member)), m.remove(member); got != want {
					t.Fatalf("Remove %q is %v", member, got)
				}
			} else if got, want := s.Add([]byte(member)), m.add(member); got != want {
				t.Fatalf("Add %q is %v", member, got)
			}
			if s.Has([]byte(member)) != m.members[member] {
				t.Fatalf("Has %q is not %v", member, m.members[member])
			}
			if step%500 == 0 {
				clones, models = append(clones, s.Clone().(*Set)), append(models, m.clone())
				m.check(t, s)
			}
		}
		m.check(t, s)
		for i, clone := range clones {
			models[i].check(t, clone)
		}
	}
}

// What is written exactly as a 64-bit integer is one; anything else is a name.
func TestSetIntegers(t *testing.T) {
	for member, want := range map[string]bool{
		"0": true, "-1": true, "10": true, fmt.Sprint(math.MaxInt64): true,
		fmt.Sprint(math.MinInt64): true,
		"":                        false, "-": false, "-0": false, "00": false, "01": false,
		"+1": false, " 1": false,
		"1 ": false, "1_0": false, "0x1": false, "1.0": false,
		"9223372036854775808": false, "-9223372036854775809": false, "1\x00": false, "a": false,
		strings.Repeat("1", 30): false,
	} {
		s := NewSet()
		if s.Has([]byte(member)) || s.Delete([]byte(member)) || !s.Add([]byte(member)) {
			t.Fatalf("%q was there", member)
		}
		if s.Integers() != want || s.Pick()(0) != member || !s.Has([]byte(member)) {
			t.Errorf("%q: integers %v, want %v; Pick gives %q", member, s.Integers(), want,
				s.Pick()(0))
		}
	}
}

// A record that is truncated, too long, has a duplicate or a wrong form is refused.
func TestDamagedSetRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, names := range []bool{false, true} {
		s := NewSet()
		for range 200 {
			s.Add(strconv.AppendInt(nil, r.Int64N(1000), 10))
		}
		if names {
			s.Add([]byte("name"))
		}
		record := appendRecord(nil, 0, newBox(k(1), s))
		if err := New().Load(record); err != nil {
			t.Fatal(err)
		}
		for n := range record {
			if err := New().Load(record[:n]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%d of %d bytes are loaded: %v", n, len(record), err)
			}
		}
		if err := New().Load(append(slices.Clone(record), 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a byte too many is loaded: %v", err)
		}
	}
	head := appendRecord(nil, 0, newBox(k(1), NewSet()))
	head = head[:len(head)-2]
	dead := New()
	dead.RestoreClock(5)
	for what, content := range map[string]string{
		"a member twice": "\x01\x02\x01a\x01a", "a name among integers": "\x00\x01\x01a",
		"an unknown form":                "\x04\x01\x01a",
		"integers with deadlines":        "\x02\x01\x011\x07",
		"no deadline":                    "\x03\x01\x01a",
		"lives without a deadline":       "\x03\x01\x01a\x00",
		"a dead member twice":            "\x03\x02\x01a\x01\x01a\x01",
		"more members than there can be": "\x00\xff\xff\xff\xff\x7f",
	} {
		if err := dead.Load(append(slices.Clone(head), content...)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
