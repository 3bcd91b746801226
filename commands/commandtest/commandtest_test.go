package commandtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/resp"
)

func TestSplitCall(t *testing.T) {
	for _, c := range []struct{ line, args, want string }{
		{`SET k v`, `["SET" "k" "v"]`, ""},
		{"  GET\tk  ", `["GET" "k"]`, ""},
		{`SET "a b" '' ""`, `["SET" "a b" "" ""]`, ""},
		{`ECHO "\x00\xff\n\r\t\b\a\"\\\q\xZZ"`, `["ECHO" "\x00\xff\n\r\t\b\a\"\\qxZZ"]`, ""},
		{`ECHO 'it\'s \n'`, `["ECHO" "it's \\n"]`, ""},
		{`ECHO a"b c"`, `["ECHO" "ab c"]`, ""},
		{`DELEX k => :0`, `["DELEX" "k"]`, " :0"},
		{`ECHO "=>" =>x`, `["ECHO" "=>" "=>x"]`, ""},
	} {
		args, want, _, err := splitCall(c.line)
		if got := fmt.Sprintf("%q", args); err != nil || got != c.args || want != c.want {
			t.Errorf("%s: %s %q %v, want %s %q", c.line, got, want, err, c.args, c.want)
		}
	}
	for _, line := range []string{`ECHO "a`, `ECHO 'a`, `ECHO "a"b`, `ECHO "a\"`} {
		if args, _, _, err := splitCall(line); err == nil {
			t.Errorf("%s: %q, want an error", line, args)
		}
	}
}

func TestSplitArgs(t *testing.T) {
	args, err := SplitArgs(" a => " + resp.Quote("\x00 \"\\\n\xff") + "\n")
	if got := fmt.Sprintf("%q", args); err != nil || got != `["a" "=>" "\x00 \"\\\n\xff"]` {
		t.Errorf("%s, %v", got, err)
	}
	if args, err := SplitArgs(`a "b`); err == nil {
		t.Errorf("%q, want an error", args)
	}
}

// Every reply in the notation reads back as itself and has the right bytes in both protocols.
func TestNotation(t *testing.T) {
	for _, c := range []struct{ text, resp2, resp3 string }{
		{`+OK`, "+OK\r\n", "+OK\r\n"},
		{`+"a b"`, "+a b\r\n", "+a b\r\n"},
		{`-"ERR syntax error"`, "-ERR syntax error\r\n", "-ERR syntax error\r\n"},
		{`:-12`, ":-12\r\n", ":-12\r\n"},
		{`"a\x00\"\\\r\n"`, "$6\r\na\x00\"\\\r\n\r\n", "$6\r\na\x00\"\\\r\n\r\n"},
		{`nil`, "$-1\r\n", "_\r\n"},
		{`nil*`, "*-1\r\n", "_\r\n"},
		{`[]`, "*0\r\n", "*0\r\n"},
		{`[:1 ["a" nil]]`, "*2\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n",
			"*2\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n"},
		{`{"k" :1}`, "*2\r\n$1\r\nk\r\n:1\r\n", "%1\r\n$1\r\nk\r\n:1\r\n"},
		{`~["k"]`, "*1\r\n$1\r\nk\r\n", "~1\r\n$1\r\nk\r\n"},
		{`>["k"]`, "*1\r\n$1\r\nk\r\n", ">1\r\n$1\r\nk\r\n"},
		{`,1.5`, "$3\r\n1.5\r\n", ",1.5\r\n"},
		{`#t`, ":1\r\n", "#t\r\n"},
		{`#f`, ":0\r\n", "#f\r\n"},
		{`(123`, "$3\r\n123\r\n", "(123\r\n"},
		{`="txt:a b"`, "$3\r\na b\r\n", "=7\r\ntxt:a b\r\n"},
		{`"a" | +a`, "$1\r\na\r\n", "+a\r\n"},
	} {
		want, err := parseWant(" " + c.text + " ")
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := string(want[0].Append(nil, 2)); got != c.resp2 {
			t.Errorf("%s: RESP2 %q, want %q", c.text, got, c.resp2)
		}
		raw := want[1].Append(nil, 3)
		if string(raw) != c.resp3 {
			t.Errorf("%s: RESP3 %q, want %q", c.text, raw, c.resp3)
		}
		shown := want[0].String()
		if first, _, _ := strings.Cut(c.text, " | "); shown != first {
			t.Errorf("%s: shown as %s", c.text, shown)
		}
		v, err := Parse(raw)
		if err != nil || string(v.Append(nil, 3)) != c.resp3 {
			t.Errorf("%q reads as %s, %v", raw, v, err)
		}
	}
}

