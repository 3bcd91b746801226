// The known differences between coordd and Redis. Each names its line in docs/compatibility.md.

package differential

import (
	"bytes"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// known is one deliberate difference.
type known struct {
	line string // a part of its line in docs/compatibility.md
	// excuses reports whether two unequal replies to a command are this difference. name is the
	// full name; the replies are without what a script adds.
	excuses func(name string, got, want commandtest.Value) bool
}

// nodesDiffer is a difference of streams whose last id was set.
const nodesDiffer = "`radix-tree-…` of `XINFO STREAM`, after `XSETID`"

var knownDifferences = []known{
	{"| Compile errors |", func(_ string, got, want commandtest.Value) bool {
		a, b := compileError.FindString(got.Text), compileError.FindString(want.Text)
		return a != "" && a == b
	}},
	{"| `OBJECT ENCODING` |", func(name string, got, want commandtest.Value) bool {
		inString := (want.Text == "raw" || want.Text == "embstr") &&
			(got.Text == "embstr" || got.Text == "int")
		return name == "object|encoding" && (inString ||
			(got.Text == "listpack" && want.Text == "skiplist"))
	}},
	{"| `XAUTOCLAIM` with a `COUNT` of 2^40 and more |",
		func(name string, got, want commandtest.Value) bool {
			return name == "xautoclaim" && len(got.Elems) == 3 &&
				isText(want,
					"ERR Insufficient memory, failed allocating transient memory, COUNT too high.")
		}},
	{"| `ZSCAN` of a sorted set", func(name string, got, want commandtest.Value) bool {
		return name == "zscan" && equalScans(name, plainNumbers(got), plainNumbers(want))
	}},
	{"| `OBJECT IDLETIME` |", func(name string, got, want commandtest.Value) bool {
		return name == "object|idletime" && got.Kind == ':' && want.Kind == ':'
	}},
	{"| `OBJECT REFCOUNT` |", func(name string, got, want commandtest.Value) bool {
		return name == "object|refcount" && got.Kind == ':' && want.Kind == ':'
	}},
	{nodesDiffer,
		func(name string, got, want commandtest.Value) bool {
			return name == "xinfo|stream" &&
				equal(commandtest.Compare{}, withoutNodes(got), withoutNodes(want))
		}},
	{"| `MEMORY USAGE` |", func(name string, got, want commandtest.Value) bool {
		return name == "memory|usage" && got.Kind == ':' && want.Kind == ':'
	}},
	{"| `HELP` of", func(name string, got, want commandtest.Value) bool {
		return strings.HasSuffix(name, "|help") && len(got.Elems) > 0 && len(want.Elems) > 0
	}},
	{"| `FUNCTION DUMP` |", func(name string, got, want commandtest.Value) bool {
		return name == "function|dump" && got.Kind == '$' && want.Kind == '$'
	}},
}

// compileError is the part of an error that does not depend on the parser.
var compileError = regexp.MustCompile(
	`^ERR Error compiling (script \(new function\)|function): user_(script|function):\d+: `)

// plainNumbers is a reply with its numbers in one notation.
func plainNumbers(v commandtest.Value) commandtest.Value {
	if f, err := strconv.ParseFloat(v.Text, 64); err == nil {
		v.Text = strconv.FormatFloat(f, 'g', -1, 64)
	}
	v.Elems = slices.Clone(v.Elems)
	for i := range v.Elems {
		v.Elems[i] = plainNumbers(v.Elems[i])
	}
	return v
}

// isText reports whether a reply is an error, or a script's text of one.
func isText(v commandtest.Value, text string) bool {
	return strings.HasPrefix(v.Text, text) && (v.IsError() || v.Kind == '$')
}

// knownDifference is the line that documents a difference, or "".
func (d *differential) knownDifference(call [][]byte, got, want []byte) string {
	a, b, err := parsePair(got, want)
	if err != nil {
		d.Fatal(err)
	}
	_, a = unwrapped(call, a)
	_, b = unwrapped(call, b)
	name := strings.ToLower(string(inner(call)[0]))
	if spec, err := d.table.Resolve(inner(call)); err == nil {
		name = spec.FullName()
	}
	for _, k := range knownDifferences {
		if k.excuses(name, a, b) && (k.line != nodesDiffer || d.setIDs) {
			return k.line
		}
	}
	return ""
}

// avoidance is a command, or an option of a command, that no call uses.
type avoidance struct {
	line string // as in known; "" if only a test cannot compare it
	name string // full name of the command
	word string // "": every call
}

var avoidances = []avoidance{
	// They concern the connection, or the real server's configuration refuses them.
	{"", "watch", ""}, {"", "script|debug", ""}, {"", "debug", ""},
	{"", "cluster|countkeysinslot", ""}, {"", "cluster|getkeysinslot", ""},
	// The real server's users would outlive a round. Tests of ACL compare them.
	{"", "acl|setuser", ""}, {"", "acl|deluser", ""},
	{"(Redis 8.4)", "set", "ifdeq"}, {"(Redis 8.4)", "set", "ifdne"},
	{"`XREAD` takes the last entry with the id `+`", "xread", "+"},
	{"| `BITOP` | `DIFF`,", "bitop", "diff"},
	{"| `BITOP` | `DIFF`,", "bitop", "diff1"},
	{"| `BITOP` | `DIFF`,", "bitop", "andor"},
	{"| `BITOP` | `DIFF`,", "bitop", "one"},
	{"| `HSCAN` | `NOVALUES` |", "hscan", "novalues"},
	{"| `XADD` | `KEEPREF`,", "xadd", "keepref"},
	{"| `XADD` | `KEEPREF`,", "xadd", "delref"},
	{"| `XADD` | `KEEPREF`,", "xadd", "acked"},
	{"| `XTRIM` | `KEEPREF`,", "xtrim", "keepref"},
	{"| `XTRIM` | `KEEPREF`,", "xtrim", "delref"},
	{"| `XTRIM` | `KEEPREF`,", "xtrim", "acked"},
	{"| `XADD` | `KEEPREF`,", "xadd", "idmp"},
	{"| `XADD` | `KEEPREF`,", "xadd", "idmpauto"},
	{"| `SET` | `IFEQ`,", "set", "lease"},
	{"| `XREAD` | `MAXCOUNT`,", "xread", "maxcount"},
	{"| `XREAD` | `MAXCOUNT`,", "xread", "maxsize"},
	{"| `XREADGROUP` | `MAXCOUNT`,", "xreadgroup", "maxcount"},
	{"| `XREADGROUP` | `MAXCOUNT`,", "xreadgroup", "maxsize"},
	{"| `XREADGROUP` | `MAXCOUNT`,", "xreadgroup", "claim"},
	{"number of deliveries, which is never passed", "xclaim", "9223372036854775807"},
	{"| `PFCOUNT` of one key |", "pfcount", ""}, {"| `LOLWUT` |", "lolwut", ""},
	{"| `DUMP` |", "dump", ""},
	{"| `ZSCAN` | `NOSCORES` |", "zscan", "noscores"},
	{"| `STOREDIST` |", "geosearchstore", "storedist"}, // see TestStoredDistances
	{"| `STOREDIST` |", "georadius", "storedist"},
	{"| `STOREDIST` |", "georadiusbymember", "storedist"},
}

// avoided reports whether no call of a command is made.
func avoided(spec *commands.Spec) bool {
	return slices.ContainsFunc(avoidances, func(a avoidance) bool {
		return a.name == spec.FullName() && a.word == ""
	})
}

// omission is a kind of call that is not made: it would make the servers' data differ, or their
// replies in a way that no rule covers.
type omission struct {
	line  string // as in known; "" if only a test cannot compare it
	omits func(d *differential, q request, call [][]byte) bool
}

var omissions = []omission{
	{"| Cursors |", func(_ *differential, _ request, call [][]byte) bool {
		return isScan(call) && !zeroCursor(call)
	}},
	{"| `ZRANGEBYLEX` and kin", func(d *differential, q request, call [][]byte) bool {
		byName := isCommand(call, "zrangebylex", "zrevrangebylex", "zlexcount", "zremrangebylex") ||
			hasWord(call, "bylex")
		// earlier calls of the same transaction may change the scores
		return byName && (len(q.calls) > 1 || d.mixedScores(q.db, call))
	}},
	{"| `GEOSEARCH` and kin with `COUNT` |", func(d *differential, q request, call [][]byte) bool {
		return isCommand(call, "geosearch", "geosearchstore", "georadius", "georadius_ro",
			"georadiusbymember", "georadiusbymember_ro") && hasWord(call, "count") &&
			!hasWord(call, "any") && (len(q.calls) > 1 || d.repeatedScores(q.db, call))
	}},
	{"| `SORT` with `ALPHA` |", func(_ *differential, _ request, call [][]byte) bool {
		return isCommand(call, "sort") && hasWord(call, "store") && hasWord(call, "alpha") &&
			hasWord(call, "by")
	}},
	{"| `BITFIELD` of which every number fails",
		func(d *differential, _ request, call [][]byte) bool {
			return d.watch != nil && isCommand(call, "bitfield") && hasWord(call, "fail")
		}},
	{"| `EVAL_RO` |", func(_ *differential, _ request, call [][]byte) bool { // see scriptsToRead
		return isCommand(call, "eval_ro") && slices.Contains(scripts, string(argument(call, 1)))
	}},
	{"`SRANDMEMBER`, `ZRANDMEMBER` with a negative count |",
		func(_ *differential, _ request, call [][]byte) bool {
			n, ok := commands.ParseInt(argument(call, 2))
			return isCommand(call, "srandmember", "hrandfield", "zrandmember") && ok && n < -1000 &&
				n != math.MinInt64
		}},
	{"| `EXEC` | `IFEQ`,", func(_ *differential, _ request, call [][]byte) bool {
		return isCommand(call, "exec") && len(call) > 1 // which Redis 7.0 refuses by their number
	}},
	{"| `ZRANK` | `WITHSCORE` |", func(_ *differential, _ request, call [][]byte) bool {
		return isCommand(call, "zrank", "zrevrank") && argument(call, 3) != nil
	}},
	{"| `EXPIRETIME`, `PEXPIRETIME`, and", (*differential).repeatsTime},
	{"", func(_ *differential, _ request, call [][]byte) bool {
		// an idle time that may have passed on one server only
		at := 4
		if isCommand(call, "xpending") {
			at = 1 + slices.IndexFunc(call, func(arg []byte) bool {
				return strings.EqualFold(string(arg), "idle")
			})
		}
		n, ok := commands.ParseInt(argument(call, at))
		return isCommand(call, "xclaim", "xautoclaim", "xpending") && ok && n > 0 && n < 100_000_000
	}},
	{"", func(_ *differential, _ request, call [][]byte) bool {
		// a key that may have ended on one server only: see outlasted
		n, ok := commands.ParseInt(argument(call, 2))
		return isCommand(call, "restore") && ok && n > 0 && n < 1_000_000
	}},
	{"", func(_ *differential, _ request, call [][]byte) bool {
		// strings of many megabytes take too long
		return isCommand(call, "setbit", "setrange", "bitfield") &&
			slices.ContainsFunc(call, func(arg []byte) bool {
				n, ok := commands.ParseInt(bytes.TrimPrefix(arg, []byte("#")))
				return ok && n > 100_000 && n < 1<<33
			})
	}},
}

// repeatsTime reports whether a call compares its time (GT, LT) with that of a key, which may be
// the same: an earlier call of the round has set it.
func (d *differential) repeatsTime(_ request, call [][]byte) bool {
	for i, arg := range call {
		unit := int64(0)
		switch {
		case i == 2 && isCommand(call, "expireat"), i > 0 &&
			strings.EqualFold(string(call[i-1]), "exat"):
			unit = 1000
		case i == 2 && isCommand(call, "pexpireat"), i > 0 &&
			strings.EqualFold(string(call[i-1]), "pxat"):
			unit = 1
		}
		n, ok := commands.ParseInt(arg)
		if unit == 0 || !ok || n > math.MaxInt64/unit {
			continue
		}
		if d.given[n*unit] == nil {
			d.given[n*unit] = &call[0]
		}
		if d.given[n*unit] != &call[0] && isCommand(call, "expireat", "pexpireat") &&
			(hasWord(call, "gt") || hasWord(call, "lt")) {
			return true
		}
	}
	return false
}

// uncomparable reports whether a call of a request cannot be compared.
func (d *differential) uncomparable(q request, call [][]byte) bool {
	if newer(inner(call)) && modelled(call) == nil {
		return true
	}
	call = inner(call)
	if spec, err := d.table.Resolve(call); err == nil &&
		slices.ContainsFunc(avoidances, func(a avoidance) bool {
			return a.name == spec.FullName() && (a.word == "" || hasWord(call, a.word))
		}) {
		return true
	}
	return slices.ContainsFunc(omissions, func(o omission) bool { return o.omits(d, q, call) })
}

// argument is an argument of a call, or nil.
func argument(call [][]byte, at int) []byte {
	if at >= len(call) {
		return nil
	}
	return call[at]
}

// zeroCursor reports whether a scan starts at the beginning, or its cursor is invalid.
func zeroCursor(call [][]byte) bool {
	at := 2
	if isCommand(call, "scan") {
		at = 1
	}
	n, err := strconv.ParseUint(string(bytes.TrimLeft(argument(call, at), "+-")), 10, 64)
	return err != nil || n == 0
}

// More lines of docs/compatibility.md that the tests rely on.
const (
	absentLine = "| `WATCH` of a key that does not exist |" // see watchAmbiguous
	mapLine    = "| `pairs`, `next`, cjson's objects |"     // see equalReplies
	errnoLine  = "| `SORT` of numbers |"                    // see widePools
)

func TestKnownDifferencesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{absentLine, mapLine, errnoLine, cleanLine, pushLine, orderLine,
		pushedLine, streamsLine, severalLine, stoppedLine, behindLine}
	for _, o := range sessionOmissions {
		lines = append(lines, o.line)
	}
	for _, k := range knownDifferences {
		lines = append(lines, k.line)
	}
	for _, a := range avoidances {
		lines = append(lines, a.line)
	}
	for _, o := range omissions {
		lines = append(lines, o.line)
	}
	for _, line := range lines {
		if !bytes.Contains(doc, []byte(line)) {
			t.Errorf("docs/compatibility.md lacks %q", line)
		}
	}
}

// withoutNodes is a reply of XINFO STREAM without how many nodes there are.
func withoutNodes(v commandtest.Value) commandtest.Value {
	v.Elems = slices.Clone(v.Elems)
	for i := 1; i < len(v.Elems); i += 2 {
		if strings.HasPrefix(v.Elems[i-1].Text, "radix-tree-") {
			v.Elems[i].Text = ""
		}
	}
	return v
}
