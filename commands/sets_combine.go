// Intersections, unions and differences of sets. The results are sets, which gives them Redis's
// order where it has one: a small set of integers is sorted.

package commands

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// setCombiner computes an operation on one or more sets, or a part of the result if the call is
// overworked: members in the order of (hash, name). names says that a set of them is not encoded
// as integers, whatever they are.
type setCombiner func(x *Call, sets []*keyspace.Set) (all []keyspace.Member, names bool)

// findSets returns the sets at the keys for reading, empty ones for missing keys, or ErrWrongType.
// The first is the same wherever its key is.
func findSets(x *Call, keys [][]byte) ([]*keyspace.Set, error) {
	sets := make([]*keyspace.Set, len(keys))
	for i, key := range keys {
		var err error
		if sets[i], err = findSet(x, key); err != nil {
			return nil, err
		}
		x.spendWaking(sets[i])
		if bytes.Equal(key, keys[0]) {
			sets[i] = sets[0] // one that rests is another each time
		}
	}
	return sets, nil
}

// intersect calls f with every member of all the sets until f returns false or the call is
// overworked.
func intersect(x *Call, sets []*keyspace.Set, f func(m keyspace.Member) bool) {
	slices.SortStableFunc(sets, func(a, b *keyspace.Set) int {
		return cmp.Compare(a.Len(), b.Len())
	})
	x.spendDeadElements(sets[0], math.MaxInt)
	inputs := finders(sets[0], sets[1:])
	look := func(m keyspace.Member) bool {
		x.spendScanned()
		for i := range inputs {
			found := inputs[i].has(x, m)
			if x.overworked() {
				return false
			}
			if !found {
				return true
			}
		}
		return f(m) && !x.overworked()
	}
	if x.Level >= LevelSecond || !sets[0].Integers() {
		sets[0].ByHash(look)
		return
	}
	// the order decides how much is compared before f has enough, and so the work
	for _, m := range sets[0].All() {
		if !look(m) {
			return
		}
	}
}

// setFinder looks up members in one of the inputs.
type setFinder struct {
	find func(keyspace.Member) bool
	far  int
}

// finders returns what looks up the members of first in the order of (hash, name).
func finders(first *keyspace.Set, others []*keyspace.Set) []setFinder {
	inputs := make([]setFinder, len(others))
	for i, s := range others {
		inputs[i] = setFinder{s.Finder(), stride(first.Len(), s.Len())}
	}
	return inputs
}

// has reports whether the input has a member, and charges for the lookup.
func (f *setFinder) has(x *Call, m keyspace.Member) bool {
	x.spendSought(m.Name, f.far)
	found := f.find(m)
	if found {
		x.spendMet(m.Name)
	}
	return found
}

func intersection(x *Call, sets []*keyspace.Set) (all []keyspace.Member, names bool) {
	intersect(x, sets, func(m keyspace.Member) bool {
		all = append(all, m)
		return true
	})
	return all, false
}

func union(x *Call, sets []*keyspace.Set) (all []keyspace.Member, names bool) {
	size := 0
	for _, s := range sets {
		size += s.Len()
		x.spendDeadElements(s, math.MaxInt)
	}
	x.spendGathered(len(sets), size)
	all = make([]keyspace.Member, 0, min(size, maxCommandWork/joinedMember))
	for _, s := range sets {
		s.ByHash(func(m keyspace.Member) bool {
			x.spendJoined(m.Name)
			all = append(all, m)
			return !x.overworked()
		})
		if x.overworked() {
			return nil, false
		}
	}
	keyspace.SortByHash(all, x.spendTexts)
	return slices.CompactFunc(all, func(a, b keyspace.Member) bool {
		return a.Hash == b.Hash && a.Name == b.Name
	}), false
}

