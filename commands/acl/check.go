// Whether a user may make a call.

package acl

import (
	"bytes"

	"github.com/coordd/coordd/commands/glob"
)

// Reason is why a call is denied, from what is decided first to what is decided last.
type Reason uint8

const (
	DeniedCommand Reason = iota + 1
	DeniedKey
	DeniedChannel
)

// String is the reason's name in ACL LOG.
func (r Reason) String() string {
	return [...]string{"", "command", "key", "channel"}[r]
}

// Denial is what a user lacks for a call.
type Denial struct {
	Reason Reason
	Object string // the full name of the command, the key or the channel
	index  int    // of the key or the channel in the call's
}

// Key is a key of a call, and what the call does with it.
type Key struct {
	Name   []byte
	Access Access
}

// Call is what a user wants to do.
type Call struct {
	Command  int    // its number in the catalog
	FirstArg []byte // nil: it has none
	Keys     []Key
	Channels [][]byte
	Patterns bool // the channels are patterns
}

// Check returns what the user lacks for a call, of the selector that comes closest to allowing it;
// denied is false if it may make the call. units is the work that this took, in units of 25 ns.
func (u *User) Check(call *Call) (d Denial, denied bool, units int) {
	if u.full || u.catalog.always.has(call.Command) {
		// of those that everybody may run none has keys or channels
		return Denial{}, false, 0
	}
	d, units = u.root.check(u.catalog, call)
	for _, s := range u.selectors {
		if d.Reason == 0 {
			break
		}
		other, took := s.check(u.catalog, call)
		units += took
		if other.Reason == 0 || other.Reason > d.Reason ||
			other.Reason == d.Reason && other.index > d.index {
			d = other
		}
	}
	return d, d.Reason != 0, units
}

// check returns what the selector lacks for a call.
func (s *selector) check(c *Catalog, call *Call) (d Denial, units int) {
	if !s.allowed.has(call.Command) &&
		(call.FirstArg == nil || !s.allowsFirst(call.Command, string(call.FirstArg))) {
		return Denial{Reason: DeniedCommand, Object: c.commands[call.Command].Name}, selectorWork
	}
	units = selectorWork
	if !s.allKeys {
		for i, k := range call.Keys {
			ok, took := s.allowsKey(k)
			if units += took; !ok {
				return Denial{DeniedKey, string(k.Name), i}, units
			}
		}
	}
	if !s.allChannels {
		for i, name := range call.Channels {
			ok, took := s.allowsChannel(name, call.Patterns)
			if units += took; !ok {
				return Denial{DeniedChannel, string(name), i}, units
			}
		}
	}
	return Denial{}, units
}

// selectorWork is what a selector costs beside its patterns, in units of 25 ns.
const selectorWork = 1

// allowsKey reports whether a pattern with the rights that the call needs matches the key.
func (s *selector) allowsKey(k Key) (ok bool, units int) {
	for _, p := range s.keys {
		units++
		if p.access&k.Access != k.Access {
			continue
		}
		ok, took := glob.MatchWork(p.pattern, k.Name)
		if units += took; ok {
			return true, units
		}
	}
	return false, units
}

// allowsChannel reports whether a pattern matches the channel. A pattern that is subscribed to must
// be one of the patterns itself.
func (s *selector) allowsChannel(name []byte, isPattern bool) (ok bool, units int) {
	for _, p := range s.channels {
		units++
		if isPattern {
			ok = bytes.Equal(p, name)
		} else {
			var took int
			ok, took = glob.MatchWork(p, name)
			units += took
		}
		if ok {
			return true, units
		}
	}
	return false, units
}

// MayReceive reports whether any selector lets the user receive the messages of a channel, or those
// of a pattern, whichever command it subscribes with.
func (u *User) MayReceive(name []byte, isPattern bool) bool {
	if u.full {
		return true
	}
	for s := range u.all() {
		if s.allChannels {
			return true
		}
		if ok, _ := s.allowsChannel(name, isPattern); ok {
			return true
		}
	}
	return false
}
