// A user, and how rules change it.

package acl

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/coordd/coordd/internal/ascii"
)

// User is somebody who asks. It is immutable.
type User struct {
	name    string
	created uint64
	catalog *Catalog

	on, noPass bool
	sanitize   sanitize
	hashes     []string // passwords: SHA-256, in lower-case hexadecimal
	root       *selector
	selectors  []*selector // besides root

	full  bool
	bytes int
}

// sanitize is whether payloads that the user gives to RESTORE are checked. It is only kept and
// shown: coordd checks all of them.
type sanitize uint8

const (
	sanitizeDefault sanitize = iota
	sanitizeAlways
	sanitizeSkip
)

// newUser returns a user that may do nothing, as ACL SETUSER makes one.
func newUser(c *Catalog, name string, created uint64) *User {
	return &User{name: name, created: created, catalog: c, root: newSelector(c)}
}

// finish completes a user that was changed, which nobody else sees yet.
func (u *User) finish() *User {
	u.full, u.bytes = u.root.full(u.catalog), u.weigh()
	return u
}

// Name is the user's name.
func (u *User) Name() string { return u.name }

// Created is what [Users.Change] or [Users.Replace] was given when the user was created, 0 of the
// default user. It tells users apart that had the same name one after the other.
func (u *User) Created() uint64 { return u.created }

// On reports whether the user may authenticate.
func (u *User) On() bool { return u.on }

// NoPass reports whether the user authenticates with any password.
func (u *User) NoPass() bool { return u.noPass }

// Full reports whether the user may make every call, without a look at its keys and channels.
func (u *User) Full() bool { return u.full }

// Len is the number of the user's selectors, at least one.
func (u *User) Len() int { return 1 + len(u.selectors) }

// Bytes is what the user is counted with: its rules, and what they and its selectors take besides.
func (u *User) Bytes() int { return u.bytes }

// Hash returns a password's hash.
func Hash(password []byte) string {
	sum := sha256.Sum256(password)
	return hex.EncodeToString(sum[:])
}

// Accepts reports whether the user may authenticate with the password of a hash. It takes as long
// for every hash.
func (u *User) Accepts(hash []byte) bool {
	found := 0
	for _, h := range u.hashes {
		found |= subtle.ConstantTimeCompare([]byte(h), hash)
	}
	return u.on && (u.noPass || found == 1)
}

// change returns the user as rules change it. An error changes nothing.
func (u *User) change(rules []string) (v *User, units int, err error) {
	w := *u
	w.hashes, w.selectors = slices.Clone(u.hashes), slices.Clone(u.selectors)
	w.root = u.root.clone()
	units = w.give(rules, func(rule string, e error) bool {
		err = &RuleError{shown(rule), e}
		return false
	})
	if units += u.bytes / keptBytes; err != nil {
		return nil, units, err
	}
	v = w.finish()
	return v, units + v.bytes/keptBytes, nil
}

// give changes the user, which nobody else sees yet, by rules. refused gets each rule that the user
// cannot get, and reports whether the next ones are still wanted.
func (u *User) give(rules []string, refused func(rule string, err error) bool) (units int) {
	for _, r := range rules {
		units += u.rulesWork(r)
		if err := u.rule(r); err != nil && !refused(r, err) {
			break
		}
	}
	return units
}

// rule changes the user, which nobody else sees yet.
func (u *User) rule(op string) error {
	switch ascii.Lower(op) {
	case "on":
		u.on = true
		return nil
	case "off":
		u.on = false
		return nil
	case "nopass":
		u.noPass, u.hashes = true, nil
		return nil
	case "resetpass":
		u.noPass, u.hashes = false, nil
		return nil
	case "sanitize-payload":
		u.sanitize = sanitizeAlways
		return nil
	case "skip-sanitize-payload":
		u.sanitize = sanitizeSkip
		return nil
	case "clearselectors":
		u.selectors = nil
		return nil
	case "reset":
		fresh := newUser(u.catalog, u.name, u.created)
		fresh.sanitize = sanitizeAlways // as in Redis, unlike that of a new user
		*u = *fresh
		return nil
	case "":
		return nil
	}
	switch op[0] {
	case '>':
		return u.addHash(Hash([]byte(op[1:])))
	case '#':
		return u.addHash(op[1:])
	case '<':
		return u.removeHash(Hash([]byte(op[1:])))
	case '!':
		return u.removeHash(op[1:])
	case '(':
		s, err := parseSelector(u.catalog, op)
		if err == nil {
			u.selectors = append(u.selectors, s)
		}
		return err
	}
	return u.root.rule(u.catalog, op)
}

func (u *User) addHash(hash string) error {
	if !isHash(hash) {
		return errHash
	}
	if !slices.Contains(u.hashes, hash) {
		u.hashes = append(u.hashes, hash)
	}
	u.noPass = false
	return nil
}

func (u *User) removeHash(hash string) error {
	if !isHash(hash) {
		return errHash
	}
	i := slices.Index(u.hashes, hash)
	if i < 0 {
		return errNoPassword
	}
	u.hashes = slices.Delete(u.hashes, i, i+1)
	return nil
}

func isHash(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}