// difference looks up the members of the first set in the others, or removes the others' members
// from a copy of the first, whichever is cheaper by Redis's estimate. The choice is visible: a copy
// that once held a name is not encoded as integers.
func difference(x *Call, sets []*keyspace.Set) (all []keyspace.Member, names bool) {
	if removalCheaper(sets) && !slices.Contains(sets[1:], sets[0]) {
		return subtract(x, sets)
	}
	except(x, sets, func(m keyspace.Member) bool {
		all = append(all, m)
		return true
	})
	return all, false
}

// removalCheaper reports whether the sets behind the first have so few members that going through
// them is cheaper than looking up those of the first.
func removalCheaper(sets []*keyspace.Set) bool {
	looks, removals := 0, 0
	for _, s := range sets {
		if s.Len() > 0 {
			looks, removals = looks+sets[0].Len(), removals+s.Len()
		}
	}
	return looks/2 > removals
}

// except calls f with every member of the first set that no other has, until f returns false or the
// call is overworked.
func except(x *Call, sets []*keyspace.Set, f func(m keyspace.Member) bool) {
	x.spendDeadElements(sets[0], math.MaxInt)
	// The largest first: it is likelier to have the member.
	inputs := finders(sets[0],
		slices.SortedStableFunc(slices.Values(sets[1:]), func(a, b *keyspace.Set) int {
			return cmp.Compare(b.Len(), a.Len())
		}))
	sets[0].ByHash(func(m keyspace.Member) bool {
		x.spendScanned()
		for i := range inputs {
			if inputs[i].has(x, m) || x.overworked() {
				return !x.overworked()
			}
		}
		x.spendMissed()
		return f(m) && !x.overworked()
	})
}

func subtract(x *Call, sets []*keyspace.Set) (all []keyspace.Member, names bool) {
	all, names = union(x, sets[:1])
	result := keyspace.SetOf(all, names, x.spendBytesOf)
	for _, s := range sets[1:] {
		x.spendDeadElements(s, math.MaxInt)
		s.Each(func(member string) bool {
			x.Spend(joinedMember + len(member)/bytesSpent)
			result.Delete([]byte(member))
			return result.Len() > 0 && !x.overworked()
		})
	}
	return result.All(), !result.Integers()
}

// scombine is the handler of SINTER, SUNION and SDIFF.
func scombine(combine setCombiner) Handler {
	return func(x *Call) error {
		sets, err := findSets(x, x.Args[1:])
		if err != nil {
			return err
		}
		all, names := combine(x, sets)
		switch {
		case x.overworked():
			return ErrCommandWork
		case !names && keyspace.IntegersOnly(all):
			replySet(x, keyspace.SetOf(all, false, x.spendBytesOf))
		default:
			replyCombined(x, all)
		}
		return nil
	}
}

// replyCombined writes the members in their order.
func replyCombined(x *Call, all []keyspace.Member) {
	size := 0
	for i := range all {
		size += len(all[i].Name) + memberFrame
	}
	x.Reserve(size)
	x.Out.Set(len(all))
	for i := range all {
		if x.Level < LevelSecond {
			x.walked()
		}
		x.Out.BulkString(all[i].Name)
	}
}

// memberFrame is how many bytes a short member takes in a reply besides its own.
const memberFrame = 7

func replySet(x *Call, s *keyspace.Set) {
	x.Out.Set(s.Len())
	replyMembers(x, s)
}

// replyMembers replies with the members in the order of the set.
func replyMembers(x *Call, s *keyspace.Set) {
	s.Each(func(member string) bool {
		x.walked()
		x.Out.BulkString(member)
		return true
	})
}

// scombineStore is the handler of SINTERSTORE, SUNIONSTORE and SDIFFSTORE.
func scombineStore(combine setCombiner, event string) Handler {
	return func(x *Call) error {
		sets, err := findSets(x, x.Args[2:])
		if err != nil {
			return err
		}
		all, names := combine(x, sets)
		if x.overworked() {
			return ErrCommandWork
		}
		if x.Level >= LevelSecond {
			x.Spend(len(all) * kept)
		}
		result := keyspace.SetOf(all, names, x.spendBytesOf)
		x.inheritDeadlines(result, sets)
		storeCollection(x, x.Args[1], result, NotifySet, event)
		x.Out.Int(int64(result.Len()))
		return nil
	}
}

