package ascii

import (
	"bytes"
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	for c := range 256 {
		s := string([]byte{'x', byte(c)})
		want := s
		if c < 128 {
			want = strings.ToLower(s)
		}
		if got := Lower(s); got != want || string(AppendLower(nil, []byte(s))) != want {
			t.Errorf("Lower(%q) = %q", s, got)
		}
		if c < 128 && Upper(s) != strings.ToUpper(s) || c >= 128 && Upper(s) != "X"+s[1:] {
			t.Errorf("Upper(%q) = %q", s, Upper(s))
		}
		for d := range 256 {
			a, b := []byte{byte(c)}, string([]byte{byte(d)})
			want := c == d || c < 128 && d < 128 && bytes.EqualFold(a, []byte(b))
			if Equal(a, b) != want {
				t.Errorf("Equal(%q, %q) = %v", a, b, !want)
			}
		}
	}
	argument := []byte("aB")
	if Upper(argument) != "AB" || Lower(argument) != "ab" || string(argument) != "aB" {
		t.Errorf("an argument became %q", argument)
	}
	if Equal("limit", "l\u0130mit") || Equal("k", "\u212a") || Equal("s", "\u017f") {
		t.Error("letters that only Unicode folds are equal to ASCII's")
	}
}
