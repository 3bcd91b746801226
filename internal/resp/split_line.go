// Splitting a line of text into words.

package resp

// SplitLine splits a line into words as redis-cli does: "…" with the escapes \n \r \t \b \a \xHH,
// '…' with \', and quotes that must end where the word ends. Inline commands and the first line of
// a library use it too. A zero byte ends the line. Words are copies.
func SplitLine(line []byte) (words [][]byte, ok bool) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) || line[i] == 0 {
			return words, true
		}
		word, next, ok := splitWord(line, i)
		if !ok {
			return nil, false
		}
		words = append(words, word)
		i = next
	}
}

func splitWord(line []byte, i int) (word []byte, next int, ok bool) {
	word = []byte{}
	for i < len(line) {
		switch c := line[i]; c {
		case ' ', '\n', '\r', '\t', 0:
			return word, i, true
		case '"', '\'':
			i++
			for {
				if i >= len(line) {
					return nil, 0, false
				}
				if line[i] == c {
					break
				}
				var b byte
				b, i = quotedByte(line, i, c)
				word = append(word, b)
			}
			i++
			if i < len(line) && !isSpace(line[i]) {
				return nil, 0, false
			}
			return word, i, true
		default:
			word = append(word, c)
			i++
		}
	}
	return word, i, true
}

// quotedByte reads one byte inside quotes and returns the position of the next.
func quotedByte(line []byte, i int, quote byte) (c byte, next int) {
	if line[i] != '\\' || i+1 >= len(line) {
		return line[i], i + 1
	}
	e := line[i+1]
	if quote == '\'' {
		if e == '\'' {
			return e, i + 2
		}
		return line[i], i + 1
	}
	if e == 'x' && i+3 < len(line) {
		high, ok1 := hexDigit(line[i+2])
		low, ok2 := hexDigit(line[i+3])
		if ok1 && ok2 {
			return high<<4 | low, i + 4
		}
	}
	switch e {
	case 'n':
		e = '\n'
	case 'r':
		e = '\r'
	case 't':
		e = '\t'
	case 'b':
		e = '\b'
	case 'a':
		e = '\a'
	}
	return e, i + 2
}

func isSpace(c byte) bool { return c == ' ' || ('\t' <= c && c <= '\r') }

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
