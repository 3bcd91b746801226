package glob

// Tests of the pattern matcher: chosen cases, and random ones against the real server.

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
)

func match(pattern, s []byte) bool {
	ok, _ := MatchWork(pattern, s)
	return ok
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "anything", true}, {"h?llo", "hello", true}, {"h?llo", "hllo", false},
		{"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false}, {"h[^e]llo", "hallo", true},
		{"h[^e]llo", "hello", false},
		{"h[a-c]llo", "hbllo", true}, {"h[c-a]llo", "hbllo", true}, {`h\?llo`, "h?llo", true},
		{`h\?llo`, "hello", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false}, {"[", "a", false}, {"[ab", "b", true},
		{`a\`, `a\`, true}, {"", "", true}, {"", "a", false},
		{"a*", "a", true}, {"a**", "a", true}, {"[^]", "x", true}, {`[\]]`, "]", true},
		{"*[0-9]", "lock:7", true},
	} {
		if got := match([]byte(c.pattern), []byte(c.s)); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

// The longest pattern and a name of a megabyte, the plain way, would take a billion steps; classes
// are the worst.
func TestBombIsBounded(t *testing.T) {
	s := []byte(strings.Repeat("a", 1<<20))
	bombs := 0
	for _, pattern := range []string{
		"*" + strings.Repeat("a", MaxPattern-2) + "b", strings.Repeat("a*", MaxPattern/2-1) + "b",
		"*[" + strings.Repeat("b", MaxPattern-4) + "]c",
	} {
		if len(pattern) > MaxPattern || match([]byte(pattern), s) {
			t.Fatalf("a bomb of %d bytes matched", len(pattern))
		}
		// The plain way ends, or gives up, after its steps; the table then costs so many words a
		// byte.
		_, done, _ := plain([]byte(pattern), s, 8*len(s))
		if !done {
			bombs++
		}
		var m Matcher
		m.build([]byte(pattern))
		if m.words > MaxPattern/64+1 {
			t.Fatalf("%.10s…: %d words a byte", pattern, m.words)
		}
	}
	if bombs == 0 {
		t.Fatal("none of them is a bomb")
	}
}

// The table says what the plain way says, for patterns of one word and of several.
func TestTable(t *testing.T) {
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	text := func(alphabet string, n int) []byte {
		b := make([]byte, 1+rnd.IntN(n))
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		return b
	}
	matches := 0
	for range 20000 {
		pattern, s := text(`aab**?[[]]^-\`, 12), text(`ab]\-^[*`, 9)
		if rnd.IntN(4) == 0 { // several words; most of it matches
			long := text("ab", 200)
			pattern, s = append(append([]byte{}, long...), pattern...), append(long, s...)
			pattern[rnd.IntN(len(pattern))], pattern[rnd.IntN(len(pattern))] = '*', '?'
		}
		want, done, _ := plain(pattern, s, 1<<30)
		var m Matcher
		m.build(pattern)
		if got := m.run(s); !done || got != want || m.run(s) != want {
			t.Fatalf("%q on %q: %v, the plain way %v", pattern, s, got, want)
		}
		if want {
			matches++
		}
	}
	if matches < 300 {
		t.Fatalf("%d matches tell nothing", matches)
	}
}

// TestAsRedis asks a real server for KEYS with random patterns over random keys made of the
// bytes that matter.
func TestAsRedis(t *testing.T) {
	conn := commandtest.DialRedis(t)
	call := func(words ...string) commandtest.Value {
		raw, err := conn.Do(commandtest.Args(words...))
		if err != nil {
			t.Fatal(err)
		}
		v, err := commandtest.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	text := func(alphabet string, n int) string {
		b := make([]byte, rnd.IntN(n))
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
		}
		return string(b)
	}
	keys := map[string]bool{}
	for range 400 {
		k := text(`abc]\-^[*`, 7)
		keys[k] = true
		call("SET", k, "1")
	}
	for range 3000 {
		pattern := text(`abc**?[[]]^-\`, 9)
		if pattern == "*" {
			continue // all keys, without a match
		}
		want := map[string]bool{}
		for _, k := range call("KEYS", pattern).Elems {
			want[k.Text] = true
		}
		for k := range keys {
			if match([]byte(pattern), []byte(k)) != want[k] {
				t.Fatalf("Match(%q, %q) = %v, Redis differs", pattern, k, !want[k])
			}
		}
	}
}
