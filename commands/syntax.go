// Parsing of Spec.Syntax into a tree. COMMAND DOCS shows the tree, and random tests make calls from
// it. The notation is that of Redis's documentation, with the types of values added:
//
//	WORD          itself; a word without lower-case letters, in double quotes if it has some
//	name          a string
//	name:type     a value of a type: integer, double, key, pattern or unix-time
//	key, pattern  short for key:key and pattern:pattern
//	WORD a b      a word and the values that belong to it
//	[x]           x, or nothing
//	<x | y>       one of them; between [ ] as well
//	x [x ...]     x, once or more

package commands

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/coordd/coordd/internal/ascii"
)

// ArgType is the type of an argument, in the terms of COMMAND DOCS.
type ArgType string

// The types of arguments.
const (
	ArgString   ArgType = "string"
	ArgInteger  ArgType = "integer"
	ArgDouble   ArgType = "double"
	ArgKey      ArgType = "key"
	ArgPattern  ArgType = "pattern"
	ArgUnixTime ArgType = "unix-time"
	ArgToken    ArgType = "pure-token" // Arg.Token alone
	ArgOneOf    ArgType = "oneof"      // one of Arg.Args
	ArgBlock    ArgType = "block"      // all of Arg.Args
)

// Arg is an argument of a command, or several.
type Arg struct {
	Name          string
	Type          ArgType
	Token         string // the word before it, or the word that it is
	Optional      bool
	Multiple      bool // may be repeated
	MultipleToken bool // each time with its token
	Args          []Arg
}

// sameArgs reports whether two lists of arguments are equal, recursively.
func sameArgs(a, b []Arg) bool {
	return slices.EqualFunc(a, b, func(a, b Arg) bool {
		return a.Name == b.Name && a.Type == b.Type && a.Token == b.Token &&
			a.Optional == b.Optional &&
			a.Multiple == b.Multiple && a.MultipleToken == b.MultipleToken &&
			sameArgs(a.Args, b.Args)
	})
}

// ParseSyntax parses the Syntax of a Spec.
func ParseSyntax(syntax string) ([]Arg, error) {
	r := syntaxReader{words: splitSyntax(syntax)}
	group, err := r.alternatives("")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", syntax, err)
	}
	if len(group.alts) > 1 {
		return []Arg{group.arg()}, nil
	}
	return joinTokens(group.alts[0]), nil
}

// splitSyntax splits the notation into brackets, bars, dots and words.
func splitSyntax(s string) []string {
	var words []string
	for s != "" {
		n := 1
		switch {
		case strings.HasPrefix(s, "..."):
			n = 3
		case s[0] == '"':
			n = strings.IndexByte(s[1:], '"') + 2
		case !strings.ContainsRune(" []<>|", rune(s[0])):
			if n = strings.IndexAny(s, " []<>|\""); n < 0 {
				n = len(s)
			}
			if dots := strings.Index(s[:n], "..."); dots > 0 {
				n = dots
			}
		}
		if n = max(n, 1); s[0] != ' ' {
			words = append(words, s[:n])
		}
		s = s[n:]
	}
	return words
}

type syntaxReader struct{ words []string }

// argGroup is the content of brackets.
type argGroup struct {
	alts     [][]Arg // separated by bars
	repeated bool    // ends in dots: what precedes it may be repeated
}

var errSyntaxEnd = errors.New("a bracket is not closed")

// alternatives parses up to and including the closing bracket end, or to the end of the text if end
// is empty.
func (r *syntaxReader) alternatives(end string) (argGroup, error) {
	g := argGroup{alts: [][]Arg{nil}}
	for {
		if len(r.words) == 0 {
			if end != "" {
				return g, errSyntaxEnd
			}
			return g, g.check()
		}
		word := r.words[0]
		r.words = r.words[1:]
		if word == end {
			return g, g.check()
		}
		last := &g.alts[len(g.alts)-1]
		switch word {
		case "]", ">":
			return g, fmt.Errorf("%q is too much", word)
		case "|":
			g.alts = append(g.alts, nil)
		case "...":
			g.repeated = true
		case "<":
			inner, err := r.alternatives(">")
			if err != nil {
				return g, err
			}
			*last = append(*last, inner.arg())
		case "[":
			inner, err := r.alternatives("]")
			if err != nil {
				return g, err
			}
			g.option(inner)
		default:
			*last = append(*last, wordArg(word))
		}
	}
}

