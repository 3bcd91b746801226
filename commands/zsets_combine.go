// Unions, intersections and differences of sorted sets. Inputs may also be sets, whose members have
// the score 1.

package commands

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of the arguments.
const (
	errWeightFloat   Error = "ERR weight value is not a float"
	errLimitNegative Error = "ERR LIMIT can't be negative"
)

// zcombineForm is what the command's name determines. run returns a part of the result if the call
// is overworked.
type zcombineForm struct {
	run   func(*Call, *zcombination) []keyspace.Member
	diff  bool   // no WEIGHTS and AGGREGATE
	event string // what a STORE form notifies; empty for one that replies
	count bool   // ZINTERCARD
}

// zcombination is one call.
type zcombination struct {
	inputs     []zinput
	aggregate  func(a, b float64) float64
	withScores bool
	limit      int // members at which to stop; 0 means never
}

// zinput is a sorted set or a set, with the weight of its scores.
type zinput struct {
	scores scoredNames
	weight float64
}

// scoredNames is what a combination needs of an input.
type scoredNames interface {
	Len() int
	Score(name []byte) (score float64, ok bool)
	// Finder is Score for many members, faster in the order of ByHash.
	Finder() func(keyspace.Member) (score float64, ok bool)
	// ByHash calls f with every member, in the order of (hash, name), until it returns false.
	ByHash(f func(keyspace.Member) bool)
	// byScore calls f with every member, in the order of scores, until it returns false.
	byScore(f func(keyspace.Scored) bool)
}

// zsetNames is a sorted set as an input.
type zsetNames struct{ *keyspace.ZSet }

func (z zsetNames) byScore(f func(keyspace.Scored) bool) {
	if n := z.Len(); n > 0 {
		z.Range(0, n-1, f)
	}
}

// setNames is a set as an input.
type setNames struct{ *keyspace.Set }

// setScore is the score of a set's members.
const setScore = 1

func (s setNames) Score(name []byte) (score float64, ok bool) { return setScore, s.Has(name) }

func (s setNames) Finder() func(keyspace.Member) (score float64, ok bool) {
	find := s.Set.Finder()
	return func(m keyspace.Member) (float64, bool) { return setScore, find(m) }
}

func (s setNames) ByHash(f func(keyspace.Member) bool) {
	s.Set.ByHash(func(m keyspace.Member) bool {
		m.Score = setScore
		return f(m)
	})
}

func (s setNames) byScore(f func(keyspace.Scored) bool) {
	s.Each(func(name string) bool { return f(keyspace.Scored{Score: setScore, Member: name}) })
}

// parse parses numkeys key [key ...] [options], in Redis's order of checks: the types of the keys
// come before the options.
func (c *zcombination) parse(x *Call, form *zcombineForm, args [][]byte) error {
	n, ok := ParseInt(args[0])
	switch {
	case !ok:
		return ErrNotInteger
	case n < 1:
		return Errorf("ERR at least 1 input key is needed for '%s' command", x.Spec.FullName())
	case n > int64(len(args)-1):
		return ErrSyntax
	}
	c.inputs = make([]zinput, n)
	for i := range c.inputs {
		names, err := findNames(x, args[1+i])
		if err != nil {
			return err
		}
		c.inputs[i] = zinput{scores: names, weight: 1}
	}
	c.aggregate = addScores
	return c.parseOptions(x, form, args[1+n:])
}

// findNames returns the input at key, an empty one if the key does not exist, or ErrWrongType.
func findNames(x *Call, key []byte) (scoredNames, error) {
	e := x.find(key)
	if e == nil {
		return zsetNames{noZSet}, nil
	}
	switch c := e.Collection().(type) {
	case *keyspace.ZSet:
		x.spendWaking(c)
		return zsetNames{c}, nil
	case *keyspace.Set: //set: dead members are paid for
		x.spendWaking(c)
		x.spendDeadElements(c, math.MaxInt)
		return setNames{c}, nil
	}
	return nil, ErrWrongType
}

func (c *zcombination) parseOptions(x *Call, form *zcombineForm, args [][]byte) error {
	combines := !form.diff && !form.count
	for len(args) > 0 {
		taken := 2
		switch {
		case combines && len(args) > len(c.inputs) && isWord(args[0], "WEIGHTS"):
			for i := range c.inputs {
				var ok bool
				x.spendNumber(len(args[1+i]))
				if c.inputs[i].weight, ok = ParseFloat(args[1+i]); !ok {
					return errWeightFloat
				}
			}
			taken = 1 + len(c.inputs)
		case combines && len(args) >= 2 && isWord(args[0], "AGGREGATE"):
			if c.aggregate = aggregateWord(args[1]); c.aggregate == nil {
				return ErrSyntax
			}
		case form.event == "" && !form.count && isWord(args[0], "WITHSCORES"):
			c.withScores = true
			taken = 1
		case form.count && len(args) >= 2 && isWord(args[0], "LIMIT"):
			limit, ok := ParseInt(args[1])
			if !ok || limit < 0 {
				return errLimitNegative
			}
			c.limit = int(limit)
		default:
			return ErrSyntax
		}
		args = args[taken:]
	}
	return nil
}

