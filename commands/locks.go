// LOCKS releases or extends a lock while it has the owner and the fencing token that were seen.
// locks_show.go shows locks, windows and queues.

package commands

import (
	"bytes"

	"github.com/coordd/coordd/commands/keyspace"
)

// lockKey is the key of LOCKS' subcommands.
var lockKey = KeySpec{First: 2, Last: 2, Step: 1}

var locksSpec = Spec{
	Name: "locks", Kind: Read, Arity: -2, Group: "generic", Since: "0.2.0", Level: LevelSecond,
	Summary:    "Shows, releases and extends locks.",
	Complexity: "Depends on the subcommand", Syntax: "subcommand",
	Subcommands: []Spec{
		locksScanSpec("list", "Iterates over the locks of the database that the user may read.",
			locksList),
		locksScanSpec("windows",
			"Iterates over the windows of the database that the user may read, with their fill.",
			locksWindows),
		locksScanSpec("queues", "Iterates over the lists and streams of the database that the "+
			"user may read, with their length.", locksQueues),
		{
			Name: "show", Kind: Read, Arity: 3, Flags: NoScript | NoMulti | Linearizable | Unlogged,
			Keys: lockKey.does(KeyRO | KeyAccess), Group: "generic", Since: "0.2.0",
			Level: LevelSecond, Syntax: "key",
			Summary:    "Returns the holder of a lock, who waits for it, and who held it before.",
			Complexity: "O(1)", Handler: locksShow,
		},
		{
			Name: "stats", Kind: Read, Arity: 2,
			Flags: NoScript | NoMulti | Linearizable | Unlogged | AnyDB,
			Group: "generic", Since: "0.2.0", Level: LevelSecond, OwnCategories: "admin dangerous",
			Summary:    "Returns what the leader counted of locks and windows, by label.",
			Complexity: "O(1)", Handler: locksStats,
		},
		{
			Name: "release", Kind: Write, Acts: actDrop | actFree | actDelete | actAlone, Arity: 5,
			Keys: lockKey.does(KeyRW | KeyAccess | KeyDelete), Group: "generic", Since: "0.2.0",
			Level: LevelSecond, Syntax: "key owner token:integer", Audit: auditLock,
			Summary: "Releases a lock and wakes its waiters, if it has that owner and fencing " +
				"token.",
			Complexity: "O(1)", Handler: locksRelease,
		},
		{
			Name: "extend", Kind: Write, Acts: actExpire | actAlone, Arity: 6,
			Keys: lockKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "generic", Since: "0.2.0",
			Level: LevelSecond, Syntax: "key owner token:integer milliseconds:integer",
			Audit: auditLock,
			Summary: "Lets the lease of a lock end so long from now, if the lock has that owner " +
				"and fencing token.",
			Complexity: "O(1)", Handler: locksExtend,
		},
		{
			Name: "help", Kind: Read, Arity: 2, Flags: Loading | Stale, Group: "generic",
			Since: "0.2.0", Level: LevelSecond, Summary: "Lists the subcommands of LOCKS.",
			Complexity: "O(1)", Handler: locksHelp,
		},
	},
}

func locksHelp(x *Call) error {
	replyHelp(x.Out,
		"LOCKS <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"EXTEND <key> <owner> <token> <milliseconds>",
		"    Let the lease end so long from now, if owner and token are the lock's.",
		"LIST [MATCH <pattern>] [COUNT <count>] [CURSOR <cursor>]",
		"    Iterate over the locks.",
		"QUEUES [MATCH <pattern>] [COUNT <count>] [CURSOR <cursor>]",
		"    Iterate over the lists and streams.",
		"RELEASE <key> <owner> <token>",
		"    Release the lock, if owner and token are its own.",
		"SHOW <key>",
		"    Tell who holds the lock, who waits for it, and who held it before.",
		"STATS",
		"    Count locks and windows, by label.",
		"WINDOWS [MATCH <pattern>] [COUNT <count>] [CURSOR <cursor>]",
		"    Iterate over the windows.",
		"HELP",
		"    Print this help.",
	)
	return nil
}

// locksScanSpec declares a subcommand that iterates over some of the keys.
func locksScanSpec(name, summary string, handler Handler) Spec {
	return Spec{
		Name: name, Kind: Read, Arity: -2, Flags: NoScript | NoMulti | Linearizable | Unlogged,
		Group: "generic", Since: "0.2.0", Level: LevelSecond, OwnCategories: "keyspace",
		Syntax: "[MATCH pattern] [COUNT count:integer] [CURSOR cursor]", Summary: summary,
		Complexity: "O(1) for every call. O(N) for a complete iteration, N being the keys.",
		Handler:    handler,
	}
}

