// cjson.decode: a JSON reader that accepts and refuses what lua-cjson 2.1.0 does, with its error
// texts and positions.

package script

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coordd/coordd/fsm/script/lua"
)

// jsonToken is the type of a token, named as in error texts.
type jsonToken string

const (
	tokenObjectBegin jsonToken = "T_OBJ_BEGIN"
	tokenObjectEnd   jsonToken = "T_OBJ_END"
	tokenArrayBegin  jsonToken = "T_ARR_BEGIN"
	tokenArrayEnd    jsonToken = "T_ARR_END"
	tokenString      jsonToken = "T_STRING"
	tokenNumber      jsonToken = "T_NUMBER"
	tokenBoolean     jsonToken = "T_BOOLEAN"
	tokenNull        jsonToken = "T_NULL"
	tokenColon       jsonToken = "T_COLON"
	tokenComma       jsonToken = "T_COMMA"
	tokenEnd         jsonToken = "T_END"
	// An error takes the place of a token, and its text that of the name.
	tokenInvalid      jsonToken = "invalid token"
	tokenBadNumber    jsonToken = "invalid number"
	tokenUnterminated jsonToken = "unexpected end of string"
	tokenBadEscape    jsonToken = "invalid escape code"
	tokenBadUnicode   jsonToken = "invalid unicode escape code"
)

func isJSONSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// jsonDecoder reads one text. token, at and value describe the newest token.
type jsonDecoder struct {
	L     *lua.LState
	b     *lua.Budget
	cfg   *cjsonConfig
	text  string
	next  int // index of the first byte not read
	depth int
	token jsonToken
	at    int // index where the token begins, or where the error is
	value lua.LValue
}

// decode is cjson.decode(text).
func (lib *cjsonLibrary) decode(L *lua.LState) int {
	if L.GetTop() != 1 {
		argError(L, 1, "expected 1 argument")
	}
	text := checkString(L, 1)
	if len(text) >= 2 && (text[0] == 0 || text[1] == 0) {
		raise(L, "JSON parser does not support UTF-16 or UTF-32")
	}
	d := jsonDecoder{L: L, b: budgetOf(L), cfg: lib.config(L), text: text}
	chargeWork(L, len(text))
	d.scan()
	v := d.parse(1)
	d.scan()
	if d.token != tokenEnd {
		d.unexpected("the end")
	}
	L.Push(v)
	return 1
}

// unexpected raises the error for a token other than the expected one.
func (d *jsonDecoder) unexpected(expected string) {
	raise(d.L, "Expected "+expected+" but found "+string(d.token)+" at character "+
		strconv.Itoa(d.at+1))
}

// parse returns the value that begins with the newest token. slots is how full C Lua's stack would
// be.
func (d *jsonDecoder) parse(slots int) lua.LValue {
	switch d.token {
	case tokenString, tokenNumber, tokenBoolean, tokenNull:
		return d.value
	case tokenObjectBegin:
		d.descend(slots + 3)
		t := d.object(slots)
		d.depth--
		return t
	case tokenArrayBegin:
		d.descend(slots + 2)
		t := d.array(slots)
		d.depth--
		return t
	}
	d.unexpected("value")
	return lua.LNil
}

// descend counts one level of nesting.
func (d *jsonDecoder) descend(slots int) {
	d.depth++
	if d.depth > d.cfg.decodeMaxDepth || slots > maxStackSlots {
		raise(d.L, "Found too many nested data structures ("+strconv.Itoa(d.depth)+
			") at character "+strconv.Itoa(d.next))
	}
}

// object reads an object after its opening brace.
func (d *jsonDecoder) object(slots int) *lua.LTable {
	t := d.L.NewRoom(0, 4)
	if d.scan(); d.token == tokenObjectEnd {
		return t
	}
	for {
		if d.token != tokenString {
			d.unexpected("object key string")
		}
		key := d.value
		if d.scan(); d.token != tokenColon {
			d.unexpected("colon")
		}
		d.scan()
		value := d.parse(slots + 2)
		d.L.RawSet(t, key, value)
		switch d.scan(); d.token {
		case tokenObjectEnd:
			return t
		case tokenComma:
			d.scan()
		default:
			d.unexpected("comma or object end")
		}
	}
}

