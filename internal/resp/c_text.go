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

// maxShown is how much of an argument an error shows, bytes. Redis bounds the names of commands so
// (%.128s), but not other words.
const maxShown = 128

// Shown is what an error of a session shows of an argument: arguments can be large, and errors are
// for people. Those that a script could see show all of CText, those about rules of users more.
func Shown[S ~string | ~[]byte](arg S) S { return CText(arg[:min(len(arg), maxShown)]) }