func (g *argGroup) check() error {
	if slices.ContainsFunc(g.alts, func(a []Arg) bool { return len(a) == 0 }) && len(g.alts) > 1 {
		return errors.New("an alternative is empty")
	}
	return nil
}

// option adds the content of square brackets, or marks what precedes it as repeated.
func (g *argGroup) option(inner argGroup) {
	last := &g.alts[len(g.alts)-1]
	if inner.repeated {
		// The whole of the group with all its alternatives …
		if len(g.alts) > 1 && slices.EqualFunc(inner.alts, g.alts, sameArgs) {
			g.repeated = true
			return
		}
		// … or the newest arguments.
		again := inner.alts[0]
		if len(inner.alts) > 1 {
			again = []Arg{(&argGroup{alts: inner.alts}).arg()}
		}
		if at := len(*last) - len(again); at >= 0 && sameArgs(again, (*last)[at:]) {
			once := argGroup{alts: [][]Arg{again}, repeated: true}
			*last = append((*last)[:at:at], once.arg())
			return
		}
	}
	a := inner.arg()
	a.Optional = true
	*last = append(*last, a)
}

// arg converts a group into one argument.
func (g *argGroup) arg() Arg {
	var options []Arg
	for _, alt := range g.alts {
		options = append(options, oneArg(joinTokens(alt)))
	}
	a := options[0]
	if len(options) > 1 {
		a = Arg{Type: ArgOneOf, Args: options, Name: nameOf(options)}
	}
	if g.repeated {
		a.Multiple = true
		a.MultipleToken = a.Token != "" && a.Type != ArgToken
	}
	return a
}

// oneArg joins several arguments into a block.
func oneArg(args []Arg) Arg {
	if len(args) == 1 {
		return args[0]
	}
	return Arg{Type: ArgBlock, Args: args, Name: nameOf(args)}
}

// joinTokens attaches values to the words before them.
func joinTokens(args []Arg) []Arg {
	var joined []Arg
	for i := 0; i < len(args); i++ {
		a := args[i]
		end := i + 1
		if a.Type == ArgToken && !a.Optional && !a.Multiple {
			for end < len(args) && takesToken(&args[end]) {
				end++
			}
			if end == i+1 && end < len(args) && args[end].Type == ArgOneOf && !args[end].Optional &&
				args[end].Token == "" {
				end++
			}
		}
		if end > i+1 {
			value := oneArg(args[i+1 : end])
			value.Token = a.Token
			a = value
		}
		joined = append(joined, a)
		i = end - 1
	}
	return joined
}

// takesToken reports whether a is a value that belongs to a word before it.
func takesToken(a *Arg) bool {
	return a.Token == "" && !a.Optional && a.Type != ArgOneOf && (a.Type != ArgBlock || a.Multiple)
}

func nameOf(args []Arg) string {
	names := make([]string, len(args))
	for i := range args {
		names[i] = args[i].Name
	}
	return strings.Join(names, "-")
}

func wordArg(word string) Arg {
	if text := strings.Trim(word, "\""); text != word ||
		!strings.ContainsFunc(word, unicode.IsLower) {
		return Arg{Name: ascii.Lower(text), Type: ArgToken, Token: text}
	}
	name, kind := typedName(word)
	return Arg{Name: name, Type: kind}
}

// valueTypes are the types that a value can have.
var valueTypes = []ArgType{ArgInteger, ArgDouble, ArgKey, ArgPattern, ArgUnixTime}

// typedName splits the word of a value into name and type.
func typedName(word string) (name string, kind ArgType) {
	for _, t := range valueTypes {
		if word == string(t) {
			return word, t
		}
		if name, found := strings.CutSuffix(word, ":"+string(t)); found {
			return name, t
		}
	}
	return word, ArgString
}

// untyped returns a syntax without the types of its values.
func untyped(syntax string) string {
	for _, t := range valueTypes {
		syntax = strings.ReplaceAll(syntax, ":"+string(t), "")
	}
	return syntax
}
