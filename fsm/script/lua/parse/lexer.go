package parse

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/coordd/coordd/fsm/script/lua/ast"
)

const EOF = -1
const whitespace1 = 1<<'\t' | 1<<'\v' | 1<<'\f' | 1<<' '
const whitespace2 = whitespace1 | 1<<'\n' | 1<<'\r'

type Error struct {
	Pos     ast.Position
	Message string
	Token   string
	CLua    *Error // as C Lua words it, if release 0.1 did not; nil otherwise
}

func (e *Error) Error() string {
	pos := e.Pos
	if pos.Line == EOF {
		return fmt.Sprintf("%v at EOF:   %s\n", pos.Source, e.Message)
	} else {
		return fmt.Sprintf("%v line:%d(column:%d) near '%v':   %s\n", pos.Source, pos.Line,
			pos.Column, e.Token, e.Message)
	}
}

func writeChar(buf *bytes.Buffer, c int) { buf.WriteByte(byte(c)) }

func isDecimal(ch int) bool { return '0' <= ch && ch <= '9' }

func isIdent(ch int, pos int) bool {
	return ch == '_' || 'A' <= ch && ch <= 'Z' || 'a' <= ch && ch <= 'z' || isDecimal(ch) && pos > 0
}

func isDigit(ch int) bool {
	return '0' <= ch && ch <= '9' || 'a' <= ch && ch <= 'f' || 'A' <= ch && ch <= 'F'
}

// Scanner reads tokens from a source. Names, numbers and plain strings share the bytes of the
// source.
type Scanner struct {
	Pos ast.Position
	src string
	at  int
	buf bytes.Buffer
}

// NewScanner returns a scanner of src. Errors call it source.
func NewScanner(src, source string) *Scanner {
	return &Scanner{Pos: ast.Position{Source: source, Line: 1}, src: src}
}

func (sc *Scanner) Error(tok string, msg string) *Error {
	return &Error{Pos: sc.Pos, Message: msg, Token: tok}
}

// errorLike is Error with C Lua's message and token, which is "" at the end of the source.
func (sc *Scanner) errorLike(tok, msg, cToken, cMessage string) *Error {
	e := sc.Error(tok, msg)
	e.CLua = sc.Error(cToken, cMessage)
	return e
}

func (sc *Scanner) TokenError(tok ast.Token, msg string) *Error {
	return &Error{Pos: tok.Pos, Message: msg, Token: tok.Str}
}

func (sc *Scanner) readNext() int {
	if sc.at >= len(sc.src) {
		return EOF
	}
	ch := sc.src[sc.at]
	sc.at++
	return int(ch)
}

func (sc *Scanner) Newline(ch int) {
	if ch < 0 {
		return
	}
	sc.Pos.Line += 1
	sc.Pos.Column = 0
	next := sc.Peek()
	if ch == '\n' && next == '\r' || ch == '\r' && next == '\n' {
		sc.at++
	}
}

func (sc *Scanner) Next() int {
	ch := sc.readNext()
	switch ch {
	case '\n', '\r':
		sc.Newline(ch)
		ch = int('\n')
	case EOF:
		sc.Pos.Line = EOF
		sc.Pos.Column = 0
	default:
		sc.Pos.Column++
	}
	return ch
}

func (sc *Scanner) Peek() int {
	if sc.at >= len(sc.src) {
		return EOF
	}
	return int(sc.src[sc.at])
}

func (sc *Scanner) skipWhiteSpace(whitespace int64) int {
	ch := sc.Next()
	for ; whitespace&(1<<uint(ch)) != 0; ch = sc.Next() {
	}
	return ch
}

func (sc *Scanner) skipComments(ch int) error {
	if sc.longBracket() {
		sc.Next()
		var buf bytes.Buffer
		if err := sc.scanMultilineString(sc.Next(), &buf); err != nil {
			return sc.errorLike(buf.String(), "invalid multiline comment",
				"", "unfinished long comment")
		}
		return nil
	}
	for {
		if ch == '\n' || ch == '\r' || ch < 0 {
			break
		}
		ch = sc.Next()
	}
	return nil
}

