// The file of users that ACL LOAD reads and ACL SAVE writes: a line for each, as ACL LIST shows it.

package acl

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// FileError says what is wrong with a file of users, in Redis's words.
type FileError struct{ text strings.Builder }

func (e *FileError) Error() string {
	return e.text.String() +
		"WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
}

// maxFileErrors bounds the text of what is wrong, in bytes.
const maxFileErrors = 16 << 10

func (e *FileError) add(format string, args ...any) {
	if e.text.Len() < maxFileErrors {
		fmt.Fprintf(&e.text, format, args...)
	}
}

// Replace returns the users of a file, which replace all users. Those whose names stay keep their
// User.Created; it is created of the others. If the file has no default user, that is the one of a
// new cluster. path is the file's name in errors.
func (s *Users) Replace(path string, file []byte, created uint64) (*Users, error) {
	if len(file) > maxFileBytes {
		return nil, errBytes
	}
	var list []*User
	lines := map[string]bool{}
	failed := &FileError{}
	number := 0
	for line := range bytes.SplitSeq(file, []byte("\n")) {
		number++
		text := strings.Trim(string(line), " \t\r\n")
		if text == "" {
			continue
		}
		words := strings.Split(text, " ")
		if words[0] != "user" || len(words) < 2 {
			failed.add("%s:%d should start with user keyword followed by the username. ", path,
				number)
			continue
		}
		name := words[1]
		if lines[name] {
			failed.add("WARNING: Duplicate user '%s' found on line %d. ", name, number)
			continue
		}
		lines[name] = true
		u := newUser(s.catalog, name, created)
		if old := s.Get([]byte(name)); old != nil {
			u.created = old.created
		}
		u.applyLine(failed, fmt.Sprintf("%s:%d", path, number), words[2:])
		list = append(list, u)
	}
	if failed.text.Len() > 0 {
		return nil, failed
	}
	if !lines[DefaultUser] {
		list = append(list, New(s.catalog).Default())
	}
	return newUsers(s.catalog, list)
}

// applyLine changes a new user as the rules of a line say. Like Redis it reports all unknown
// commands, and of the other mistakes the first.
func (u *User) applyLine(failed *FileError, place string, words []string) {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	rules, err := joinSelectors(args)
	if err == nil && len(rules) > maxRules {
		err = errRules
	}
	if hasSpace(u.name) {
		err = errName
	}
	if err != nil {
		failed.add("%s: %s. ", place, strings.TrimSuffix(err.Error(), "."))
		return
	}
	reported := false
	for _, r := range rules {
		err := u.rule(r)
		switch {
		case errors.Is(err, errUnknown):
			failed.add("%s: Error in applying operation '%s': %s. ", place, r, err)
		case err != nil && !reported:
			reported = true
			failed.add("%s: %s. ", place, err)
		}
	}
	if u.finish(); u.bytes > maxUserBytes {
		failed.add("%s: %s. ", place, errUserBytes)
	}
}

// newUsers makes a set of users.
func newUsers(c *Catalog, list []*User) (*Users, error) {
	slices.SortFunc(list, func(a, b *User) int { return strings.Compare(a.name, b.name) })
	s := &Users{catalog: c, list: list}
	for _, u := range list {
		s.bytes += u.bytes
	}
	switch {
	case len(list) > MaxUsers:
		return nil, errUsers
	case s.bytes > maxBytes:
		return nil, errBytes
	}
	return s, nil
}

// File returns all users with the rules that they keep, for a file.
func (s *Users) File() []byte {
	var text []byte
	for _, u := range s.list {
		words := slices.Concat([]string{"user", u.name}, u.ownRules(), u.root.keptRules())
		for _, more := range u.selectors {
			words = append(words, more.fileText())
		}
		text = append(append(text, strings.Join(words, " ")...), '\n')
	}
	return text
}

// fileText returns a selector as one rule. A quote in a word would part the words in another way,
// and a parenthesis at its end would close the selector.
func (s *selector) fileText() string {
	words := s.keptRules()
	for i, w := range words {
		if strings.ContainsAny(w, `"'`) || strings.HasSuffix(w, ")") {
			words[i] = `"` + inQuotes.Replace(w) + `"`
		}
	}
	return "(" + strings.Join(words, " ") + ")"
}

var inQuotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// HashRules returns rules with the hashes of the passwords in place of the passwords.
func HashRules(rules [][]byte) [][]byte {
	hashed := slices.Clone(rules)
	for i, r := range rules {
		if len(r) > 0 && r[0] == '>' {
			hashed[i] = []byte("#" + Hash(r[1:]))
		} else if len(r) > 0 && r[0] == '<' {
			hashed[i] = []byte("!" + Hash(r[1:]))
		}
	}
	return hashed
}

// CheckRules returns the error for rules that no user can get. What is left depends on the user: a
// password that it does not have, a pattern behind that of everything.
func (s *Users) CheckRules(rules [][]byte) error {
	if len(rules) > maxRules {
		return errRules
	}
	joined, err := joinSelectors(rules)
	if err != nil {
		return err
	}
	u := newUser(s.catalog, "", 0)
	for _, r := range joined {
		switch err := u.rule(r); err {
		case nil, errNoPassword, errAfterAllKeys, errAfterAllChannels:
		default:
			return &RuleError{cText(r), err}
		}
	}
	return nil
}
