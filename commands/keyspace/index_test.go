package keyspace

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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
	e := newString([]byte(key), nil)
	if m.IntN(3) > 0 {
		e.deadline = 1 + m.Int64N(1000)
	}
	m.entries[key] = e
	m.x.set(m.hash(key), e)
}

func (m *indexModel) remove(key string) {
	if e := m.entries[key]; e != nil {
		m.x.remove(m.hash(key), e)
		delete(m.entries, key)
	}
}

// content is what the model holds, in the order in which the index has to give it.
func (m *indexModel) content() []slot {
	var all []slot
	for _, e := range m.entries {
		all = append(all, newSlot(m.hash(e.Key()), e))
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
		if x.find(s.hash, []byte(s.entry.Key())) != s.entry {
			m.Fatalf("%q is not found", s.entry.Key())
		}
		if x.at(i) != s {
			m.Fatalf("position %d has %q, want %q", i, x.at(i).entry.Key(), s.entry.Key())
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

// expires checks that the index knows all deadlines, and which comes first.
func (m *indexModel) expires() {
	m.Helper()
	var want []deadline
	for _, e := range m.entries {
		if e.deadline != 0 {
			want = append(want, deadline{e.deadline, m.hash(e.Key()), e})
		}
	}
	slices.SortFunc(want, func(a, b deadline) int {
		return cmp.Compare(a.atMs, b.atMs)*4 + cmp.Compare(a.hash, b.hash)*2 +
			strings.Compare(a.entry.Key(), b.entry.Key())
	})
	if len(want) == 0 {
		if at := m.x.due.min(); at != never {
			m.Fatalf("no deadlines, the earliest is %d", at)
		}
		return
	}
	if at, e := m.x.due.min(), m.x.earliest(); at != want[0].atMs || e != want[0].entry {
		m.Fatalf("%q expires first, at %d, want %q, at %d", e.Key(), at, want[0].entry.Key(),
			want[0].atMs)
	}
	limit := want[m.IntN(len(want))].atMs + m.Int64N(2)
	n, _ := slices.BinarySearchFunc(want, limit, func(d deadline, limit int64) int {
		return cmp.Compare(d.atMs, limit)
	})
	m.x.dueBefore(limit, func(atMs int64) {
		if n--; atMs >= limit {
			m.Fatalf("%d is not before %d", atMs, limit)
		}
	})
	if n != 0 {
		m.Fatalf("%d deadlines too few before %d", n, limit)
	}
}

// change sets and removes keys at random, about as many as to reach so many.
func (m *indexModel) change(steps, aim int) {
	for range steps {
		key := strconv.Itoa(m.IntN(2 * aim))
		switch m.IntN(8) {
		case 0, 1, 2, 3:
			m.set(key)
		case 4:
			if m.x.due.min() != never {
				m.remove(m.x.earliest().Key())
			}
		default:
			m.remove(key)
		}
		if m.IntN(aim) == 0 {
			m.expires()
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
			m.expires()
			for m.x.due.min() != never {
				m.remove(m.x.earliest().Key())
			}
			m.holds(m.x, m.content())
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

func TestMinTree(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8, 16, 128, 1024} {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		tree, plain := newMinTree(n), slices.Repeat([]int64{never}, n)
		for range 2000 {
			i, v := r.IntN(n), r.Int64N(100)
			if v < 20 {
				v = never
			}
			tree.set(i, v)
			plain[i] = v
			if least := slices.Min(plain); tree.min() != least ||
				tree.first() != slices.Index(plain, least) || tree.at(i) != v {
				t.Fatalf("the least of %v: %d, at %d", plain, tree.min(), tree.first())
			}
			limit := r.Int64N(120)
			var want, got []int
			for i, v := range plain {
				if v < limit {
					want = append(want, i)
				}
			}
			tree.below(limit, func(i int) { got = append(got, i) })
			if !slices.Equal(got, want) {
				t.Fatalf("below %d of %v: %v", limit, plain, got)
			}
		}
	}
}

// BenchmarkIndex measures a key's whole life: looked up, set, removed.
func BenchmarkIndex(b *testing.B) {
	const n = 500_000
	x := newIndex(1)
	entries := make([]*Entry, 2*n)
	for i := range entries {
		key := "lock:" + strconv.Itoa(i)
		entries[i] = newString([]byte(key), nil)
		if i < n {
			x.set(hashOf(key), entries[i])
		}
	}
	for i := 0; b.Loop(); i++ {
		e := entries[(i+n)%len(entries)]
		if hash := e.hash(); x.find(hash, []byte(e.Key())) == nil {
			x.set(hash, e)
		}
		old := entries[i%len(entries)]
		x.remove(old.hash(), old)
	}
}

// Keys that share many bits of their hashes, and are set and removed again and again, have few
// positions of the directory written: in the page that they split, in pages that became wide
// beside it, and in all of it.
func TestDirectoryIsWrittenSeldom(t *testing.T) {
	for name, c := range map[string]struct {
		spread func(i int) uint64 // hashes of keys that stay
		chosen func(i int) uint64 // and of those that come and go
	}{
		"deep": {func(i int) uint64 { return uint64(i) << 46 },
			func(i int) uint64 { return 0x5a5b7<<44 | uint64(i) }},
		"wide": {func(i int) uint64 { return uint64(i) << 45 },
			func(i int) uint64 { return 1<<63 | uint64(i)<<56 }},
	} {
		x := newIndex(0)
		const stay, chosen, cycles = 1 << 18, 100, 50
		for i := range stay {
			x.set(c.spread(i), newString(k(i), nil))
		}
		written, calls := 0, 0
		count := func(hash uint64, change func()) {
			depth, of := x.depth, x.page(x.position(hash)).depth
			change()
			calls++
			switch now := x.page(x.position(hash)).depth; {
			case x.depth != depth:
				written += 1 << max(x.depth, depth)
			case now != of:
				written += 1 << (x.depth - min(now, of))
			}
		}
		for cycle := range cycles {
			if cycle == 1 { // the first may make the directory what it is from then on
				written, calls = 0, 0
			}
			entries := make([]*Entry, chosen)
			for i := range entries {
				entries[i] = newString(k(stay+i), nil)
				count(c.chosen(i), func() { x.set(c.chosen(i), entries[i]) })
			}
			for i, e := range entries {
				count(c.chosen(i), func() { x.remove(c.chosen(i), e) })
			}
			for range 8 { // each time two empty halves meet
				count(c.chosen(0), func() { x.set(c.chosen(0), entries[0]) })
				count(c.chosen(0), func() { x.remove(c.chosen(0), entries[0]) })
			}
		}
		if x.size != stay {
			t.Errorf("%s: %d entries", name, x.size)
		}
		if written > 64*calls {
			t.Errorf("%s: %d positions were written in %d calls", name, written, calls)
		}
	}
}

// A few keys that share many bits of their hashes keep the directory deep after all others are
// gone, with pages that stay empty. Who walks it takes as long as in a fresh index.
func TestEmptyPagesAreSkipped(t *testing.T) {
	const peak, chosen = 1 << 18, 100
	hash := func(key string) uint64 {
		if i, err := strconv.Atoi(key); err == nil {
			return 0x3ffff<<46 - uint64(i)
		}
		return hashOf(key)
	}
	m, fresh := newIndexModel(t, hash), newIndexModel(t, hash)
	for i := range peak {
		m.set("k" + strconv.Itoa(i))
	}
	for i := range chosen {
		m.set(strconv.Itoa(i))
		fresh.set(strconv.Itoa(i))
	}
	for i := range peak {
		m.remove("k" + strconv.Itoa(i))
	}
	if len(m.x.sizes) < 2 {
		t.Fatalf("a directory of depth %d has one group", m.x.depth)
	}
	for range 3 {
		m.holds(m.x, m.content())
		m.holds(m.x.freeze(m.x.gen+1), m.content())
		took, want := walks(m.x), walks(fresh.x)
		t.Logf("%v, in a fresh index %v", took, want)
		if took > 8*want {
			t.Errorf("walking takes %v, in a fresh index %v", took, want)
		}
		m.change(20, 10)
	}
}

// walks returns how long it takes to walk an index, and to find entries by position, many times.
func walks(x *index) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 10 {
		from := time.Now()
		for i := range 200 {
			x.from(0, func(slot) bool { return true })
			x.at(i % x.size)
		}
		least = min(least, time.Since(from))
	}
	return least
}
