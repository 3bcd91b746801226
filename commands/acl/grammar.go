// The grammar of rules, and Redis's errors.

package acl

import (
	"bytes"
	"strings"

	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/resp"
)

// Error says why a rule is refused, in Redis's words.
type Error string

func (e Error) Error() string { return string(e) }

const (
	errSyntax  Error = "Syntax error"
	errUnknown Error = "Unknown command or category name in ACL"
	errFirst   Error = "Allowing first-arg of a subcommand is not supported"
	errHash    Error = "The password hash must be exactly 64 characters and contain only " +
		"lowercase hexadecimal characters"
	errNoPassword   Error = "The password you are trying to remove from the user does not exist"
	errAfterAllKeys Error = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not " +
		"valid and does not have any effect. Try 'resetkeys' to start with an empty list of " +
		"patterns"
	errAfterAllChannels Error = "Adding a pattern after the * pattern (or the 'allchannels' " +
		"flag) is not valid and does not have any effect. Try 'resetchannels' to start with an " +
		"empty list of channels"
)

// RuleError is a rule that a user cannot get.
type RuleError struct {
	Rule string
	Err  error
}

func (e *RuleError) Error() string {
	return "Error in ACL SETUSER modifier '" + e.Rule + "': " + e.Err.Error()
}

func (e *RuleError) Unwrap() error { return e.Err }

// UnmatchedError is a selector without its closing parenthesis.
type UnmatchedError struct{ Start string }

func (e *UnmatchedError) Error() string {
	return "Unmatched parenthesis in acl selector starting at '" + e.Start + "'."
}

// maxShown is how much of a rule an error shows, bytes: usual selectors are not cut off.
const maxShown = 512

// shown is what an error shows of a rule, see resp.Shown.
func shown(rule string) string { return resp.CText(rule[:min(len(rule), maxShown)]) }

// splitRules returns the rules that arguments are, a selector being one.
func splitRules(args [][]byte) (rules []string, err error) {
	if err := checkGiven(args); err != nil {
		return nil, err
	}
	return joinSelectors(args)
}

// joinSelectors makes one rule of the arguments that are a selector: those from one that opens a
// parenthesis to the next that ends with a closing one. As in Redis, what another one opens before
// that replaces what was open.
func joinSelectors(args [][]byte) (rules []string, err error) {
	open := -1
	for i, a := range args {
		closes := bytes.HasSuffix(a, []byte(")"))
		switch {
		case !closes && bytes.HasPrefix(a, []byte("(")):
			open = i
		case open < 0:
			rules = append(rules, string(a))
		case closes:
			rules = append(rules, string(bytes.Join(args[open:i+1], []byte(" "))))
			open = -1
		}
	}
	if open >= 0 {
		return nil, &UnmatchedError{shown(string(args[open]))}
	}
	return rules, nil
}

// parseSelector returns the selector that a rule in parentheses describes.
func parseSelector(c *Catalog, rule string) (*selector, error) {
	// as in Redis, text whose quotes do not end has no words
	words, _ := resp.SplitLine([]byte(rule[1 : len(rule)-1]))
	s := newSelector(c)
	for _, w := range words {
		if err := s.rule(c, string(w)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// parseKeyPattern reads "~pattern", or "%RW~pattern" with one right or both.
func parseKeyPattern(op string) (p keyPattern, err error) {
	pattern := op[1:]
	p.access = Read | Write
	if op[0] == '%' {
		if p.access, pattern, err = parseAccess(op); err != nil {
			return p, err
		}
	}
	p.pattern = []byte(pattern)
	return p, checkPattern(pattern)
}

// parseAccess reads the rights of a pattern that begins with a percent sign. As in Redis the text
// may end behind the rights: the pattern is empty then.
func parseAccess(op string) (access Access, pattern string, err error) {
	for i := 1; i < len(op); i++ {
		right := Access(0)
		switch op[i] {
		case 'R', 'r':
			right = Read
		case 'W', 'w':
			right = Write
		}
		if op[i] == '~' && access != 0 {
			return access, op[i+1:], nil
		}
		if right == 0 || access&right != 0 {
			return 0, "", errSyntax
		}
		access |= right
	}
	if access == 0 {
		return 0, "", errSyntax
	}
	return access, "", nil
}

const errPattern Error = "The pattern is longer than 1024 bytes"

// checkPattern refuses a pattern with spaces, which ACL LIST could not show, and a long one.
func checkPattern(pattern string) error {
	if hasSpace(pattern) {
		return errSyntax
	}
	if len(pattern) > glob.MaxPattern {
		return errPattern
	}
	return nil
}

// space are the bytes that part or end words.
const space = " \t\n\v\f\r\x00"

func hasSpace(s string) bool { return strings.ContainsAny(s, space) }

// parseCommandRule reads "+command", "-command", "+command|subcommand", "+command|argument",
// "+@category" or "-@category".
func parseCommandRule(c *Catalog, op string) (r commandRule, err error) {
	r.allow, r.name = op[0] == '+', op[1:]
	if strings.HasPrefix(r.name, "@") {
		r.category, r.name = true, ascii.Lower(r.name[1:])
		if number, ok := categoryNumbers[r.name]; ok {
			r.number = number
		} else if r.name != ruleAll {
			return r, errUnknown
		}
		return r, nil
	}
	if r.number = c.find(r.name); r.number >= 0 {
		r.name, r.family = ascii.Lower(r.name), c.family(r.number)
		return r, nil
	}
	bar := strings.LastIndexByte(r.name, '|')
	if bar < 0 || !r.allow {
		return r, errUnknown
	}
	r.name, r.first, r.hasFirst = ascii.Lower(r.name[:bar]), r.name[bar+1:], true
	switch r.number = c.find(r.name); {
	case r.number < 0:
		return r, errUnknown
	case strings.Contains(r.name, "|"):
		return r, errFirst
	case r.first == "" || hasSpace(r.first): // a file of users could not keep the latter
		return r, errSyntax
	case c.commands[r.number].Container:
		return r, errUnknown
	}
	return r, nil
}