// array reads an array after its opening bracket.
func (d *jsonDecoder) array(slots int) *lua.LTable {
	t := d.L.NewRoom(4, 0)
	if d.scan(); d.token == tokenArrayEnd {
		return t
	}
	for i := 1; ; i++ {
		value := d.parse(slots + 1)
		d.L.RawSetInt(t, i, value)
		switch d.scan(); d.token {
		case tokenArrayEnd:
			return t
		case tokenComma:
			d.scan()
		default:
			d.unexpected("comma or array end")
		}
	}
}

// scan reads the next token. A zero byte ends the text.
func (d *jsonDecoder) scan() {
	d.b.Charge(d.L, 1)
	for d.next < len(d.text) && isJSONSpace(d.text[d.next]) {
		d.next++
	}
	d.at = d.next
	if d.next == len(d.text) || d.text[d.next] == 0 {
		d.token = tokenEnd
		return
	}
	switch c := d.text[d.next]; c {
	case '{':
		d.accept(tokenObjectBegin, nil, 1)
	case '}':
		d.accept(tokenObjectEnd, nil, 1)
	case '[':
		d.accept(tokenArrayBegin, nil, 1)
	case ']':
		d.accept(tokenArrayEnd, nil, 1)
	case ':':
		d.accept(tokenColon, nil, 1)
	case ',':
		d.accept(tokenComma, nil, 1)
	case '"':
		d.scanString()
	default:
		d.scanWord(c)
	}
}

// accept consumes the next n bytes as a token with a value.
func (d *jsonDecoder) accept(token jsonToken, value lua.LValue, n int) {
	d.token, d.value = token, value
	d.next += n
}

// scanWord reads a number or one of the three names. If the settings allow it, numbers may be in
// forms that JSON lacks: hexadecimal, inf, nan, a leading plus or zero.
func (d *jsonDecoder) scanWord(c byte) {
	rest := d.text[d.next:]
	switch {
	case c == '-' || isDigit(c):
		if !d.cfg.decodeInvalidNumbers && invalidJSONNumber(rest) {
			d.token = tokenBadNumber
			return
		}
		d.scanNumber(rest)
	case strings.HasPrefix(rest, "true"):
		d.accept(tokenBoolean, lua.LTrue, 4)
	case strings.HasPrefix(rest, "false"):
		d.accept(tokenBoolean, lua.LFalse, 5)
	case strings.HasPrefix(rest, "null"):
		d.accept(tokenNull, nullOf(d.L), 4)
	case d.cfg.decodeInvalidNumbers && strings.IndexByte("+iInN", c) >= 0 &&
		invalidJSONNumber(rest):
		d.scanNumber(rest)
	default:
		d.token = tokenInvalid
	}
}

// invalidJSONNumber reports whether s begins with a number that is valid in C but not in JSON.
func invalidJSONNumber(s string) bool {
	if s[0] == '+' {
		return true
	}
	s = strings.TrimPrefix(s, "-")
	if strings.HasPrefix(s, "0") {
		return len(s) > 1 && (s[1]|0x20 == 'x' || isDigit(s[1]))
	}
	return hasFold(s, "inf") || hasFold(s, "nan")
}

// jsonNumber is what a number costs beyond other tokens, and escapesRead how many escapes in a
// string one unit pays for.
const (
	jsonNumber  = 6
	escapesRead = 2
	escapeUnits = 2 // cost of an escape, which is read twice: see chargeEscapes
)

func (d *jsonDecoder) scanNumber(rest string) {
	f, n := lua.ScanNumber(rest)
	if n == 0 {
		d.token = tokenBadNumber
		return
	}
	if n > 17 || strings.ContainsAny(rest[:n], "eEpP") { // others are cheap to read
		d.L.ChargeNumeral(rest[:n])
	}
	d.b.Charge(d.L, jsonNumber)
	d.accept(tokenNumber, lua.LNumber(f), n)
}

