package glob

// MaxPattern is the longest pattern that clients may give, in bytes. Matching costs up to
// MaxPattern/64 steps per byte.
const MaxPattern = 1 << 10

// Prefix returns the literal bytes that every matching string starts with.
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

// MatchWork reports whether the whole of s matches pattern: * matches any bytes, ? one byte, [a-z]
// and [^a-z] a byte of a class, \ escapes the next byte. Malformed patterns are read as on Redis:
// an unclosed class ends with the pattern, a trailing backslash is a backslash. It also returns the
// units of 25 ns that this took.
func MatchWork(pattern, s []byte) (ok bool, units int) {
	var m Matcher
	ok = m.match(pattern, s, 512*len(pattern))
	return ok, m.Work
}

// Matcher matches many strings with one pattern; its zero value is ready. The plain algorithm can
// look at a byte again and again, and scans a class at each byte. If that takes too many steps, a
// table takes over, built on first use.
type Matcher struct {
	Work int // units of 25 ns that matching has taken

	words int // one bit for each element of the pattern, and one for its end
	// stars has a bit for each star, masks for each byte a bit for each element that matches it,
	// words at a time.
	stars, masks []uint64
	last         int // the bit of the end
	now, next    []uint64
}

// Match reports whether the whole of s matches pattern, which is the same each time.
func (m *Matcher) Match(pattern, s []byte) bool { return m.match(pattern, s, 0) }

// match is Match. The plain algorithm gets extra steps, besides some per byte.
func (m *Matcher) match(pattern, s []byte, extra int) bool {
	if len(s) == 0 {
		return len(pattern) == 0 // as on Redis, where even * does not match an empty string
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

// plain matches without a table. done is false if that takes more than about steps; left is what
// remains of them. After a mismatch it returns to the last star alone: an earlier one could do no
// better.
func plain(pattern, s []byte, steps int) (ok, done bool, left int) {
	p, i := 0, 0
	star, resume := -1, 0 // after the last star, in the pattern and in s
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

// build fills the table: which elements of the pattern match which byte.
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

// run simulates an NFA: one bit for each element that may come next, all moved at each byte.
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

// skipStars adds the elements after stars, which may match nothing. No two stars are adjacent.
func (m *Matcher) skipStars(set []uint64) {
	carry := uint64(0)
	for w := range set {
		at := set[w] & m.stars[w]
		set[w] |= at<<1 | carry
		carry = at >> 63
	}
}

// matchByte matches c with the pattern element at p, and returns the position of the next element.
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
			// signed, as chars are in C where Redis mostly runs
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
