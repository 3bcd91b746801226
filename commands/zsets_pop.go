// ZPOPMIN, ZPOPMAX and ZMPOP, with the forms that block.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// popEvent returns the event of popped members.
func popEvent(highest bool) string {
	if highest {
		return "zpopmax"
	}
	return "zpopmin"
}

// popScored removes up to count members from z, the set at key, and returns them in the order of a
// reply: from the lowest score on, or from the highest.
func popScored(x *Call, key []byte, z *keyspace.ZSet, highest bool, count int64) []keyspace.Scored {
	n := int(min(count, int64(z.Len())))
	if n == 0 {
		return nil
	}
	from, to := 0, n-1
	if highest {
		from, to = z.Len()-1, z.Len()-n
	}
	spendSpan(x, z, min(from, to), max(from, to))
	popped := scoredSpan(z, from, to)
	x.expectScored(popped)
	removeSpan(x, key, min(from, to), max(from, to), popEvent(highest))
	return popped
}

// expectScored refuses the command if a reply of members with their scores would not fit or be too
// much work.
func (x *Call) expectScored(all []keyspace.Scored) {
	const longest = 15 // bytes of a score, besides the overhead of an element
	size := 0
	for i := range all {
		size += len(all[i].Member) + longest
	}
	x.Expect(3*len(all), size)
	x.Ahead(len(all)*(doubleWork+3*replyWork) + size/bytesSpent)
}

// replyAllScored writes members with their scores, as nested pairs if nested.
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

// replyScored writes a member and its score, in an array if nested.
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
		count, counted, err := x.popCount()
		if err != nil {
			return err
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

// bzpop is the handler of BZPOPMIN and BZPOPMAX.
func bzpop(highest bool) Handler {
	return func(x *Call) error {
		last := len(x.Args) - 1
		timeoutMs, err := x.timeoutSeconds(x.Args[last])
		if err != nil {
			return err
		}
		key, z, err := findFilled(x, x.Args[1:last], findZSet)
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

// scoreWords are the words for the ends that ZMPOP and BZMPOP pop from.
var scoreWords = [2]string{"MIN", "MAX"}

// zmultipop pops members from the first set that exists.
func zmultipop(x *Call, p *multipop) (found bool, err error) {
	key, z, err := findFilled(x, p.keys, findZSet)
	if err != nil || z == nil {
		return false, err
	}
	popped := popScored(x, key, z, p.second, p.count)
	x.Out.Array(2)
	x.Out.Bulk(key)
	replyAllScored(x, popped, true)
	return true, nil
}
