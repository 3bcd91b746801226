package subscriptions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// plain is what Counts computes, in the simplest way.
type plain map[string]map[Change]int64 // of a node, by Change without Count

func (p plain) receivers(channel string) (count int64) {
	for _, names := range p {
		for c, n := range names {
			ok := c.Kind == Channel && c.Name == channel
			if c.Kind == Pattern {
				ok, _ = glob.MatchWork([]byte(c.Name), []byte(channel))
			}
			if ok {
				count += n
			}
		}
	}
	return count
}

func (p plain) names(kind Kind, pattern string) (names []string) {
	for _, of := range p {
		for c := range of {
			ok, _ := glob.MatchWork([]byte(pattern), []byte(c.Name))
			if c.Kind == kind && (pattern == "" || ok) {
				names = append(names, c.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestCountsAreThoseOfTheNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(seeds.Of(t), 0))
	const letters = "ab*?\\[]\x00"
	word := func() string {
		b := make([]byte, r.IntN(6))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	for range 200 {
		c, want, eras := &Counts{}, plain{}, map[string]uint64{}
		for step := range uint64(300) {
			id := fmt.Sprint("n", r.IntN(3))
			if r.IntN(40) == 0 {
				c.Drop(id, step+1)
				eras[id], want[id] = step+1, map[Change]int64{}
				continue
			}
			change := Change{Kind(r.IntN(int(Kinds))), word(), int64(r.IntN(3))}
			taken, _ := c.Tell(id, eras[id], step+1, []Change{change})
			if taken != (eras[id] != 0) {
				t.Fatalf("taken: %v in era %d", taken, eras[id])
			}
			if taken {
				key := Change{Kind: change.Kind, Name: change.Name}
				if want[id][key] = change.Count; change.Count == 0 {
					delete(want[id], key)
				}
			}
		}
		if r.IntN(2) == 0 {
			c = restored(t, c)
		}
		for range 50 {
			channel, kind := word(), Kind(r.IntN(int(Kinds)))
			if got, _, _ := c.Receivers([]byte(channel)); got != want.receivers(channel) {
				t.Fatalf("%q reaches %d, want %d: %v", channel, got, want.receivers(channel), want)
			}
			got := c.Names(kind, nil, func(uint64) {})
			if !slices.Equal(got, want.names(kind, "")) {
				t.Fatalf("%q, want %q", got, want.names(kind, ""))
			}
			if channel == "" {
				continue
			}
			got = c.Names(kind, []byte(channel), func(uint64) {})
			if !slices.Equal(got, want.names(kind, channel)) {
				t.Fatalf("%q: %q, want %q", channel, got, want.names(kind, channel))
			}
		}
	}
}

func restored(t *testing.T, c *Counts) *Counts {
	t.Helper()
	var records [][]byte
	c.Freeze().Records(func(record []byte) { records = append(records, slices.Clone(record)) })
	got, err := Restore(func() []byte {
		if len(records) == 0 {
			return nil
		}
		defer func() { records = records[1:] }()
		return records[0]
	})
	if err != nil || len(records) > 0 || got.Bytes() != c.Bytes() {
		t.Fatalf("%v, %d records left, %d bytes of %d", err, len(records), got.Bytes(), c.Bytes())
	}
	return got
}

func TestErasAndSequences(t *testing.T) {
	c := &Counts{}
	tell := func(era, sequence uint64, count int64) bool {
		taken, _ := c.Tell("n1", era, sequence, []Change{{Channel, "c", count}})
		return taken
	}
	wants := func(taken bool, want bool, count int64) {
		t.Helper()
		if got, _, _ := c.Receivers([]byte("c")); taken != want || got != count {
			t.Errorf("taken %v, %d subscribers; want %v, %d", taken, got, want, count)
		}
	}
	wants(tell(0, 1, 3), false, 0) // no era has begun
	c.Drop("n1", 7)
	wants(tell(7, 2, 3), true, 3)
	wants(tell(7, 1, 5), true, 3) // it was sent before
	wants(tell(7, 3, 4), true, 4)
	frozen := c.Freeze()
	c.Drop("n1", 9)
	wants(tell(7, 4, 5), false, 0) // on its way since before
	wants(tell(9, 1, 1), true, 1)
	got, _, _ := frozen.Receivers([]byte("c"))
	if got != 4 || c.Era("n1") != 9 || c.Era("n2") != 0 {
		t.Errorf("%d in a copy, eras %d and %d", got, c.Era("n1"), c.Era("n2"))
	}
	if got := c.Nodes(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("nodes %q", got)
	}
	tell(9, 2, 0)
	if got := c.Nodes(); got != nil || c.Bytes() != 0 {
		t.Errorf("nodes %q, %d bytes", got, c.Bytes())
	}
}

// No node takes more room than it may, and a copy of any size is whole.
func TestBounds(t *testing.T) {
	c := &Counts{}
	c.Drop("n1", 1)
	const size = 8000
	var changes []Change
	for i := range MaxBytes/(size+NameCost) + 10 {
		changes = append(changes, Change{Channel, fmt.Sprintf("%0*d", size, i), 1})
	}
	c.Tell("n1", 1, 1, changes)
	if got := c.Bytes(); got > MaxBytes || got < MaxBytes-2*size {
		t.Errorf("%d bytes", got)
	}
	if got, _, _ := restored(t, c).Receivers([]byte(changes[100].Name)); got != 1 {
		t.Errorf("%d subscribers", got)
	}
}

// Patterns that take long to match are not all tried, and patterns that cannot match are skipped.
func TestMatchingHasABound(t *testing.T) {
	c := &Counts{}
	c.Drop("n1", 1)
	hard := strings.Repeat("?*a", 300)
	var changes []Change
	for i := range 2000 {
		changes = append(changes, Change{Pattern, fmt.Sprint("*", hard, i), 1})
	}
	c.Tell("n1", 1, 1, changes)
	if _, work, _ := c.Receivers([]byte(strings.Repeat("a", 5000))); work > 2*MatchWork {
		t.Errorf("%d units", work)
	}
	c.Drop("n1", 2)
	changes = changes[:0]
	for i := range 100_000 {
		changes = append(changes, Change{Pattern, fmt.Sprintf("user:%d:*", i), 1})
	}
	c.Tell("n1", 2, 1, changes)
	if got, work, _ := c.Receivers([]byte("user:4711:x")); got != 1 || work > 5000 {
		t.Errorf("%d receivers by %d units", got, work)
	}
	_, _, one := c.Receivers([]byte("user:4711:x"))
	c.Drop("n2", 1)
	c.Tell("n2", 1, 1, changes)
	if _, _, two := c.Receivers([]byte("user:4711:x")); one == 0 || two != 2*one {
		t.Errorf("%d units of matching, %d with another node's patterns", one, two)
	}
}

// What finding a name costs is charged by how many there are to look among, wherever one is looked
// for, and by their length.
func TestWorkOfFinding(t *testing.T) {
	c := &Counts{}
	c.Drop("n1", 1)
	tell := func(sequence uint64, changes ...Change) (work uint64) {
		_, work = c.Tell("n1", 1, sequence, changes)
		return work
	}
	more := func(what string, first, then uint64) {
		t.Helper()
		if then < 4*first {
			t.Errorf("%s: %d units among many, %d before", what, then, first)
		}
	}
	told := tell(1, Change{Channel, "a", 1})
	_, found := c.Of(Channel, []byte("a"))
	var channels, patterns []Change
	for i := range 100_000 {
		channels = append(channels, Change{Channel, fmt.Sprint("c", i), 1})
	}
	tell(2, channels...)
	_, among := c.Of(Channel, []byte("a"))
	more("looking one up", found, among)
	more("telling one", told, tell(3, Change{Channel, "b", 1}))
	text := []byte(strings.Repeat("a", 1000))
	_, none, _ := c.Receivers(text)
	for i := range text {
		patterns = append(patterns, Change{Pattern, string(text[:i]) + "0*", 1})
	}
	tell(4, patterns...)
	_, seeks, _ := c.Receivers(text)
	more("a step to each prefix", uint64(len(text))*lookUpWork, seeks-none)
	listed := func(size int) (work uint64) {
		c.Drop("n1", 1)
		c.Drop("n2", 1)
		for i := range 100 {
			tell(uint64(i+1), Change{Channel, fmt.Sprintf("%0*d", size, i), 1})
		}
		c.Names(Channel, nil, func(units uint64) { work += units })
		return work
	}
	more("putting names in order", listed(10), listed(4000))
}

func TestDamagedRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := &Counts{}
	c.Drop("n1", 3)
	c.Drop("n2", 4)
	c.Tell("n1", 3, 1, []Change{{Channel, "a", 1}, {Channel, "b", 2}, {Pattern, "p*", 1}})
	c.Tell("n2", 4, 1, []Change{{Shard, "s", 1}})
	for range 3000 {
		var records [][]byte
		c.Records(func(record []byte) { records = append(records, slices.Clone(record)) })
		at := records[r.IntN(len(records))]
		switch r.IntN(3) {
		case 0:
			at[r.IntN(len(at))] ^= byte(1 << r.IntN(8))
		case 1:
			records = records[:1]
		default:
			records[len(records)-1] = append(records[len(records)-1], 1)
		}
		got, err := Restore(func() []byte { // it must end, without a panic
			if len(records) == 0 {
				return nil
			}
			defer func() { records = records[1:] }()
			return records[0]
		})
		if err == nil && got.Bytes() > MaxBytes {
			t.Errorf("%d bytes", got.Bytes())
		}
	}
}
