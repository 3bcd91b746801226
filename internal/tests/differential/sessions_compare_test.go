// How TestDifferentialSessions compares what connections receive.

package differential

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// More lines of docs/compatibility.md that TestDifferentialSessions relies on.
const (
	// see sessionOmissions
	pushedLine = "| `CLIENT LIST`, `CLIENT UNBLOCK` in a transaction that pushes"
	// see compareReceived
	streamsLine = "| `XREAD`, `XREADGROUP` that waited for several streams, more than one"
	// see noteState
	stoppedLine = "| Tracked keys of a client that has gone, or"
	// see invalidated
	behindLine = "| Order of published messages, notifications and messages"
	// see severalWaited
	severalLine = "| A command that waits for several keys, more than one of which `SWAPDB`"
	// see compareStep
	pushLine = "| Messages that a client's own command brings (RESP3"
	// see sortedNames
	orderLine = "| Order of `SCAN`, `KEYS`"
	// see withoutIDs
	cleanLine = "| `CLIENT LIST`, `CLIENT INFO`: the flag `d`"
)

// compareStep compares what both servers have sent.
func (s *sessions) compareStep(asker *pair, call [][]byte) {
	for i, p := range s.pairs {
		a, b := p.sides[ours].got, p.sides[theirs].got
		p.sides[ours].got, p.sides[theirs].got = nil, nil
		if s.failure != "" {
			continue
		}
		made := call
		p.woken = p.waits != nil
		switch {
		case p == asker && p.waits != nil && len(b) > 0:
			made, p.waits = p.waits, nil
		case p.waits != nil && len(b) > 0 && answered(b):
			made, p.waits = p.waits, nil
		case p != asker:
			made = nil
		}
		if made != nil && strings.HasSuffix(strings.ToLower(string(made[0])), "unsubscribe") {
			a, b = sortedNames(a), sortedNames(b)
		}
		staleA, staleB := invalidated(&a), invalidated(&b)
		if s.changed += len(staleB); !slices.Equal(staleA, staleB) {
			s.differs(fmt.Sprintf("connection %d: invalidated keys", p.number), call,
				[]byte(fmt.Sprint(staleA)), []byte(fmt.Sprint(staleB)))
			continue
		}
		s.compareReceived(p, made, sortedPatterns(slices.Concat(parted(a)...)),
			sortedPatterns(slices.Concat(parted(b)...)))
		if p.closed[theirs] {
			s.closed++
			s.close(p)
			s.pairs[i] = s.open(p.number)
		}
	}
}

// streamAmong reports whether one reply to XREAD has a single stream, which is also in the other.
func streamAmong(one, all commandtest.Value) bool {
	size := 1 // of a stream's elements: a pair in RESP2, two in RESP3
	if one.Kind == '%' {
		size = 2
	}
	if len(one.Elems) != size || one.Kind != all.Kind {
		return false
	}
	for i := 0; i+size <= len(all.Elems); i += size {
		if fmt.Sprint(all.Elems[i:i+size]) == fmt.Sprint(one.Elems) {
			return true
		}
	}
	return false
}

// changedKeys returns the keys of an invalidation message, or "all".
func changedKeys(v commandtest.Value) (keys []string, ok bool) {
	switch {
	case len(v.Elems) == 2 && v.Kind == '>' && v.Elems[0].Text == "tracking-redir-broken":
		// a connection's number follows
		return []string{"redirection broken"}, true
	case len(v.Elems) == 2 && v.Kind == '>' && v.Elems[0].Text == "invalidate":
	case len(v.Elems) == 3 && v.Elems[0].Text == "message" &&
		v.Elems[1].Text == "__redis__:invalidate" && (v.Elems[2].Kind == '*' || v.Elems[2].Null):
	default:
		return nil, false
	}
	last := v.Elems[len(v.Elems)-1]
	if isNullReply(last) {
		return []string{"all"}, true
	}
	for _, key := range last.Elems {
		keys = append(keys, strconv.Quote(key.Text))
	}
	return keys, true
}

