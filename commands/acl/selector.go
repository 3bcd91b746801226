// A selector: commands with the keys and channels that they may use.

package acl

import (
	"bytes"
	"slices"

	"github.com/coordd/coordd/internal/ascii"
)

// Access is what a call does with a key.
type Access uint8

// A call may do neither: EXISTS and TYPE need a pattern that matches, whatever rights it gives.
const (
	Read Access = 1 << iota
	Write
)

// keyPattern gives access to the keys that match.
type keyPattern struct {
	pattern []byte
	access  Access
}

// String returns the pattern as a rule.
func (p keyPattern) String() string {
	switch p.access {
	case Read:
		return "%R~" + string(p.pattern)
	case Write:
		return "%W~" + string(p.pattern)
	}
	return "~" + string(p.pattern)
}

// selector allows calls. A user may make a call that one of its selectors allows.
type selector struct {
	rules                []commandRule // in order
	allKeys, allChannels bool
	keys                 []keyPattern
	channels             [][]byte // patterns

	// What the rules allow, by the catalog: allowed, and of the commands that are not allowed those
	// with one of the first arguments. future says that the commands that are not in the catalog
	// are allowed, too.
	allowed   commandSet
	firstArgs []firstArg
	future    bool
}

// firstArg allows a command with a first argument.
type firstArg struct {
	command int
	arg     string
}

// commandRule allows a command, its calls with a first argument, or a category, or takes that back.
type commandRule struct {
	allow    bool
	category bool
	name     string // in lower case; "all" is the category of everything
	first    string // a first argument, if hasFirst
	hasFirst bool

	number int // place of the command in the catalog, or number of the category
	family int // for a command: how many it is with its subcommands
}

// ruleAll is the category of everything.
const ruleAll = "all"

// String returns the rule as ACL SETUSER takes it.
func (r commandRule) String() string {
	text := "-"
	if r.allow {
		text = "+"
	}
	if r.category {
		text += "@"
	}
	text += r.name
	if r.hasFirst {
		text += "|" + r.first
	}
	return text
}

// overrides reports whether nothing is left of an earlier rule, in every catalog that has what the
// rules name: a command stays in its categories.
func (r commandRule) overrides(c *Catalog, earlier commandRule) bool {
	switch {
	case r.category && r.name == ruleAll:
		return true
	case r.category && earlier.hasFirst:
		return c.reach[r.number].has(earlier.number)
	case r.category || earlier.category:
		return r.category && r.name == earlier.name && earlier.category
	case r.hasFirst:
		return false
	}
	return r.number <= earlier.number && earlier.number < r.number+r.family
}

// newSelector returns a selector that allows nothing.
func newSelector(c *Catalog) *selector { return &selector{allowed: c.none()} }

// clone returns a copy that may be changed.
func (s *selector) clone() *selector {
	t := *s
	t.rules, t.keys, t.channels = slices.Clone(s.rules), slices.Clone(s.keys),
		slices.Clone(s.channels)
	t.allowed, t.firstArgs = slices.Clone(s.allowed), slices.Clone(s.firstArgs)
	return &t
}

// add appends a rule about commands, which the catalog has. What is allowed follows from the rules
// that are left: they set again what an overridden one has set.
func (s *selector) add(c *Catalog, r commandRule) {
	if r.hasFirst && s.allowsFirst(r.number, r.first) {
		return
	}
	s.rules = slices.DeleteFunc(s.rules, func(e commandRule) bool { return r.overrides(c, e) })
	if !r.category || r.name != ruleAll || r.allow { // nothing is what a selector begins with
		s.rules = append(s.rules, r)
	}
	s.apply(c, r)
}

// allowsFirst reports whether a command is allowed with a first argument.
func (s *selector) allowsFirst(command int, arg string) bool {
	return s.allowed.has(command) || slices.ContainsFunc(s.firstArgs, func(f firstArg) bool {
		return f.command == command && ascii.Equal(f.arg, arg)
	})
}

// apply changes what is allowed as a rule says. First arguments of the commands that it is about
// are forgotten.
func (s *selector) apply(c *Catalog, r commandRule) {
	switch {
	case r.category && r.name == ruleAll:
		s.future, s.firstArgs = r.allow, nil
		s.allowed.change(c.all, r.allow)
	case r.category:
		commands := c.reach[r.number]
		s.allowed.change(commands, r.allow)
		s.forgetFirst(commands.has)
	case r.hasFirst:
		s.firstArgs = append(s.firstArgs, firstArg{r.number, r.first})
	default:
		c.setCommand(s.allowed, r.number, r.allow)
		s.forgetFirst(func(command int) bool { return command == r.number })
	}
}

func (s *selector) forgetFirst(of func(command int) bool) {
	s.firstArgs = slices.DeleteFunc(s.firstArgs, func(f firstArg) bool { return of(f.command) })
}

// full reports whether the selector allows everything.
func (s *selector) full(c *Catalog) bool {
	return s.future && s.allKeys && s.allChannels && slices.Equal(s.allowed, c.all)
}

// rule changes the selector as one rule says; the errors are Redis's.
func (s *selector) rule(c *Catalog, op string) error {
	switch ascii.Lower(op) {
	case "":
		return nil
	case "allkeys", "~*":
		s.allKeys, s.keys = true, nil
		return nil
	case "resetkeys":
		s.allKeys, s.keys = false, nil
		return nil
	case "allchannels", "&*":
		s.allChannels, s.channels = true, nil
		return nil
	case "resetchannels":
		s.allChannels, s.channels = false, nil
		return nil
	case "allcommands":
		op = "+@all"
	case "nocommands":
		op = "-@all"
	}
	switch op[0] {
	case '~', '%':
		return s.addKey(op)
	case '&':
		return s.addChannel(op[1:])
	case '+', '-':
		r, err := parseCommandRule(c, op)
		if err == nil {
			s.add(c, r)
		}
		return err
	}
	return errSyntax
}

// addKey adds a pattern of keys. One that is there gets more rights.
func (s *selector) addKey(op string) error {
	if s.allKeys {
		return errAfterAllKeys
	}
	p, err := parseKeyPattern(op)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.keys, func(k keyPattern) bool {
		return bytes.Equal(k.pattern, p.pattern)
	})
	if i < 0 {
		s.keys = append(s.keys, p)
	} else {
		s.keys[i].access |= p.access
	}
	return nil
}

// addChannel adds a pattern of channels.
func (s *selector) addChannel(pattern string) error {
	if s.allChannels {
		return errAfterAllChannels
	}
	if err := checkPattern(pattern); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.channels, func(p []byte) bool { return string(p) == pattern }) {
		s.channels = append(s.channels, []byte(pattern))
	}
	return nil
}
