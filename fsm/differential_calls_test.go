// What lives here: the random requests of TestDifferential.

package fsm

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// request is a call, a transaction of several, or WATCH.
type request struct {
	db    int
	multi bool
	watch bool
	calls [][][]byte
}

// focus chooses commands that a round makes more of than of the others: those of a group, so that they meet what they made.
func (d *differential) focus() []*commands.Spec {
	group := d.g.specs[d.g.IntN(len(d.g.specs))].Group
	return slices.DeleteFunc(slices.Clone(d.g.specs), func(s *commands.Spec) bool { return s.Group != group })
}

// request makes a random request: a call, a call by a script, a transaction, or a WATCH, which a later transaction ends.
func (d *differential) request(focus []*commands.Spec) request {
	q := request{}
	if d.g.IntN(12) == 0 {
		q.db = 1
	}
	switch d.g.IntN(250) {
	case 0:
		q.calls = [][][]byte{d.many()}
		return q
	case 1, 2, 3, 4, 5, 6, 7, 8:
		q.watch = true
		q.calls = [][][]byte{append(commandtest.Args("WATCH"), commandtest.Args(d.g.words(watched)...)...)}
		return q
	}
	if d.g.IntN(8) > 0 {
		q.calls = [][][]byte{d.call(focus)}
		return q
	}
	q.multi = true
	for range 1 + d.g.IntN(4) {
		call := d.call(focus)
		// A session refuses what it does not know before the transaction begins: the machine does not see that.
		if spec, err := d.table.Resolve(call); err == nil && !spec.Has(commands.NoMulti) {
			q.calls = append(q.calls, call)
		}
	}
	return q
}

// watched are the arguments of WATCH.
var watched = []commands.Arg{{Name: "key", Multiple: true}}

// many makes a call that fills a key beyond the bounds of small forms.
func (d *differential) many() [][]byte {
	kinds := []struct {
		group, name string
		words       func(i int) []string
	}{
		{"list", "RPUSH", func(i int) []string { return []string{strconv.Itoa(i % 150)} }},
		{"set", "SADD", func(i int) []string { return []string{strconv.Itoa(i)} }},
		{"set", "SADD", func(i int) []string { return []string{"m" + strconv.Itoa(i)} }},
		{"hash", "HSET", func(i int) []string { return []string{strconv.Itoa(i), "m" + strconv.Itoa(i)} }},
		{"sorted-set", "ZADD", func(i int) []string { return []string{strconv.Itoa(i / 3), strconv.Itoa(i)} }},
		{"sorted-set", "ZADD", func(i int) []string { return []string{"1", "m" + strconv.Itoa(i)} }},
	}
	n := 100 + d.g.IntN(500)
	i := d.g.IntN(len(kinds) + 1)
	if i == len(kinds) {
		const addMany = "for i = 1, tonumber(ARGV[1]) do redis.call('xadd', KEYS[1], i .. '-1', 'f', i) end"
		return commandtest.Args("EVAL", addMany, "1", d.g.pick(ownKeys["stream"]), strconv.Itoa(n))
	}
	words := []string{kinds[i].name, d.g.pick(ownKeys[kinds[i].group])}
	for j := range n {
		words = append(words, kinds[i].words(j)...)
	}
	return commandtest.Args(words...)
}

// The ways in which scripts make a call of their arguments.
var callers = []string{
	"return redis.call(unpack(ARGV))",
	"return redis.pcall(unpack(ARGV))",
	mappingCaller,
	typingCaller,
}

// mappingCaller gets replies of RESP3, typingCaller answers the Lua type of the reply as well.
const (
	mappingCaller = "redis.setresp(3) return redis.call(unpack(ARGV))"
	typingCaller  = "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' and r.err then return {'failed', r.err} end return {type(r), r}"
)

// call is a random call, sometimes changed at random, sometimes made by a script.
func (d *differential) call(focus []*commands.Spec) [][]byte {
	specs := d.g.specs
	if d.g.IntN(4) > 0 {
		specs = focus
	}
	call := d.g.call(specs)
	if d.g.IntN(10) == 0 {
		call = d.mutated(call)
	}
	call = wholeScan(d.withLife(call))
	if d.g.IntN(7) > 0 {
		return call
	}
	return append(commandtest.Args("EVAL", d.g.pick(callers), "0"), call...)
}

// mutated changes arguments at random: their order, their number, or one of them.
func (d *differential) mutated(call [][]byte) [][]byte {
	first := 1 + strings.Count(d.g.command, "|")
	n := len(call) - first
	if n < 1 {
		return call
	}
	at := first + d.g.IntN(n)
	switch d.g.IntN(5) {
	case 0:
		other := first + d.g.IntN(n)
		call[at], call[other] = call[other], call[at]
	case 1:
		return slices.Insert(call, at, call[first+d.g.IntN(n)])
	case 2:
		return slices.Delete(call, at, at+1)
	case 3:
		call[at] = []byte(d.g.pick(d.g.pools[d.g.IntN(len(d.g.pools))].values))
	case 4:
		if lower := bytes.ToLower(call[at]); len(lower) < 20 {
			call[at] = lower
		}
	}
	return call
}

// inner is the call that is made in the end, by a script perhaps.
func inner(call [][]byte) [][]byte {
	if scripted(call) {
		return call[3:]
	}
	return call
}

// scripted says whether one of the callers makes a call.
func scripted(call [][]byte) bool {
	return len(call) > 3 && string(call[0]) == "EVAL" && slices.Contains(callers, string(call[1])) && string(call[2]) == "0"
}
