package ascii

// Text is what the functions accept.
type Text interface{ ~string | ~[]byte }

// Equal reports whether a and b are equal but for the case of ASCII letters.
func Equal[A, B Text](a A, b B) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// Lower returns the text with ASCII letters in lower case.
func Lower[T Text](text T) string {
	for i := range len(text) {
		if lower(text[i]) != text[i] {
			return string(AppendLower(make([]byte, 0, len(text)), text))
		}
	}
	return string(text)
}

// Upper returns the text with ASCII letters in upper case.
func Upper[T Text](text T) string {
	b := append([]byte(nil), text...)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

// AppendLower appends the text with ASCII letters in lower case to dst.
func AppendLower[T Text](dst []byte, text T) []byte {
	from := len(dst)
	dst = append(dst, text...)
	for i, c := range dst[from:] {
		dst[from+i] = lower(c)
	}
	return dst
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c - 'A' + 'a'
	}
	return c
}