// longBracket reports whether a long bracket opens next: [[, [=[ and so on.
func (sc *Scanner) longBracket() bool {
	rest, ok := strings.CutPrefix(sc.src[sc.at:], "[")
	for ok && strings.HasPrefix(rest, "=") {
		rest = rest[1:]
	}
	return ok && strings.HasPrefix(rest, "[")
}

// scanIdent returns the name whose first character was read.
func (sc *Scanner) scanIdent() string {
	start := sc.at - 1
	for sc.at < len(sc.src) && isIdent(int(sc.src[sc.at]), 1) {
		sc.at++
	}
	sc.Pos.Column += sc.at - start - 1
	return sc.src[start:sc.at]
}

func (sc *Scanner) scanDecimal(ch int, buf *bytes.Buffer) error {
	writeChar(buf, ch)
	for isDecimal(sc.Peek()) {
		writeChar(buf, sc.Next())
	}
	return nil
}

func (sc *Scanner) scanNumber(ch int, buf *bytes.Buffer) error {
	if ch == '0' { // octal
		if sc.Peek() == 'x' || sc.Peek() == 'X' {
			writeChar(buf, ch)
			writeChar(buf, sc.Next())
			hasvalue := false
			for isDigit(sc.Peek()) {
				writeChar(buf, sc.Next())
				hasvalue = true
			}
			if !hasvalue {
				return sc.Error(buf.String(), "illegal hexadecimal number")
			}
			return nil
		} else if sc.Peek() != '.' && isDecimal(sc.Peek()) {
			ch = sc.Next()
		}
	}
	sc.scanDecimal(ch, buf)
	if sc.Peek() == '.' {
		sc.scanDecimal(sc.Next(), buf)
	}
	if ch = sc.Peek(); ch == 'e' || ch == 'E' {
		writeChar(buf, sc.Next())
		if ch = sc.Peek(); ch == '-' || ch == '+' {
			writeChar(buf, sc.Next())
		}
		if isDecimal(sc.Peek()) {
			sc.scanDecimal(sc.Next(), buf)
		}
	}

	return nil
}

// plainString returns a string that has neither escapes nor line breaks, or false.
func (sc *Scanner) plainString(quote byte) (string, bool) {
	for i := sc.at; i < len(sc.src); i++ {
		switch c := sc.src[i]; c {
		case quote:
			s := sc.src[sc.at:i]
			sc.Pos.Column += i + 1 - sc.at
			sc.at = i + 1
			return s, true
		case '\\', '\n', '\r':
			return "", false
		}
	}
	return "", false
}

func (sc *Scanner) scanString(quote int, buf *bytes.Buffer) error {
	ch := sc.Next()
	for ch != quote {
		if ch == '\n' || ch == '\r' || ch < 0 {
			e := sc.errorLike(buf.String(), "unterminated string", "", "unfinished string")
			if ch >= 0 {
				e.CLua.Token = string(rune(quote)) + buf.String()
				e.CLua.Pos.Line-- // where the string is
			}
			return e
		}
		if ch == '\\' {
			if err := sc.scanEscape(quote, buf); err != nil {
				return err
			}
		} else {
			writeChar(buf, ch)
		}
		ch = sc.Next()
	}
	return nil
}

func (sc *Scanner) scanEscape(quote int, buf *bytes.Buffer) error {
	ch := sc.Next()
	switch ch {
	case 'a':
		buf.WriteByte('\a')
	case 'b':
		buf.WriteByte('\b')
	case 'f':
		buf.WriteByte('\f')
	case 'n':
		buf.WriteByte('\n')
	case 'r':
		buf.WriteByte('\r')
	case 't':
		buf.WriteByte('\t')
	case 'v':
		buf.WriteByte('\v')
	case '\\':
		buf.WriteByte('\\')
	case '"':
		buf.WriteByte('"')
	case '\'':
		buf.WriteByte('\'')
	case '\n':
		buf.WriteByte('\n')
	case '\r':
		buf.WriteByte('\n')
		sc.Newline('\r')
	default:
		if '0' <= ch && ch <= '9' {
			bytes := []byte{byte(ch)}
			for i := 0; i < 2 && isDecimal(sc.Peek()); i++ {
				bytes = append(bytes, byte(sc.Next()))
			}
			val, _ := strconv.ParseInt(string(bytes), 10, 32)
			if val > 255 {
				const message = "escape sequence too large"
				return sc.errorLike(buf.String(), message, string(rune(quote))+buf.String(),
					message)
			}
			writeChar(buf, int(val))
		} else {
			writeChar(buf, ch)
		}
	}
	return nil
}

