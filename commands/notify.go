// Keyspace notifications as handlers send them, whoever receives them.

package commands

import (
	"strings"

	"github.com/coordd/coordd/commands/keyspace"
)

// NotifyClass is a class of keyspace notifications: a letter of notify-keyspace-events.
type NotifyClass byte

// The classes of notifications that commands send.
const (
	NotifyGeneric NotifyClass = 'g' // commands on any type: del, expire, rename_from …
	NotifyString  NotifyClass = '$'
	NotifyList    NotifyClass = 'l'
	NotifySet     NotifyClass = 's'
	NotifyHash    NotifyClass = 'h'
	NotifyZSet    NotifyClass = 'z'
	NotifyStream  NotifyClass = 't'
	NotifyExpired NotifyClass = 'x'
	// a key was created: the machine notifies it when the keyspace does
	NotifyNew  NotifyClass = 'n'
	NotifyMiss NotifyClass = 'm' // a read found no key
	// since Redis 8.2, from LevelSecond on: a key got another value, or one of another type
	NotifyOverwritten NotifyClass = 'o'
	NotifyTypeChanged NotifyClass = 'c'
)

// What a message costs. Every node keeps the messages of an entry until all of it is applied, and a
// script can send one again and again: so Env.Emit and Env.Notify charge for what is kept.
const (
	// MessageSpent is the number of bytes kept per unit of work.
	MessageSpent = 4
	// EventBytes is what a notification takes beside its own bytes. A command that emits a message
	// has paid as much for its arguments.
	EventBytes = 128
)

// ExpectMessages refuses the command if it may not send messages of that many bytes. Below
// LevelSecond it charges for them. From there on sending does, after the change, when nothing is
// refused any more.
func (x *Call) ExpectMessages(bytes int) {
	if x.Level >= LevelSecond {
		x.Ahead(bytes / MessageSpent)
	} else {
		x.Spend(bytes / MessageSpent)
	}
}

// expectNotifications is ExpectMessages for the names of the command's keys, of size bytes at most.
func (x *Call) expectNotifications(size int) {
	if x.Level < LevelSecond || x.Notify == nil || x.Spec.Kind != Write ||
		size/MessageSpent <= x.Left() {
		return
	}
	uses, _ := x.Spec.KeyUses(x.Args) // an error is the handler's
	size = 0
	for _, use := range uses {
		size += len(x.Args[use.Index])
	}
	x.ExpectMessages(size)
}

// notify notifies event on a key of the selected database, after the change.
func (x *Call) notify(class NotifyClass, event string, key []byte) {
	x.notifyIn(x.Tx.DB, class, event, key)
}

// notifyIn is notify for a key of the database db.
func (x *Call) notifyIn(db int, class NotifyClass, event string, key []byte) {
	if x.Notify != nil {
		x.Notify(class, event, db, key)
	}
}

// none is in place of the type of a key that does not exist.
const none = -1

// kindAt returns the type of a key of the database db, for overwritten. none: it does not exist, or
// nobody wants to know.
func (x *Call) kindAt(db int, key []byte) int {
	if x.Notify == nil || x.Level < LevelSecond {
		return none
	}
	if e := x.Keyspace.DB(db).Find(key); e != nil {
		return int(e.Kind())
	}
	return none
}

// overwritten notifies that a key that was of the type before got another value, and another type.
func (x *Call) overwritten(db int, key []byte, before int, now keyspace.Kind) {
	if before == none {
		return
	}
	x.notifyIn(db, NotifyOverwritten, "overwritten", key)
	if before != int(now) {
		x.notifyIn(db, NotifyTypeChanged, "type_changed", key)
	}
}

// changed ends the change of a collection that came from Edit or SetCollection: the key gets its
// revision, or is removed if the collection is empty. It notifies event and a removal.
func (x *Call) changed(e *keyspace.Entry, class NotifyClass, event string) {
	x.DB().Changed(e)
	if x.Notify == nil {
		return
	}
	key := []byte(e.Key())
	x.notify(class, event, key)
	if e.Emptied() {
		x.notify(NotifyGeneric, "del", key)
	}
}

// NotifyFlags is a value of notify-keyspace-events.
type NotifyFlags uint16

// notifyLetters are the letters of notify-keyspace-events in the order of CONFIG GET; A stands for
// the classes of notifyAll. e and d are for what coordd does not have, evicted keys and modules; m
// is accepted and never sent (docs/compatibility.md).
const (
	notifyLetters = "g$lshzxetdnKEmoc"
	notifyAll     = "g$lshzxetd"
)

// ErrNotifyFlags is the error for an unknown letter.
const ErrNotifyFlags Error = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."

func notifyFlag(letter byte) NotifyFlags {
	if i := strings.IndexByte(notifyLetters, letter); i >= 0 {
		return 1 << i
	}
	return 0
}

// ParseNotifyFlags parses the letters of notify-keyspace-events.
func ParseNotifyFlags(text string) (NotifyFlags, error) {
	var f NotifyFlags
	for i := range len(text) {
		letters := text[i : i+1]
		if letters == "A" {
			letters = notifyAll
		}
		for j := range len(letters) {
			bit := notifyFlag(letters[j])
			if bit == 0 {
				return 0, ErrNotifyFlags
			}
			f |= bit
		}
	}
	return f, nil
}

// Second reports whether the flags have a class that begins with LevelSecond.
func (f NotifyFlags) Second() bool {
	return f&(notifyFlag(byte(NotifyOverwritten))|notifyFlag(byte(NotifyTypeChanged))) != 0
}

// String returns the letters as Redis does, which omits n after A.
func (f NotifyFlags) String() string {
	var b []byte
	all, _ := ParseNotifyFlags(notifyAll)
	if f&all == all {
		b = append(b, 'A')
		f &^= all | notifyFlag('n')
	}
	for i := range len(notifyLetters) {
		if f&(1<<i) != 0 {
			b = append(b, notifyLetters[i])
		}
	}
	return string(b)
}

// Keyspace reports whether notifications of a class go to the channels named after keys.
func (f NotifyFlags) Keyspace(class NotifyClass) bool { return f.wants(class, 'K') }

// Keyevent reports whether notifications of a class go to the channels named after events.
func (f NotifyFlags) Keyevent(class NotifyClass) bool { return f.wants(class, 'E') }

func (f NotifyFlags) wants(class NotifyClass, channel byte) bool {
	return f&notifyFlag(byte(class)) != 0 && f&notifyFlag(channel) != 0
}
