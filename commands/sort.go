// SORT and SORT_RO.

package commands

import (
	"bytes"
	"math"
	"math/bits"
	"strings"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/radix"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of SORT.
const (
	errSortBy     Error = "ERR BY option of SORT denied due to insufficient ACL permissions."
	errSortGet    Error = "ERR GET option of SORT denied due to insufficient ACL permissions."
	errSortWeight Error = "ERR One or more scores can't be converted into double"
	errSortSize   Error = "ERR BY and GET go over more than 67108864 bytes"
)

// maxSorted bounds the bytes of keys and values that BY and GET look up in one call, which Redis
// does not limit: one value looked up for each element would make work and a reply of any size from
// little data. Each lookup counts as at least resultSize.
const (
	maxSorted  = 64 << 20
	resultSize = 32
)

var sortSpecs = []Spec{
	{Name: "sort", Kind: Write, Arity: -2, Flags: DenyOOM | MovableKeys,
		Keys:  KeySpec{First: 1, Last: 1, Step: 1, Find: sortKeys, Parts: sortParts(true)},
		Group: "generic", Since: "1.0.0",
		OwnCategories: sortCategories,
		Syntax: "key [BY pattern] [LIMIT offset:integer count:integer] [GET pattern [GET " +
			"pattern ...]] [ASC|DESC] [ALPHA] [STORE destination:key]",
		Summary: "Sorts the elements of a list, a set or a sorted set, and returns or stores " +
			"them.",
		Complexity: "O(n log n + k) for n elements of which k are given",
		Handler:    sortCommand(true)},
	{Name: "sort_ro", Kind: Read, Arity: -2, Flags: MovableKeys,
		Keys: KeySpec{First: 1, Last: 1, Step: 1, Parts: sortParts(false)}, Group: "generic",
		Since:         "7.0.0",
		OwnCategories: sortCategories,
		Syntax: "key [BY pattern] [LIMIT offset:integer count:integer] [GET pattern [GET " +
			"pattern ...]] [ASC|DESC] [ALPHA]",
		Summary:    "Returns the sorted elements of a list, a set or a sorted set.",
		Complexity: "O(n log n + k) for n elements of which k are given",
		Handler:    sortCommand(false)},
}

const sortCategories = "set sortedset list dangerous"

// sortParts returns where SORT's keys are: the sorted one, those that patterns name, which depend
// on the elements, and the destination.
func sortParts(store bool) []KeyPart {
	parts := []KeyPart{{First: 1, Step: 1, Flags: KeyRO | KeyAccess},
		{Unknown: true, Flags: KeyRO | KeyAccess}}
	if store {
		parts = append(parts, KeyPart{Unknown: true, Flags: KeyOW | KeyUpdate})
	}
	return parts
}

// sorting is one call of SORT.
type sorting struct {
	unsorted    bool         // BY a pattern without a star: keep the elements' order
	by          *sortPattern // nil: elements are their own weights
	desc, alpha bool
	offset      int64
	count       int64 // negative means all
	gets        []sortPattern
	store       []byte
	storing     bool
	size        int  // bytes looked up
	readsAll    bool // the user may read all keys; known once BY or GET asked
}

// readsAllKeys reports whether the user may read all keys. BY and GET ask: the data decides which
// keys they read.
func (s *sorting) readsAllKeys(x *Call) bool {
	s.readsAll = s.readsAll || x.readsAllKeys()
	return s.readsAll
}

// parse parses the options. store reports whether STORE is one of them.
func (s *sorting) parse(x *Call, store bool) error {
	s.count = -1
	args := x.Args[2:]
	for ; len(args) > 0; args = args[1:] {
		rest := len(args) - 1
		switch {
		case isWord(args[0], "ASC"):
			s.desc = false
			continue
		case isWord(args[0], "DESC"):
			s.desc = true
			continue
		case isWord(args[0], "ALPHA"):
			s.alpha = true
			continue
		case rest >= 2 && isWord(args[0], "LIMIT"):
			var ok [2]bool
			s.offset, ok[0] = ParseInt(args[1])
			s.count, ok[1] = ParseInt(args[2])
			if !ok[0] || !ok[1] {
				return ErrNotInteger
			}
			args = args[1:]
		case rest >= 1 && store && isWord(args[0], "STORE"):
			s.store, s.storing = args[1], true
		case rest >= 1 && isWord(args[0], "BY"):
			p := parseSortPattern(args[1])
			s.by = &p
			s.unsorted = s.unsorted || p.star < 0 // as on Redis, a later BY does not undo it
			if p.star >= 0 && !s.readsAllKeys(x) {
				return errSortBy
			}
		case rest >= 1 && isWord(args[0], "GET"):
			if !s.readsAllKeys(x) {
				return errSortGet
			}
			s.gets = append(s.gets, parseSortPattern(args[1]))
		default:
			return ErrSyntax
		}
		args = args[1:]
	}
	return nil
}

// sortPattern names a key for each element, and optionally a field of the hash there.
type sortPattern struct {
	self   bool   // "#": the element itself
	text   []byte // names the key, with a star for the element
	star   int    // its position; -1: the pattern names nothing
	field  []byte
	ofHash bool
	key    []byte // the key that was looked up last
}

// parseSortPattern parses a pattern. Like Redis it searches for the star and for the arrow before a
// field's name up to the first zero byte.
func parseSortPattern(arg []byte) sortPattern {
	text := resp.CText(arg)
	p := sortPattern{self: string(text) == "#", text: arg, star: bytes.IndexByte(text, '*')}
	if arrow := bytes.Index(text[p.star+1:], []byte("->")); p.star >= 0 && arrow >= 0 {
		arrow += p.star + 1
		if arrow+2 < len(text) {
			p.text, p.field, p.ofHash = arg[:arrow], arg[arrow+2:], true
		}
	}
	return p
}

// Costs of looking up a pattern, besides its bytes, in units of Env.Work: below LevelSecond, and
// from there on.
const (
	lookupFirst = 3
	lookupWork  = 10
)

// lookup returns what a pattern names for an element, for reading only. The error means that the
// lookups of the call are too much.
func (s *sorting) lookup(x *Call, p *sortPattern,
	element string) (value []byte, ok bool, err error) {
	switch {
	case p.self:
		value, ok = []byte(element), true
	case p.star >= 0:
		p.key = append(p.key[:0], p.text[:p.star]...)
		p.key = append(p.key, element...)
		p.key = append(p.key, p.text[p.star+1:]...)
		value, ok = p.find(x)
	}
	size := resultSize + len(p.key) + len(p.field) + len(value)
	if x.Level >= LevelSecond && !p.self {
		x.Spend(lookupWork + 2*deep(x.DB().Size()) + size/bytesSpent)
	} else {
		x.Spend(lookupFirst + size/bytesSpent)
	}
	if s.size += size; s.size > maxSorted {
		return nil, false, errSortSize
	}
	return value, ok, nil
}

// find returns the string at the pattern's key, or the field of the hash there.
func (p *sortPattern) find(x *Call) (value []byte, ok bool) {
	e := x.find(p.key)
	switch {
	case e == nil:
		return nil, false
	case !p.ofHash:
		return e.Bytes(), e.Kind() == keyspace.KindString
	}
	h, ok := e.Collection().(*keyspace.Hash) //hash: one field of it
	if !ok {
		return nil, false
	}
	if h.Compact() {
		x.Spend(h.Len() / searched)
	}
	return h.Get(p.field)
}

// source looks up what is sorted. It returns the number of elements, and a function that walks an
// existing range of them in their own order.
func (s *sorting) source(x *Call) (n int, walk func(first, last int, f func(value string) bool),
	err error) {
	e := x.find(x.Args[1])
	if e == nil {
		return 0, nil, nil
	}
	switch c := e.Collection().(type) {
	case *keyspace.List:
		return c.Len(), func(first, last int, f func(string) bool) {
			first, last = s.turn(c, first, last)
			c.Range(first, last, f)
		}, nil
	case *keyspace.ZSet:
		return c.Len(), func(first, last int, f func(string) bool) {
			first, last = s.turn(c, first, last)
			c.Range(first, last, func(m keyspace.Scored) bool { return f(m.Member) })
		}, nil
	case *keyspace.Set: //set: dead members are paid for
		x.spendDeadElements(c, math.MaxInt)
		if s.unsorted && (s.storing || x.Tx.Script) {
			// as on Redis, where a set has no reliable order
			s.unsorted, s.alpha, s.by = false, true, nil
		}
		return c.Len(), func(first, last int, f func(string) bool) {
			if x.Level >= LevelSecond {
				x.Spend(first) // skipped
			}
			i := 0
			c.Each(func(member string) bool {
				i++
				return i <= first || (f(member) && i <= last)
			})
		}, nil
	}
	return 0, nil, ErrWrongType
}

// turn counts positions from the end of c if DESC is given: elements that keep their own order are
// then reversed.
func (s *sorting) turn(c keyspace.Collection, first, last int) (from, to int) {
	if s.unsorted && s.desc {
		return c.Len() - 1 - first, c.Len() - 1 - last
	}
	return first, last
}

// limits returns the first and the last of n elements within LIMIT; last is less than first if
// there are none.
func (s *sorting) limits(n int) (first, last int) {
	all := int64(n)
	offset := min(max(s.offset, 0), all)
	if s.count < 0 {
		return int(offset), n - 1
	}
	return int(offset), int(min(offset+min(s.count, all), all)) - 1
}

// weighed is an element with its sort key.
type weighed struct {
	value  string
	score  float64 // unless ALPHA
	weight string  // sort key with ALPHA, unless stored elements are their own
	found  bool    // BY names a value
}

// run returns the elements in order, within LIMIT.
func (s *sorting) run(x *Call) ([]weighed, error) {
	n, walk, err := s.source(x)
	if err != nil {
		return nil, err
	}
	first, last := s.limits(n)
	if first > last {
		first, last = 0, -1
	}
	from, to := first, last
	if !s.unsorted {
		from, to = 0, n-1
	}
	if from > to {
		return nil, nil
	}
	if x.Level >= LevelSecond {
		x.Spend((to - from + 1) * walkedElement)
	}
	all := make([]weighed, 0, to-from+1)
	walk(from, to, func(value string) bool {
		all = append(all, weighed{value: value})
		return true
	})
	if x.Level < LevelSecond {
		x.Spend(len(all) / searched)
	}
	if s.unsorted {
		return all, nil
	}
	if err := s.order(x, all); err != nil {
		return nil, err
	}
	return all[first : last+1], nil
}

// order weighs and sorts the elements.
func (s *sorting) order(x *Call, all []weighed) error {
	size := 0
	for i := range all {
		if err := s.weigh(x, &all[i]); err != nil {
			return err
		}
		size += len(all[i].value)
	}
	if x.Level >= LevelSecond {
		// texts are read again for each eight bytes that some share
		x.Spend(len(all)*sortedElement + (size+s.size)/16)
	} else {
		x.Spend(bits.Len(uint(len(all))) * (len(all)/2 + (size+s.size)/bytesSpent))
	}
	value := func(e *weighed) string { return e.value }
	weight := func(e *weighed) string { return e.weight }
	switch {
	case !s.alpha:
		radix.Keys(all, s.scoreKey)
		radix.Ties(all, s.scoreKey, func(same []weighed) {
			radix.Texts(same, value, s.desc, x.spendTexts)
		})
	case s.by == nil && s.storing:
		radix.Texts(all, value, s.desc, x.spendTexts)
	case s.by == nil:
		radix.Texts(all, weight, s.desc, x.spendTexts)
	default: // elements without a weight come first
		radix.Keys(all, s.foundKey)
		radix.Ties(all, s.foundKey, func(same []weighed) {
			radix.Texts(same, weight, s.desc, x.spendTexts)
		})
	}
	return nil
}

// walkedElement is the cost of walking past an element, in units of Env.Work.
const walkedElement = 2

// Costs of ordering an element, and of each pass over some bytes of its text, in units of Env.Work.
const (
	sortedElement = 6
	sortedPiece   = 2
)

// spendTexts adds the work of one pass over that many texts.
func (x *Call) spendTexts(n int) {
	if x.Level >= LevelSecond {
		x.Spend(sortedPiece * n)
	}
}

// scoreKey returns a key that sorts by score.
func (s *sorting) scoreKey(e *weighed) uint64 {
	if s.desc {
		return ^radix.Float(e.score)
	}
	return radix.Float(e.score)
}

// foundKey returns a key that sorts by whether BY names a value.
func (s *sorting) foundKey(e *weighed) uint64 {
	if e.found != s.desc {
		return 1
	}
	return 0
}

func upToZero(text string) string {
	if i := strings.IndexByte(text, 0); i >= 0 {
		return text[:i]
	}
	return text
}

// weigh sets the sort key of an element.
func (s *sorting) weigh(x *Call, e *weighed) (err error) {
	var weight []byte
	if s.by != nil {
		if weight, e.found, err = s.lookup(x, s.by, e.value); err != nil {
			return err
		}
	}
	ok := true
	switch {
	case s.alpha && !s.storing && s.by == nil:
		e.weight = upToZero(e.value) // cut once, compared often
	case s.alpha && !s.storing:
		// without STORE Redis compares by strcoll, which stops at a zero byte
		e.weight = string(resp.CText(weight))
	case s.alpha:
		e.weight = string(weight)
	case s.by == nil:
		x.spendNumber(len(e.value))
		e.score, ok = sortNumber(e.value)
	case e.found:
		x.spendNumber(len(weight))
		e.score, ok = sortNumber(string(weight))
	}
	if !ok {
		return errSortWeight
	}
	return nil
}

// sortNumber parses a weight as Redis does: what C's strtod accepts, to the end of the text or to a
// zero byte. An empty text is 0; NaN and numbers that a double cannot hold are errors.
func sortNumber(number string) (float64, bool) {
	if n, ok := shortInteger(number); ok {
		return float64(n), true
	}
	if end := strings.IndexByte(number, 0); end >= 0 {
		number = number[:end]
	}
	if number == "" {
		return 0, true
	}
	number = strings.TrimLeft(number, " \t\n\v\f\r")
	if len(number) > maxFloatText {
		return 0, false
	}
	text := []byte(number)
	f, ok := ParseFloat(text)
	const smallestNormal = 0x1p-1022
	if ok && f != 0 && math.Abs(f) < smallestNormal && !bytes.ContainsAny(text, "xX") {
		// inexact, which strtod reports as out of range; only hexadecimal digits are exact here
		return 0, false
	}
	return f, ok
}

// shortInteger parses an integer that any double can hold, with no spaces and no sign but a minus.
func shortInteger(text string) (n int64, ok bool) {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) == 0 || len(digits) > 15 {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(digits[i]-'0')
	}
	if len(digits) < len(text) {
		n = -n
	}
	return n, true
}

