package resp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// values are of all types, as they are on the connection.
var values = []struct {
	raw   string
	value Value
	text  string // String's
	resp2 string // Append's in RESP2; empty: raw
}{
	{"+OK\r\n", Value{Kind: '+', Text: "OK"}, "+OK", ""},
	{"+a b\r\n", Value{Kind: '+', Text: "a b"}, `+"a b"`, ""},
	{"-ERR no\r\n", Value{Kind: '-', Text: "ERR no"}, `-"ERR no"`, ""},
	{":-12\r\n", Value{Kind: ':', Text: "-12"}, ":-12", ""},
	{"$0\r\n\r\n", Value{Kind: '$'}, `""`, ""},
	{"$3\r\na\r\n\r\n", Value{Kind: '$', Text: "a\r\n"}, `"a\r\n"`, ""},
	{"*0\r\n", Value{Kind: '*'}, "[]", ""},
	{"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", Value{Kind: '*', Elems: []Value{
		{Kind: ':', Text: "1"}, {Kind: '*', Elems: []Value{{Kind: '$', Text: "a"}}}}}, `[:1 ["a"]]`,
		""},
	{"_\r\n", Value{Kind: '_'}, "nil", "$-1\r\n"},
	{",1.5\r\n", Value{Kind: ',', Text: "1.5"}, ",1.5", "$3\r\n1.5\r\n"},
	{"#t\r\n", Value{Kind: '#', Text: "t"}, "#t", ":1\r\n"},
	{"#f\r\n", Value{Kind: '#', Text: "f"}, "#f", ":0\r\n"},
	{"(123\r\n", Value{Kind: '(', Text: "123"}, "(123", "$3\r\n123\r\n"},
	{"!5\r\nERR x\r\n", Value{Kind: '!', Text: "ERR x"}, `!"ERR x"`, ""},
	{"=5\r\ntxt:a\r\n", Value{Kind: '=', Text: "txt:a"}, `=txt:a`, "$1\r\na\r\n"},
	{"%1\r\n+k\r\n:1\r\n",
		Value{Kind: '%', Elems: []Value{{Kind: '+', Text: "k"}, {Kind: ':', Text: "1"}}},
		"{+k :1}", "*2\r\n+k\r\n:1\r\n"},
	{"~1\r\n:1\r\n",
		Value{Kind: '~', Elems: []Value{{Kind: ':', Text: "1"}}}, "~[:1]", "*1\r\n:1\r\n"},
	{">1\r\n:1\r\n",
		Value{Kind: '>', Elems: []Value{{Kind: ':', Text: "1"}}}, ">[:1]", "*1\r\n:1\r\n"},
	{"|1\r\n+k\r\n:1\r\n:2\r\n", Value{Kind: '|', Elems: []Value{
		{Kind: '+', Text: "k"}, {Kind: ':', Text: "1"}, {Kind: ':', Text: "2"}}}, "|[+k :1 :2]",
		""},
}

// nulls of RESP2, which RESP3 writes in one way.
var nulls = []struct {
	raw  string
	kind byte
	text string
}{{"$-1\r\n", '$', "nil"}, {"*-1\r\n", '*', "nil*"}}

func TestValues(t *testing.T) {
	for _, c := range values {
		v, err := NewReader(strings.NewReader(c.raw)).Value()
		if err != nil || !reflect.DeepEqual(v, c.value) {
			t.Errorf("%q reads as %+v, %v", c.raw, v, err)
			continue
		}
		if v.String() != c.text {
			t.Errorf("%q is shown as %s, want %s", c.raw, v, c.text)
		}
		if got := string(v.Append(nil, 3)); got != c.raw {
			t.Errorf("%q is written as %q", c.raw, got)
		}
		want := c.resp2
		if want == "" {
			want = c.raw
		}
		if got := string(v.Append(nil, 2)); got != want {
			t.Errorf("%q is written in RESP2 as %q, want %q", c.raw, got, want)
		}
		if v.IsError() != (c.raw[0] == '-' || c.raw[0] == '!') {
			t.Errorf("%q: IsError is %v", c.raw, v.IsError())
		}
	}
	for _, c := range nulls {
		v, err := NewReader(strings.NewReader(c.raw)).Value()
		if err != nil || !reflect.DeepEqual(v, Value{Kind: c.kind, Null: true}) ||
			v.String() != c.text {
			t.Errorf("%q reads as %s, %v", c.raw, v, err)
		}
		resp2, resp3 := string(v.Append(nil, 2)), string(v.Append(nil, 3))
		if resp2 != c.raw || resp3 != "_\r\n" {
			t.Errorf("%q is written as %q and %q", c.raw, resp2, resp3)
		}
	}
}