// invalidated removes the invalidation messages from what was received, and returns their keys in
// order: see behindLine.
func invalidated(received *[]commandtest.Value) (keys []string) {
	var rest []commandtest.Value
	for _, v := range *received {
		if more, ok := changedKeys(v); ok {
			keys = append(keys, more...)
		} else {
			rest = append(rest, v)
		}
	}
	*received = rest
	slices.Sort(keys)
	return keys
}

// units counts what was received: values, and the keys of invalidations.
func units(received []commandtest.Value) int {
	n := 0
	for _, v := range received {
		if keys, ok := changedKeys(v); ok {
			n += len(keys)
		} else {
			n++
		}
	}
	return n
}

// parted separates replies from messages: see pushLine.
func parted(received []commandtest.Value) [][]commandtest.Value {
	parts := make([][]commandtest.Value, 2)
	for _, v := range received {
		i := 0
		if v.Kind == '>' {
			i = 1
		}
		parts[i] = append(parts[i], v)
	}
	return parts
}

// sortedPatterns sorts copies of a message that a connection receives for several patterns by
// pattern: see orderLine.
func sortedPatterns(received []commandtest.Value) []commandtest.Value {
	received = slices.Clone(received)
	same := func(a, b commandtest.Value) bool {
		return len(a.Elems) == 4 && len(b.Elems) == 4 && a.Elems[0].Text == "pmessage" &&
			a.Elems[0].Text == b.Elems[0].Text &&
			a.Elems[2].Text == b.Elems[2].Text && a.Elems[3].Text == b.Elems[3].Text
	}
	for from := 0; from < len(received); {
		to := from + 1
		for to < len(received) && same(received[from], received[to]) {
			to++
		}
		slices.SortStableFunc(received[from:to], func(a, b commandtest.Value) int {
			return strings.Compare(a.Elems[1].Text, b.Elems[1].Text)
		})
		from = to
	}
	return received
}

// sortedNames sorts the names in replies to UNSUBSCRIBE and similar commands, which Redis returns
// in hash order: see orderLine.
func sortedNames(received []commandtest.Value) []commandtest.Value {
	var positions []int
	var names []commandtest.Value
	for i, v := range received {
		if len(v.Elems) == 3 && strings.HasSuffix(v.Elems[0].Text, "unsubscribe") {
			positions = append(positions, i)
			names = append(names, v.Elems[1])
		}
	}
	slices.SortFunc(names, func(a, b commandtest.Value) int {
		return strings.Compare(a.String(), b.String())
	})
	received = slices.Clone(received)
	for i, at := range positions {
		v := received[at].Elems
		received[at].Elems = []commandtest.Value{v[0], names[i], v[2]}
	}
	return received
}

// answered reports whether a waiting connection received a reply: while it waits, it receives only
// messages.
func answered(received []commandtest.Value) bool {
	return slices.ContainsFunc(received, func(v commandtest.Value) bool { return v.Kind != '>' })
}

// compareReceived compares what a connection received: messages and, if it made a call, the reply.
func (s *sessions) compareReceived(p *pair, call [][]byte, a, b []commandtest.Value) {
	text := func(all []commandtest.Value) []byte { return []byte(fmt.Sprint(all)) }
	if len(a) != len(b) {
		s.differs(fmt.Sprintf("connection %d: what it received", p.number), orNone(call), text(a),
			text(b))
		return
	}
	for i := range a {
		x, y := a[i].Append(nil, s.proto), b[i].Append(nil, s.proto)
		switch {
		case bytes.Equal(x, y):
			if call != nil && x[0] != '-' {
				s.countSuccess(call)
			}
			s.countMessage(&a[i])
		case call == nil || a[i].Kind == '>' || b[i].Kind == '>':
			s.differs(fmt.Sprintf("connection %d: message", p.number), orNone(call), x, y)
		case p.woken && isCommand(call, "xread", "xreadgroup") && streamAmong(b[i], a[i]):
			s.excused[streamsLine]++
		case isCommand(call, "exec") && len(a[i].Elems) == len(p.queue) &&
			len(b[i].Elems) == len(p.queue):
			for j := range p.queue {
				s.compareAnswer(p, p.queue[j], a[i].Elems[j], b[i].Elems[j])
			}
		default:
			s.compareAnswer(p, call, a[i], b[i])
		}
		if s.failure != "" {
			return
		}
	}
}