func TestNotationErrors(t *testing.T) {
	for _, text := range []string{
		``, `OK`, `12`, `-ERR syntax error`, `:x`, `:`, `#x`, `=a`, `[:1`, `{"a"}`, `~:1`, `"a`,
		`"a" | `, `"a" "b"`, `]`, `+"a`,
	} {
		if v, err := parseWant(text); err == nil {
			t.Errorf("%q reads as %s, want an error", text, v[0])
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, raw := range []string{
		"", "\r\n", "+OK", "+OK\n", "+OK\r\n+OK\r\n", "$3\r\nab\r\n", "$3\r\nabcde", "$-2\r\n",
		"$x\r\n", "*2\r\n:1\r\n", "*-2\r\n", "?1\r\n",
		"*99999999999\r\n", "$9999999999\r\n",
	} {
		if v, err := Parse([]byte(raw)); err == nil {
			t.Errorf("%q reads as %s, want an error", raw, v)
		}
	}
}

func TestParseAll(t *testing.T) {
	all, err := ParseAll([]byte("+a\r\n*1\r\n:1\r\n$-1\r\n"))
	if got := fmt.Sprint(all); err != nil || got != "[+a [:1] nil]" {
		t.Errorf("%s, %v", got, err)
	}
	if all, err := ParseAll([]byte("+a\r\n*1\r\n")); err == nil {
		t.Errorf("a cut reply reads as %v", all)
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		words, a, b string
		equal       bool
	}{
		{"", `"a"`, `"a"`, true},
		{"", `"a"`, `+a`, false},
		{"", `["a" "b"]`, `["b" "a"]`, false},
		{"sorted", `["a" "b"]`, `["b" "a"]`, true},
		{"sorted", `["a" "b"]`, `["b" "b"]`, false},
		{"sorted", `{"a" :1 "b" :2}`, `{"b" :2 "a" :1}`, true},
		{"sorted", `{"a" :1 "b" :2}`, `{"b" :1 "a" :2}`, false},
		{"pairs", `["a" :1 "b" :2]`, `["b" :2 "a" :1]`, true},
		{"pairs", `["a" :1 "b" :2]`, `["b" :1 "a" :2]`, false},
		{"rounded 5", `:100`, `:105`, true},
		{"rounded 5", `:100`, `:106`, false},
		{"rounded 5", `:-1`, `:0`, false},
		{"rounded 5", `:-1`, `:-1`, true},
		{"rounded 5", `["100"]`, `["95"]`, true},
		{"rounded 5", `"x1"`, `"x2"`, false},
		{"rounded 5", `"1"`, `:1`, false},
		{"error", `-"ERR a"`, `-"ERR b"`, true},
		{"error", `-"ERR a"`, `-"OOM a"`, false},
		{"error", `"ERR a"`, `"ERR b"`, false},
		{"shape", `["a" [:1]]`, `["b" [:2]]`, true},
		{"shape", `["a" [:1]]`, `["b" [:2 :3]]`, false},
		{"shape", `nil`, `"a"`, false},
		{"behind #", `+"1 # x # y"`, `+"2 # x # y"`, true},
		{"behind #", `+"1 # x"`, `+"1 # y"`, false},
		{"behind #", `+"1 # x"`, `+"1"`, false},
		{"behind #", `+"1 # x"`, `"1 # x"`, false},
		{"without b", `[{"a" :1 "b" :2}]`, `[{"a" :1}]`, true},
		{"without b", `["a" :1 "b" :2]`, `["a" :1 "b" :3]`, true},
		{"without b", `["a" "b" "c" :2]`, `["a" "x" "c" :2]`, false},
		{"without b", `{"a" :1 "b" :2}`, `{"a" :2}`, false},
		{"sorted, rounded 1", `[:1 :5]`, `[:5 :2]`, true},
	} {
		compare := Compare{}
		var err error
		if c.words != "" {
			if compare, _, err = parseCompare(c.words); err != nil {
				t.Fatal(err)
			}
		}
		a, errA := parseWant(c.a)
		b, errB := parseWant(c.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		equal, err := compare.Equal(a[1].Append(nil, 3), b[1].Append(nil, 3))
		if err != nil || equal != c.equal {
			t.Errorf("[%s] %s %s: %v %v, want %v", c.words, c.a, c.b, equal, err, c.equal)
		}
	}
	for _, words := range []string{"", "fuzzy", "rounded", "rounded -1", "sorted 3", "behind",
		"without"} {
		if _, _, err := parseCompare(words); err == nil {
			t.Errorf("[%s] is taken", words)
		}
	}
	if _, err := (Compare{}).Equal([]byte("+OK\r\n+OK\r\n"), []byte("+OK\r\n")); err == nil {
		t.Error("two replies are taken for one")
	}
}

func TestFileErrors(t *testing.T) {
	for _, text := range []string{
		"@resp 4", "@db x", "@advance -1", "@fresh x", "@conn", "@what", "[sorted GET k",
		"[sorted]", "=> :1", "[silent] GET k => :1",
		"GET k => x", "GET 'k", "@advance 5\nGET k", "GET k\n@advance 5\n\n# x\nGET k",
	} {
		if _, err := parseFile("f", text); err == nil {
			t.Errorf("%q is taken", text)
		} else if !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%q: the error shows no place: %v", text, err)
		}
	}
	f, err := parseFile("f", "GET k\n@advance 5\nGET k => nil\n@fresh\n\n  GET k\n")
	if err != nil || len(f.Steps) != 5 || f.Steps[4].Line != 6 {
		t.Errorf("%v, %+v", err, f)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "*.txt")); err == nil {
		t.Error("no files are taken for files")
	}
}

// recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// canned is a target that replies by the name of the call.
type canned map[string]string

func (c canned) Do(args [][]byte) ([]byte, error) {
	reply, ok := c[string(args[0])]
	if !ok {
		return nil, errors.New("no reply")
	}
	return []byte(reply), nil
}

func (c canned) server() *Server {
	return &Server{
		Reset:   func() error { return nil },
		Open:    func() (Target, error) { return c, nil },
		Advance: func(int64) error { return nil },
	}
}

// failures runs a text with a target against another and returns what failed.
func failures(t *testing.T, text string, own, real canned, proto int) []string {
	f, err := parseFile("f", text)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{TB: t}
	r := &run{t: rec, file: f, first: proto, own: side{server: own.server()}}
	if real != nil {
		r.real = &side{server: real.server()}
	}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(rec) {
				panic(p)
			}
		}()
		r.all()
	}()
	return rec.errors
}

