// Ranges of a sorted set: bounds by rank, by score and by name, and the ranks between them.

package commands

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of bounds.
const (
	errScoreBound Error = "ERR min or max is not a float"
	errLexBound   Error = "ERR min or max not valid string range item"
)

// rangeBy is what the bounds of a range are.
type rangeBy uint8

const (
	byRank rangeBy = iota
	byScore
	byLex
)

// zbounds are the two ends of a range, of the kind by.
type zbounds struct {
	by          rangeBy
	start, stop int64 // ranks; negative ones are counted from the end
	score       scoreBounds
	lex         lexBounds
}

// parse parses the two ends in the order lowest, highest.
func (b *zbounds) parse(lowest, highest []byte) error {
	var ok [2]bool
	switch b.by {
	case byScore:
		b.score.min, b.score.openMin, ok[0] = parseScoreBound(lowest)
		b.score.max, b.score.openMax, ok[1] = parseScoreBound(highest)
		b.score.text = [2]int{len(lowest), len(highest)}
		if !ok[0] || !ok[1] {
			return errScoreBound
		}
	case byLex:
		b.lex.min, ok[0] = parseLexBound(lowest)
		b.lex.max, ok[1] = parseLexBound(highest)
		if !ok[0] || !ok[1] {
			return errLexBound
		}
	default:
		b.start, ok[0] = ParseInt(lowest)
		b.stop, ok[1] = ParseInt(highest)
		if !ok[0] || !ok[1] {
			return ErrNotInteger
		}
	}
	return nil
}

// span returns the ranks of the first and the last member within the bounds, without skip members
// (at least 0) at the side where a reply starts: the highest scores with reverse, else the lowest.
// If there are none, first > last. With reverse, rank bounds count from the highest score.
func (b *zbounds) span(z *keyspace.ZSet, reverse bool, skip int) (first, last int) {
	switch {
	case b.by == byLex && z.Compact():
		return b.lex.walk(z, reverse, skip)
	case b.by == byLex:
		// names are sorted if all scores are equal; otherwise Redis promises nothing
		first, last = z.Seek(b.lex.overMin), z.Seek(b.lex.overMax)-1
	case b.by == byScore:
		first, last = b.score.span(z)
	default:
		first, last = rankSpan(b.start, b.stop, int64(z.Len()))
		if reverse && first <= last {
			first, last = z.Len()-1-last, z.Len()-1-first
		}
	}
	if reverse {
		return first, last - skip
	}
	return first + skip, last
}

// spend adds the work of span: a walk over a small set, or a search whose steps are searches.
func (b *zbounds) spend(x *Call, z *keyspace.ZSet) {
	for _, n := range b.score.text {
		x.spendNumber(n)
	}
	switch {
	case b.by == byRank:
	case z.Compact():
		x.Spend(z.Len() / 8)
	default:
		x.Spend(2 * bits.Len(uint(z.Len())))
	}
}

// rankSpan converts two ranks, negative ones counted from the end, into ranks of a set of n
// members.
func rankSpan(start, stop, n int64) (first, last int) {
	if start < 0 {
		start = max(start+n, 0)
	}
	if stop < 0 {
		stop += n
	}
	if start > stop || start >= n {
		return 0, -1
	}
	return int(start), int(min(stop, n-1))
}

// scoreBounds are two scores; an open end is exclusive.
type scoreBounds struct {
	min, max         float64
	openMin, openMax bool
	text             [2]int // bytes of their texts
}

func (b *scoreBounds) span(z *keyspace.ZSet) (first, last int) {
	if b.min > b.max || (b.min == b.max && (b.openMin || b.openMax)) {
		return 0, -1
	}
	first = z.Seek(func(s keyspace.Scored) bool {
		return s.Score > b.min || (s.Score == b.min && !b.openMin)
	})
	last = z.Seek(func(s keyspace.Scored) bool {
		return s.Score > b.max || (s.Score == b.max && b.openMax)
	}) - 1
	return first, last
}

// parseScoreBound parses a score, after "(" if it is exclusive, as C's strtod does for Redis:
// leading spaces are skipped, a zero byte ends it, an empty text is 0, and overflow or underflow
// gives infinity or zero.
func parseScoreBound(arg []byte) (score float64, open, ok bool) {
	if len(arg) > 0 && arg[0] == '(' {
		open = true
		arg = arg[1:]
	}
	if score, ok := parseDigits(arg); ok {
		return score, open, true
	}
	arg = resp.CText(arg)
	if len(arg) == 0 {
		return 0, open, true
	}
	for len(arg) > 0 && (arg[0] == ' ' || (arg[0] >= '\t' && arg[0] <= '\r')) {
		arg = arg[1:]
	}
	text, ok := floatText(arg)
	if !ok {
		return 0, open, false
	}
	score, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, open, false
	}
	return score, open, !math.IsNaN(score)
}

// lexBounds are two names.
type lexBounds struct{ min, max lexBound }

// lexBound is one end of a range of names: before all, after all, or at a name.
type lexBound struct {
	side int // -1 before all, 1 after all, 0 at the name
	name string
	open bool
}

// parseLexBound parses - or + or a name after [ or, if it is exclusive, (.
func parseLexBound(arg []byte) (b lexBound, ok bool) {
	if len(arg) == 0 {
		return b, false
	}
	switch arg[0] {
	case '-':
		return lexBound{side: -1, open: true}, len(resp.CText(arg)) == 1
	case '+':
		return lexBound{side: 1, open: true}, len(resp.CText(arg)) == 1
	case '[', '(':
		return lexBound{name: string(arg[1:]), open: arg[0] == '('}, true
	}
	return b, false
}

// compare returns -1 for a name before the bound, 0 at it, 1 after it.
func (b *lexBound) compare(name string) int {
	if b.side != 0 {
		return -b.side
	}
	return strings.Compare(name, b.name)
}

func (b *lexBounds) empty() bool {
	if b.min.side != 0 || b.max.side != 0 {
		return b.min.side >= b.max.side
	}
	c := strings.Compare(b.min.name, b.max.name)
	return c > 0 || (c == 0 && (b.min.open || b.max.open))
}

func (b *lexBounds) overMin(s keyspace.Scored) bool {
	c := b.min.compare(s.Member)
	return c > 0 || (c == 0 && !b.min.open)
}

func (b *lexBounds) overMax(s keyspace.Scored) bool {
	c := b.max.compare(s.Member)
	return c > 0 || (c == 0 && b.max.open)
}

// walk is zbounds.span for a small set. It walks as Redis does in its small form, so replies are
// equal even if scores differ.
func (b *lexBounds) walk(z *keyspace.ZSet, reverse bool, skip int) (first, last int) {
	n := z.Len()
	if n == 0 || b.empty() || !b.overMin(z.At(n-1)) || b.overMax(z.At(0)) {
		return 0, -1
	}
	if reverse {
		last = n - 1
		for last >= 0 && b.overMax(z.At(last)) {
			last--
		}
		if last < 0 || !b.overMin(z.At(last)) {
			return 0, -1
		}
		last -= skip
		first = last
		for first >= 0 && b.overMin(z.At(first)) {
			first--
		}
		return first + 1, last
	}
	for first < n && !b.overMin(z.At(first)) {
		first++
	}
	if first == n || b.overMax(z.At(first)) {
		return 0, -1
	}
	first += skip
	last = first
	for last < n && !b.overMax(z.At(last)) {
		last++
	}
	return first, last - 1
}
