package glob

// Prefix returns the literal bytes that all strings begin with that pattern matches.
func Prefix(pattern []byte) []byte {
	var prefix []byte
	for p := 0; p < len(pattern); p++ {
		switch pattern[p] {
		case '*', '?', '[':
			return prefix
		case '\\':
			if p+1 < len(pattern) {
				p++
			}
		}
		prefix = append(prefix, pattern[p])
	}
	return prefix
}

// MatchWork is Match, and tells what it took, in units of 25 ns.
func MatchWork(pattern, s []byte) (ok bool, units int) {
	var m Matcher
	ok = m.match(pattern, s, 512*len(pattern))
	return ok, m.Work
}

// Match reports whether the whole of s matches pattern: * any bytes, ? one byte, [a-z] and [^a-z] a
// byte of a class, \ before a byte that stands for itself. What is malformed is read as Redis reads
// it: a class without its end closes with the pattern, a backslash at the end is a backslash.
func Match(pattern, s []byte) bool {
	var m Matcher
	return m.match(pattern, s, 512*len(pattern)) // about what the table costs
}

// Matcher matches many strings with one pattern; its zero value is ready. The plain way looks at
// some bytes of the string again and again, and at each byte of a class; where that takes too many
// steps the table, which is built when it is first needed, takes over.
type Matcher struct {
	Work int // units of 25 ns that matching has taken

	words int // for one bit an element of the pattern and one for its end
	// stars has a bit for each star, masks one for each element that takes a byte; words for every
	// byte.
	stars, masks []uint64
	last         int // the bit of the end
	now, next    []uint64
}

// Match reports whether the whole of s matches pattern, which is the same each time.
func (m *Matcher) Match(pattern, s []byte) bool { return m.match(pattern, s, 0) }

// match is Match. extra steps, besides some for each byte, are given to the plain way.
func (m *Matcher) match(pattern, s []byte, extra int) bool {
	if len(s) == 0 {
		return len(pattern) == 0 // as Redis: even a star wants a byte when there is none at all
	}
	steps := extra + 8*len(s) + 64
	ok, done, left := plain(pattern, s, steps)
	m.Work += (steps-left)/stepsInUnit + 1
	if done {
		return ok
	}
	if m.masks == nil {
		m.build(pattern)
		m.Work += 256 * len(pattern) / stepsInUnit
	}
	m.Work += m.words * len(s) / stepsInUnit
	return m.run(s)
}

// stepsInUnit is how many steps of a match take 25 ns at most.
const stepsInUnit = 4

// plain matches without a table; done is false where that takes more than about so many steps,
// of which some are left. A failure goes back to the last star alone: an earlier one could not do
// better.
func plain(pattern, s []byte, steps int) (ok, done bool, left int) {
	p, i := 0, 0
	star, resume := -1, 0 // the position after the last star; where in s its rest was last tried
	for i < len(s) {
		if steps < 0 {
			return false, false, steps
		}
		if p < len(pattern) && pattern[p] == '*' {
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			if p == len(pattern) {
				return true, true, steps
			}
			star, resume = p, i
			continue
		}
		if p < len(pattern) {
			ok, next := matchByte(pattern, p, s[i])
			steps -= next - p
			if ok {
				p = next
				i++
				continue
			}
		}
		if star < 0 {
			return false, true, steps
		}
		resume++
		p, i = star, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern), true, steps
}

// build makes the table: which elements of the pattern take which byte.
func (m *Matcher) build(pattern []byte) {
	m.words = len(pattern)/64 + 1
	m.masks = make([]uint64, 256*m.words)
	m.stars, m.now, m.next = make([]uint64, m.words), make([]uint64, m.words),
		make([]uint64, m.words)
	bit := 0
	for p := 0; p < len(pattern); bit++ {
		word, mask := bit/64, uint64(1)<<(bit%64)
		if pattern[p] == '*' {
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			m.stars[word] |= mask
			continue
		}
		after := p
		for c := range 256 {
			var ok bool
			if ok, after = matchByte(pattern, p, byte(c)); ok {
				m.masks[c*m.words+word] |= mask
			}
		}
		p = after
	}
	m.last = bit
}

// run keeps one bit for each element that may come next, and moves all of them at each byte.
func (m *Matcher) run(s []byte) bool {
	now, next := m.now, m.next
	clear(now)
	now[0] = 1
	m.skipStars(now)
	for _, c := range s {
		masks := m.masks[int(c)*m.words:][:m.words]
		carry := uint64(0)
		for w, set := range now {
			moved := set & masks[w]
			next[w] = moved<<1 | carry | set&m.stars[w]
			carry = moved >> 63
		}
		m.skipStars(next)
		now, next = next, now
	}
	return now[m.last/64]>>(m.last%64)&1 == 1
}

// skipStars adds the elements behind stars, which may take nothing. No two stars are neighbours.
func (m *Matcher) skipStars(set []uint64) {
	carry := uint64(0)
	for w := range set {
		at := set[w] & m.stars[w]
		set[w] |= at<<1 | carry
		carry = at >> 63
	}
}

// matchByte matches c with the element of the pattern that begins at p, and says where the next
// element begins.
func matchByte(pattern []byte, p int, c byte) (ok bool, next int) {
	switch pattern[p] {
	case '?':
		return true, p + 1
	case '[':
		return matchClass(pattern, p+1, c)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return pattern[p] == c, p + 1
}

// matchClass matches c with the class whose first byte after the bracket is at p.
func matchClass(pattern []byte, p int, c byte) (ok bool, next int) {
	negated := p < len(pattern) && pattern[p] == '^'
	if negated {
		p++
	}
	for p < len(pattern) && pattern[p] != ']' {
		switch left := len(pattern) - p; {
		case left >= 2 && pattern[p] == '\\':
			p++
			ok = ok || pattern[p] == c
		case left >= 3 && pattern[p+1] == '-':
			// signed, as characters are in C on the processors that Redis mostly runs on
			low, high := int8(pattern[p]), int8(pattern[p+2])
			if low > high {
				low, high = high, low
			}
			p += 2
			ok = ok || (low <= int8(c) && int8(c) <= high)
		default:
			ok = ok || pattern[p] == c
		}
		p++
	}
	if p < len(pattern) {
		p++ // the closing bracket
	}
	return ok != negated, p
}