// aggregateWord returns the function that a word of AGGREGATE names, or nil.
func aggregateWord(arg []byte) func(a, b float64) float64 {
	switch {
	case isWord(arg, "SUM"):
		return addScores
	case isWord(arg, "MIN"):
		return func(a, b float64) float64 {
			if b < a { // not min, which propagates NaN
				return b
			}
			return a
		}
	case isWord(arg, "MAX"):
		return func(a, b float64) float64 {
			if b > a {
				return b
			}
			return a
		}
	}
	return nil
}

// addScores returns the sum of two scores, 0 if two infinities cancel.
func addScores(a, b float64) float64 { return numberOr0(a + b) }

func numberOr0(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return f
}

// weighed returns a score of this input times its weight, 0 if that is NaN.
func (in *zinput) weighed(score float64) float64 { return numberOr0(float64(in.weight * score)) }

// Costs of combining, in units of Env.Work.
const (
	joinedMember = 16 // a member that goes into a union, or into a result
	lookedUp     = 8  // a member looked up in an input
)

// Costs of a union from LevelSecond on.
const (
	gathered   = 10 // a member of the only input
	interlaced = 15 // a member of one of several
	placed     = 10 // a member of any result, sorted by score
)

// What intersections and differences cost from LevelSecond on.
const (
	passed = 3 // a member of the first input
	sought = 2 // one looked up in another input
	nearer = 2 // … for each doubling of the distance between two that are looked up
	met    = 5 // one that is there: names are compared
	missed = 3 // one that is in no other input, and in the result
	kept   = 6 // one that is stored
)

// stride is how far two of n members, that are looked up in order, lie apart in an input of size,
// as a binary logarithm.
func stride(n, size int) int { return bits.Len(uint(size / max(n, 1))) }

// spendScanned adds the work of one member of the first input.
func (x *Call) spendScanned() {
	if x.Level < LevelSecond {
		x.Spend(joinedMember)
	} else {
		x.Spend(passed)
	}
}

// spendSought adds the work of looking up one member in another input, far from the last one.
func (x *Call) spendSought(name string, far int) {
	if x.Level < LevelSecond {
		x.Spend(lookedUp + len(name)/bytesSpent)
	} else {
		// names with equal hashes are compared: somebody may have chosen many
		x.Spend(sought + nearer*far + len(name)/bytesSpent)
	}
}

// spendMet adds the work of finding one that is there.
func (x *Call) spendMet(name string) {
	if x.Level >= LevelSecond {
		x.Spend(met + len(name)/16)
	}
}

// spendMissed adds the work of keeping one that is in no other input.
func (x *Call) spendMissed() {
	if x.Level >= LevelSecond {
		x.Spend(missed)
	}
}

// spendGathered adds the work of merging inputs of size members in all.
func (x *Call) spendGathered(inputs, size int) {
	if x.Level < LevelSecond {
		return
	}
	if inputs > 1 {
		x.Spend(size * interlaced)
	} else {
		x.Spend(size * gathered)
	}
}

// spendSorted adds the work of sorting members by score, which compares names.
func (x *Call) spendSorted(all []keyspace.Member) {
	size := 0
	for i := range all {
		size += len(all[i].Name)
	}
	x.Spend(len(all)*placed + size/32)
}

// spendJoined adds the work of merging one member.
func (x *Call) spendJoined(name string) {
	if x.Level < LevelSecond {
		x.Spend(joinedMember + len(name)/bytesSpent)
	} else {
		x.Spend(len(name) / bytesSpent)
	}
}

// smallestFirst sorts the inputs into the order in which Redis combines them, which decides how
// sums are rounded.
func (c *zcombination) smallestFirst() {
	slices.SortStableFunc(c.inputs, func(a, b zinput) int {
		return cmp.Compare(a.scores.Len(), b.scores.Len())
	})
}

// zunite merges the members of all inputs, in the order of (hash, name), where equal names are
// adjacent.
func zunite(x *Call, c *zcombination) []keyspace.Member {
	c.smallestFirst()
	size := 0
	for i := range c.inputs {
		size += c.inputs[i].scores.Len()
	}
	x.spendGathered(len(c.inputs), size)
	all := make([]keyspace.Member, 0, min(size, maxCommandWork/joinedMember))
	for i := range c.inputs {
		in := &c.inputs[i]
		in.scores.ByHash(func(m keyspace.Member) bool {
			x.spendJoined(m.Name)
			m.Score = in.weighed(m.Score)
			all = append(all, m)
			return !x.overworked()
		})
		if x.overworked() {
			return nil
		}
	}
	keyspace.SortByHash(all, x.spendTexts)
	united := all[:0]
	for _, m := range all {
		if last := len(united) - 1; last >= 0 && united[last].Hash == m.Hash &&
			united[last].Name == m.Name {
			united[last].Score = c.aggregate(united[last].Score, m.Score)
			continue
		}
		united = append(united, m)
	}
	return united
}