const (
	errPermits Error = "ERR the permits of this semaphore are counted in another key: only its " +
		"clients can release one"
	errSlotLease Error = "ERR only its clients know how the holder of a semaphore is extended"
)

// auditLock shows the key and the numbers, but not the owner: who knows the value of a lock can
// release it.
func auditLock(args [][]byte) ([][]byte, bool) {
	shown := args[:1:1]
	for _, a := range args[2:] { // somebody may have swapped them
		if _, ok := ParseInt(a); ok {
			shown = append(shown, a)
		}
	}
	return shown, true
}

// lockSeen returns the lock of a call with key, owner and token, false if that is not the lock any
// more.
func (x *Call) lockSeen() (e *keyspace.Entry, form LeaseForm, same bool, err error) {
	key, owner := x.Args[2], x.Args[3]
	token, ok := ParseInt(x.Args[4])
	if !ok {
		return nil, form, false, ErrNotInteger
	}
	if e = x.find(key); e == nil {
		return nil, form, false, nil
	}
	if own, held := holdingIn(x.DB(), e, owner); held && own.form.several() {
		// LOCKS SHOW has both: the token of the owner, and that of the key
		same = token == int64(own.token) || token == int64(x.DB().Creation(key))
		return e, own.form, same, nil
	}
	if int64(x.DB().Creation(key)) != token {
		return nil, form, false, nil
	}
	switch c := e.Collection().(type) {
	case nil:
		x.spendBytes(len(owner))
		return e, form, bytes.Equal(e.Bytes(), owner), nil
	case *keyspace.Hash: //hash: two fields of it
		form = formOf(c)
		_, same = c.Get(owner)
		return e, form, same && (form == FormReentrant || string(owner) != "mode"), nil
	case *keyspace.ZSet:
		_, same = c.Score(owner)
		return e, FormSemaphore, same, nil
	}
	return e, form, false, nil
}

// locksRelease deletes the lock, or one of several owners of it.
func locksRelease(x *Call) error {
	e, form, same, err := x.lockSeen()
	switch {
	case err != nil:
		return err
	case !same:
		x.Out.Int(0)
		return nil
	case form == FormSemaphore && e.Deadline() == 0:
		return errPermits
	}
	key, others, acquired := x.Args[2], 0, e.Acquired()
	channels := x.lockChannels(string(key), form)
	x.ExpectMessages(len(channels) * len(key))
	// first: a message without room for its reply is not sent
	x.Out.Int(1)
	if h, ok := e.Collection().(*keyspace.Hash); ok { //hash: its length
		others = h.Len() - 1
		if form == FormReadWrite {
			others--
		}
	}
	switch {
	case form == FormSemaphore:
		e, z := editZSet(x, key)
		z.Remove(x.Args[3])
		x.changed(e, NotifyZSet, "zrem")
	case others > 0:
		e = x.DB().Edit(key)
		h, _ := e.Collection().(*keyspace.Hash) //hash: one field of it
		h.Delete(x.Args[3])
		x.changed(e, NotifyHash, "hdel")
		if form.several() {
			x.lockFact(LockReleased, form, key, x.Args[3], 0, 0)
		}
	default:
		x.deleteKey(key)
	}
	x.lost(x.Tx.DB, key, acquired)
	for _, channel := range channels {
		x.Send(Event{Channel: []byte(channel), Payload: []byte("0")})
	}
	return nil
}

// lockChannels returns the channels on which clients wait for a lock to be released: Redisson's.
func (x *Call) lockChannels(key string, form LeaseForm) []string {
	switch form {
	case FormReadWrite:
		return []string{redissonName("redisson_rwlock", key)}
	case FormReentrant:
		channel := redissonName("redisson_lock__channel", key)
		if q := x.fairQueue(key); q != nil && q.Len() > 0 {
			if head := q.At(0); len(head) <= maxChannel {
				return []string{channel, channel + ":" + head}
			}
		}
		return []string{channel}
	}
	return nil
}

func locksExtend(x *Call) error {
	ms, ok := ParseInt(x.Args[5])
	if !ok {
		return ErrNotInteger
	}
	if ms <= 0 || ms > maxLockMs {
		return InvalidExpire(x.Spec.FullName())
	}
	_, form, same, err := x.lockSeen()
	switch {
	case err != nil:
		return err
	case !same:
		x.Out.Int(0)
		return nil
	case form == FormSemaphore:
		return errSlotLease
	}
	x.Out.Int(1)
	key, until := x.Args[2], x.deadline(ms, false)
	own := holding{form: form}
	x.holdUntil(own, key, x.Args[3], lockUntil{deadlineMs: until, endMs: until})
	if form.several() {
		x.lockFact(LockRenewed, form, key, x.Args[3], 0, until)
	}
	return nil
}
