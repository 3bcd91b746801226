package server

import (
	"bytes"

	"github.com/coordd/coordd/commands"
)

// replyLen returns the length of the first reply in b, or 0 if it is incomplete or malformed.
func replyLen(b []byte) int {
	at := 0
	for want := 1; want > 0; want-- {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 2 {
			return 0
		}
		kind, line := b[at], b[at+1:at+i-1]
		at += i + 1
		switch kind {
		case '$', '=', '!', '*', '~', '>', '%', '|':
		case '+', '-', ':', ',', '#', '(', '_':
			continue
		default:
			return 0
		}
		n, ok := commands.ParseInt(line)
		if !ok || n > int64(len(b)) {
			return 0
		}
		if n < 0 {
			continue // null
		}
		switch kind {
		case '$', '=', '!':
			if at+int(n)+2 > len(b) {
				return 0
			}
			at += int(n) + 2
		case '%':
			want += 2 * int(n)
		case '|':
			want += 2*int(n) + 1 // attributes precede their reply
		default:
			want += int(n)
		}
	}
	return at
}

// elements splits an aggregate reply. ok is false for null and errors.
func elements(reply []byte) (n int, rest []byte, ok bool) {
	i := bytes.IndexByte(reply, '\n')
	if i < 2 || reply[0] != '*' {
		return 0, nil, false
	}
	count, ok := commands.ParseInt(reply[1 : i-1])
	if !ok || count < 0 {
		return 0, nil, false
	}
	return int(count), reply[i+1:], true
}
