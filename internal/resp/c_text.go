package resp

// CText is what C takes of a text: up to its first zero byte. Redis shows that much of an argument
// in an error.
func CText[S ~string | ~[]byte](text S) S {
	for i := range len(text) {
		if text[i] == 0 {
			return text[:i]
		}
	}
	return text
}
