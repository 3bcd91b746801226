package fsm

// This file holds what applying an entry tells the node about: messages, keyspace notifications, and changes of the keys that
// somebody on the node waits for. What it gathers is no part of the state: a node that nobody is connected to has the same.

import (
	"bytes"
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
)

// Interest says whether somebody on this node wants to be told of changes of a key.
type Interest func(db int, key string) bool

// events gathers what one entry brings about.
type events struct {
	list     []commands.Event
	interest Interest                                        // nil: of no key
	notify   commands.NotifyFlags                            // part of the state: which keyspace notifications are sent
	client   uint64                                          // who asked for what is done now; 0 where that does not count
	watched  bool                                            // the commands that scripts call are told of
	called   int                                             // bytes of their arguments
	place    map[changedKey]int                              // where in list a key is told of last
	observer keyspace.Observer                               // observe, made once
	notifier func(commands.NotifyClass, string, int, []byte) // tell, made once
}

// changedKey names a key that was changed.
type changedKey struct {
	db  int
	key string
}

// keptEvents is for how many events the room is used again by later entries.
const keptEvents = 1024

func newEvents() *events {
	v := &events{place: map[changedKey]int{}}
	v.observer, v.notifier = v.observe, v.send
	return v
}

// begin forgets the last entry's and says what is to be told of the keyspace's changes.
func (v *events) begin(ks *keyspace.Keyspace) {
	if v.client, v.called = 0, 0; cap(v.list) > keptEvents {
		v.list, v.place = nil, map[changedKey]int{}
	}
	clear(v.list) // what the events lead to goes
	v.list = v.list[:0]
	clear(v.place)
	if v.interest == nil && v.notify == 0 {
		ks.Observe(nil)
		return
	}
	ks.Observe(v.observer)
}

// emit takes a message. The bytes are a script's or the entry's; a script uses its own again.
func (v *events) emit(e commands.Event) {
	e.Channel, e.Payload = bytes.Clone(e.Channel), bytes.Clone(e.Payload)
	v.list = append(v.list, e)
}

// calledBytes bounds the arguments of scripts' commands that are told of one entry: what comes behind them is not.
const calledBytes = 1 << 20

// call takes a command that a script calls.
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
	v.list = append(v.list, commands.Event{Kind: commands.ScriptCall, DB: db, Args: own, Client: v.client})
}

// calling gives scripts the way to tell of the commands that they call, nil where nobody watches.
func (v *events) calling() func(int, [][]byte) {
	if !v.watched {
		return nil
	}
	return v.call
}

// send makes messages of a keyspace notification, as far as they are wanted.
func (v *events) send(class commands.NotifyClass, event string, db int, key []byte) {
	number := strconv.Itoa(db)
	if v.notify.Keyspace(class) {
		v.list = append(v.list, commands.Event{Channel: append([]byte("__keyspace@"+number+"__:"), key...), Payload: []byte(event)})
	}
	if v.notify.Keyevent(class) {
		v.list = append(v.list, commands.Event{Channel: []byte("__keyevent@" + number + "__:" + event), Payload: bytes.Clone(key)})
	}
}

// observe is told of the keyspace's changes. It sends those notifications that no command sends.
func (v *events) observe(db int, e *keyspace.Entry, c keyspace.Change) {
	switch c {
	case keyspace.Flushed:
		if v.interest != nil {
			v.list = append(v.list, commands.Event{Kind: commands.DBChanged, DB: db, Client: v.client})
			clear(v.place) // what is told of a key from here on comes behind this
		}
		return
	case keyspace.Added:
		v.own(commands.NotifyNew, "new", db, e)
		return // Modified follows
	case keyspace.Expired:
		v.own(commands.NotifyExpired, "expired", db, e)
	case keyspace.FieldsExpired:
		v.own(commands.NotifyHash, "hexpired", db, e)
		if e.Collection().Len() == 0 {
			v.own(commands.NotifyGeneric, "del", db, e)
			c = keyspace.Expired
		}
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

// change tells of a key, once an entry unless several clients change it in turn. What is said last of the key's existence is the newest.
func (v *events) change(db int, key string, c keyspace.Change) {
	client := v.client
	if c == keyspace.Expired || c == keyspace.FieldsExpired {
		client = 0 // nobody did that
	}
	gone := c == keyspace.Removed || c == keyspace.Expired
	id := changedKey{db, key}
	if i, known := v.place[id]; known && v.list[i].Client == client {
		v.list[i].Gone = gone
		return
	}
	v.place[id] = len(v.list)
	v.list = append(v.list, commands.Event{Kind: commands.KeyChanged, DB: db, Key: key, Gone: gone, Client: client})
}

// notifying gives commands the way to send notifications, nil while none are wanted.
func (v *events) notifying() func(commands.NotifyClass, string, int, []byte) {
	if v.notify == 0 {
		return nil
	}
	return v.notifier
}

// settingNotify is the one setting that all nodes share.
const settingNotify = "notify-keyspace-events"

// set changes a setting that all nodes share, from the next request on.
func (m *Machine) set(q *commands.Request) error {
	cmd := q.Cmds[0]
	if len(cmd) != 2 || string(cmd[0]) != settingNotify {
		return commands.Error("ERR no such setting")
	}
	f, err := commands.ParseNotifyFlags(string(cmd[1]))
	if err != nil {
		return commands.Errorf("ERR %v", err)
	}
	m.events.notify = f
	if f != 0 {
		m.ks.Observe(m.events.observer)
	}
	return nil
}
