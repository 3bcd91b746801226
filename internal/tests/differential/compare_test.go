// How TestDifferential compares two replies, and which calls it replaces or skips because their
// replies are not predictable.

package differential

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
)

// comparisons says how to compare replies, by command. All others must be equal in bytes.
var comparisons = map[string]commandtest.Compare{
	"keys": sortedReply, "smembers": sortedReply, "sinter": sortedReply, "sunion": sortedReply,
	"sdiff":  sortedReply,
	"config": {Pairs: true}, "hkeys": sortedReply, "hvals": sortedReply, "hgetall": {Pairs: true},
	"randomkey": chanceReply, "srandmember": chanceReply, "hrandfield": chanceReply,
	"zrandmember": chanceReply, "time": chanceReply,
	"ttl": {Rounded: true, Tolerance: 2}, "expiretime": {Rounded: true, Tolerance: 2},
	"pttl": {Rounded: true, Tolerance: delayMs}, "pexpiretime": {Rounded: true, Tolerance: delayMs},
}

var (
	sortedReply = commandtest.Compare{Sorted: true}
	chanceReply = commandtest.Compare{Shape: true}
)

// delayMs is how much later than ours the real server may run a call.
const delayMs = 2000

// isCommand reports whether a call is of a command.
func isCommand(call [][]byte, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(string(call[0]), name)
	})
}

// hasWord reports whether a call has an argument, in any case.
func hasWord(call [][]byte, word string) bool {
	return slices.ContainsFunc(call[1:], func(arg []byte) bool {
		return strings.EqualFold(string(arg), word)
	})
}

// equalReplies compares two replies to a call.
func equalReplies(call [][]byte, got, want []byte) (bool, error) {
	a, b, err := parsePair(got, want)
	if err != nil {
		return false, err
	}
	if _, replaced := replacement(call, got); replaced {
		return replacedReply(call, a, b), nil
	}
	typeA, a := unwrapped(call, a)
	typeB, b := unwrapped(call, b)
	if scripted(call) && string(call[1]) == mappingCaller &&
		isCommand(inner(call), "lcs", "xinfo", "xread", "xreadgroup") {
		// a Lua table carries the map: see mapLine
		a, b = withoutNewer(a), withoutNewer(b)
		a, b = deepSorted(timeless(a)), deepSorted(timeless(b))
	}
	return typeA == typeB && equalValues(inner(call), a, b), nil
}

func parsePair(got, want []byte) (a, b commandtest.Value, err error) {
	if a, err = commandtest.Parse(got); err == nil {
		b, err = commandtest.Parse(want)
	}
	return a, b, err
}

// unwrapped separates a reply from the Lua type that typingCaller adds.
func unwrapped(call [][]byte, v commandtest.Value) (luaType string, reply commandtest.Value) {
	if scripted(call) && string(call[1]) == typingCaller && len(v.Elems) > 0 {
		if len(v.Elems) == 1 {
			return v.Elems[0].Text, commandtest.Value{Kind: '_'} // nil ends a table
		}
		return v.Elems[0].Text, v.Elems[1]
	}
	return "", v
}

// equalValues compares two replies to a command.
func equalValues(call [][]byte, a, b commandtest.Value) bool {
	name := strings.ToLower(string(call[0]))
	switch {
	case isScan(call):
		return equalScans(name, a, b)
	case isCommand(call, "xpending", "xinfo"):
		a, b = withoutNewer(a), withoutNewer(b)
		forgiveTimes(name, &a, &b, 0)
	case isCommand(call, "acl") && hasWord(call, "log"):
		a, b = withoutClients(a), withoutClients(b)
	case isCommand(call, "function"):
		a, b = deepSorted(a), deepSorted(b)
	case isCommand(call, "pubsub") && len(call) > 1 &&
		strings.HasSuffix(strings.ToLower(string(call[1])), "channels"):
		return equal(sortedReply, a, b)
	case isCommand(call, "sort", "sort_ro"):
		return equal(commandtest.Compare{}, a, b) || equalSorts(call, a, b)
	}
	return equal(comparisons[name], a, b)
}

// equal compares values as c says.
func equal(c commandtest.Compare, a, b commandtest.Value) bool {
	same, err := c.Equal(a.Append(nil, 3), b.Append(nil, 3))
	return err == nil && same
}

// isScan reports whether each server scans in its own order. A large COUNT finishes the scan in one
// step, so that the elements can be compared.
func isScan(call [][]byte) bool { return isCommand(call, "scan", "sscan", "hscan", "zscan") }

// wholeScan gives a call that scans such a COUNT.
func wholeScan(call [][]byte) [][]byte {
	if isScan(call) {
		return append(call, []byte("COUNT"), []byte("100000"))
	}
	return call
}

