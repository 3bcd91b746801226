package resp

import "strconv"

// AppendHead appends the line of a number: an integer, a length, a count.
func AppendHead(dst []byte, kind byte, n int64) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, '\r', '\n')
}

// AppendLine appends the line of a text. Line breaks in it become spaces.
func AppendLine(dst []byte, kind byte, text string) []byte {
	dst = append(dst, kind)
	for i := range len(text) {
		c := text[i]
		if c == '\r' || c == '\n' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, '\r', '\n')
}

// AppendText appends what follows the head of a string.
func AppendText[S ~string | ~[]byte](dst []byte, text S) []byte {
	dst = append(dst, text...)
	return append(dst, '\r', '\n')
}

// AppendBulk appends a bulk string.
func AppendBulk[S ~string | ~[]byte](dst []byte, text S) []byte {
	return AppendText(AppendHead(dst, Bulk, int64(len(text))), text)
}

// AppendCall appends a request as clients send it: an array of bulk strings.
func AppendCall(dst []byte, args [][]byte) []byte {
	dst = AppendHead(dst, Array, int64(len(args)))
	for _, a := range args {
		dst = AppendBulk(dst, a)
	}
	return dst
}

// AppendCommand appends a request of words.
func AppendCommand(dst []byte, words ...string) []byte {
	dst = AppendHead(dst, Array, int64(len(words)))
	for _, w := range words {
		dst = AppendBulk(dst, w)
	}
	return dst
}
