// Lua 5.1 patterns (manual, section 5.4.1): a backtracking matcher that charges the script's budget
// for every step, so that every node stops an exploding pattern at the same step. Its users are in
// lib_string_search.go.

package script

import (
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

const (
	maxCaptures = 32 // captures in one pattern, as in C Lua
	// nested match calls: bounds the stack; C Lua 5.1 has no such bound and can crash
	maxPatternDepth = 10000
	stepsPerCharge  = 64 // steps between two charges
)

// Special values of a capture's length.
const (
	captureOpen     = -1 // its closing parenthesis was not reached
	capturePosition = -2 // `()` captures a position
)

// noMatch is the end of a failed match.
const noMatch = -1

// matcher matches one pattern against one subject.
type matcher struct {
	L        *lua.LState
	b        *lua.Budget
	subject  string
	pattern  string
	steps    int64 // not charged yet
	depth    int
	level    int // captures in use
	captures [maxCaptures]struct{ start, length int }
}

func newMatcher(L *lua.LState, subject, pattern string) *matcher {
	return &matcher{L: L, b: budgetOf(L), subject: subject, pattern: pattern}
}

// checkPattern returns argument n as a pattern. As in C Lua 5.1 it ends at its first zero byte.
// Reading it is charged.
func checkPattern(L *lua.LState, n int) string {
	pattern := checkString(L, n)
	chargeWork(L, len(pattern))
	return cString(pattern)
}

// step counts one step of work.
func (m *matcher) step() {
	if m.steps++; m.steps == stepsPerCharge {
		m.chargeSteps()
	}
}

// chargeSteps charges for the steps since the last charge.
func (m *matcher) chargeSteps() {
	n := m.steps
	m.steps = 0
	m.b.Charge(m.L, n)
}

// start matches the pattern from index p at exactly index s of the subject, with no captures yet.
func (m *matcher) start(s, p int) int {
	m.level, m.depth = 0, 0
	return m.match(s, p)
}

// match matches pattern[p:] at subject[s:] and returns the end of the match, or noMatch.
func (m *matcher) match(s, p int) int {
	if m.depth++; m.depth > maxPatternDepth {
		if m.L.G.Strict { // the error unwinds as many Go frames
			m.b.Charge(m.L, frameInstructions*maxPatternDepth)
		}
		raise(m.L, "pattern too complex")
	}
	e := m.matchItems(s, p)
	m.depth--
	return e
}

// matchItems is match without counting the depth. It loops over the items of the pattern, and calls
// match for the rest of it where it may have to backtrack.
func (m *matcher) matchItems(s, p int) int {
	for p < len(m.pattern) {
		m.step()
		switch c := m.pattern[p]; {
		case c == '(':
			if p+1 < len(m.pattern) && m.pattern[p+1] == ')' {
				return m.openCapture(s, p+2, capturePosition)
			}
			return m.openCapture(s, p+1, captureOpen)
		case c == ')':
			return m.closeCapture(s, p+1)
		case c == '$' && p+1 == len(m.pattern):
			if s == len(m.subject) {
				return s
			}
			return noMatch
		case c == '%' && p+1 < len(m.pattern) && m.special(m.pattern[p+1]):
			if s, p = m.matchSpecial(s, p); s == noMatch {
				return noMatch
			}
			continue
		}
		end := m.itemEnd(p)
		suffix := byte(0)
		if end < len(m.pattern) {
			suffix = m.pattern[end]
		}
		switch suffix {
		case '*':
			return m.longest(s, p, end, 0)
		case '+':
			return m.longest(s, p, end, 1)
		case '-':
			return m.shortest(s, p, end)
		case '?':
			if m.one(s, p, end) {
				if e := m.match(s+1, end+1); e != noMatch {
					return e
				}
			}
			p = end + 1
		default:
			if !m.one(s, p, end) {
				return noMatch
			}
			s, p = s+1, end
		}
	}
	return s
}

// special reports whether %c is not a class but a balanced pair, a frontier or a back reference.
func (m *matcher) special(c byte) bool { return c == 'b' || c == 'f' || isDigit(c) }

// matchSpecial matches the %b, %f or %1 at pattern[p:], and returns where subject and pattern
// continue.
func (m *matcher) matchSpecial(s, p int) (nextS, nextP int) {
	switch c := m.pattern[p+1]; c {
	case 'b':
		if p+3 >= len(m.pattern) {
			raise(m.L, "unbalanced pattern")
		}
		return m.balanced(s, m.pattern[p+2], m.pattern[p+3]), p + 4
	case 'f':
		p += 2
		if p >= len(m.pattern) || m.pattern[p] != '[' {
			raise(m.L, "missing '[' after '%f' in pattern")
		}
		end := m.itemEnd(p)
		var before, after byte // a zero byte precedes and follows the subject
		if s > 0 {
			before = m.subject[s-1]
		}
		if s < len(m.subject) {
			after = m.subject[s]
		}
		if m.inSet(before, p, end) || !m.inSet(after, p, end) {
			return noMatch, end
		}
		return s, end
	default:
		return m.again(s, c), p + 2
	}
}

// again matches the text of the closed capture c (a digit) again, and returns the end, or noMatch.
func (m *matcher) again(s int, c byte) int {
	i := int(c) - '1'
	if i < 0 || i >= m.level || m.captures[i].length == captureOpen {
		raise(m.L, "invalid capture index")
	}
	length := m.captures[i].length
	if length == capturePosition {
		return noMatch // C Lua reads the mark as a length beyond any subject
	}
	chargeWork(m.L, length)
	if !strings.HasPrefix(m.subject[s:], m.subject[m.captures[i].start:m.captures[i].start+
		length]) {
		return noMatch
	}
	return s + length
}

// balanced matches from the byte open to the matching shut, and returns the end, or noMatch.
func (m *matcher) balanced(s int, open, shut byte) int {
	if s >= len(m.subject) || m.subject[s] != open {
		return noMatch
	}
	nesting := 1
	for i := s + 1; i < len(m.subject); i++ {
		m.step()
		switch m.subject[i] {
		case shut:
			if nesting--; nesting == 0 {
				return i + 1
			}
		case open:
			nesting++
		}
	}
	return noMatch
}

// itemEnd returns the index after the single-character item at pattern[p:], without its repetition
// suffix.
func (m *matcher) itemEnd(p int) int {
	c := m.pattern[p]
	p++
	if c == '%' {
		if p == len(m.pattern) {
			raise(m.L, "malformed pattern (ends with '%')")
		}
		return p + 1
	}
	if c != '[' {
		return p
	}
	if p < len(m.pattern) && m.pattern[p] == '^' {
		p++
	}
	for first := true; first || p == len(m.pattern) || m.pattern[p] != ']'; first = false {
		if p == len(m.pattern) {
			raise(m.L, "malformed pattern (missing ']')")
		}
		m.step()
		if m.pattern[p] == '%' && p+1 < len(m.pattern) {
			p++ // an escaped byte does not end the set
		}
		p++
	}
	return p + 1
}

// one reports whether the item pattern[p:end] matches the byte at s.
func (m *matcher) one(s, p, end int) bool {
	if s >= len(m.subject) {
		return false
	}
	c := m.subject[s]
	switch m.pattern[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pattern[p+1])
	case '[':
		return m.inSet(c, p, end)
	}
	return c == m.pattern[p]
}

