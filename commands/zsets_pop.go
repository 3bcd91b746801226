package commands

// This file holds the commands that take out the members of the lowest or the highest scores, waiting or not.

import "github.com/coordd/coordd/commands/keyspace"

// Errors of the arguments of ZMPOP and BZMPOP.
const (
	errNumkeysPositive Error = "ERR numkeys should be greater than 0"
	errCountPositive   Error = "ERR count should be greater than 0"
)

// popEvent is the notification of members taken out.
func popEvent(highest bool) string {
	if highest {
		return "zpopmax"
	}
	return "zpopmin"
}

// popScored takes up to count members out of z, the set at key, in the order in which a reply lists them: from the lowest score on,
// or from the highest.
func popScored(x *Call, key []byte, z *keyspace.ZSet, highest bool, count int64) []keyspace.Scored {
	n := int(min(count, int64(z.Len())))
	if n == 0 {
		return nil
	}
	from, to := 0, n-1
	if highest {
		from, to = z.Len()-1, z.Len()-n
	}
	popped := make([]keyspace.Scored, 0, n)
	z.Range(from, to, func(s keyspace.Scored) bool {
		popped = append(popped, s)
		return true
	})
	removeSpan(x, key, min(from, to), max(from, to), popEvent(highest))
	return popped
}

// replyAllScored writes members with their scores, each pair in an array of its own when nested.
func replyAllScored(x *Call, all []keyspace.Scored, nested bool) {
	if nested {
		x.Out.Array(len(all))
	} else {
		x.Out.Array(2 * len(all))
	}
	for _, s := range all {
		replyScored(x, s, nested)
	}
}

// replyScored writes a member and its score, in an array of their own when nested.
func replyScored(x *Call, s keyspace.Scored, nested bool) {
	if nested {
		x.Out.Array(2)
	}
	x.Out.BulkString(s.Member)
	x.Out.Double(s.Score)
}

// zpop is the handler of ZPOPMIN and ZPOPMAX.
func zpop(highest bool) Handler {
	return func(x *Call) error {
		if len(x.Args) > 3 {
			return ErrSyntax
		}
		count, counted := int64(1), len(x.Args) == 3
		if counted {
			var ok bool
			if count, ok = ParseInt(x.Args[2]); !ok || count < 0 {
				return ErrNotPositive
			}
		}
		z, err := findZSet(x, x.Args[1])
		if err != nil {
			return err
		}
		popped := popScored(x, x.Args[1], z, highest, count)
		replyAllScored(x, popped, x.Tx.Proto == 3 && counted)
		return nil
	}
}

// findFilled returns the first of keys that holds a sorted set, nil where there is none. A key of another type before it is an error,
// but not for a command that waited: Redis wakes that one for the key alone that got a sorted set.
func findFilled(x *Call, keys [][]byte) (key []byte, z *keyspace.ZSet, err error) {
	for _, key := range keys {
		z, err := findZSet(x, key)
		switch {
		case err != nil && !x.Tx.Woken:
			return nil, nil, err
		case err == nil && z.Len() > 0:
			return key, z, nil
		}
	}
	return nil, nil, nil
}

// blockOrNull waits, or where nothing may wait answers as when the time is over.
func (x *Call) blockOrNull(timeoutMs int64) {
	if x.mayBlock() {
		x.Block(timeoutMs, nil)
		return
	}
	x.Out.NullArray()
}

// bzpop is the handler of BZPOPMIN and BZPOPMAX.
func bzpop(highest bool) Handler {
	return func(x *Call) error {
		last := len(x.Args) - 1
		timeoutMs, err := x.timeoutSeconds(x.Args[last])
		if err != nil {
			return err
		}
		key, z, err := findFilled(x, x.Args[1:last])
		if err != nil {
			return err
		}
		if z == nil {
			x.blockOrNull(timeoutMs)
			return nil
		}
		popped := popScored(x, key, z, highest, 1)
		x.Out.Array(3)
		x.Out.Bulk(key)
		replyScored(x, popped[0], false)
		return nil
	}
}

// zmultipop are the arguments of ZMPOP and BZMPOP.
type zmultipop struct {
	keys    [][]byte
	highest bool
	count   int64
}

// parse reads numkeys key [key ...] MIN|MAX [COUNT count].
func (p *zmultipop) parse(args [][]byte) error {
	n, ok := ParseInt(args[0])
	if !ok || n < 1 {
		return errNumkeysPositive
	}
	if n >= int64(len(args))-1 {
		return ErrSyntax
	}
	p.keys, args = args[1:n+1], args[n+1:]
	switch {
	case isWord(args[0], "MAX"):
		p.highest = true
	case !isWord(args[0], "MIN"):
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

// run takes members out of the first set that has some, and says whether there was one.
func (p *zmultipop) run(x *Call) (found bool, err error) {
	key, z, err := findFilled(x, p.keys)
	if err != nil || z == nil {
		return false, err
	}
	popped := popScored(x, key, z, p.highest, p.count)
	x.Out.Array(2)
	x.Out.Bulk(key)
	replyAllScored(x, popped, true)
	return true, nil
}

func zmpop(x *Call) error {
	var p zmultipop
	if err := p.parse(x.Args[1:]); err != nil {
		return err
	}
	found, err := p.run(x)
	if err == nil && !found {
		x.Out.NullArray()
	}
	return err
}

func bzmpop(x *Call) error {
	var p zmultipop
	if err := p.parse(x.Args[2:]); err != nil {
		return err
	}
	timeoutMs, err := x.timeoutSeconds(x.Args[1])
	if err != nil {
		return err
	}
	found, err := p.run(x)
	if err == nil && !found {
		x.blockOrNull(timeoutMs)
	}
	return err
}
