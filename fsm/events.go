// The events of an entry: messages, keyspace notifications, and changes of the keys that clients of
// this node wait for or track. They are not part of the state, which does not depend on clients.

package fsm

import (
	"bytes"
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// Interest reports whether a client of this node wants to be notified of changes of a key.
type Interest func(db int, key string) bool

// events gathers the events of one entry.
type events struct {
	list     []commands.Event
	interest Interest // nil: in no key
	// enabled notifications; part of the state
	notify commands.NotifyFlags
	client uint64  // that sent the request; 0: none
	work   *uint64 // work of the entry, for charging messages; nil: they cost nothing
	sent   uint64  // messages of commands, of all entries
	named  []byte  // channel that is named after the key of the newest notification
	// databases that were flushed, and of which no key was reported since
	flushed [keyspace.Databases]bool
	changed int // bytes of the keys reported as changed
	// report the commands that scripts call
	watched  bool
	called   int                                             // bytes of their arguments
	index    map[changedKey]int                              // in list, of a key's newest event
	notifier func(commands.NotifyClass, string, int, []byte) // send, made once
}

// changedKey names a key that was changed.
type changedKey struct {
	db  int
	key string
}

// keptEvents is the number of events whose memory later entries reuse.
const keptEvents = 1024

func newEvents() *events {
	v := &events{index: map[changedKey]int{}}
	v.notifier = v.send
	return v
}

// begin drops the last entry's events.
func (v *events) begin() {
	v.named, v.flushed, v.changed = nil, [keyspace.Databases]bool{}, 0
	if v.client, v.called = 0, 0; cap(v.list) > keptEvents {
		v.list, v.index = nil, map[changedKey]int{}
	}
	clear(v.list) // for the garbage collector
	v.list = v.list[:0]
	clear(v.index)
}

// charge adds the work of keeping bytes of messages until the entry is applied.
func (v *events) charge(bytes int) {
	if v.work != nil {
		*v.work += uint64(bytes / commands.MessageSpent)
	}
}

// emit adds a message and charges for it. It copies the bytes, which a script may reuse.
func (v *events) emit(e commands.Event) {
	v.charge(len(e.Channel) + len(e.Payload))
	e.Channel, e.Payload = bytes.Clone(e.Channel), bytes.Clone(e.Payload)
	v.list = append(v.list, e)
	v.sent++
}

// calledBytes bounds the arguments of the script calls reported for one entry; later calls are not
// reported.
const calledBytes = 1 << 20

// call reports a command that a script calls.
func (v *events) call(db int, args [][]byte) {
	for _, a := range args {
		v.called += len(a) + 32
	}
	if v.client == 0 || v.called > calledBytes {
		return
	}
	own := make([][]byte, len(args))
	for i, a := range args {
		own[i] = bytes.Clone(a)
	}
	v.list = append(v.list, commands.Event{Kind: commands.ScriptCall, DB: db, Args: own,
		Client: v.client})
}

// calling returns the function that scripts report their calls to, nil if nobody watches.
func (v *events) calling() func(int, [][]byte) {
	if !v.watched {
		return nil
	}
	return v.call
}

// send adds the messages of a keyspace notification that are enabled, and charges for them,
// whoever receives them: every node must count the same.
func (v *events) send(class commands.NotifyClass, event string, db int, key []byte) {
	toKey, toEvent := v.notify.Keyspace(class), v.notify.Keyevent(class)
	if !toKey && !toEvent {
		return
	}
	number := strconv.Itoa(db)
	named, key := v.keyChannel("__keyspace@"+number+"__:", key)
	if toKey {
		v.charge(commands.EventBytes + len(event))
		v.list = append(v.list, commands.Event{Channel: named, Payload: []byte(event)})
	}
	if toEvent {
		channel := []byte("__keyevent@" + number + "__:" + event)
		v.charge(commands.EventBytes + len(channel))
		v.list = append(v.list, commands.Event{Channel: channel, Payload: key})
	}
}

// keyChannel returns a key behind a prefix, and that copy of the key alone. One change of a key has
// up to eight messages, which share it.
func (v *events) keyChannel(prefix string, key []byte) (channel, shared []byte) {
	if len(v.named) != len(prefix)+len(key) || string(v.named[:len(prefix)]) != prefix ||
		!bytes.Equal(v.named[len(prefix):], key) {
		v.named = append(append(make([]byte, 0, len(prefix)+len(key)), prefix...), key...)
		v.charge(len(v.named))
	}
	return v.named, v.named[len(prefix):]
}

// observe learns of a change of the keyspace. It sends the notifications that no command sends.
func (v *events) observe(db int, e *keyspace.Entry, c keyspace.Change) {
	if v.interest == nil && v.notify == 0 {
		return
	}
	switch c {
	case keyspace.Flushed:
		if v.interest != nil {
			v.flush(db)
		}
		return
	case keyspace.Retimed:
		return // Modified follows
	case keyspace.Added:
		v.own(commands.NotifyNew, "new", db, e)
		return // Modified follows
	case keyspace.Expired:
		v.own(commands.NotifyExpired, "expired", db, e)
	case keyspace.ElementsExpired:
		if e.Kind() == keyspace.KindSet {
			v.own(commands.NotifySet, "sexpired", db, e)
		} else {
			v.own(commands.NotifyHash, "hexpired", db, e)
		}
		if e.Collection().Len() == 0 {
			v.own(commands.NotifyGeneric, "del", db, e)
			c = keyspace.Expired
		}
	}
	if (c == keyspace.Expired || c == keyspace.ElementsExpired) && e.Acquired() {
		v.own(commands.NotifyGeneric, commands.EventLockLost, db, e)
	}
	if v.interest != nil && v.interest(db, e.Key()) {
		v.change(db, e.Key(), c)
	}
}

func (v *events) own(class commands.NotifyClass, event string, db int, e *keyspace.Entry) {
	if v.notify != 0 {
		v.send(class, event, db, []byte(e.Key()))
	}
}

// flush reports that any key of a database may have changed: again only after another event of it,
// as a script can flush the empty databases again and again.
func (v *events) flush(db int) {
	if v.flushed[db] {
		return
	}
	v.flushed[db] = true
	v.list = append(v.list, commands.Event{Kind: commands.DBChanged, DB: db, Client: v.client})
	clear(v.index) // later events of a key must follow this one
}

// changedBytes bounds the changed keys that are reported for one entry: beyond it, any key of their
// databases may have changed.
const changedBytes = 16 << 20

// change reports a changed key once per entry, or again if another client changes it. The newest
// event reports whether the key still exists.
func (v *events) change(db int, key string, c keyspace.Change) {
	client := v.client
	if c == keyspace.Expired || c == keyspace.ElementsExpired {
		client = 0 // no client did that
	}
	gone := c == keyspace.Removed || c == keyspace.Expired
	id := changedKey{db, key}
	if i, known := v.index[id]; known && v.list[i].Client == client {
		v.list[i].Gone = gone
		return
	}
	if v.changed += len(key); v.changed > changedBytes {
		v.flush(db)
		return
	}
	v.flushed[db] = false
	v.index[id] = len(v.list)
	v.list = append(v.list, commands.Event{
		Kind: commands.KeyChanged, DB: db, Key: key, Gone: gone, Client: client,
	})
}

// lockCost is what an event of a lock counts besides its texts, bytes.
const lockCost = 64

// lock reports that an owner took or gave back a lock of interest. Like the changes of keys such
// events are bounded: beyond that, any key of the database may have changed.
func (v *events) lock(kind commands.EventKind, db int, key, owner []byte, token keyspace.Revision) {
	if v.interest == nil || !v.interest(db, string(key)) {
		return
	}
	if v.changed += len(key) + len(owner) + lockCost; v.changed > changedBytes {
		v.flush(db)
		return
	}
	v.list = append(v.list, commands.Event{Kind: kind, DB: db, Key: string(key),
		Payload: bytes.Clone(owner), Wait: uint64(token), Client: v.client})
}

// notifying returns the function that commands send notifications to, nil if none are enabled.
func (v *events) notifying() func(commands.NotifyClass, string, int, []byte) {
	if v.notify == 0 {
		return nil
	}
	return v.notifier
}