// inSet reports whether c is in the set pattern[p:end], brackets included.
func (m *matcher) inSet(c byte, p, end int) bool {
	set := m.pattern[p+1 : end-1]
	wanted := true
	if set != "" && set[0] == '^' {
		wanted, set = false, set[1:]
	}
	for i := 0; i < len(set); i++ {
		m.step()
		switch {
		case set[i] == '%' && i+1 < len(set):
			i++
			if inClass(c, set[i]) {
				return wanted
			}
		case i+2 < len(set) && set[i+1] == '-':
			if set[i] <= c && c <= set[i+2] {
				return wanted
			}
			i += 2
		case set[i] == c:
			return wanted
		}
	}
	return !wanted
}

// inClass reports whether c is in the class of a letter. An upper-case letter is the complement. A
// character without a class matches itself.
func inClass(c, class byte) bool {
	var in bool
	switch class | 0x20 {
	case 'a':
		in = isAlpha(c)
	case 'c':
		in = isControl(c)
	case 'd':
		in = isDigit(c)
	case 'l':
		in = isLower(c)
	case 'p':
		in = isPunct(c)
	case 's':
		in = isSpace(c)
	case 'u':
		in = isUpper(c)
	case 'w':
		in = isAlnum(c)
	case 'x':
		in = isHexDigit(c)
	case 'z':
		in = c == 0
	default:
		return c == class
	}
	return in != isUpper(class)
}

// longest matches the item pattern[p:end] as often as possible, at least least times, and then
// backs off one at a time until the rest of the pattern (after the suffix) matches.
func (m *matcher) longest(s, p, end, least int) int {
	n := 0
	for m.one(s+n, p, end) {
		m.step()
		n++
	}
	for ; n >= least; n-- {
		m.step()
		if e := m.match(s+n, end+1); e != noMatch {
			return e
		}
	}
	return noMatch
}

// shortest matches the item pattern[p:end] as few times as the rest of the pattern allows.
func (m *matcher) shortest(s, p, end int) int {
	for {
		m.step()
		if e := m.match(s, end+1); e != noMatch {
			return e
		}
		if !m.one(s, p, end) {
			return noMatch
		}
		s++
	}
}

// openCapture begins a capture at s and matches the rest of the pattern from p; if that fails, it
// drops the capture.
func (m *matcher) openCapture(s, p, mark int) int {
	if m.level >= maxCaptures {
		raise(m.L, "too many captures")
	}
	m.captures[m.level] = struct{ start, length int }{s, mark}
	m.level++
	e := m.match(s, p)
	if e == noMatch {
		m.level--
	}
	return e
}

// closeCapture ends the newest open capture at s and matches the rest from p; if that fails, it
// opens the capture again.
func (m *matcher) closeCapture(s, p int) int {
	i := m.level - 1
	for i >= 0 && m.captures[i].length != captureOpen {
		i--
	}
	if i < 0 {
		raise(m.L, "invalid pattern capture")
	}
	m.captures[i].length = s - m.captures[i].start
	e := m.match(s, p)
	if e == noMatch {
		m.captures[i].length = captureOpen
	}
	return e
}

// capture returns capture i (from 0) of the match subject[s:e]. If there are no captures, capture 0
// is the whole match.
func (m *matcher) capture(i, s, e int) lua.LValue {
	m.b.ChargeBytes(m.L, slotOverhead)
	if i >= m.level {
		if i != 0 {
			raise(m.L, "invalid capture index")
		}
		return lua.LString(m.subject[s:e])
	}
	c := m.captures[i]
	switch c.length {
	case captureOpen:
		raise(m.L, "unfinished capture")
	case capturePosition:
		return lua.LNumber(c.start + 1)
	}
	return lua.LString(m.subject[c.start : c.start+c.length])
}

// pushCaptures pushes all captures of the match subject[s:e] and returns their number. If there are
// none and whole is set, it pushes the whole match.
func (m *matcher) pushCaptures(s, e int, whole bool) int {
	n := m.level
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		m.L.Push(m.capture(i, s, e))
	}
	return n
}
