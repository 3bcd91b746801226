// The parser of expected replies, and of call arguments as redis-cli splits them.

package commandtest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/coordd/coordd/internal/resp"
)

// notation parses expected replies from s.
type notation struct{ s string }

// parseWant parses what follows "=>": one reply for both protocols, or two separated by "|", the
// first for RESP2.
func parseWant(s string) (want [2]Value, err error) {
	n := &notation{s: s}
	if want[0], err = n.value(); err != nil {
		return want, err
	}
	want[1] = want[0]
	if n.skip(); strings.HasPrefix(n.s, "|") {
		n.s = n.s[1:]
		if want[1], err = n.value(); err != nil {
			return want, err
		}
		n.skip()
	}
	if n.s != "" {
		return want,
			fmt.Errorf("%q follows the reply; a text with spaces is quoted: -\"ERR no such key\"",
				n.s)
	}
	return want, nil
}

func (n *notation) skip() { n.s = strings.TrimLeft(n.s, " \t") }

func (n *notation) value() (Value, error) {
	n.skip()
	if n.s == "" {
		return Value{}, errors.New("the reply is missing")
	}
	c := n.s[0]
	switch c {
	case '"':
		text, err := n.text()
		return Value{Kind: '$', Text: text}, err
	case '[':
		return n.elements('*', ']')
	case '{':
		v, err := n.elements('%', '}')
		if err == nil && len(v.Elems)%2 != 0 {
			err = errors.New("a map has a key without a value")
		}
		return v, err
	case '~', '>':
		n.s = n.s[1:]
		if !strings.HasPrefix(n.s, "[") {
			return Value{}, fmt.Errorf("'[' is missing after '%c'", c)
		}
		return n.elements(c, ']')
	case '+', '-', '=', '!', ':', ',', '#', '(':
		n.s = n.s[1:]
		text, err := n.text()
		if err == nil {
			err = checkText(c, text)
		}
		return Value{Kind: c, Text: text}, err
	}
	switch text, err := n.text(); {
	case err != nil:
		return Value{}, err
	case text == "nil":
		return Value{Kind: '_'}, nil
	case text == "nil*":
		return Value{Kind: '*', Null: true}, nil
	default:
		return Value{},
			fmt.Errorf("%q shows no RESP type: :1 is an integer, \"1\" a bulk string, +OK a status",
				text)
	}
}

func checkText(kind byte, text string) error {
	_, err := strconv.ParseInt(text, 10, 64)
	switch {
	case kind == ':' && err != nil:
		return fmt.Errorf("%q is no integer", text)
	case kind == '#' && text != "t" && text != "f":
		return fmt.Errorf("%q is no boolean: #t or #f", text)
	case kind == '=' && (len(text) < 4 || text[3] != ':'):
		return fmt.Errorf("%q is no verbatim text: =\"txt:…\"", text)
	}
	return nil
}

// elements parses values up to the bracket end. n.s starts with the opening one.
func (n *notation) elements(kind, end byte) (Value, error) {
	v := Value{Kind: kind}
	n.s = n.s[1:]
	for {
		n.skip()
		if n.s == "" {
			return v, fmt.Errorf("'%c' is missing", end)
		}
		if n.s[0] == end {
			n.s = n.s[1:]
			return v, nil
		}
		e, err := n.value()
		if err != nil {
			return v, err
		}
		v.Elems = append(v.Elems, e)
	}
}

// text parses a quoted text or a bare word.
func (n *notation) text() (string, error) {
	if strings.HasPrefix(n.s, `"`) {
		text, rest, err := unquote(n.s)
		n.s = rest
		return string(text), err
	}
	end := strings.IndexFunc(n.s, func(c rune) bool { return !resp.IsBare(c) })
	if end < 0 {
		end = len(n.s)
	}
	if end == 0 {
		return "", fmt.Errorf("a reply cannot begin at %q", n.s)
	}
	text := n.s[:end]
	n.s = n.s[end:]
	return text, nil
}

// SplitArgs splits a line into arguments as redis-cli does: see splitCall. Here "=>" is an argument
// like any other.
func SplitArgs(line string) (args [][]byte, err error) {
	line = strings.TrimRight(line, "\r\n")
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return args, nil
		}
		var arg []byte
		if arg, line, err = splitArg(line); err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
}

// splitCall splits a line into the arguments of a call, as redis-cli does, and what follows "=>".
// Arguments are bare words, words in double quotes with \n \r \t \b \a \xHH, and words in single
// quotes with \'.
func splitCall(line string) (args [][]byte, want string, found bool, err error) {
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return args, "", false, nil
		}
		if rest, ok := strings.CutPrefix(line, "=>"); ok &&
			(rest == "" || rest[0] == ' ' || rest[0] == '\t') {
			return args, rest, true, nil
		}
		var arg []byte
		if arg, line, err = splitArg(line); err != nil {
			return nil, "", false, err
		}
		args = append(args, arg)
	}
}

// splitArg splits off the first argument of a line that does not start with a space.
func splitArg(line string) (arg []byte, rest string, err error) {
	arg = []byte{}
	for line != "" && line[0] != ' ' && line[0] != '\t' {
		if line[0] != '"' && line[0] != '\'' {
			arg = append(arg, line[0])
			line = line[1:]
			continue
		}
		part, after, err := unquote(line)
		if err != nil {
			return nil, "", err
		}
		if after != "" && after[0] != ' ' && after[0] != '\t' {
			return nil, "", fmt.Errorf("no space between a closing quote and %q", after)
		}
		arg = append(arg, part...)
		line = after
	}
	return arg, line, nil
}

var escapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'b': '\b', 'a': '\a'}

// unquote parses the quoted text at the start of s and returns what follows it.
func unquote(s string) (text []byte, rest string, err error) {
	mark := s[0]
	text = []byte{}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == mark:
			return text, s[i+1:], nil
		case c != '\\' || i+1 == len(s):
			text = append(text, c)
		case mark == '\'':
			if s[i+1] == '\'' {
				i++
			}
			text = append(text, s[i])
		case s[i+1] == 'x' && i+3 < len(s) && isHex(s[i+2:i+4]):
			b, _ := strconv.ParseUint(s[i+2:i+4], 16, 8)
			text = append(text, byte(b))
			i += 3
		default:
			i++
			if e, ok := escapes[s[i]]; ok {
				text = append(text, e)
			} else {
				text = append(text, s[i])
			}
		}
	}
	return nil, "", fmt.Errorf("the quote at %q does not end", clip(s))
}

func isHex(s string) bool {
	_, err := strconv.ParseUint(s, 16, 8)
	return err == nil
}