// sorted is one element of the reply.
type sorted struct {
	text string
	ok   bool // the pattern names a value
}

// results returns what is replied or stored: the elements, or for each of them what every GET
// names.
func (s *sorting) results(x *Call, elements []weighed) ([]sorted, error) {
	if len(s.gets) == 0 {
		all := make([]sorted, len(elements))
		for i, e := range elements {
			all[i] = sorted{e.value, true}
		}
		return all, nil
	}
	var all []sorted
	for _, e := range elements {
		for i := range s.gets {
			value, ok, err := s.lookup(x, &s.gets[i], e.value)
			if err != nil {
				return nil, err
			}
			all = append(all, sorted{string(value), ok})
		}
	}
	return all, nil
}

// sortCommand is the handler of SORT, or of SORT_RO, which has no STORE.
func sortCommand(store bool) Handler {
	return func(x *Call) error {
		var s sorting
		if err := s.parse(x, store); err != nil {
			return err
		}
		elements, err := s.run(x)
		if err != nil {
			return err
		}
		results, err := s.results(x, elements)
		if err != nil {
			return err
		}
		if s.storing {
			storeSorted(x, s.store, results)
			return nil
		}
		x.Out.Array(len(results))
		for _, r := range results {
			if r.ok {
				x.Out.BulkString(r.text)
			} else {
				x.Out.Null()
			}
		}
		return nil
	}
}

// pushedElement is the cost of an element that STORE adds to a list, in units of Env.Work.
const pushedElement = 6

// storeSorted sets key to a list of the results, empty elements for missing ones, and replies with
// their number.
func storeSorted(x *Call, key []byte, results []sorted) {
	l, pushed := keyspace.NewList(), 1
	if x.Level >= LevelSecond {
		pushed = pushedElement
	}
	for _, r := range results {
		x.Spend(pushed + len(r.text)/bytesSpent)
		l.PushBack([]byte(r.text))
	}
	storeCollection(x, key, l, NotifyList, "sortstore")
	x.Out.Int(int64(len(results)))
}

// sortKeys finds the keys of SORT: what it sorts, and the last STORE. What BY and GET name depends
// on the elements.
func sortKeys(args [][]byte) []int {
	keys := []int{1}
	for i := 2; i < len(args); i++ {
		switch {
		case isWord(args[i], "LIMIT"):
			i += 2
		case isWord(args[i], "BY"), isWord(args[i], "GET"):
			i++
		case isWord(args[i], "STORE") && i+1 < len(args):
			i++
			keys = append(keys[:1], i)
		}
	}
	return keys
}
