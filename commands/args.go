// What handlers of several types share: option words, the lookup of strings, database numbers.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// isWord reports whether arg is the option word, in any case. word is in upper case.
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

// findString returns the entry of a key that holds a string, nil if the key does not exist, or
// ErrWrongType.
func (x *Call) findString(key []byte) (*keyspace.Entry, error) {
	e := x.find(key)
	if e != nil && e.Kind() != keyspace.KindString {
		return nil, ErrWrongType
	}
	return e, nil
}

// ParseDB parses a database number as SELECT, COPY and MOVE take it.
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
