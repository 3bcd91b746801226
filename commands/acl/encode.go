// The encoding of users in snapshots and in the running hash: every rule as text, so that it means
// the same to each release.

package acl

import (
	"encoding/binary"

	"github.com/coordd/coordd/internal/wire"
)

const (
	encodedOn = 1 << iota
	encodedNoPass
	encodedSanitize
	encodedSkipSanitize

	encodedFlags = encodedOn | encodedNoPass | encodedSanitize | encodedSkipSanitize
)

// AppendTo appends the user's encoding to dst.
func (u *User) AppendTo(dst []byte) []byte {
	flags := byte(0)
	for _, f := range []struct {
		on   bool
		flag byte
	}{{u.on, encodedOn}, {u.noPass, encodedNoPass},
		{u.sanitize == sanitizeAlways, encodedSanitize},
		{u.sanitize == sanitizeSkip, encodedSkipSanitize}} {
		if f.on {
			flags |= f.flag
		}
	}
	dst = wire.AppendBytes(dst, u.name)
	dst = binary.AppendUvarint(dst, u.created)
	dst = append(dst, flags)
	dst = appendTexts(dst, u.hashes)
	dst = binary.AppendUvarint(dst, uint64(len(u.selectors)))
	for s := range u.all() {
		dst = appendTexts(dst, s.keptRules())
	}
	return dst
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(texts)))
	for _, t := range texts {
		dst = wire.AppendBytes(dst, t)
	}
	return dst
}

// keptRules are the rules that the selector keeps, of which keep makes the same selector.
func (s *selector) keptRules() []string {
	rules := s.keyRules()
	for i, k := range s.keys {
		if k.access == Read|Write && string(k.pattern) == "*" {
			rules[i] = "%RW~*" // shown like the flag allkeys, but other patterns may follow it
		}
	}
	rules = append(rules, s.channelRules()...)
	for _, r := range s.rules {
		rules = append(rules, r.String())
	}
	return rules
}

// readUser reads what AppendTo wrote.
func readUser(c *Catalog, in *wire.Cursor) (*User, error) {
	u := newUser(c, in.Text(), 0)
	u.created = in.Uvarint()
	flags := in.Byte()
	u.on, u.noPass = flags&encodedOn != 0, flags&encodedNoPass != 0
	switch flags & (encodedSanitize | encodedSkipSanitize) {
	case encodedSanitize:
		u.sanitize = sanitizeAlways
	case encodedSkipSanitize:
		u.sanitize = sanitizeSkip
	}
	for range in.Count(1) {
		h := in.Text()
		if !isHash(h) {
			in.Fail()
		}
		u.hashes = append(u.hashes, h)
	}
	selectors := in.Count(1)
	readRules(c, in, u.root)
	for range selectors {
		s := newSelector(c)
		readRules(c, in, s)
		u.selectors = append(u.selectors, s)
	}
	if in.Failed() || flags&^encodedFlags != 0 {
		return nil, ErrCorrupt
	}
	return u.finish(), nil
}

func readRules(c *Catalog, in *wire.Cursor, s *selector) {
	for range in.Count(1) {
		if s.keep(c, in.Text()) != nil {
			in.Fail()
		}
	}
}

// keep adds one of keptRules. A rule about commands is appended as it is: what it does to the rules
// before it has been done.
func (s *selector) keep(c *Catalog, rule string) error {
	if rule == "" || rule[0] != '+' && rule[0] != '-' {
		return s.rule(c, rule)
	}
	r, err := parseCommandRule(c, rule)
	if err == nil {
		s.rules = append(s.rules, r)
		s.apply(c, r)
	}
	return err
}