func (sc *Scanner) countSep(ch int) (int, int) {
	count := 0
	for ; ch == '='; count = count + 1 {
		ch = sc.Next()
	}
	return count, ch
}

func (sc *Scanner) scanMultilineString(ch int, buf *bytes.Buffer) error {
	var count1, count2 int
	line := sc.Pos.Line
	count1, ch = sc.countSep(ch)
	if ch != '[' {
		e := sc.errorLike(string(rune(ch)), "invalid multiline string",
			"["+strings.Repeat("=", count1), "invalid long string delimiter")
		e.CLua.Pos.Line = line // not the end of the source
		return e
	}
	ch = sc.Next()
	if ch == '\n' || ch == '\r' {
		ch = sc.Next()
	}
	for {
		if ch < 0 {
			return sc.errorLike(buf.String(), "unterminated multiline string",
				"", "unfinished long string")
		} else if ch == ']' {
			count2, ch = sc.countSep(sc.Next())
			if count1 == count2 && ch == ']' {
				goto finally
			}
			buf.WriteByte(']')
			buf.WriteString(strings.Repeat("=", count2))
			continue
		}
		writeChar(buf, ch)
		ch = sc.Next()
	}

finally:
	return nil
}

var reservedWords = map[string]int{
	"and": TAnd, "break": TBreak, "do": TDo, "else": TElse, "elseif": TElseIf,
	"end": TEnd, "false": TFalse, "for": TFor, "function": TFunction,
	"if": TIf, "in": TIn, "local": TLocal, "nil": TNil, "not": TNot, "or": TOr,
	"return": TReturn, "repeat": TRepeat, "then": TThen, "true": TTrue,
	"until": TUntil, "while": TWhile} // goto is a name in Lua 5.1

func (sc *Scanner) Scan(lexer *Lexer) (ast.Token, error) {
redo:
	var err error
	tok := ast.Token{}
	newline := false

	ch := sc.skipWhiteSpace(whitespace1)
	if ch == '\n' || ch == '\r' {
		newline = true
		ch = sc.skipWhiteSpace(whitespace2)
	}

	if ch == '(' && lexer.PrevTokenType == ')' {
		lexer.PNewLine = newline
	} else {
		lexer.PNewLine = false
	}

	buf := &sc.buf
	buf.Reset()
	tok.Pos = sc.Pos

	switch {
	case isIdent(ch, 0):
		tok.Type = TIdent
		tok.Str = sc.scanIdent()
		if typ, ok := reservedWords[tok.Str]; ok {
			tok.Type = typ
		}
	case isDecimal(ch):
		tok.Type = TNumber
		err = sc.scanNumber(ch, buf)
		tok.Str = buf.String()
	default:
		switch ch {
		case EOF:
			tok.Type = EOF
		case '-':
			if sc.Peek() == '-' {
				err = sc.skipComments(sc.Next())
				if err != nil {
					goto finally
				}
				goto redo
			} else {
				tok.Type = ch
				tok.Str = characters[ch]
			}
		case '"', '\'':
			tok.Type = TString
			if plain, ok := sc.plainString(byte(ch)); ok {
				tok.Str = plain
				break
			}
			err = sc.scanString(ch, buf)
			tok.Str = buf.String()
		case '[':
			if c := sc.Peek(); c == '[' || c == '=' {
				tok.Type = TString
				err = sc.scanMultilineString(sc.Next(), buf)
				tok.Str = buf.String()
			} else {
				tok.Type = ch
				tok.Str = characters[ch]
			}
		case '=':
			if sc.Peek() == '=' {
				tok.Type = TEqeq
				tok.Str = "=="
				sc.Next()
			} else {
				tok.Type = ch
				tok.Str = characters[ch]
			}
		case '~':
			if sc.Peek() == '=' {
				tok.Type = TNeq
				tok.Str = "~="
				sc.Next()
			} else {
				err = sc.Error("~", "Invalid '~' token")
			}
		case '<':
			if sc.Peek() == '=' {
				tok.Type = TLte
				tok.Str = "<="
				sc.Next()
			} else {
				tok.Type = ch
				tok.Str = characters[ch]
			}
		case '>':
			if sc.Peek() == '=' {
				tok.Type = TGte
				tok.Str = ">="
				sc.Next()
			} else {
				tok.Type = ch
				tok.Str = characters[ch]
			}
		case '.':
			ch2 := sc.Peek()
			switch {
			case isDecimal(ch2):
				tok.Type = TNumber
				err = sc.scanNumber(ch, buf)
				tok.Str = buf.String()
			case ch2 == '.':
				writeChar(buf, ch)
				writeChar(buf, sc.Next())
				if sc.Peek() == '.' {
					writeChar(buf, sc.Next())
					tok.Type = T3Comma
				} else {
					tok.Type = T2Comma
				}
			default:
				tok.Type = '.'
			}
			tok.Str = buf.String()
		case ':':
			if sc.Peek() == ':' {
				tok.Type = T2Colon
				tok.Str = "::"
				sc.Next()
			} else {
				tok.Type = ch
				tok.Str = characters[ch]
			}
		case '+', '*', '/', '%', '^', '#', '(', ')', '{', '}', ']', ';', ',':
			tok.Type = ch
			tok.Str = characters[ch]
		default:
			writeChar(buf, ch)
			err = sc.Error(buf.String(), "Invalid token")
			goto finally
		}
	}

finally:
	return tok, err
}

