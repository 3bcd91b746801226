// The functions that search by a pattern: string.find, match, gmatch and gsub. The matcher is in
// lib_string_pattern.go.

package script

import (
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

// patternMagic are the special characters of patterns; without any of them find searches for plain
// text.
const patternMagic = "^$*+?.([%-"

// indexText is strings.Index, whose work is the product of both lengths if the beginning of the
// pattern comes often enough and not too often. Here each comparison of the rest is charged.
func indexText(L *lua.LState, subject, pattern string) int {
	const begin = 32
	if len(pattern) <= begin {
		return strings.Index(subject, pattern)
	}
	for from := 0; ; from++ {
		at := strings.Index(subject[from:], pattern[:begin])
		if at < 0 || len(subject)-from-at < len(pattern) {
			return -1
		}
		from += at
		budgetOf(L).Charge(L, 1+int64(len(pattern))/bytesCompared)
		if subject[from:from+len(pattern)] == pattern {
			return from
		}
	}
}

// bytesCompared is how many bytes of two texts a unit compares.
const bytesCompared = 256

func stringFind(L *lua.LState) int  { return findOrMatch(L, true) }
func stringMatch(L *lua.LState) int { return findOrMatch(L, false) }

// findOrMatch is string.find (results: start, end, captures) and string.match (captures, or the
// match).
func findOrMatch(L *lua.LState, find bool) int {
	subject, pattern := checkString(L, 1), checkPattern(L, 2)
	init := min(max(fromEnd(optInteger(L, 3, 1), len(subject))-1, 0), int64(len(subject)))
	s := int(init)
	if find && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(pattern, patternMagic)) {
		pattern = checkString(L, 2) // zero bytes included
		chargeWork(L, len(subject)-s+len(pattern))
		at := indexText(L, subject[s:], pattern)
		if at < 0 {
			L.Push(lua.LNil)
			return 1
		}
		L.Push(lua.LNumber(s + at + 1))
		L.Push(lua.LNumber(s + at + len(pattern)))
		return 2
	}
	m := newMatcher(L, subject, pattern)
	p, anchored := m.anchor()
	for ; s <= len(subject); s++ {
		m.step()
		if e := m.start(s, p); e != noMatch {
			m.chargeSteps()
			if !find {
				return m.pushCaptures(s, e, true)
			}
			L.Push(lua.LNumber(s + 1))
			L.Push(lua.LNumber(e))
			return m.pushCaptures(s, e, false) + 2
		}
		if anchored {
			break
		}
	}
	m.chargeSteps()
	L.Push(lua.LNil)
	return 1
}

// anchor returns where the pattern begins after an anchor, and whether it has one.
func (m *matcher) anchor() (p int, anchored bool) {
	if strings.HasPrefix(m.pattern, "^") {
		return 1, true
	}
	return 0, false
}

// stringGmatch returns an iterator over the matches. ^ is not an anchor there but a character.
func stringGmatch(L *lua.LState) int {
	subject, pattern := checkString(L, 1), checkPattern(L, 2)
	from := 0
	L.Push(L.NewFunction(func(L *lua.LState) int {
		m := newMatcher(L, subject, pattern)
		m.b.Charge(L, 5) // for setting up the match
		for s := from; s <= len(subject); s++ {
			m.step()
			e := m.start(s, 0)
			if e == noMatch {
				continue
			}
			m.chargeSteps()
			if from = e; e == s {
				from++ // an empty match: continue after the next byte
			}
			return m.pushCaptures(s, e, true)
		}
		m.chargeSteps()
		return 0
	}))
	return 1
}

// stringGsub is string.gsub(subject, pattern, replacement [, limit]).
func stringGsub(L *lua.LState) int {
	subject, pattern := checkString(L, 1), checkPattern(L, 2)
	limit := len(subject) + 1
	switch argType(L, 3) {
	case "string", "number", "function", "table":
	default:
		argError(L, 3, "string/function/table expected")
	}
	limit = optInt(L, 4, limit)
	m := newMatcher(L, subject, pattern)
	p, anchored := m.anchor()
	out := text{L: L}
	s, count, copied := 0, 0, 0 // subject[copied:s] is not in out yet
	for count < limit {
		m.step()
		e := m.start(s, p)
		if e != noMatch {
			count++
			out.write(subject[copied:s])
			m.replace(&out, s, e)
			copied = e
		}
		if e != noMatch && e > s {
			s = e
		} else if s++; s > len(subject) {
			break
		}
		if anchored {
			break
		}
	}
	m.chargeSteps()
	if copied == 0 && out.size == 0 {
		L.Push(lua.LString(subject))
	} else {
		out.write(subject[copied:])
		push(L, out.done())
	}
	L.Push(lua.LNumber(count))
	return 2
}

// replace appends gsub's replacement (argument 3) for the match subject[s:e].
func (m *matcher) replace(out *text, s, e int) {
	L := m.L
	var value lua.LValue
	switch repl := L.Get(3).(type) {
	case *lua.LTable:
		value = L.GetField(repl, m.capture(0, s, e))
	case *lua.LFunction:
		L.Push(repl)
		n := m.pushCaptures(s, e, true)
		L.Call(n, 1)
		value = L.Get(-1)
		L.Pop(1)
	default:
		text, _ := toString(repl)
		m.expand(out, text, s, e)
		return
	}
	if lua.LVIsFalse(value) {
		out.write(m.subject[s:e])
		return
	}
	text, ok := toString(value)
	if !ok {
		raise(L, "invalid replacement value (a "+value.Type().String()+")")
	}
	out.write(text)
}

// expand appends a replacement string in which %0 is the match and %1 to %9 its captures.
func (m *matcher) expand(out *text, repl string, s, e int) {
	for {
		i := strings.IndexByte(repl, '%')
		if i < 0 {
			out.write(repl)
			return
		}
		out.write(repl[:i])
		c := byte(0) // C finds the terminating zero byte after a final %
		if i+1 < len(repl) {
			c = repl[i+1]
		}
		repl = repl[min(i+2, len(repl)):]
		switch {
		case c == '0':
			out.write(m.subject[s:e])
		case isDigit(c):
			text, _ := toString(m.capture(int(c-'1'), s, e))
			out.write(text)
		default:
			out.write(string([]byte{c}))
		}
	}
}
