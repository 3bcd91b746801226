package commands

import "github.com/coordd/coordd/commands/keyspace"

// This file holds keyspace notifications as handlers send them: who receives them is not their business.

// NotifyClass is a class of keyspace notifications, one of the letters of notify-keyspace-events.
type NotifyClass byte

// The classes of notifications that commands cause, by Redis's letters.
const (
	NotifyGeneric NotifyClass = 'g' // commands that are not of one type: del, expire, rename_from …
	NotifyString  NotifyClass = '$'
	NotifyList    NotifyClass = 'l'
	NotifySet     NotifyClass = 's'
	NotifyHash    NotifyClass = 'h'
	NotifyZSet    NotifyClass = 'z'
	NotifyStream  NotifyClass = 't'
	NotifyExpired NotifyClass = 'x'
	NotifyNew     NotifyClass = 'n' // a key was made
	NotifyMiss    NotifyClass = 'm' // a key that a read asked for is not there
)

// notify tells of something that was done to a key of the selected database, after it was done.
func (x *Call) notify(class NotifyClass, event string, key []byte) {
	if x.Notify != nil {
		x.Notify(class, event, x.Tx.DB, key)
	}
}

// changed ends the change of a collection that came from Edit or SetCollection: it gets its revision, or goes when nothing is left in it.
// event is told of, and its removal as del.
func (x *Call) changed(e *keyspace.Entry, class NotifyClass, event string) {
	x.DB().Changed(e)
	if x.Notify == nil {
		return
	}
	key := []byte(e.Key())
	x.notify(class, event, key)
	if e.Collection().Len() == 0 {
		x.notify(NotifyGeneric, "del", key)
	}
}
