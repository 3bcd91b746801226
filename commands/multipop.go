// What ZMPOP, LMPOP and blocking pops share: they take elements from the first of several keys that
// has some.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Errors of LMPOP, ZMPOP and their blocking forms.
const (
	errNumkeysPositive Error = "ERR numkeys should be greater than 0"
	errCountPositive   Error = "ERR count should be greater than 0"
)

// findFilled returns the first of keys that has elements, nil if there is none. A key of another
// type before it is an error, unless the command was woken: Redis wakes it only for the key that
// received something. A command behind other waiters finds nothing.
func findFilled[T keyspace.Collection](x *Call, keys [][]byte,
	find func(*Call, []byte) (T, error)) (key []byte, c T, err error) {
	var none T
	for _, key := range keys {
		c, err := find(x, key)
		switch {
		case err != nil && !x.Tx.Woken:
			return nil, none, err
		case err == nil && c.Len() > 0 && x.Tx.Behind:
			return nil, none, nil // they are for earlier waiters
		case err == nil && c.Len() > 0:
			return key, c, nil
		}
	}
	return nil, none, nil
}

// blockOrNull waits, or replies as on a timeout if the command may not block.
func (x *Call) blockOrNull(timeoutMs int64) {
	if x.mayBlock() {
		x.Block(timeoutMs, nil)
		return
	}
	x.Out.NullArray()
}

// popCount parses the optional count, 0 or more; the default is 1.
func (x *Call) popCount() (count int64, given bool, err error) {
	if len(x.Args) < 3 {
		return 1, false, nil
	}
	count, ok := ParseInt(x.Args[2])
	if !ok || count < 0 {
		return 0, true, ErrNotPositive
	}
	return count, true, nil
}

// multipop are the arguments of LMPOP, ZMPOP and their blocking forms.
type multipop struct {
	keys   [][]byte
	second bool // the second of the two words for the ends
	count  int64
}

// parse parses numkeys key [key ...] word [COUNT count].
func (p *multipop) parse(args [][]byte, words [2]string) error {
	n, ok := ParseInt(args[0])
	if !ok || n < 1 {
		return errNumkeysPositive
	}
	if n >= int64(len(args))-1 {
		return ErrSyntax
	}
	p.keys, args = args[1:n+1], args[n+1:]
	p.second = isWord(args[0], words[1])
	if !p.second && !isWord(args[0], words[0]) {
		return ErrSyntax
	}
	p.count = 1
	for args, given := args[1:], false; len(args) > 0; args, given = args[2:], true {
		if given || len(args) < 2 || !isWord(args[0], "COUNT") {
			return ErrSyntax
		}
		if p.count, ok = ParseInt(args[1]); !ok || p.count < 1 {
			return errCountPositive
		}
	}
	return nil
}

// multipopHandler returns the handler of LMPOP or ZMPOP, or of the blocking form, whose first
// argument is the timeout. pop replies with the key and what it popped, and reports whether there
// was anything.
func multipopHandler(blocking bool, words [2]string,
	pop func(x *Call, p *multipop) (found bool, err error)) Handler {
	return func(x *Call) error {
		var p multipop
		args := x.Args[1:]
		if blocking {
			args = x.Args[2:]
		}
		if err := p.parse(args, words); err != nil {
			return err
		}
		var timeoutMs int64
		if blocking {
			var err error
			if timeoutMs, err = x.timeoutSeconds(x.Args[1]); err != nil {
				return err
			}
		}
		found, err := pop(x, &p)
		switch {
		case err != nil || found:
			return err
		case blocking:
			x.blockOrNull(timeoutMs)
		default:
			x.Out.NullArray()
		}
		return nil
	}
}
