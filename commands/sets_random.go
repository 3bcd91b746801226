// SPOP and SRANDMEMBER, which pick members at random.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

func spop(x *Call) error {
	switch len(x.Args) {
	case 2:
		return spopOne(x)
	case 3:
		return spopMany(x)
	}
	return ErrSyntax
}

func spopOne(x *Call) error {
	s, err := pickSet(x, x.Args[1])
	if err != nil {
		return err
	}
	if s.Len() == 0 {
		x.Out.Null()
		return nil
	}
	member := s.Pick()(x.draws().below(s.Len()))
	e, s := editSet(x, x.Args[1])
	s.Delete([]byte(member))
	x.changed(e, NotifySet, "spop")
	x.Out.BulkString(member)
	return nil
}

func spopMany(x *Call) error {
	count, ok := ParseInt(x.Args[2])
	if !ok || count < 0 {
		return ErrNotPositive
	}
	s, err := pickSet(x, x.Args[1])
	if err != nil {
		return err
	}
	n := int(min(count, int64(s.Len())))
	if n == 0 {
		x.Out.Set(0)
		return nil
	}
	if x.Level >= LevelSecond {
		x.spendPicks(n, s.Len())
		x.spendRemoval(n, s.Len())
		if s.Volatile() > 0 {
			x.Spend(n * (removedSingle + deadlineWork)) // one by one
		}
		x.Ahead(n * replyWork)
	} else {
		x.Spend(n * removedMember)
	}
	popped := popMembers(x, s, n)
	x.Out.Set(n)
	for _, member := range popped {
		x.Out.BulkString(member)
	}
	return nil
}

// pickSet is findSet for who picks members by position, which goes over all if some have expired.
func pickSet(x *Call, key []byte) (*keyspace.Set, error) {
	s, err := findSet(x, key)
	if err == nil && s.Dead() > 0 {
		x.Spend(s.Len() + s.Dead())
	}
	return s, err
}

// Costs of random picks, in units of Env.Work.
const (
	pickedSingle = 28 // one of few, searched by its position
	pickedMember = 8  // one of many
	passedMember = 2  // each member passed, if many are picked
)

// spendPicks adds the work of picking some of n members.
func (x *Call) spendPicks(some, n int) {
	if manyOf(some, n) {
		x.Spend(some*pickedMember + n*passedMember)
	} else {
		x.Spend(some * pickedSingle)
	}
}

// expectNames refuses the command if a reply of names would not fit or be too much work.
func (x *Call) expectNames(names []string) {
	size := 0
	for _, name := range names {
		size += len(name)
	}
	x.Expect(len(names), size)
}

// rebuildShare says when SPOP rebuilds the set: when this many times what stays is not more than
// what goes. Redis does so, and a rebuilt set can be encoded as integers again.
const rebuildShare = 5

// popMembers removes n members from s, the set at x.Args[1], and returns them.
func popMembers(x *Call, s *keyspace.Set, n int) []string {
	stay := s.Len() - n
	if stay*rebuildShare > n || s.Lasting() {
		positions := x.draws().distinct(s.Len(), n)
		popped := namesAt(s, positions)
		x.expectNames(popped)
		e, s := editSet(x, x.Args[1])
		s.RemoveAt(positions, x.spendBytesOf)
		x.changed(e, NotifySet, "spop")
		return popped
	}
	stays := make([]bool, s.Len())
	for _, i := range x.draws().distinct(s.Len(), stay) {
		stays[i] = true
	}
	popped, rest := make([]string, 0, n), make([]keyspace.Member, 0, stay)
	for i, m := range s.All() {
		if stays[i] {
			rest = append(rest, m)
		} else {
			popped = append(popped, m.Name)
		}
	}
	x.expectNames(popped)
	left := keyspace.SetOf(rest, false, x.spendBytesOf)
	x.changed(x.DB().SetCollection(x.Args[1], left), NotifySet, "spop")
	return popped
}

// namesAt returns the members of s at positions.
func namesAt(s *keyspace.Set, positions []int) []string {
	names, at := make([]string, len(positions)), nameAt(s, len(positions))
	for i, position := range positions {
		names[i] = at(position)
	}
	return names
}

// nameAt returns a function that returns members of s by position, efficient for that many calls.
func nameAt(s *keyspace.Set, calls int) func(position int) string {
	if !manyOf(calls, s.Len()) {
		return s.Pick()
	}
	var all []keyspace.Member
	return func(position int) string {
		if all == nil {
			all = s.All()
		}
		return all[position].Name
	}
}

func srandmember(x *Call) error {
	if len(x.Args) == 2 {
		s, err := pickSet(x, x.Args[1])
		if err != nil {
			return err
		}
		if s.Len() == 0 {
			x.Out.Null()
			return nil
		}
		x.Out.BulkString(s.Pick()(x.draws().below(s.Len())))
		return nil
	}
	if len(x.Args) > 3 {
		return ErrSyntax
	}
	count, ok := ParseInt(x.Args[2])
	switch {
	case !ok:
		return ErrNotInteger
	case count == math.MinInt64:
		return outOfRange(-math.MaxInt64, math.MaxInt64)
	}
	s, err := pickSet(x, x.Args[1])
	if err != nil {
		return err
	}
	return replyPicked(x, s, count)
}

// replyPicked replies with count different random members of s or, if count is negative, with
// repetition.
func replyPicked(x *Call, s *keyspace.Set, count int64) error {
	n := s.Len()
	if n == 0 || count >= int64(n) {
		x.Out.Array(n)
		replyMembers(x, s)
		return nil
	}
	if err := x.chargePicks(count, n); err != nil {
		return err
	}
	if count >= 0 {
		names := namesAt(s, x.draws().distinct(n, int(count)))
		x.Out.Array(len(names))
		for _, name := range names {
			x.Out.BulkString(name)
		}
		return nil
	}
	at := nameAt(s, picks(count, n))
	picked, err := x.draws().repeated(n, -count, func(i int) int { return len(at(i)) })
	if err != nil {
		return err
	}
	x.Out.Array(len(picked))
	for _, i := range picked {
		x.Out.BulkString(at(i))
	}
	return nil
}
