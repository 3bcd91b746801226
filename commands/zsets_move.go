// ZMOVE, its blocking form BZMOVE, and ZMOVEMEMBER of Redis 8.12.

package commands

import (
	"bytes"
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// errMembersPositive is the error of ZMOVEMEMBER for a number of members below 1.
const errMembersPositive Error = "ERR num-members should be greater than 0"

// moveWords are the arguments of ZMOVE or BZMOVE for the members to move.
type moveWords struct {
	bounds  zbounds // bounds that BYSCORE gives
	byScore bool
	highest bool
	count   int64
}

// parseEnd parses MIN or MAX.
func (a *moveWords) parseEnd(arg []byte) bool {
	a.highest = isWord(arg, scoreWords[1])
	a.count = 1
	return a.highest || isWord(arg, scoreWords[0])
}

// parse parses the arguments of ZMOVE behind the keys.
func (a *moveWords) parse(args [][]byte) error {
	if a.parseEnd(args[0]) {
		return a.parseCount(args[1:])
	}
	if !isWord(args[0], "BYSCORE") || len(args) < 3 {
		return ErrSyntax
	}
	a.byScore, a.bounds.by, a.count = true, byScore, math.MaxInt64
	if err := a.parseCount(args[3:]); err != nil {
		return err
	}
	return a.bounds.parse(args[1], args[2])
}

// parseCount parses the optional count at the end.
func (a *moveWords) parseCount(args [][]byte) error {
	switch {
	case len(args) == 0:
		return nil
	case len(args) != 2 || !isWord(args[0], "COUNT"):
		return ErrSyntax
	}
	var ok bool
	if a.count, ok = ParseInt(args[1]); !ok || a.count < 1 {
		return errCountPositive
	}
	return nil
}

func zmove(x *Call) error {
	var a moveWords
	if err := a.parse(x.Args[3:]); err != nil {
		return err
	}
	z, err := findZSet(x, x.Args[1])
	switch {
	case err != nil:
		return err
	case z.Len() == 0: // then Redis does not check the destination
		x.Out.NullArray()
		return nil
	}
	return a.run(x, z)
}

func bzmove(x *Call) error {
	var a moveWords
	if !a.parseEnd(x.Args[3]) {
		return ErrSyntax
	}
	if err := a.parseCount(x.Args[5:]); err != nil {
		return err
	}
	timeoutMs, err := x.timeoutSeconds(x.Args[4])
	if err != nil {
		return err
	}
	_, z, err := findFilled(x, x.Args[1:2], findZSet)
	switch {
	case err != nil:
		return err
	case z == nil && bytes.Equal(x.Args[1], x.Args[2]): // it would wait in vain
		x.Out.NullArray()
		return nil
	case z == nil:
		x.blockOrNull(timeoutMs)
		return nil
	}
	return a.run(x, z)
}

// run moves the members of z, the set at the first key, that the arguments select.
func (a *moveWords) run(x *Call, z *keyspace.ZSet) error {
	destination, err := scoredDestination(x)
	if err != nil {
		return err
	}
	first, last := 0, z.Len()-1
	if a.byScore {
		a.bounds.spend(x, z)
		first, last = a.bounds.span(z, false, 0)
	}
	n := int(min(a.count, int64(last-first+1)))
	if n <= 0 || destination == nil {
		x.Out.NullArray()
		return nil
	}
	from, to := first, first+n-1
	if a.highest {
		from, to = last, last-n+1
	}
	spendSpan(x, z, min(from, to), max(from, to))
	moved := scoredSpan(z, from, to)
	replyMoved(x, destination, moved)
	removeSpan(x, x.Args[1], min(from, to), max(from, to), "zrem")
	putMoved(x, destination, moved)
	return nil
}

// scoredDestination returns the sorted set at the second key, nil if that is the first key too:
// then nothing moves.
func scoredDestination(x *Call) (*keyspace.ZSet, error) {
	z, err := findZSet(x, x.Args[2])
	if bytes.Equal(x.Args[1], x.Args[2]) {
		z = nil
	}
	return z, err
}

// replyMoved charges for putting members into z, the set at the second key, and replies with them:
// before the change, as a refused reply must move nothing.
func replyMoved(x *Call, z *keyspace.ZSet, moved []keyspace.Scored) {
	each := movedMember + (scoredWork+3)*deep(z.Len()+len(moved))
	if z.Compact() {
		each += z.Len() / searched
	}
	x.Spend(each * len(moved))
	for _, s := range moved {
		x.spendBytes(2 * len(s.Member)) // hashed and copied
	}
	replyAllScored(x, moved, true)
}

// putMoved puts members into z, the set at the second key, which may have some of them with other
// scores.
func putMoved(x *Call, z *keyspace.ZSet, moved []keyspace.Scored) {
	var e *keyspace.Entry
	for _, s := range moved {
		name := []byte(s.Member)
		old, exists := z.Score(name)
		if exists && old == s.Score {
			continue
		}
		if e == nil {
			e, z = editZSet(x, x.Args[2])
		}
		z.Put(name, s.Score, old, exists)
	}
	if e != nil {
		x.changed(e, NotifyZSet, "zadd")
	}
}

// movedMember is the cost of putting one member into another sorted set, in units of Env.Work.
const movedMember = 24

// memberMove are the arguments of ZMOVEMEMBER.
type memberMove struct {
	conditional bool // move those only that the destination has, or lacks
	present     bool
	members     [][]byte
}

func (a *memberMove) parse(args [][]byte) error {
	a.present = isWord(args[0], "XX")
	if a.conditional = a.present || isWord(args[0], "NX"); a.conditional {
		args = args[1:]
	}
	if len(args) < 3 || !isWord(args[0], "MEMBERS") {
		return ErrSyntax
	}
	n, ok := ParseInt(args[1])
	switch a.members = args[2:]; {
	case !ok || n < 1:
		return errMembersPositive
	case n != int64(len(a.members)):
		return ErrSyntax
	}
	return nil
}

// selected returns the named members that may move from one set to another, each once.
func (a *memberMove) selected(x *Call, from, to *keyspace.ZSet) (moved []keyspace.Scored) {
	each := removedSingle + (scoredWork+3)*deep(from.Len())
	for _, z := range []*keyspace.ZSet{from, to} {
		if z.Compact() {
			each += z.Len() / searched
		}
	}
	x.Spend(each * len(a.members))
	known := make(map[string]bool, len(a.members))
	for _, name := range a.members {
		score, ok := from.Score(name)
		if !ok || known[string(name)] {
			continue
		}
		if _, exists := to.Score(name); a.conditional && exists != a.present {
			continue
		}
		known[string(name)] = true
		moved = append(moved, keyspace.Scored{Score: score, Member: string(name)})
	}
	return moved
}

func zmovemember(x *Call) error {
	var a memberMove
	if err := a.parse(x.Args[3:]); err != nil {
		return err
	}
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	var destination *keyspace.ZSet
	if z.Len() > 0 { // else Redis does not check the destination
		if destination, err = scoredDestination(x); err != nil {
			return err
		}
	}
	var moved []keyspace.Scored
	if destination != nil {
		moved = a.selected(x, z, destination)
	}
	if len(moved) == 0 {
		x.DB().Lacks(x.Args[1])
		if a.present {
			x.DB().Lacks(x.Args[2])
		}
		x.Out.NullArray()
		return nil
	}
	replyMoved(x, destination, moved)
	e, z := editZSet(x, x.Args[1])
	for _, s := range moved {
		z.Remove([]byte(s.Member))
	}
	x.changed(e, NotifyZSet, "zrem")
	putMoved(x, destination, moved)
	return nil
}