// equalScans compares the cursors, and the elements without regard to their order.
func equalScans(name string, a, b commandtest.Value) bool {
	if len(a.Elems) != 2 || len(b.Elems) != 2 {
		return equal(commandtest.Compare{}, a, b)
	}
	pairs := name == "hscan" || name == "zscan"
	return a.Elems[0].Text == b.Elems[0].Text &&
		equal(commandtest.Compare{Sorted: !pairs, Pairs: pairs}, a.Elems[1], b.Elems[1])
}

// equalSorts compares replies to SORT whose order the call does not fully define: elements that
// strcoll finds equal, elements of equal weight, and those of a set in its own order.
func equalSorts(call [][]byte, a, b commandtest.Value) bool {
	by := false
	for i, arg := range call {
		by = by || (strings.EqualFold(string(arg), "by") && i > 1)
	}
	if len(a.Elems) != len(b.Elems) || (!by && !hasWord(call, "alpha")) {
		return false
	}
	if by {
		return hasWord(call, "limit") || hasWord(call, "get") || equal(sortedReply, a, b)
	}
	for i := range a.Elems {
		x, _, _ := strings.Cut(a.Elems[i].Text, "\x00")
		y, _, _ := strings.Cut(b.Elems[i].Text, "\x00")
		if x != y && !hasWord(call, "get") {
			return false
		}
	}
	return true
}

// deepSorted sorts the elements on all levels. Redis lists libraries and functions in hash order.
func deepSorted(v commandtest.Value) commandtest.Value {
	elems := make([]commandtest.Value, len(v.Elems))
	for i, e := range v.Elems {
		elems[i] = deepSorted(e)
	}
	slices.SortStableFunc(elems, func(a, b commandtest.Value) int {
		return strings.Compare(a.String(), b.String())
	})
	v.Elems = elems
	return v
}

// forgiveTimes replaces times and idle times in b that are close to those in a by them.
func forgiveTimes(name string, a, b *commandtest.Value, depth int) {
	for i := range min(len(a.Elems), len(b.Elems)) {
		x, y := &a.Elems[i], &b.Elems[i]
		time := name == "xpending" && depth == 1 && len(a.Elems) == 4 && i == 2
		if name == "xinfo" {
			// pending entries of a group and of a consumer contain a time
			pending := (len(a.Elems) == 4 && i == 2) || (len(a.Elems) == 3 && i == 1)
			time = isTime(x) || pending || (i > 0 && a.Elems[i-1].Text == "idle")
		}
		if time && equal(commandtest.Compare{Rounded: true, Tolerance: delayMs}, *x, *y) {
			y.Text = x.Text
		}
		forgiveTimes(name, x, y, depth+1)
	}
}

// withoutClients is a reply to ACL LOG without what differs between the servers: the description of
// the client, and the age of an entry.
func withoutClients(v commandtest.Value) commandtest.Value {
	elems := make([]commandtest.Value, len(v.Elems))
	for i, e := range v.Elems {
		if i > 0 && (v.Elems[i-1].Text == "client-info" || v.Elems[i-1].Text == "age-seconds") {
			e.Text = ""
		}
		elems[i] = withoutClients(e)
	}
	v.Elems = elems
	return v
}

// withoutNewer is a reply of XINFO without the fields of Redis 7.2.
func withoutNewer(v commandtest.Value) commandtest.Value {
	var elems []commandtest.Value
	for i := 0; i < len(v.Elems); i++ {
		if name := v.Elems[i].Text; i%2 == 0 && (name == "inactive" || name == "active-time") {
			i++
			continue
		}
		elems = append(elems, withoutNewer(v.Elems[i]))
	}
	v.Elems = elems
	return v
}

// timeless is a reply of XINFO without its times.
func timeless(v commandtest.Value) commandtest.Value {
	elems := make([]commandtest.Value, len(v.Elems))
	for i, e := range v.Elems {
		if isTime(&e) || (i > 0 && v.Elems[i-1].Text == "idle") {
			e.Text = "0"
		}
		elems[i] = timeless(e)
	}
	v.Elems = elems
	return v
}

// isTime reports whether a number looks like milliseconds since 1970.
func isTime(v *commandtest.Value) bool {
	const year2020 = 1_577_000_000_000
	ms, err := strconv.ParseInt(v.Text, 10, 64)
	return v.Kind == ':' && err == nil && ms > year2020
}

// replacement is the call for the real server if ours chose something at random or by the time of
// day: the real server is given the same.
func replacement(call [][]byte, got []byte) (replaced [][]byte, ok bool) {
	asked := inner(call)
	if !isCommand(asked, "spop", "xadd") || got == nil {
		return nil, false
	}
	v, err := commandtest.Parse(got)
	if err != nil {
		return nil, false
	}
	luaType, v := unwrapped(call, v)
	if luaType == "failed" {
		return nil, false
	}
	if isCommand(asked, "spop") {
		members := leaves(nil, v)
		if len(members) == 0 {
			return nil, false
		}
		return append(slices.Clone(call[:len(call)-len(asked)]),
			append([][]byte{[]byte("SREM"), asked[1]}, members...)...), true
	}
	i := entryID(asked)
	if i == 0 || v.Kind != '$' || v.Null {
		return nil, false
	}
	replaced = slices.Clone(call)
	replaced[len(call)-len(asked)+i] = []byte(v.Text)
	return replaced, true
}