// yacc interface {{{

type Lexer struct {
	scanner       *Scanner
	Stmts         []ast.Stmt
	PNewLine      bool
	Token         ast.Token
	PrevTokenType int
	tokens, limit int
}

func (lx *Lexer) Lex(lval *yySymType) int {
	lx.PrevTokenType = lx.Token.Type
	if lx.tokens++; lx.limit > 0 && lx.tokens > lx.limit {
		lx.Error(TooLong)
	}
	tok, err := lx.scanner.Scan(lx)
	if err != nil {
		panic(err)
	}
	if tok.Type < 0 {
		return 0
	}
	if tok.Type == TNumber {
		lx.tokens += numeralTokens(tok.Str)
	}
	lval.token = tok
	lx.Token = tok
	return int(tok.Type)
}

func (lx *Lexer) Error(message string) {
	panic(lx.scanner.Error(lx.Token.Str, message))
}

func (lx *Lexer) TokenError(tok ast.Token, message string) {
	panic(lx.scanner.TokenError(tok, message))
}

// numeralTokens returns how many tokens a number counts for besides itself. Go reads long numbers,
// and those with a large exponent, digit by digit.
func numeralTokens(s string) int {
	exponent := 0
	if i := strings.LastIndexAny(s, "eE"); i >= 0 {
		exponent = len(s) - i
	}
	if len(s) <= 18 && exponent <= 3 || strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		return 0
	}
	return 30 + len(s)/8
}

// Parse reads a chunk of at most limit tokens; 0: any number. It returns the number of tokens, up
// to the error if there is one. Errors call the source name. The work is linear in the length of
// source, and nesting is bounded.
func Parse(source, name string, limit int) (chunk []ast.Stmt, tokens int, err error) {
	lexer := &Lexer{scanner: NewScanner(source, name), PrevTokenType: TNil, limit: limit}
	defer func() {
		if e := recover(); e != nil {
			parsed, ok := e.(*Error)
			if !ok {
				panic(e)
			}
			chunk, tokens, err = nil, lexer.tokens, parsed
		}
	}()
	yyParse(lexer)
	return lexer.Stmts, lexer.tokens, nil
}

// TooDeep is the error of a source that nests too deeply.
const TooDeep = "chunk has too many syntax levels"

// TooLong is the error of a source that has more tokens than the limit.
const TooLong = "chunk has too many tokens"

// maxStack bounds the parser's stack, and so the nesting of a source.
const maxStack = 32_768

// characters are the one-character tokens.
var characters = func() (list [256]string) {
	for i := range list {
		list[i] = string(rune(i))
	}
	return list
}()

// noStatement returns the error of an expression that is used as a statement but is no call.
func noStatement(e ast.Expr) string {
	switch e.(type) {
	case *ast.IdentExpr, *ast.AttrGetExpr:
		return "'=' expected"
	}
	return "syntax error"
}
