package invariant

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestBroken(t *testing.T) {
	var out bytes.Buffer
	SetLogger(slog.New(slog.NewTextHandler(&out, nil)))
	defer SetLogger(nil)
	defer func(was []*Rule) { rules = was }(rules)
	r, other := New("b", "it holds", "nothing"), New("a", "it holds", "nothing")
	for range 9 {
		r.Broken("entry", 7)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 4 || r.Times() != 9 ||
		!strings.Contains(out.String(), "invariant=b times=8 entry=7") {
		t.Errorf("%d times, logged: %s", r.Times(), out.String())
	}
	if all := All(); len(all) != 2 || all[0] != other || all[1] != r {
		t.Error(all)
	}
	Ends = func(name string) bool { return name != "a" }
	defer func() { Ends = nil }()
	other.Broken()
	defer func() {
		if recover() == nil || r.Times() != 9 {
			t.Error("it goes on")
		}
	}()
	r.Broken()
}
