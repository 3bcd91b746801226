package keyspace

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// indexModel is an index beside a plain map, which says what must be in it.
type indexModel struct {
	*testing.T
	*rand.Rand
	x       *index
	entries map[string]*Entry
	hash    func(key string) uint64
}

func newIndexModel(t *testing.T, hash func(key string) uint64) *indexModel {
	return &indexModel{T: t, Rand: rand.New(rand.NewPCG(1, 2)), x: newIndex(1),
		entries: map[string]*Entry{}, hash: hash}
}

func (m *indexModel) set(key string) {
	e := &Entry{key: key, hash: m.hash(key)}
	m.entries[key] = e
	m.x.set(e)
}

func (m *indexModel) remove(key string) {
	if e := m.entries[key]; e != nil {
		m.x.remove(e)
		delete(m.entries, key)
	}
}

// content is what the model holds, in the order in which the index has to give it.
func (m *indexModel) content() []slot {
	var all []slot
	for _, e := range m.entries {
		all = append(all, slot{e.hash, e})
	}
	slices.SortFunc(all, slotCompare)
	return all
}

// holds checks that x gives exactly want, by every way of asking.
func (m *indexModel) holds(x *index, want []slot) {
	m.Helper()
	var got []slot
	x.from(0, func(s slot) bool {
		got = append(got, s)
		return true
	})
	if !slices.Equal(got, want) || x.size != len(want) {
		m.Fatalf("%d entries in order, size %d, want %d", len(got), x.size, len(want))
	}
	for i, s := range want {
		if x.find(s.hash, []byte(s.entry.key)) != s.entry {
			m.Fatalf("%q is not found", s.entry.key)
		}
		if x.at(i) != s {
			m.Fatalf("position %d has %q, want %q", i, x.at(i).entry.key, s.entry.key)
		}
		if i%7 == 0 {
			first := -1
			x.from(s.hash, func(s slot) bool {
				first, _ = slices.BinarySearchFunc(want, s, slotCompare)
				return false
			})
			if first > i || want[first].hash != s.hash {
				m.Fatalf("from the hash of position %d on: begins at %d", i, first)
			}
		}
	}
	if x.find(m.hash("not there"), []byte("not there")) != nil {
		m.Fatal("found what is not there")
	}
}

// change sets and removes keys at random, about as many as to reach so many.
func (m *indexModel) change(steps, aim int) {
	for range steps {
		key := strconv.Itoa(m.IntN(2 * aim))
		if m.IntN(2) == 0 {
			m.set(key)
		} else {
			m.remove(key)
		}
	}
}

func TestIndexHoldsWhatWasSet(t *testing.T) {
	for name, hash := range map[string]func(string) uint64{
		"spread":             hashOf,
		"all equal":          func(string) uint64 { return 7 << 40 },
		"few":                func(key string) uint64 { return uint64(len(key)) << 62 },
		"leading bits equal": func(key string) uint64 { return hashOf(key) >> 40 },
		"last of all":        func(key string) uint64 { return ^(hashOf(key) >> 50) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newIndexModel(t, hash)
			m.holds(m.x, nil)
			for _, aim := range []int{40, 3000, 100, 6000, 10} {
				m.change(4*aim, aim)
				m.holds(m.x, m.content())
			}
			for key := range m.entries {
				m.remove(key)
			}
			m.holds(m.x, nil)
		})
	}
}

func TestFrozenIndexStaysAsItWas(t *testing.T) {
	for name, hash := range map[string]func(string) uint64{"spread": hashOf,
		"equal": func(string) uint64 {
			return 1
		}} {
		t.Run(name, func(t *testing.T) {
			m := newIndexModel(t, hash)
			var frozen []*index
			var contents [][]slot
			for gen := range uint64(12) {
				m.change(500, 300*(1+int(gen)%4))
				contents = append(contents, m.content())
				frozen = append(frozen, m.x.freeze(gen+2))
			}
			for i, x := range frozen {
				m.holds(x, contents[i])
			}
			m.holds(m.x, m.content())
		})
	}
}

func TestIndexShrinks(t *testing.T) {
	m := newIndexModel(t, hashOf)
	const n = 100_000
	for i := range n {
		m.set(strconv.Itoa(i))
	}
	if want := 2 * n / mergeSlots; 1<<m.x.depth > 4*want {
		t.Errorf("%d positions in the directory for %d entries", 1<<m.x.depth, n)
	}
	for i := range n - 100 {
		m.remove(strconv.Itoa(i))
	}
	pages := 0
	for _, n := range m.x.used {
		pages += n
	}
	if pages > 100 || 1<<m.x.depth > 512 {
		t.Errorf("%d pages and %d positions in the directory for 100 entries", pages, 1<<m.x.depth)
	}
	m.holds(m.x, m.content())
}

func TestIndexBearsEqualHashes(t *testing.T) {
	m := newIndexModel(t, func(key string) uint64 { return hashOf(key) >> 60 })
	for i := range 50_000 {
		m.set(strconv.Itoa(i))
	}
	if 1<<m.x.depth > 1<<17 {
		t.Errorf("%d positions in the directory", 1<<m.x.depth)
	}
	m.holds(m.x, m.content())
}

// BenchmarkIndex measures a key's whole life: looked up, set, removed.
func BenchmarkIndex(b *testing.B) {
	const n = 500_000
	x := newIndex(1)
	entries := make([]*Entry, 2*n)
	for i := range entries {
		key := "lock:" + strconv.Itoa(i)
		entries[i] = &Entry{key: key, hash: hashOf(key)}
		if i < n {
			x.set(entries[i])
		}
	}
	for i := 0; b.Loop(); i++ {
		e := entries[(i+n)%len(entries)]
		if x.find(e.hash, []byte(e.key)) == nil {
			x.set(e)
		}
		x.remove(entries[i%len(entries)])
	}
}
