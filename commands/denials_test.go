package commands

import (
	"reflect"
	"strings"
	"testing"
)

// What a request was denied comes back as it was told, and the reply behind it is whole.
func TestDenials(t *testing.T) {
	var l Denials
	for range 3 {
		l.Add("key", "lua", "a\r\nb")
	}
	l.Add("command", "toplevel", "acl|list")
	l.Add("channel", "multi", "")
	l.Add("key", "lua", strings.Repeat("x", 5000))
	want := Denials{{"key", "lua", "a\r\nb", 3}, {"command", "toplevel", "acl|list", 1},
		{"channel", "multi", "", 1}, {"key", "lua", strings.Repeat("x", maxDeniedObject), 1}}
	for _, reply := range []string{"-NOPERM no\r\n", "*2\r\n:1\r\n$3\r\nabc\r\n"} {
		got, rest := CutDenials(append(l.AppendTo(nil), reply...))
		if !reflect.DeepEqual(got, want) || string(rest) != reply {
			t.Errorf("got %v and %q", got, rest)
		}
	}
	for _, reply := range []string{"+OK\r\n", "*0\r\n", "$-1\r\n", "_\r\n"} {
		if got, rest := CutDenials([]byte(reply)); got != nil || string(rest) != reply {
			t.Errorf("%q: got %v and %q", reply, got, rest)
		}
	}
}

// However much a script tries, one request reports a bounded number of denials.
func TestDenialsAreBounded(t *testing.T) {
	var l Denials
	for i := range 1000 {
		l.Add("key", "lua", strings.Repeat("k", i))
	}
	if len(l) != maxDenials {
		t.Errorf("%d denials are told, want %d", len(l), maxDenials)
	}
}
