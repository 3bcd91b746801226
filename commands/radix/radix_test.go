// The sorts compared with comparison sorts.

package radix

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

type element struct {
	text  string
	score float64
	index int
}

func randomText(r *rand.Rand) string {
	const letters = "ab\x00\xff"
	b := []byte(strings.Repeat("prefix", r.IntN(3)))
	for range r.IntN(14) {
		b = append(b, letters[r.IntN(len(letters))])
	}
	return string(b)
}

// Both sorts equal a stable comparison sort, for few elements and many, with many equal ones.
func TestSortsAreStable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, few, few + 1, 300, 5000} {
		for round := range 8 {
			all := make([]element, n)
			for i := range all {
				score := float64(r.IntN(20)-10) * math.Pow(10, float64(r.IntN(5*round+1)))
				switch r.IntN(30) {
				case 0:
					score = math.Inf(r.IntN(2)*2 - 1)
				case 1:
					score = math.Copysign(0, -1)
				}
				all[i] = element{randomText(r), score, i}
			}
			want, got := slices.Clone(all), slices.Clone(all)
			slices.SortStableFunc(want, func(a, b element) int {
				return cmp.Compare(a.score, b.score)
			})
			key := func(e *element) uint64 { return Float(e.score) }
			Keys(got, key)
			if !slices.Equal(got, want) {
				t.Fatalf("%d numbers are sorted as %+v, want %+v", n, got, want)
			}
			ties := 0
			Ties(got, key, func(same []element) {
				ties += len(same) - 1
				for _, e := range same {
					if e.score != same[0].score {
						t.Fatalf("%v and %v are called the same", e, same[0])
					}
				}
			})
			if different := len(slices.CompactFunc(slices.Clone(want), func(a, b element) bool {
				return a.score == b.score
			})); different != n-ties {
				t.Fatalf("%d of %d elements are called the same as one before, want %d", ties, n,
					n-different)
			}
			for _, down := range []bool{false, true} {
				want, got := slices.Clone(all), slices.Clone(all)
				slices.SortStableFunc(want, func(a, b element) int {
					if down {
						a, b = b, a
					}
					return strings.Compare(a.text, b.text)
				})
				Texts(got, func(e *element) string { return e.text }, down, nil)
				if !slices.Equal(got, want) {
					t.Fatalf("%d texts are sorted as %+v, want %+v", n, got, want)
				}
			}
		}
	}
}

// Long common prefixes are not read again for each eight bytes.
func TestTextsWithLongBeginnings(t *testing.T) {
	all := make([]string, 2*few)
	for i := range all {
		all[i] = strings.Repeat("x", 1<<12+8*i) + "end"
	}
	slices.Reverse(all)
	looked := 0
	Texts(all, func(s *string) string {
		looked++
		return *s
	}, false, nil)
	if !slices.IsSorted(all) {
		t.Error("they are not sorted")
	}
	if most := len(all) * len(all) * 8; looked > most {
		t.Errorf("texts were looked at %d times, want %d at most", looked, most)
	}
}

// Texts that are prefixes of each other are read in short pieces, and all passes are reported.
func TestTextsThatBeginAlike(t *testing.T) {
	const n = 3 * few
	all := make([]string, n)
	for i := range all {
		all[i] = strings.Repeat("abcdefgh", (i*7)%n+1) + "x"
	}
	want, passed := slices.Sorted(slices.Values(all)), 0
	Texts(all, func(s *string) string { return *s }, false, func(texts int) { passed += texts })
	if !slices.Equal(all, want) {
		t.Error("they are not sorted")
	}
	if least := (n - few) * (n - few) / 2; passed < least || passed > 10*n*n {
		t.Errorf("%d texts were read, want at least %d", passed, least)
	}
}

func BenchmarkSort(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]element, 1_000_000)
	for i := range all {
		all[i] = element{"member:" + strings.Repeat("x", r.IntN(4)) + string(rune('a'+r.IntN(26))),
			r.Float64(), i}
	}
	for b.Loop() {
		Keys(slices.Clone(all), func(e *element) uint64 { return Float(e.score) })
	}
}
