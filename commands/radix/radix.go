package radix

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// few is the number of elements up to which comparing is faster than counting digits.
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

// Keys sorts all by key. The sort is stable.
func Keys[T any](all []T, key func(*T) uint64) { byKeys(all, key) }

// byKeys is Keys that returns the sorted keys, nil for few elements.
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

// sortKeys returns the sorted keys, in the same memory or not.
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

// Ties calls f with each run of two or more elements that have the same key. all is sorted by key.
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

// Texts sorts all by text, bytewise, in descending order if down. The sort is stable. Before each
// pass over some bytes of elements it calls looked, unless nil, with their number.
func Texts[T any](all []T, text func(*T) string, down bool, looked func(elements int)) {
	if looked == nil {
		looked = func(int) {}
	}
	texts(all, text, down, 0, looked)
}

// texts is Texts for elements whose texts share their first shared bytes.
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

// common returns the length of the common prefix of all texts, which share at least shared bytes.
// It compares short pieces first: texts that soon differ may share long prefixes in pairs.
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

// alike is texts for texts whose next eight bytes, padded with zeros, are the same too.
func alike[T any](all []T, text func(*T) string, down bool, shared int, looked func(int)) {
	// Of the texts that end here the shorter come first; those of one length are equal.
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

// compared is texts by comparison of whole texts.
func compared[T any](all []T, text func(*T) string, down bool, shared int) {
	slices.SortStableFunc(all, func(a, b T) int {
		c := strings.Compare(text(&a)[shared:], text(&b)[shared:])
		if down {
			return -c
		}
		return c
	})
}

// prefix returns the length of the common prefix of two texts.
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

// next8 returns the first eight bytes of a text, padded with zeros, as a number that sorts like
// them.
func next8(text string) uint64 {
	var b [8]byte
	copy(b[:], text)
	return binary.BigEndian.Uint64(b[:])
}
