// Whether a user may make a call.

package acl

import (
	"bytes"
	"slices"

	"github.com/coordd/coordd/commands/glob"
)

// Reason is why a call is denied, from what is decided first to what is decided last.
type Reason uint8

const (
	DeniedCommand Reason = iota + 1
	DeniedKey
	DeniedChannel
	// DeniedWork says that finding out takes too much work: a call with many keys, of a user with
	// many patterns.
	DeniedWork
)

// String returns the reason as ACL LOG shows it.
func (r Reason) String() string {
	return [...]string{"", "command", "key", "channel", "work"}[r]
}

// Denial is what a user lacks for a call.
type Denial struct {
	Reason Reason
	Object string // the full name of the command, the key or the channel
	index  int    // which of the call's keys or channels it is
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

// Check returns what the user lacks for a call, by the selector that comes closest to allowing it;
// denied is false if it may make the call. units is the work done, in units of 25 ns. Beyond most
// units the check gives up and denies the call.
func (u *User) Check(call *Call, most int) (d Denial, denied bool, units int) {
	if u.full || u.catalog.always.has(call.Command) {
		return Denial{}, false, 0 // commands that are always allowed have neither keys nor channels
	}
	for s := range u.all() {
		lacks := s.check(u.catalog, call, most, &units)
		switch {
		case lacks.Reason == 0:
			return Denial{}, false, units
		case units > most:
			return Denial{Reason: DeniedWork}, true, units
		case lacks.Reason > d.Reason, lacks.Reason == d.Reason && lacks.index > d.index:
			d = lacks
		}
	}
	return d, true, units
}

// ReadsAllKeys reports whether the user may make the call even if it reads any key: by a selector
// that allows the call and has no restriction on reading keys.
func (u *User) ReadsAllKeys(call *Call, most int) (ok bool, units int) {
	for s := range u.all() {
		units += len(s.keys) / ruleSearched
		if s.readsAllKeys() && s.check(u.catalog, call, most, &units).Reason == 0 {
			return true, units
		}
	}
	return false, units
}

func (s *selector) readsAllKeys() bool {
	return s.allKeys || slices.ContainsFunc(s.keys, func(k keyPattern) bool {
		return string(k.pattern) == "*" && k.access&Read != 0
	})
}

// What a selector costs besides its patterns, in units of 25 ns.
const (
	selectorWork  = 1
	firstSearched = 4 // first arguments that are one unit
)

// check returns what the selector lacks for a call, and adds the work. It gives up beyond most.
func (s *selector) check(c *Catalog, call *Call, most int, units *int) Denial {
	*units += selectorWork + len(s.firstArgs)/firstSearched
	if !s.allowed.has(call.Command) &&
		(call.FirstArg == nil || !s.allowsFirst(call.Command, string(call.FirstArg))) {
		return Denial{Reason: DeniedCommand, Object: c.commands[call.Command].Name}
	}
	if !s.allKeys {
		for i, k := range call.Keys {
			ok, took := s.allowsKey(k)
			if *units += took; !ok || *units > most {
				return Denial{DeniedKey, string(k.Name), i}
			}
		}
	}
	if !s.allChannels {
		for i, name := range call.Channels {
			ok, took := s.allowsChannel(name, call.Patterns)
			if *units += took; !ok || *units > most {
				return Denial{DeniedChannel, string(name), i}
			}
		}
	}
	return Denial{}
}

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
// of a pattern, whichever command it subscribes with. units is the work done, in units of 25 ns.
func (u *User) MayReceive(name []byte, isPattern bool) (ok bool, units int) {
	if u.full {
		return true, 0
	}
	for s := range u.all() {
		if units += selectorWork; s.allChannels {
			return true, units
		}
		ok, took := s.allowsChannel(name, isPattern)
		if units += took; ok {
			return true, units
		}
	}
	return false, units
}
