// What the command table tells package acl: the commands and their categories, and the keys and
// channels of a call.

package commands

import (
	"slices"
	"strings"

	"github.com/coordd/coordd/commands/acl"
)

// Channels says which arguments are channels that the caller must have the right to. Commands that
// only give up or list subscriptions have none.
type Channels uint8

const (
	NoChannels  Channels = iota
	OneChannel           // the first argument
	AllChannels          // all arguments
	AllPatterns          // all arguments, which are patterns of channels
)

// Writes reports whether Redis would flag the command as one that writes. Session, message and
// script commands are not.
func (s *Spec) Writes() bool {
	return s.Kind == Write && !s.Has(MayReplicate) && !s.Has(Unflagged)
}

// Reads reports whether Redis would flag the command as one that reads.
func (s *Spec) Reads() bool {
	if s.Kind != Read || s.Subcommands != nil || s.Has(AnyDB) || s.Has(Unflagged) {
		return false
	}
	return !s.Has(Loading) || !s.Has(Stale)
}

// Administers reports whether the command is one for administrators.
func (s *Spec) Administers() bool { return s.Kind == Admin || s.Has(Administrative) }

// groupCategories maps groups to ACL categories.
var groupCategories = map[string]string{
	"generic": "keyspace", "set": "set", "sorted-set": "sortedset", "list": "list", "hash": "hash",
	"string":     "string",
	"connection": "connection", "transactions": "transaction", "scripting": "scripting",
	"bitmap": "bitmap", "hyperloglog": "hyperloglog", "geo": "geo", "stream": "stream",
}

// Categories returns the command's ACL categories.
func (s *Spec) Categories() acl.Categories {
	own := s.OwnCategories
	if own == "" && s.Subcommands == nil {
		own = groupCategories[s.Group]
	}
	words := strings.Fields(own)
	add := func(on bool, more ...string) {
		if on {
			words = append(words, more...)
		}
	}
	add(s.Reads() && s.Group != "scripting", "read")
	add(s.Writes(), "write")
	add(s.Has(PubSub), "pubsub")
	add(s.Has(Blocking), "blocking")
	add(s.Administers(), "admin", "dangerous")
	add(s.Has(Fast), "fast")
	add(!s.Has(Fast), "slow")
	return acl.CategoriesOf(words...)
}

// number gives every command its place in catalogs: those in order of name, each container before
// its subcommands.
func (t *Table) number() {
	for _, s := range t.All() {
		s.place = len(t.catalog)
		t.catalog = append(t.catalog, s)
		first := len(t.catalog)
		for i := range s.Subcommands {
			t.catalog = append(t.catalog, &s.Subcommands[i])
		}
		slices.SortFunc(t.catalog[first:], func(a, b *Spec) int {
			return strings.Compare(a.Name, b.Name)
		})
		for i, sub := range t.catalog[first:] {
			sub.place = first + i
		}
	}
}

// Catalog returns what users can have rights to on a machine of a feature level, as far as this
// release knows it.
func (t *Table) Catalog(level uint64) *acl.Catalog {
	return t.catalogs[min(level, FeatureLevel)]
}

func (t *Table) newCatalog(level uint64) *acl.Catalog {
	all := make([]acl.Command, len(t.catalog))
	for i, s := range t.catalog {
		if max(s.Level, t.byName[s.container()].Level) > level {
			continue
		}
		all[i] = acl.Command{Name: s.FullName(), Categories: s.Categories(),
			Container: s.Subcommands != nil, Always: s.Has(NoAuth)}
	}
	return acl.NewCatalog(all)
}

// Check returns what a user lacks for a call whose number of arguments is right; denied is false if
// it may make the call. units is the work done, at most about MaxRequestWork.
func (s *Spec) Check(u *acl.User, args [][]byte) (d acl.Denial, denied bool, units int) {
	return s.checkAt(FeatureLevel, u, args)
}

// checkAt is Check for a machine of a feature level. A command that runs the call that it carries
// needs the right to both.
func (s *Spec) checkAt(
	level uint64, u *acl.User, args [][]byte,
) (d acl.Denial, denied bool, units int) {
	if u.Full() {
		return d, false, 0
	}
	call := s.aclCall(args)
	if s.Keys.Carried {
		if inner, err := s.carriedAt(level, args); err == nil {
			call.Keys = nil
			if d, denied, units = u.Check(&call, MaxRequestWork); denied {
				return d, denied, units
			}
			d, denied, more := inner.checkAt(level, u, args[s.Carries:])
			return d, denied, units + more
		}
	}
	d, denied, units = u.Check(&call, MaxRequestWork)
	return d, denied, units + keyUseWork*len(call.Keys)
}

// aclCall returns what rules decide about.
func (s *Spec) aclCall(args [][]byte) acl.Call {
	call := acl.Call{Command: s.place, Keys: s.keysOf(args)}
	if len(args) > 1 {
		call.FirstArg = args[1]
	}
	switch s.Channels {
	case OneChannel:
		call.Channels = args[1:2]
	case AllChannels, AllPatterns:
		call.Channels, call.Patterns = args[1:], s.Channels == AllPatterns
	}
	return call
}

// keyUseWork is what finding a key and its use costs, in units of Env.Work.
const keyUseWork = 4

// keysOf returns the keys of a call with what it does to them. If its arguments contradict the
// KeySpec the command refuses the call. Like Redis this still finds keys that no argument counts.
func (s *Spec) keysOf(args [][]byte) (keys []acl.Key) {
	if s.Keys.First == 0 && s.Keys.Numkeys == 0 && s.Keys.Find == nil {
		return nil
	}
	if uses, err := s.KeyUses(args); err == nil {
		keys = make([]acl.Key, 0, len(uses))
		for _, use := range uses {
			keys = appendKey(keys, args[use.Index], use.Flags)
		}
		return keys
	}
	for _, part := range s.KeyParts() {
		if part.Numkeys {
			return nil
		}
		for _, i := range part.positions(args) {
			keys = appendKey(keys, args[i], part.Flags)
		}
	}
	return keys
}

func appendKey(keys []acl.Key, name []byte, flags KeyFlag) []acl.Key {
	if flags&KeyNone != 0 {
		return keys
	}
	k := acl.Key{Name: name}
	if flags&KeyAccess != 0 {
		k.Access |= acl.Read
	}
	if flags&(KeyUpdate|KeyInsert|KeyDelete) != 0 {
		k.Access |= acl.Write
	}
	return append(keys, k)
}