// All ways to read agree on where each value ends, however the bytes arrive.
func TestStream(t *testing.T) {
	var all string
	for _, c := range values {
		all += c.raw
	}
	for _, c := range nulls {
		all += c.raw
	}
	slow := func() *Reader {
		in := iotest.OneByteReader(strings.NewReader(all))
		return NewReader(bufio.NewReaderSize(in, 16))
	}
	raw, skipping, trees, rest := slow(), slow(), slow(), []byte(all)
	for _, c := range values {
		got, err := raw.AppendRaw(nil)
		if err != nil || string(got) != c.raw {
			t.Fatalf("AppendRaw is %q, %v, want %q", got, err, c.raw)
		}
		h, err := skipping.Skip()
		if line, _, _ := strings.Cut(c.raw, "\r"); err != nil ||
			string(h.Kind)+string(h.Text) != line {
			t.Fatalf("Skip is %+v, %v for %q", h, err, c.raw)
		}
		if v, err := trees.Value(); err != nil || string(v.Append(nil, 3)) != c.raw {
			t.Fatalf("Value is %s, %v for %q", v, err, c.raw)
		}
		n := Len(rest)
		if string(rest[:n]) != c.raw {
			t.Fatalf("Len is %d for %q", n, c.raw)
		}
		if Len([]byte(c.raw[:len(c.raw)-1])) != 0 {
			t.Errorf("Len of %q without its end is not 0", c.raw)
		}
		rest = rest[n:]
	}
	for range nulls {
		if _, err := skipping.Skip(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := skipping.Skip(); err != io.EOF {
		t.Errorf("%v after the last value, want io.EOF", err)
	}
}

// A reader of replies returns all but the pushes between them.
func TestReplies(t *testing.T) {
	const push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n%1\r\n$1\r\nk\r\n>1\r\n:1\r\n"
	var all string
	for _, c := range values {
		all += push + ">0\r\n>-1\r\n" + c.raw
	}
	all += push
	trees := NewReplies(strings.NewReader(all), DefaultLimits)
	streams := NewReplies(strings.NewReader(all), DefaultLimits)
	for _, c := range values {
		if c.raw[0] == Push {
			continue
		}
		if v, err := trees.Value(); err != nil || !reflect.DeepEqual(v, c.value) {
			t.Fatalf("Value is %s, %v for %q", v, err, c.raw)
		}
		h, err := streams.Head()
		if err != nil || h.Kind != c.raw[0] {
			t.Fatalf("Head is %+v, %v for %q", h, err, c.raw)
		}
		if h.textLen() > 0 {
			text, err := io.ReadAll(streams.Text(h))
			if err != nil || string(text) != c.value.Text {
				t.Fatalf("Text is %q, %v for %q", text, err, c.raw)
			}
			if _, err := streams.in.in.Discard(2); err != nil {
				t.Fatal(err)
			}
		}
		for range h.elements() {
			if _, err := streams.in.Skip(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := trees.Value(); err != io.EOF {
		t.Errorf("Value: %v, want io.EOF", err)
	}
	if _, err := streams.Head(); err != io.EOF {
		t.Errorf("Head: %v, want io.EOF", err)
	}
	cut := NewReplies(strings.NewReader(push[:20]), DefaultLimits)
	if _, err := cut.Head(); err != io.ErrUnexpectedEOF {
		t.Errorf("Head inside a push: %v, want io.ErrUnexpectedEOF", err)
	}
}

func TestMalformed(t *testing.T) {
	limits := Limits{Line: 30, Text: 8, Elements: 3, Depth: 2}
	for _, c := range []struct {
		raw  string
		want error
	}{
		{"", io.EOF},
		{"+OK", io.ErrUnexpectedEOF},
		{"$3\r\nab", io.ErrUnexpectedEOF},
		{"$3\r\nabc", io.ErrUnexpectedEOF},
		{"$3\r\nabc\r", io.ErrUnexpectedEOF},
		{"*2\r\n:1\r\n", io.ErrUnexpectedEOF},
		{"|1\r\n+k\r\n:1\r\n", io.ErrUnexpectedEOF},
		{"\r\n", ErrMalformed},
		{"\n", ErrMalformed},
		{"+OK\n", ErrMalformed},
		{"OK\r\n", ErrMalformed},
		{"?1\r\n*0\r\n", ErrMalformed},
		{"$3\r\nabcde", ErrMalformed},
		{"$\r\n", ErrMalformed},
		{"$-2\r\n", ErrMalformed},
		{"$+1\r\na\r\n", ErrMalformed},
		{"*1 \r\n", ErrMalformed},
		{"*999999999999999999\r\n", ErrMalformed},
		{"*99999999999999999\r\n", ErrTooLarge},
		{"$9\r\n123456789\r\n", ErrTooLarge},
		{"*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", ErrTooLarge},
		{"%4\r\n", ErrTooLarge},
		{"+" + strings.Repeat("a", 40) + "\r\n", ErrTooLarge},
	} {
		for name, read := range map[string]func(*Reader) error{
			"Value":     func(r *Reader) error { _, err := r.Value(); return err },
			"Skip":      func(r *Reader) error { _, err := r.Skip(); return err },
			"AppendRaw": func(r *Reader) error { _, err := r.AppendRaw(nil); return err },
		} {
			in := bufio.NewReaderSize(strings.NewReader(c.raw), 16)
			if err := read(NewReaderLimits(in, limits)); !errors.Is(err, c.want) {
				t.Errorf("%s of %q: %v, want %v", name, c.raw, err, c.want)
			}
		}
		if n := Len([]byte(c.raw)); n != 0 && c.want != ErrTooLarge {
			t.Errorf("Len of %q is %d, want 0", c.raw, n)
		}
	}
	deep := "*1\r\n*1\r\n*1\r\n:1\r\n"
	_, err := NewReaderLimits(strings.NewReader(deep), limits).Value()
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("Value of %q: %v, want %v", deep, err, ErrTooLarge)
	}
	if _, err := NewReaderLimits(strings.NewReader(deep), limits).Skip(); err != nil {
		t.Errorf("Skip of %q: %v; it keeps nothing, so any depth is fine", deep, err)
	}
}

// A length that is announced costs nothing before its bytes arrive.
func TestAnnouncedLength(t *testing.T) {
	for _, raw := range []string{"$1000000000\r\nab", "*16000000\r\n:1\r\n", "*9999\r\n"} {
		read := func() { _, _ = NewReader(strings.NewReader(raw)).Value() }
		if n := testing.AllocsPerRun(1, read); n > 40 {
			t.Errorf("%q: %v allocations", raw, n)
		}
		got, err := NewReader(strings.NewReader(raw)).AppendRaw(nil)
		if !errors.Is(err, io.ErrUnexpectedEOF) || cap(got) > 4<<20 {
			t.Errorf("%q: a buffer of %d bytes, %v", raw, cap(got), err)
		}
	}
}

func TestLen(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int
	}{
		{"+OK\r\n:1\r\n", 5}, {"$3\r\nabc\r\nx", 9}, {"$-1\r\n", 5}, {"*-1\r\n", 5}, {"_\r\n", 3},
		{"*0\r\n", 4}, {"*2\r\n*1\r\n:1\r\n$1\r\na\r\n+x\r\n", 19},
		{"%1\r\n+a\r\n~1\r\n,1.5\r\n!", 18},
		{"=7\r\ntxt:abc\r\n", 13}, {">1\r\n#t\r\n", 8}, {"|1\r\n+a\r\n+b\r\n:5\r\n+c\r\n", 16},
		{"!3\r\nERR\r\n", 9}, {"(123\r\n", 6},
		{"", 0}, {"+OK\r", 0}, {"\n", 0}, {"x\r\n", 0}, {"$3\r\nab", 0}, {"*2\r\n:1\r\n", 0},
		{"$x\r\n", 0}, {"*99999999999\r\n", 0}, {"$1\r\n", 0},
	} {
		if got := Len([]byte(c.in)); got != c.want {
			t.Errorf("Len of %q is %d, want %d", c.in, got, c.want)
		}
	}
}

func TestElements(t *testing.T) {
	n, rest, ok := Elements([]byte("*2\r\n:1\r\n:2\r\n"))
	if n != 2 || string(rest) != ":1\r\n:2\r\n" || !ok {
		t.Errorf("%d, %q, %v", n, rest, ok)
	}
	for _, raw := range []string{"", "*", "*-1\r\n", "_\r\n", "-ERR\r\n", "~1\r\n:1\r\n",
		"*x\r\n"} {
		if _, _, ok := Elements([]byte(raw)); ok {
			t.Errorf("%q has elements", raw)
		}
	}
}

// A large string streams: Head returns its length and Text its bytes.
func TestText(t *testing.T) {
	r := NewReader(strings.NewReader("$5\r\nhello\r\n+OK\r\n"))
	h, err := r.Head()
	if err != nil || h.Kind != Bulk || h.N != 5 || h.IsError() {
		t.Fatalf("%+v, %v", h, err)
	}
	if text, err := io.ReadAll(r.Text(h)); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	if text, _ := io.ReadAll(r.Text(Head{Kind: Bulk, N: -1})); len(text) != 0 {
		t.Errorf("null has the text %q", text)
	}
}

func TestAppend(t *testing.T) {
	const want = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n"
	if got := string(AppendCommand(nil, "SET", "k", "")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := string(AppendCall(nil, [][]byte{[]byte("SET"), []byte("k"), nil})); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := string(AppendLine(nil, Error, "a\r\nb")); got != "-a  b\r\n" {
		t.Errorf("a line break in an error gives %q", got)
	}
	if got := string(AppendBulk(AppendHead(nil, Int, -5),
		[]byte("x"))); got != ":-5\r\n$1\r\nx\r\n" {
		t.Errorf("%q", got)
	}
}

func TestLenDoesNotAllocate(t *testing.T) {
	b := []byte("*2\r\n$3\r\nabc\r\n%1\r\n+k\r\n:1\r\n")
	if n := testing.AllocsPerRun(100, func() { _ = Len(b) }); n != 0 || Len(b) != len(b) {
		t.Errorf("%v allocations, length %d", n, Len(b))
	}
}

// flat hides what RESP3 cannot keep: which null it was, and a CR inside a line.
var flat = strings.NewReplacer("nil*", "nil", "\r", " ", `\r`, " ")

// FuzzReader reads any bytes in every way: all agree on the first value, or refuse it.
func FuzzReader(f *testing.F) {
	for _, c := range values {
		f.Add([]byte(c.raw + "+rest\r\n"))
	}
	f.Add([]byte("*1\r\n*-1\r\n"))
	f.Add([]byte("*99999999999999999\r\n$99999999999999999\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		n := Len(in)
		reader := func() *Reader { return NewReader(bufio.NewReaderSize(bytes.NewReader(in), 16)) }
		raw, err := reader().AppendRaw(nil)
		if (err == nil) != (n > 0) || err == nil && !bytes.Equal(raw, in[:n]) {
			t.Fatalf("Len is %d, AppendRaw %q, %v", n, raw, err)
		}
		if !bytes.HasPrefix(in, raw) {
			t.Fatalf("AppendRaw is %q", raw)
		}
		r := reader()
		if _, err := r.Skip(); (err == nil) != (n > 0) {
			t.Fatalf("Len is %d, Skip %v", n, err)
		} else if rest, _ := io.ReadAll(r.in); err == nil && !bytes.Equal(rest, in[n:]) {
			t.Fatalf("Skip leaves %q", rest)
		}
		v, err := reader().Value()
		if (err == nil) != (n > 0) && !errors.Is(err, ErrTooLarge) {
			t.Fatalf("Len is %d, Value %v", n, err)
		}
		if err != nil {
			return
		}
		for _, proto := range []int{2, 3} {
			again, err := NewReader(bytes.NewReader(v.Append(nil, proto))).Value()
			same := flat.Replace(again.String()) == flat.Replace(v.String())
			if err != nil || proto == 3 && !same {
				t.Fatalf("%s is written and read as %s, %v", v, again, err)
			}
		}
	})
}

// TestWrongPort says what may be wrong if the first reply cannot be read.
func TestWrongPort(t *testing.T) {
	for text, says := range map[string]string{
		"":                               "rediss://",
		"HTTP/1.1 400 Bad Request\r\n":   "an HTTP port",
		"+OK\r\nHTTP/1.1 400 Later\r\n":  "",
		"-ERR max number of clients\r\n": "",
	} {
		r := NewReplies(strings.NewReader(text), DefaultLimits)
		_, err := r.Value()
		if says != "" && (err == nil || !strings.Contains(err.Error(), says)) ||
			says == "" && err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if _, err = r.Value(); says == "" && strings.Contains(err.Error(), "port") {
			t.Errorf("%q, the second reply: %v", text, err)
		}
	}
}