// zfinder looks up members in one of the inputs.
type zfinder struct {
	find func(keyspace.Member) (score float64, ok bool)
	far  int
}

// finders returns what looks up the members of the first input in others, in the order of (hash,
// name).
func (c *zcombination) finders(others []zinput) []zfinder {
	inputs := make([]zfinder, len(others))
	for i, in := range others {
		inputs[i] = zfinder{in.scores.Finder(), stride(c.inputs[0].scores.Len(), in.scores.Len())}
	}
	return inputs
}

// score returns the score of a member in the input, and charges for the lookup.
func (f *zfinder) score(x *Call, m keyspace.Member) (score float64, ok bool) {
	x.spendSought(m.Name, f.far)
	if score, ok = f.find(m); ok {
		x.spendMet(m.Name)
	}
	return score, ok
}

func zintersect(x *Call, c *zcombination) []keyspace.Member {
	c.smallestFirst()
	inputs := c.finders(c.inputs[1:])
	if c.limit > 0 { // looked up in the order of scores, which is none
		for i := range inputs {
			inputs[i].far = bits.Len(uint(c.inputs[1+i].scores.Len())) * 2 / 3
		}
	}
	var all []keyspace.Member
	look := func(m keyspace.Member) bool {
		x.spendScanned()
		m.Score = c.inputs[0].weighed(m.Score)
		for i := range inputs {
			other, ok := inputs[i].score(x, m)
			if !ok || x.overworked() {
				return !x.overworked()
			}
			// NaN makes a sum 0, and is neither minimum nor maximum
			m.Score = c.aggregate(m.Score, float64(c.inputs[1+i].weight*other))
		}
		all = append(all, m)
		return len(all) != c.limit && !x.overworked()
	}
	if c.limit == 0 {
		c.inputs[0].scores.ByHash(look)
		return all
	}
	c.inputs[0].scores.byScore(func(s keyspace.Scored) bool {
		// the order decides how much is compared, and so the work
		return look(keyspace.MemberOf(s, x.spendBytesOf))
	})
	return all
}

func zsubtract(x *Call, c *zcombination) []keyspace.Member {
	inputs := c.finders(slices.DeleteFunc(slices.Clone(c.inputs[1:]), func(in zinput) bool {
		return in.scores.Len() == 0
	}))
	var all []keyspace.Member
	c.inputs[0].scores.ByHash(func(m keyspace.Member) bool {
		x.spendScanned()
		for i := range inputs {
			if _, ok := inputs[i].score(x, m); ok || x.overworked() {
				return !x.overworked()
			}
		}
		x.spendMissed()
		all = append(all, m)
		return !x.overworked()
	})
	return all
}

// zcombine is the handler of ZUNION, ZINTER, ZDIFF and ZINTERCARD, and of the STORE forms, whose
// first argument is the destination.
func zcombine(form zcombineForm) Handler {
	first := 1
	if form.event != "" {
		first = 2
	}
	return func(x *Call) error {
		var c zcombination
		if err := c.parse(x, &form, x.Args[first:]); err != nil {
			return err
		}
		all := form.run(x, &c)
		if x.overworked() {
			return ErrCommandWork
		}
		if form.count {
			x.Out.Int(int64(len(all)))
			return nil
		}
		if x.Level >= LevelSecond {
			x.spendSorted(all)
		} else {
			x.Spend(len(all) * joinedMember)
		}
		if form.event != "" {
			storeCollection(x, x.Args[1], keyspace.ZSetOfMembers(all, x.spendTexts), NotifyZSet,
				form.event)
			x.Out.Int(int64(len(all)))
			return nil
		}
		sorted := keyspace.ByScore(all, x.spendTexts)
		if c.withScores {
			replyAllScored(x, sorted, x.Tx.Proto == 3)
			return nil
		}
		x.Out.Array(len(sorted))
		for _, s := range sorted {
			x.Out.BulkString(s.Member)
		}
		return nil
	}
}

// destinationAndCounted finds the keys of a command with a destination, a number of inputs, and the
// inputs.
func destinationAndCounted(args [][]byte) []int {
	n, ok := ParseInt(args[2])
	if !ok || n < 1 || n > int64(len(args)-3) {
		return nil
	}
	positions := []int{1}
	for i := range int(n) {
		positions = append(positions, 3+i)
	}
	return positions
}