// The runner reports what differs, and nothing else.
func TestRunReports(t *testing.T) {
	a := canned{"A": "+a\r\n", "HELLO": "+OK\r\n", "SELECT": "-ERR x\r\n"}
	b := canned{"A": "+b\r\n", "HELLO": "+OK\r\n", "SELECT": "+OK\r\n"}
	for _, c := range []struct {
		text      string
		own, real canned
		proto     int
		failures  int
	}{
		{"A", a, a, 2, 0},
		{"A", a, b, 2, 1},
		{"A\nA", a, b, 3, 2},
		{"A", a, nil, 2, 0},
		{"A => +a", a, b, 2, 0},
		{"A => +b", a, nil, 2, 1},
		{"A => +a | +b", a, nil, 2, 0},
		{"A => +a | +b", a, nil, 3, 1},
		{"@resp 3\nA => +a | +b", a, nil, 2, 1},
		{"@advance 5\nA => +a", a, b, 2, 0},
		{"B", a, nil, 2, 1},
		{"@db 1", a, nil, 2, 1},
		{"@receive", a, nil, 2, 1},
		{"[silent] A", a, nil, 2, 1},
		{"A", a, canned{}, 2, 1},
		{"A", a, canned{"A": "+a\r\n+b\r\n"}, 2, 1},
	} {
		if got := failures(t, c.text, c.own, c.real, c.proto); len(got) != c.failures {
			t.Errorf("%q in RESP%d: %d failures, want %d: %q", c.text, c.proto, len(got),
				c.failures, got)
		}
	}
}

// A real server equals itself, also in sessions and messages, and ends with the test.
func TestRealServer(t *testing.T) {
	dir := t.TempDir()
	text := `SET k v
GET k
LPUSH list a b
@db 3
GET k => nil
@conn sub
SUBSCRIBE c
@conn main
PUBLISH c hello
@conn sub
@receive
@conn main
[silent] CLIENT REPLY OFF
[silent] PING
CLIENT REPLY ON
@fresh
DBSIZE => :0
@resp 2
HSET h a 1
HGETALL h => ["a" "1"]
@resp 3
HGETALL h => {"a" "1"}
`
	if err := os.WriteFile(filepath.Join(dir, "self.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var left *Conn // stays open beyond the server's test
	t.Run("run", func(t *testing.T) {
		socket := NeedRedis(t)
		Run(t, filepath.Join(dir, "*.txt"), *Redis(socket))
		c, err := Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Do(Args("QUIT")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Receive(); !errors.Is(err, io.EOF) {
			t.Errorf("after QUIT: %v, want the end of the stream", err)
		}
		if left, err = Dial("unix", socket); err != nil {
			t.Fatal(err)
		}
		if err := must(left, Args("PING")); err != nil {
			t.Fatal(err)
		}
	})
	if left == nil {
		t.Skip(RedisMissing)
	}
	defer left.Close()
	if raw, err := left.Do(Args("PING")); err == nil {
		t.Errorf("the server outlived its test: %q", raw)
	}
}
