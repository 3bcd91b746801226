package commands

// This file holds the unions, intersections and differences of sorted sets. Sets may be among their inputs: their members have the
// score 1.

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of the arguments.
const (
	errWeightFloat   Error = "ERR weight value is not a float"
	errLimitNegative Error = "ERR LIMIT can't be negative"
)

// zcombineForm is what a command's name settles. run gives a part of the result where the call is overworked.
type zcombineForm struct {
	run   func(*Call, *zcombination) []keyspace.Scored
	diff  bool   // without weights and aggregate
	event string // of a STORE form; empty for one that replies
	count bool   // ZINTERCARD
}

// zcombination is one call.
type zcombination struct {
	inputs     []zinput
	aggregate  func(a, b float64) float64
	withScores bool
	limit      int // members at which to stop; 0 means never
}

// zinput is a sorted set or a set with the weight of its scores.
type zinput struct {
	scores scoredNames
	weight float64
}

// scoredNames is what a combination needs of an input.
type scoredNames interface {
	Len() int
	Score(name []byte) (score float64, ok bool)
	// each calls f with every member until it answers false.
	each(f func(keyspace.Scored) bool)
}

// zsetNames is a sorted set as an input.
type zsetNames struct{ *keyspace.ZSet }

func (z zsetNames) each(f func(keyspace.Scored) bool) {
	if n := z.Len(); n > 0 {
		z.Range(0, n-1, f)
	}
}

// setNames is a set as an input.
type setNames struct{ *keyspace.Set }

// setScore is the score of a set's members.
const setScore = 1

func (s setNames) Score(name []byte) (score float64, ok bool) { return setScore, s.Has(name) }

func (s setNames) each(f func(keyspace.Scored) bool) {
	s.Each(func(name string) bool { return f(keyspace.Scored{Score: setScore, Member: name}) })
}

// parse reads numkeys key [key ...] [options], in Redis's order of checks: the types of the keys come before the options.
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
	return c.parseOptions(form, args[1+n:])
}

// findNames returns the input at key, an empty one where there is no key, or ErrWrongType.
func findNames(x *Call, key []byte) (scoredNames, error) {
	e := x.DB().Find(key)
	if e == nil {
		return zsetNames{noZSet}, nil
	}
	switch c := e.Collection().(type) {
	case *keyspace.ZSet:
		return zsetNames{c}, nil
	case *keyspace.Set:
		return setNames{c}, nil
	}
	return nil, ErrWrongType
}

func (c *zcombination) parseOptions(form *zcombineForm, args [][]byte) error {
	combines := !form.diff && !form.count
	for len(args) > 0 {
		taken := 2
		switch {
		case combines && len(args) > len(c.inputs) && isWord(args[0], "WEIGHTS"):
			for i := range c.inputs {
				var ok bool
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

// aggregateWord is the function that a word of AGGREGATE names, or nil.
func aggregateWord(arg []byte) func(a, b float64) float64 {
	switch {
	case isWord(arg, "SUM"):
		return addScores
	case isWord(arg, "MIN"):
		return func(a, b float64) float64 {
			if b < a { // not min, which would let a NaN through
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

// addScores is the sum of two scores, 0 where the two infinities cancel each other.
func addScores(a, b float64) float64 { return numberOr0(a + b) }

func numberOr0(f float64) float64 {
	if math.IsNaN(f) {
		return 0
	}
	return f
}

// weighed is a score of this input times its weight, 0 where that is no number.
func (in *zinput) weighed(score float64) float64 { return numberOr0(in.weight * score) }

// What combining costs, in units of Env.Work.
const (
	joinedMember = 16 // a member that goes into a union, or into a result
	lookedUp     = 8  // a member looked up in an input
)

// smallestFirst puts the inputs in the order in which Redis goes through them, which decides how sums are rounded.
func (c *zcombination) smallestFirst() {
	slices.SortStableFunc(c.inputs, func(a, b zinput) int { return cmp.Compare(a.scores.Len(), b.scores.Len()) })
}

func zunite(x *Call, c *zcombination) []keyspace.Scored {
	c.smallestFirst()
	var all []keyspace.Scored
	place := map[string]int{}
	for i := range c.inputs {
		in := &c.inputs[i]
		in.scores.each(func(s keyspace.Scored) bool {
			x.Spend(joinedMember + len(s.Member)/bytesSpent)
			score := in.weighed(s.Score)
			if at, ok := place[s.Member]; ok {
				all[at].Score = c.aggregate(all[at].Score, score)
				return !x.overworked()
			}
			place[s.Member] = len(all)
			all = append(all, keyspace.Scored{Score: score, Member: s.Member})
			return !x.overworked()
		})
		if x.overworked() {
			break
		}
	}
	return all
}

func zintersect(x *Call, c *zcombination) []keyspace.Scored {
	c.smallestFirst()
	var all []keyspace.Scored
	c.inputs[0].scores.each(func(s keyspace.Scored) bool {
		x.Spend(joinedMember)
		score := c.inputs[0].weighed(s.Score)
		for i := 1; i < len(c.inputs); i++ {
			in := &c.inputs[i]
			x.Spend(lookedUp + len(s.Member)/bytesSpent)
			other, ok := in.scores.Score([]byte(s.Member))
			if !ok || x.overworked() {
				return !x.overworked()
			}
			score = c.aggregate(score, in.weight*other) // a NaN makes a sum 0, and is neither least nor greatest
		}
		all = append(all, keyspace.Scored{Score: score, Member: s.Member})
		return len(all) != c.limit && !x.overworked()
	})
	return all
}

func zsubtract(x *Call, c *zcombination) []keyspace.Scored {
	var all []keyspace.Scored
	others := slices.DeleteFunc(c.inputs[1:], func(in zinput) bool { return in.scores.Len() == 0 })
	c.inputs[0].scores.each(func(s keyspace.Scored) bool {
		x.Spend(joinedMember)
		for i := range others {
			x.Spend(lookedUp + len(s.Member)/bytesSpent)
			if _, ok := others[i].scores.Score([]byte(s.Member)); ok || x.overworked() {
				return !x.overworked()
			}
		}
		all = append(all, s)
		return !x.overworked()
	})
	return all
}

// zcombine is the handler of ZUNION, ZINTER, ZDIFF and ZINTERCARD, and of the STORE forms, which have the destination before them.
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
			return errCommandWork
		}
		if form.count {
			x.Out.Int(int64(len(all)))
			return nil
		}
		slices.SortFunc(all, func(a, b keyspace.Scored) int {
			if a.Score != b.Score {
				return cmp.Compare(a.Score, b.Score)
			}
			return strings.Compare(a.Member, b.Member)
		})
		x.Spend(len(all) * joinedMember)
		switch {
		case form.event != "":
			storeCollection(x, x.Args[1], keyspace.ZSetOf(all), NotifyZSet, form.event)
			x.Out.Int(int64(len(all)))
		case c.withScores:
			replyAllScored(x, all, x.Tx.Proto == 3)
		default:
			x.Out.Array(len(all))
			for _, s := range all {
				x.Out.BulkString(s.Member)
			}
		}
		return nil
	}
}

// destinationAndCounted finds the keys of a command that has a destination, the number of its inputs, and the inputs.
func destinationAndCounted(args [][]byte) []int {
	n, ok := ParseInt(args[2])
	if !ok || n < 1 || n > int64(len(args)-3) {
		return nil
	}
	places := []int{1}
	for i := range int(n) {
		places = append(places, 3+i)
	}
	return places
}