func (s *sessions) countMessage(v *commandtest.Value) {
	if len(v.Elems) > 0 && strings.HasSuffix(v.Elems[0].Text, "message") {
		s.messages++
	}
}

func orNone(call [][]byte) [][]byte {
	if call == nil {
		return commandtest.Args("none")
	}
	return call
}

// compareAnswer compares replies to a call, in a transaction or alone.
func (s *sessions) compareAnswer(p *pair, call [][]byte, a, b commandtest.Value) {
	if isCommand(call, "client", "hello") {
		named := hasWord(call, "id")
		alone := a.Kind == ':' && b.Kind == ':' && len(call) == 2 // CLIENT ID or GETREDIR
		a, b = s.withoutIDs(ours, a, named, alone), s.withoutIDs(theirs, b, named, alone)
	}
	if a.Null && b.Null && a.Kind != b.Kind {
		s.differs(fmt.Sprintf("connection %d: the kind of null", p.number), call,
			[]byte(a.String()), []byte(b.String()))
		return
	}
	s.compareReply(call, a.Append(nil, 3), b.Append(nil, 3))
}

// verbatim precedes a verbatim string of RESP3.
const verbatim = "txt:"

// clientFields are the fields of a line of CLIENT LIST.
func clientFields(line string) map[string]string {
	fields := map[string]string{}
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	return fields
}

// comparedFields are those that do not depend on the server's own numbers, times, sizes and
// addresses.
var comparedFields = words("id name db sub psub ssub multi flags cmd user redir resp")

// withoutIDs is a reply about connections, with their numbers in place of the server's ids. named:
// the call named the connections. alone: the reply is an id.
func (s *sessions) withoutIDs(side int, v commandtest.Value, named, alone bool) commandtest.Value {
	numbers := map[string]string{s.control.sides[side].id: "control"}
	nameOf := func(id string) string {
		if n, ok := commands.ParseInt([]byte(id)); numbers[id] == "" && ok && n > 0 {
			return "one that has gone"
		}
		return cmp.Or(numbers[id], id)
	}
	watching := map[string]bool{}
	for _, p := range s.pairs {
		numbers[p.sides[side].id] = fmt.Sprint("connection ", p.number)
		watching[p.sides[side].id] = p.watch != nil
	}
	if strings.Contains(v.Text, " laddr=") {
		var lines []string
		for line := range strings.Lines(strings.TrimPrefix(v.Text, verbatim)) {
			fields := clientFields(line)
			if watching[fields["id"]] { // see cleanLine
				fields["multi"] = ""
			}
			if fields["id"] = numbers[fields["id"]]; fields["id"] == "" {
				continue // the connection that compares the data
			}
			// The real server's connections are on a unix socket (U). For the flag d see
			// cleanLine.
			if fields["flags"] = strings.NewReplacer("U", "", "d",
				"").Replace(fields["flags"]); fields["flags"] == "" {
				fields["flags"] = "N"
			}
			fields["redir"] = nameOf(fields["redir"])
			var kept []string
			for _, name := range comparedFields {
				kept = append(kept, name+"="+fields[name])
			}
			lines = append(lines, strings.Join(kept, " "))
		}
		if !named {
			slices.Sort(lines) // Redis lists them in any order
		}
		v.Text = strings.Join(lines, "\n")
	}
	if alone {
		v.Text = nameOf(v.Text)
	}
	v.Elems = slices.Clone(v.Elems)
	for i := range v.Elems {
		if i > 0 && (v.Elems[i-1].Text == "id" || v.Elems[i-1].Text == "redirect") {
			v.Elems[i].Text = nameOf(v.Elems[i].Text)
		}
	}
	return v
}
