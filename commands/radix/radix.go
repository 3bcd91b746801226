package radix

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// few is up to how many elements comparing them takes less than counting digits.
const few = 64

// keyed is an element's key with its index before sorting.
type keyed struct {
	key uint64
	at  int
}

// Float maps numbers to keys of the same order. 0 and -0 have the same key. f must not be NaN.
func Float(f float64) uint64 {
	if f == 0 {
		return 1 << 63
	}
	b := math.Float64bits(f)
	if b>>63 == 0 {
		return b | 1<<63
	}
	return ^b
}

// Keys sorts all by key. Elements with the same key keep their order.
func Keys[T any](all []T, key func(*T) uint64) { byKeys(all, key) }

// byKeys is Keys, and returns the sorted keys, nil of few elements.
func byKeys[T any](all []T, key func(*T) uint64) []keyed {
	keys := make([]keyed, len(all))
	sorted := true
	for i := range all {
		keys[i] = keyed{key(&all[i]), i}
		sorted = sorted && (i == 0 || keys[i-1].key <= keys[i].key)
	}
	if sorted {
		return keys
	}
	keys = sortKeys(keys)
	from := slices.Clone(all)
	for i, k := range keys {
		all[i] = from[k.at]
	}
	return keys
}

// sortKeys returns the sorted keys, in the same memory or in other.
func sortKeys(keys []keyed) []keyed {
	if len(keys) <= few {
		slices.SortStableFunc(keys, func(a, b keyed) int {
			if a.key < b.key {
				return -1
			}
			return int(min(a.key-b.key, 1))
		})
		return keys
	}
	var counts [8][256]int
	for _, k := range keys {
		for digit := range 8 {
			counts[digit][byte(k.key>>(8*digit))]++
		}
	}
	spare := make([]keyed, len(keys))
	for digit := range 8 {
		count := &counts[digit]
		if count[byte(keys[0].key>>(8*digit))] == len(keys) {
			continue
		}
		start := 0
		for i, n := range count {
			count[i], start = start, start+n
		}
		for _, k := range keys {
			d := byte(k.key >> (8 * digit))
			spare[count[d]] = k
			count[d]++
		}
		keys, spare = spare, keys
	}
	return keys
}

// Ties calls f with each run of two or more elements of all, which are sorted by key, that have the
// same key.
func Ties[T any](all []T, key func(*T) uint64, f func(same []T)) {
	for i := 0; i < len(all); {
		end, k := i+1, key(&all[i])
		for end < len(all) && key(&all[end]) == k {
			end++
		}
		if end > i+1 {
			f(all[i:end])
		}
		i = end
	}
}

// Texts sorts all by their texts, byte by byte, downwards if down. Elements with the same text keep
// their order. It calls looked, unless that is nil, with a number of elements each time before it
// goes over so many, some bytes of each.
func Texts[T any](all []T, text func(*T) string, down bool, looked func(elements int)) {
	if looked == nil {
		looked = func(int) {}
	}
	texts(all, text, down, 0, looked)
}

// texts is Texts for elements whose texts have the same first bytes, as many as shared says.
func texts[T any](all []T, text func(*T) string, down bool, shared int, looked func(int)) {
	if len(all) <= few {
		looked(len(all))
		compared(all, text, down, shared)
		return
	}
	shared = common(all, text, shared, looked)
	looked(len(all))
	keys := byKeys(all, func(e *T) uint64 {
		key := next8(text(e)[shared:])
		if down {
			return ^key
		}
		return key
	})
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && keys[end].key == keys[i].key {
			end++
		}
		if end > i+1 {
			alike(all[i:end], text, down, shared, looked)
		}
		i = end
	}
}

// common returns how many first bytes all texts have in common, given that they have as many as
// shared says. It compares short pieces first: texts that differ soon may be alike for long in
// pairs.
func common[T any](all []T, text func(*T) string, shared int, looked func(int)) int {
	for piece := 32; ; piece *= 2 {
		looked(len(all) * (piece + 127) / 128)
		first := text(&all[0])[shared:]
		first = first[:min(piece, len(first))]
		for i := range all {
			first = first[:prefix(first, text(&all[i])[shared:])]
		}
		if shared += len(first); len(first) < piece {
			return shared
		}
	}
}

// alike is texts where the next eight bytes are the same too, or are zeros in the place of what a
// shorter text does not have.
func alike[T any](all []T, text func(*T) string, down bool, shared int, looked func(int)) {
	// Of those that end here the shorter comes first, and those of a length are the same.
	ends := func(e *T) uint64 { return min(uint64(len(text(e))-shared), 8) }
	Keys(all, func(e *T) uint64 {
		if down {
			return 8 - ends(e)
		}
		return ends(e)
	})
	Ties(all, ends, func(same []T) {
		if ends(&same[0]) == 8 {
			texts(same, text, down, shared+8, looked)
		}
	})
}

// compared is texts by comparing the texts as they are.
func compared[T any](all []T, text func(*T) string, down bool, shared int) {
	slices.SortStableFunc(all, func(a, b T) int {
		c := strings.Compare(text(&a)[shared:], text(&b)[shared:])
		if down {
			return -c
		}
		return c
	})
}

// prefix is how many bytes two texts have in common at their beginning.
func prefix(a, b string) int {
	n := min(len(a), len(b))
	if a[:n] == b[:n] {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// next8 is the first eight bytes of a text as a number that sorts like them, with zeros behind a
// shorter one.
func next8(text string) uint64 {
	var b [8]byte
	copy(b[:], text)
	return binary.BigEndian.Uint64(b[:])
}
