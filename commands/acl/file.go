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
// new cluster. path is the file's name in errors. units is the work done, in units of 25 ns; beyond
// most the file is refused.
func (s *Users) Replace(
	path string, file []byte, created uint64, most int,
) (t *Users, units int, err error) {
	if len(file) > MaxFile {
		return nil, 0, errFile
	}
	t = &Users{catalog: s.catalog}
	lines := map[string]bool{}
	failed := &FileError{}
	number := 0
	for line := range bytes.SplitSeq(file, []byte("\n")) {
		number++
		if units += lineWork + len(line)/readBytes; units > most {
			return nil, units, errWork
		}
		line = bytes.Trim(line, " \t\r\n")
		if len(line) == 0 {
			continue
		}
		place := fmt.Sprintf("%s:%d", path, number)
		if len(line) > maxUserBytes+maxGiven {
			failed.add("%s: %s. ", place, errRules)
			continue
		}
		words := bytes.Split(line, []byte(" "))
		if string(words[0]) != "user" || len(words) < 2 {
			failed.add("%s should start with user keyword followed by the username. ", place)
			continue
		}
		name := string(words[1])
		if lines[name] {
			failed.add("WARNING: Duplicate user '%s' found on line %d. ", shown(name),
				number)
			continue
		}
		lines[name] = true
		u := newUser(s.catalog, name, created)
		if old := s.Get(words[1]); old != nil {
			u.created = old.created
		}
		units += u.giveLine(failed, place, words[2:])
		if failed.text.Len() > 0 {
			continue // to tell what else is wrong
		}
		t.list = append(t.list, u)
		if t.bytes += u.bytes; t.bytes > maxBytes {
			return nil, units, errBytes
		}
	}
	if failed.text.Len() > 0 {
		return nil, units, failed
	}
	slices.SortFunc(t.list, func(a, b *User) int { return strings.Compare(a.name, b.name) })
	if !lines[DefaultUser] {
		if t = t.put(New(s.catalog).Default()); t.bytes > maxBytes {
			return nil, units, errBytes
		}
	}
	return t, units, nil
}

// giveLine gives a new user the rules of a line. Like Redis it reports all unknown commands, and of
// the other mistakes the first.
func (u *User) giveLine(failed *FileError, place string, words [][]byte) (units int) {
	rules, err := splitRules(words)
	if wrong := checkName(u.name); wrong != nil {
		err = wrong
	}
	if err != nil {
		failed.add("%s: %s. ", place, strings.TrimSuffix(err.Error(), "."))
		return 0
	}
	reported := false
	units = u.give(rules, func(rule string, err error) bool {
		switch {
		case errors.Is(err, errUnknown):
			failed.add("%s: Error in applying operation '%s': %s. ", place,
				shown(rule), err)
		case !reported:
			reported = true
			failed.add("%s: %s. ", place, err)
		}
		return true
	})
	if u.finish(); u.bytes > maxUserBytes {
		failed.add("%s: %s. ", place, errUserBytes)
	}
	return units + u.bytes/keptBytes
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

// HashRules returns rules with the hashes of the passwords in place of the passwords. It hashes no
// more than can be given at once.
func HashRules(rules [][]byte) ([][]byte, error) {
	if len(rules) > maxRules {
		return nil, errRules
	}
	hashed := slices.Clone(rules)
	for i, r := range rules {
		if len(r) > 0 && r[0] == '>' {
			hashed[i] = []byte("#" + Hash(r[1:]))
		} else if len(r) > 0 && r[0] == '<' {
			hashed[i] = []byte("!" + Hash(r[1:]))
		}
	}
	return hashed, nil
}

// CheckRules returns the error for rules that no user can get. What is left depends on the user: a
// password that it does not have, a pattern behind that of everything.
func (s *Users) CheckRules(rules [][]byte) error {
	joined, err := splitRules(rules)
	if err != nil {
		return err
	}
	newUser(s.catalog, "", 0).give(joined, func(rule string, e error) bool {
		switch e {
		case errNoPassword, errAfterAllKeys, errAfterAllChannels:
			return true
		}
		err = &RuleError{shown(rule), e}
		return false
	})
	return err
}
