package commands

// This file holds the matching of Redis's patterns, which KEYS, SCAN, PSUBSCRIBE, PUBSUB and CONFIG GET share.

// Glob says whether the whole of s matches pattern: * any bytes, ? one byte, [a-z] and [^a-z] a byte of a class, \ before a
// byte that stands for itself. What is malformed is read as Redis reads it: a class without its end closes with the
// pattern, a backslash at the end is a backslash. A failure goes back to the last star alone (an earlier one could
// not do better), so the time is at most len(pattern)·len(s).
func Glob(pattern, s []byte) bool {
	if len(s) == 0 {
		return len(pattern) == 0 // as Redis: even a star wants a byte when there is none at all
	}
	p, i := 0, 0
	star, resume := -1, 0 // the place after the last star; where in s its rest was last tried
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			if p == len(pattern) {
				return true
			}
			star, resume = p, i
			continue
		}
		if p < len(pattern) {
			if ok, next := globByte(pattern, p, s[i]); ok {
				p = next
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		resume++
		p, i = star, resume
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// globByte matches c with the element of the pattern that begins at p, and says where the next element begins.
func globByte(pattern []byte, p int, c byte) (ok bool, next int) {
	switch pattern[p] {
	case '?':
		return true, p + 1
	case '[':
		return globClass(pattern, p+1, c)
	case '\\':
		if p+1 < len(pattern) {
			p++
		}
	}
	return pattern[p] == c, p + 1
}

// globClass matches c with the class whose first byte after the bracket is at p.
func globClass(pattern []byte, p int, c byte) (ok bool, next int) {
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
			low, high := pattern[p], pattern[p+2]
			if low > high {
				low, high = high, low
			}
			p += 2
			ok = ok || (low <= c && c <= high)
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