// leaves appends the strings of a reply.
func leaves(dst [][]byte, v commandtest.Value) [][]byte {
	if v.Kind == '$' && !v.Null {
		dst = append(dst, []byte(v.Text))
	}
	for _, e := range v.Elems {
		dst = leaves(dst, e)
	}
	return dst
}

// entryID is the index of the * in XADD's arguments, or 0.
func entryID(call [][]byte) int {
	for i := 2; i < len(call); i++ {
		switch word := strings.ToLower(string(call[i])); word {
		case "nomkstream":
		case "limit":
			i++
		case "maxlen", "minid":
			if i++; i < len(call) && (string(call[i]) == "~" || string(call[i]) == "=") {
				i++
			}
		case "*":
			return i
		default:
			return 0
		}
	}
	return 0
}

// replacedReply compares our reply to a call with that to its replacement.
func replacedReply(call [][]byte, a, b commandtest.Value) bool {
	if isCommand(inner(call), "xadd") {
		return equal(commandtest.Compare{}, a, b)
	}
	_, a = unwrapped(call, a)
	_, b = unwrapped(call, b)
	return b.Kind == ':' && b.Text == strconv.Itoa(len(leaves(nil, a)))
}

// translated is the call for the real server.
func translated(call [][]byte, got []byte) [][]byte {
	if other := modelled(call); other != nil {
		return other
	}
	if replaced, ok := replacement(call, got); ok {
		return replaced
	}
	return call
}

// watchAmbiguous reports whether a watched key did not exist and does not exist now, at the start
// of a transaction, and forgets the watched keys: see absentLine.
func (d *differential) watchAmbiguous() bool {
	for _, w := range d.watch {
		if w.Changed == 0 && d.node.lastChange(w.DB, w.Key) == 0 {
			d.watch = nil
			return true
		}
	}
	return false
}

// mixedScores reports whether a key of a call is a sorted set with different scores, for which
// Redis defines no order by name: its two encodings differ, and SORT makes Redis convert one to the
// other.
func (d *differential) mixedScores(db int, call [][]byte) bool {
	return d.anyScores(db, call, func(scores map[string]bool, _ int) bool {
		return len(scores) > 1
	})
}

// repeatedScores reports whether members of the sorted set at one of the first two arguments have
// equal scores.
func (d *differential) repeatedScores(db int, call [][]byte) bool {
	return d.anyScores(db, call, func(scores map[string]bool, n int) bool {
		return len(scores) < n
	})
}

// anyScores reports whether f holds for the scores of a sorted set at one of the first two
// arguments, which has n members.
func (d *differential) anyScores(db int, call [][]byte,
	f func(scores map[string]bool, n int) bool) bool {
	return slices.ContainsFunc(call[1:min(3, len(call))], func(key []byte) bool {
		scored := d.node.read(db, commandtest.Args("ZRANGE", string(key), "0", "-1", "WITHSCORES"))
		scores := map[string]bool{}
		for i := 1; i < len(scored.Elems); i += 2 {
			scores[scored.Elems[i].Text] = true
		}
		return f(scores, len(scored.Elems)/2)
	})
}

// longestWait bounds the wait for keys to expire, ms.
const longestWait = 20

// shortTTL is the time until a key with a short TTL from the call has expired on both servers, 0
// without one. ok is false for a TTL that would end during the test.
func shortTTL(call [][]byte) (wait time.Duration, ok bool) {
	unit := int64(0)
	at := 2
	switch {
	case isCommand(call, "pexpire", "psetex"):
		unit = 1
	case isCommand(call, "expire", "setex"):
		unit = 1000
	default:
		for i, arg := range call[1:] {
			switch {
			case strings.EqualFold(string(arg), "px"):
				unit, at = 1, i+2
			case strings.EqualFold(string(arg), "ex"):
				unit, at = 1000, i+2
			case strings.EqualFold(string(arg), "exat"), strings.EqualFold(string(arg), "pxat"):
				return time.Millisecond, true // a key of a past time is removed when it is accessed
			}
		}
	}
	if unit == 0 || at >= len(call) {
		return 0, true
	}
	n, err := strconv.ParseInt(string(call[at]), 10, 64)
	switch ms := n * unit; {
	case err != nil || n <= 0 || n > 1_000_000 || ms > 1_000_000:
		return 0, true
	case ms > longestWait:
		return 0, false
	default:
		return time.Duration(ms+3) * time.Millisecond, true
	}
}
