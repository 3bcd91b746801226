// What handlers of several types share: option words, the lookup of strings, database numbers.

package commands

import (
	"bytes"
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// isWord reports whether arg is the option word, which is given in upper case, in any case of
// letters.
func isWord(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, c := range arg {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// cText is arg up to its first zero byte: what Redis shows of an argument in an error.
func cText(arg []byte) []byte {
	before, _, _ := bytes.Cut(arg, []byte{0})
	return before
}

// findString returns the entry of a key that holds a string, nil where there is no key, or
// ErrWrongType.
func (x *Call) findString(key []byte) (*keyspace.Entry, error) {
	e := x.DB().Find(key)
	if e != nil && e.Kind() != keyspace.KindString {
		return nil, ErrWrongType
	}
	return e, nil
}

// ParseDB reads the number of a database, as SELECT, COPY and MOVE take it.
func ParseDB(arg []byte) (int, error) {
	n, ok := ParseInt(arg)
	switch {
	case !ok:
		return 0, ErrNotInteger
	case n < math.MinInt32 || n > math.MaxInt32:
		return 0, outOfRange(math.MinInt32, math.MaxInt32)
	case n < 0 || n >= keyspace.Databases:
		return 0, ErrDBIndex
	}
	return int(n), nil
}
