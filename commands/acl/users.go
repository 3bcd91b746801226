// The set of all users.

package acl

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/coordd/coordd/internal/wire"
)

// DefaultUser is the name of the user of those who have not authenticated. It always exists.
const DefaultUser = "default"

const (
	errName Error = "Usernames can't contain spaces or null characters"
	// errNoName refuses what Redis takes: in logs that user is like nobody.
	errNoName Error = "Usernames can't be empty"
)

// checkName refuses a name that no user can have.
func checkName(name string) error {
	switch {
	case name == "":
		return errNoName
	case hasSpace(name):
		return errName
	}
	return nil
}

// Users is an immutable set of users.
type Users struct {
	catalog *Catalog
	list    []*User // by name
	bytes   int     // sum of User.Bytes
}

// New returns the users of a new cluster: the default user, who may do everything.
func New(c *Catalog) *Users {
	u, _, err := newUser(c, DefaultUser, 0).change([]string{"on", "nopass", "~*", "&*", "+@all"})
	if err != nil {
		panic(err)
	}
	users := &Users{catalog: c}
	return users.put(u)
}

// In returns the same users with another catalog, which has all commands of the present one. They
// are those of a snapshot that is read with that catalog.
func (s *Users) In(c *Catalog) *Users {
	t, err := Restore(c, s.AppendTo(nil))
	if err != nil {
		panic(err)
	}
	return t
}

// Len is the number of users.
func (s *Users) Len() int { return len(s.list) }

// Bytes is what all users are counted with: the sum of [User.Bytes].
func (s *Users) Bytes() int { return s.bytes }

// All returns all users in order of name. They must not be changed.
func (s *Users) All() []*User { return s.list }

// Get returns the user of a name, or nil.
func (s *Users) Get(name []byte) *User {
	if i, ok := s.find(string(name)); ok {
		return s.list[i]
	}
	return nil
}

// Default returns the default user.
func (s *Users) Default() *User { return s.Get([]byte(DefaultUser)) }

func (s *Users) find(name string) (place int, ok bool) {
	return slices.BinarySearchFunc(s.list, name, func(u *User, name string) int {
		return strings.Compare(u.name, name)
	})
}

// Change returns the users after ACL SETUSER with rules. The user is created if there is none of
// that name; created is then its [User.Created]. The errors are Redis's. units is the work done for
// the rules, in units of 25 ns.
func (s *Users) Change(
	name []byte, created uint64, rules [][]byte,
) (t *Users, units int, err error) {
	if len(name) > maxUserBytes {
		return nil, 0, errUserBytes
	}
	if err := checkName(string(name)); err != nil {
		return nil, 0, err
	}
	joined, err := splitRules(rules)
	if err != nil {
		return nil, 0, err
	}
	u := s.Get(name)
	if u == nil {
		u = newUser(s.catalog, string(name), created)
	}
	if u, units, err = u.change(joined); err != nil {
		return nil, units, err
	}
	t = s.put(u)
	switch {
	case u.bytes > maxUserBytes:
		return nil, units, errUserBytes
	case t.bytes > maxBytes:
		return nil, units, errBytes
	}
	return t, units, nil
}

// put returns the set with a user, in place of one with the same name.
func (s *Users) put(u *User) *Users {
	t := &Users{catalog: s.catalog, bytes: s.bytes + u.bytes}
	i, found := s.find(u.name)
	if found {
		t.list = slices.Clone(s.list)
		t.bytes -= s.list[i].bytes
		t.list[i] = u
	} else {
		t.list = slices.Insert(slices.Clone(s.list), i, u)
	}
	return t
}

// Without returns the set without a user, which is not the default user.
func (s *Users) Without(name []byte) *Users {
	i, found := s.find(string(name))
	if !found {
		return s
	}
	return &Users{catalog: s.catalog, bytes: s.bytes - s.list[i].bytes,
		list: slices.Delete(slices.Clone(s.list), i, i+1)}
}

// minUserBytes is the least size of an encoding: lengths and counts of nothing, and the flags.
const minUserBytes = 6

// AppendTo appends the encoding of all users to dst, for snapshots.
func (s *Users) AppendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s.list)))
	for _, u := range s.list {
		dst = u.AppendTo(dst)
	}
	return dst
}

// ErrCorrupt says that encoded users cannot be read.
var ErrCorrupt = errors.New("acl: corrupt users")

// Restore returns the users of an encoding that AppendTo made. They do not differ in anything from
// those that were encoded, also after further changes: nodes that restarted agree with the others.
func Restore(c *Catalog, encoded []byte) (*Users, error) {
	s := &Users{catalog: c}
	in := wire.NewCursor(encoded)
	last := ""
	for i := range in.Count(minUserBytes) {
		u, err := readUser(c, &in)
		if err != nil {
			return nil, err
		}
		if i > 0 && u.name <= last {
			return nil, ErrCorrupt
		}
		last = u.name
		s.list = append(s.list, u)
		s.bytes += u.bytes
	}
	if !in.Done() || s.Default() == nil {
		return nil, ErrCorrupt
	}
	return s, nil
}