// fail makes the token an error at the next byte.
func (d *jsonDecoder) fail(token jsonToken) { d.token, d.at = token, d.next }

// scanString reads a string token, from its opening quote. It measures the string before it
// builds it, so that nothing is left of a buffer that grew.
func (d *jsonDecoder) scanString() {
	d.next++
	start, size, escapes := d.next, 0, 0
	var buf [utf8.UTFMax]byte
	for {
		if d.next == len(d.text) || d.text[d.next] == 0 {
			d.chargeEscapes(escapes)
			d.fail(tokenUnterminated)
			return
		}
		c := d.text[d.next]
		if c == '"' {
			break
		}
		if c != '\\' {
			d.next++
			size++
			continue
		}
		escapes++
		one, bad := d.unescape(buf[:0])
		if bad != "" {
			d.chargeEscapes(escapes)
			d.fail(bad)
			return
		}
		size += len(one)
	}
	if d.chargeEscapes(escapes); !d.L.G.Strict {
		d.b.Charge(d.L, int64(escapes/escapesRead))
	}
	if d.L.G.Strict {
		d.b.ChargeBytes(d.L, stringOverhead)
	}
	d.b.ChargeBytes(d.L, int64(size))
	s := ""
	if escapes > 0 {
		s = d.unescaped(start, d.next, size)
	} else { // a substring would keep the whole text alive: copying costs less
		s = strings.Clone(d.text[start:d.next])
	}
	d.accept(tokenString, lua.LString(s), 1)
}

// chargeEscapes charges for reading escapes, which release 0.1 charged less for, and nothing for
// those in a string that is wrong.
func (d *jsonDecoder) chargeEscapes(n int) {
	if d.L.G.Strict {
		d.b.Charge(d.L, escapeUnits*int64(n))
	}
}

// unescaped returns the string between start and end, which has size bytes without its escapes.
func (d *jsonDecoder) unescaped(start, end, size int) string {
	var out strings.Builder
	var buf [utf8.UTFMax]byte
	out.Grow(size)
	for d.next = start; d.next < end; {
		n := strings.IndexByte(d.text[d.next:end], '\\')
		if n < 0 {
			n = end - d.next
		}
		out.WriteString(d.text[d.next : d.next+n])
		if d.next += n; d.next < end {
			one, _ := d.unescape(buf[:0]) // it was measured, so it is good
			out.Write(one)
		}
	}
	return out.String()
}

// unescape reads the escape at the next byte and appends the character; bad is the error, "" for
// none.
func (d *jsonDecoder) unescape(out []byte) (_ []byte, bad jsonToken) {
	c := byte(0)
	if d.next+1 < len(d.text) {
		c = d.text[d.next+1]
	}
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return d.unescapeUnicode(out)
	default:
		return out, tokenBadEscape
	}
	d.next += 2
	return append(out, c), ""
}

// unescapeUnicode reads one \uXXXX, or two that form a surrogate pair, and appends the character in
// UTF-8.
func (d *jsonDecoder) unescapeUnicode(out []byte) (_ []byte, bad jsonToken) {
	r, ok := hex4(d.text[d.next+2:])
	if !ok {
		return out, tokenBadUnicode
	}
	n := 6
	if r&0xF800 == 0xD800 {
		rest := d.text[d.next+n:]
		if r&0x400 != 0 || !strings.HasPrefix(rest, `\u`) {
			return out, tokenBadUnicode
		}
		low, ok := hex4(rest[2:])
		if !ok || low&0xFC00 != 0xDC00 {
			return out, tokenBadUnicode
		}
		r = (r&0x3FF)<<10 + low&0x3FF + 0x10000
		n = 12
	}
	d.next += n
	return utf8.AppendRune(out, r), ""
}

// hex4 reads four hexadecimal digits.
func hex4(s string) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for i := range 4 {
		switch c := s[i]; {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case isHexDigit(c):
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