// inheritDeadlines gives each member of result the earliest deadline that it has in the sets of
// which result was made, as Redis 8.12 does.
func (x *Call) inheritDeadlines(result *keyspace.Set, sets []*keyspace.Set) {
	for _, s := range sets {
		if s.Volatile() == 0 {
			continue
		}
		x.Spend(s.Volatile() * (deadlineWork + 3*deep(result.Len())))
		s.Deadlines(func(member string, atMs int64) {
			x.spendBytes(4 * len(member)) // hashed and compared
			name := []byte(member)
			if oldMs, exists := result.Deadline(name); exists && (oldMs == 0 || atMs < oldMs) {
				result.SetDeadline(x.Keyspace, name, atMs)
			}
		})
	}
}

// cardArgs are the arguments of SINTERCARD and its relatives.
type cardArgs struct {
	sets  []*keyspace.Set
	limit int64 // 0: none
}

// parse also looks up the sets. approx says that APPROX is an option.
func (a *cardArgs) parse(x *Call, approx bool) error {
	n, ok := ParseInt(x.Args[1])
	switch {
	case !ok || n < 1:
		return errNumkeysPositive
	case n > int64(len(x.Args)-2):
		return errKeysTooMany
	}
	for options := x.Args[2+n:]; len(options) > 0; options = options[1:] {
		switch {
		case approx && isWord(options[0], "APPROX"):
		case isWord(options[0], "LIMIT") && len(options) > 1:
			options = options[1:]
			if a.limit, ok = ParseInt(options[0]); !ok || a.limit < 0 {
				return errLimitNegative
			}
		default:
			return ErrSyntax
		}
	}
	var err error
	a.sets, err = findSets(x, x.Args[2:2+n])
	return err
}

// reply replies with a count.
func (a *cardArgs) reply(x *Call, n int64) error {
	if x.overworked() {
		return ErrCommandWork
	}
	if a.limit > 0 {
		n = min(n, a.limit)
	}
	x.Out.Int(n)
	return nil
}

// counter counts up to the limit.
func (a *cardArgs) counter(n *int64) func(keyspace.Member) bool {
	return func(keyspace.Member) bool {
		*n++
		return *n != a.limit
	}
}

func sintercard(x *Call) error {
	var a cardArgs
	if err := a.parse(x, false); err != nil {
		return err
	}
	var n int64
	intersect(x, a.sets, a.counter(&n))
	return a.reply(x, n)
}

// sunioncard counts exactly with APPROX too: that is the best approximation.
func sunioncard(x *Call) error {
	var a cardArgs
	if err := a.parse(x, true); err != nil {
		return err
	}
	largest := int64(0)
	for _, s := range a.sets {
		largest = max(largest, int64(s.Len()))
	}
	if len(a.sets) == 1 || a.limit > 0 && largest >= a.limit {
		return a.reply(x, largest)
	}
	all, _ := union(x, a.sets)
	return a.reply(x, int64(len(all)))
}

func sdiffcard(x *Call) error {
	var a cardArgs
	if err := a.parse(x, false); err != nil {
		return err
	}
	var n int64
	if !removalCheaper(a.sets) {
		except(x, a.sets, a.counter(&n))
		return a.reply(x, n)
	}
	others, _ := union(x, a.sets[1:])
	n = int64(a.sets[0].Len())
	first := setFinder{a.sets[0].Finder(), stride(len(others), a.sets[0].Len())}
	for _, m := range others {
		if x.overworked() {
			break
		}
		if first.has(x, m) {
			n--
		}
	}
	return a.reply(x, n)
}
