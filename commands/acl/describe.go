// How a user is shown: the texts of ACL LIST and ACL GETUSER.

package acl

import (
	"iter"
	"slices"
	"strings"
)

// Selector is what ACL GETUSER shows of a selector.
type Selector struct{ Commands, Keys, Channels string }

// Flags returns the words that ACL GETUSER shows of the user itself.
func (u *User) Flags() []string {
	flags := []string{"off"}
	if u.on {
		flags[0] = "on"
	}
	if u.noPass {
		flags = append(flags, "nopass")
	}
	switch u.sanitize {
	case sanitizeSkip:
		flags = append(flags, "skip-sanitize-payload")
	case sanitizeAlways:
		flags = append(flags, "sanitize-payload")
	}
	return flags
}

// Hashes returns the hashes of the user's passwords.
func (u *User) Hashes() []string { return slices.Clone(u.hashes) }

// Selectors returns what ACL GETUSER shows of the user's selectors, the root first.
func (u *User) Selectors() []Selector {
	var shown []Selector
	for s := range u.all() {
		shown = append(shown, Selector{
			Commands: strings.Join(s.commandRules(u.catalog), " "),
			Keys:     strings.Join(s.keyRules(), " "),
			Channels: strings.Join(s.channelRules(), " "),
		})
	}
	return shown
}

// all goes through the selectors, the root first.
func (u *User) all() iter.Seq[*selector] {
	return func(yield func(*selector) bool) {
		if !yield(u.root) {
			return
		}
		for _, s := range u.selectors {
			if !yield(s) {
				return
			}
		}
	}
}

// String returns the user as ACL LIST shows it.
func (u *User) String() string {
	words := slices.Concat([]string{"user", u.name}, u.ownRules(), u.root.describe(u.catalog))
	for _, s := range u.selectors {
		words = append(words, "("+strings.Join(s.describe(u.catalog), " ")+")")
	}
	return strings.Join(words, " ")
}

// ownRules are the rules that do not concern selectors.
func (u *User) ownRules() []string {
	rules := u.Flags()
	for _, h := range u.hashes {
		rules = append(rules, "#"+h)
	}
	return rules
}

// describe returns rules that allow what the selector allows.
func (s *selector) describe(c *Catalog) []string {
	rules := s.keyRules()
	if !s.allChannels {
		rules = append(rules, "resetchannels")
	}
	return slices.Concat(rules, s.channelRules(), s.commandRules(c))
}

// keyRules are the rules about keys.
func (s *selector) keyRules() (rules []string) {
	if s.allKeys {
		return []string{"~*"}
	}
	for _, k := range s.keys {
		rules = append(rules, k.String())
	}
	return rules
}

// channelRules are the rules about channels.
func (s *selector) channelRules() (rules []string) {
	if s.allChannels {
		return []string{"&*"}
	}
	for _, p := range s.channels {
		rules = append(rules, "&"+string(p))
	}
	return rules
}

// commandRules returns rules about commands that allow what the selector allows, as Redis 7.0 finds
// them: all or nothing, then the categories that fit, then the commands that still differ, by name.
func (s *selector) commandRules(c *Catalog) []string {
	shown := newSelector(c)
	rule := func(r commandRule) string {
		shown.apply(c, r)
		return r.String()
	}
	rules := []string{rule(commandRule{allow: s.future, category: true, name: ruleAll})}
	for _, k := range s.fittingCategories(c) {
		rules = append(rules,
			rule(commandRule{allow: !s.future, category: true, name: categoryNames[k],
				number: k}))
	}
	first := slices.Clone(s.firstArgs)
	slices.SortStableFunc(first, func(a, b firstArg) int { return a.command - b.command })
	for number := range c.commands {
		name, allowed := c.commands[number].Name, s.allowed.has(number)
		if name == "" {
			continue
		}
		if shown.allowed.has(number) != allowed {
			rules = append(rules, rule(commandRule{allow: allowed, name: name,
				number: number}))
		}
		for ; len(first) > 0 && first[0].command == number; first = first[1:] {
			rules = append(rules, commandRule{allow: true, name: name, first: first[0].arg,
				hasFirst: true}.String())
		}
	}
	return rules
}

// fittingCategories returns categories of which the selector allows more than half, from the best
// fit on; of a selector that allows future commands, those of which it forbids more than half. Each
// is counted without the commands that the ones before it decide.
func (s *selector) fittingCategories(c *Catalog) (fitting []int) {
	// the commands that rules are still to be found for
	open := slices.Clone(s.allowed)
	if s.future {
		open = slices.Clone(c.all)
		open.change(s.allowed, false)
	}
	for {
		best, bestSame, bestDiffer := -1, 0, 0
		for k, own := range c.own {
			same := own.common(open)
			differ := own.common(c.all) - same
			better := best < 0 || differ < bestDiffer || differ == bestDiffer && same > bestSame
			if same > differ && better && !slices.Contains(fitting, k) {
				best, bestSame, bestDiffer = k, same, differ
			}
		}
		if best < 0 {
			return fitting
		}
		fitting = append(fitting, best)
		open.change(c.reach[best], false)
	}
}
