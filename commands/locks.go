// LOCKS shows locks, with what the leader knows of them besides the state, and releases or extends
// one while it has the owner and the fencing token that were seen.

package commands

import (
	"strconv"
	"strings"

	"github.com/coordd/coordd/commands/keyspace"
)

// Known is what a node knows of locks outside of the state: see package locks. Reads alone have it,
// since it is the node's own.
type Known interface {
	// Lock returns what is known of the lock that was taken at token.
	Lock(db int, key []byte, token keyspace.Revision, clockMs int64) KnownLock
	// Counts returns what the node counted.
	Counts() []LabelCounts
}

// KnownLock is what a node knows of a lock.
type KnownLock struct {
	HeldMs  int64 // -1: unknown
	Waiters []LockWaiter
	Past    []LockHolder // the latest first
}

// LockWaiter is a client that was refused a lock and has not got it since.
type LockWaiter struct {
	Owner           string
	WaitsMs, SeenMs int64 // since it was first refused, and last
	Attempts        int64
}

// LockHolder is a past holder of a lock.
type LockHolder struct {
	Owner  string
	Token  keyspace.Revision
	End    string // released or expired
	HeldMs int64  // -1: unknown
	AgoMs  int64  // since the end
}

// LabelCounts are the counts of the locks and windows with a label, by name.
type LabelCounts struct {
	Label  string
	Names  []string
	Counts []uint64
}

// lockKey is the key of LOCKS' subcommands.
var lockKey = KeySpec{First: 2, Last: 2, Step: 1}

var locksSpec = Spec{
	Name: "locks", Kind: Read, Arity: -2, Group: "generic", Since: "0.2.0", Level: LevelUsers,
	Summary:    "Shows, releases and extends locks.",
	Complexity: "Depends on the subcommand", Syntax: "subcommand",
	Subcommands: []Spec{
		{
			Name: "list", Kind: Read, Arity: -2,
			Flags: NoScript | NoMulti | Linearizable | Unlogged,
			Group: "generic", Since: "0.2.0", Level: LevelUsers, OwnCategories: "keyspace",
			Syntax:     "[MATCH pattern] [COUNT count:integer] [CURSOR cursor]",
			Summary:    "Iterates over the locks of the database that the user may read.",
			Complexity: "O(1) for every call. O(N) for a complete iteration, N being the keys.",
			Handler:    locksList,
		},
		{
			Name: "show", Kind: Read, Arity: 3, Flags: NoScript | NoMulti | Linearizable | Unlogged,
			Keys: lockKey.does(KeyRO | KeyAccess), Group: "generic", Since: "0.2.0",
			Level: LevelUsers, Syntax: "key",
			Summary:    "Returns the holder of a lock, who waits for it, and who held it before.",
			Complexity: "O(1)", Handler: locksShow,
		},
		{
			Name: "stats", Kind: Read, Arity: 2,
			Flags: NoScript | NoMulti | Linearizable | Unlogged | AnyDB,
			Group: "generic", Since: "0.2.0", Level: LevelUsers, OwnCategories: "admin dangerous",
			Summary:    "Returns what the leader counted of locks and windows, by label.",
			Complexity: "O(1)", Handler: locksStats,
		},
		{
			Name: "release", Kind: Write, Acts: actDrop | actDelete | actAlone, Arity: 5,
			Keys: lockKey.does(KeyRW | KeyAccess | KeyDelete), Group: "generic", Since: "0.2.0",
			Level: LevelUsers, Syntax: "key owner token:integer", Audit: AuditArgs,
			Summary: "Releases a lock and wakes its waiters, if it has that owner and fencing " +
				"token.",
			Complexity: "O(1)", Handler: locksRelease,
		},
		{
			Name: "extend", Kind: Write, Acts: actExpire | actAlone, Arity: 6,
			Keys: lockKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "generic", Since: "0.2.0",
			Level: LevelUsers, Syntax: "key owner token:integer milliseconds:integer",
			Audit: AuditArgs,
			Summary: "Lets the lease of a lock end so long from now, if the lock has that owner " +
				"and fencing token.",
			Complexity: "O(1)", Handler: locksExtend,
		},
	},
}

const errUnlogged Error = "ERR LOCKS is answered by reads alone, which this is not"

// heldLock is a lock as a command sees it.
type heldLock struct {
	form   LeaseForm
	owners []string
	queued *keyspace.List
}

// maxOwners bounds the owners of a lock that are shown.
const maxOwners = 64

// lockOf returns the lock that a key is, false for a key that is none.
func (x *Call) lockOf(e *keyspace.Entry) (l heldLock, ok bool) {
	switch e.Kind() {
	case keyspace.KindString:
		return heldLock{owners: []string{string(e.Bytes())}}, e.Lease()
	case keyspace.KindHash:
		h, _ := e.Collection().(*keyspace.Hash)
		if h == nil || e.Deadline() == 0 || h.Len() > maxOwners+1 {
			return l, false
		}
		l.form, ok = FormReentrant, true
		if isReadWrite(h) {
			l.form = FormReadWrite
		}
		h.Each(func(name string, value []byte) bool {
			if l.form == FormReadWrite && name == "mode" {
				return true
			}
			depth, isInt := ParseInt(value)
			ok = ok && isInt && depth > 0
			l.owners = append(l.owners, name)
			return ok
		})
		if ok = ok && len(l.owners) > 0 && (e.Lease() || l.form == FormReadWrite); ok {
			l.queued = x.fairQueue(e.Key())
		}
		return l, ok
	}
	return l, false
}

// fairQueue returns the waiters of a fair lock of Redisson, nil if it is none.
func (x *Call) fairQueue(key string) *keyspace.List {
	if e := x.DB().Find([]byte(redissonName("redisson_lock_queue", key))); e != nil {
		l, _ := e.Collection().(*keyspace.List)
		return l
	}
	return nil
}

// redissonName returns the name of what belongs to an object of Redisson.
func redissonName(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// kind returns the word for the kind of a lock.
func (l *heldLock) kind() string {
	if l.queued != nil && l.queued.Len() > 0 {
		return "fair"
	}
	return l.form.String()
}

// lockWork is the cost of describing a lock, in units of Env.Work.
const lockWork = 40

// replyLock writes a lock as a map, with more details.
func (x *Call) replyLock(e *keyspace.Entry, l *heldLock, known KnownLock, detailed bool) {
	x.Spend(lockWork)
	leftMs := int64(-1)
	if e.Deadline() != 0 {
		leftMs = x.remainingMs(e.Deadline())
	}
	waiters := len(known.Waiters)
	if l.queued != nil {
		waiters = max(waiters, l.queued.Len())
	}
	fields := 7
	if detailed {
		fields += 2
	}
	x.Out.Map(fields)
	x.Out.BulkString("key")
	x.Out.BulkString(e.Key())
	x.Out.BulkString("kind")
	x.Out.BulkString(l.kind())
	x.Out.BulkString("owners")
	x.Out.Array(len(l.owners))
	for _, o := range l.owners {
		x.Out.BulkString(o)
	}
	x.replyNumber("token", int64(x.DB().Creation([]byte(e.Key()))))
	x.replyNumber("ttl-ms", leftMs)
	x.replyNumber("held-ms", known.HeldMs)
	x.replyNumber("waiters", int64(waiters))
	if !detailed {
		return
	}
	x.replyKnown(known)
}

func (x *Call) replyNumber(name string, n int64) {
	x.Out.BulkString(name)
	x.Out.Int(n)
}

func (x *Call) replyKnown(known KnownLock) {
	x.Out.BulkString("waiting")
	x.Out.Array(len(known.Waiters))
	for _, w := range known.Waiters {
		x.Out.Map(4)
		x.Out.BulkString("owner")
		x.Out.BulkString(w.Owner)
		x.replyNumber("waits-ms", w.WaitsMs)
		x.replyNumber("seen-ms-ago", w.SeenMs)
		x.replyNumber("attempts", w.Attempts)
	}
	x.Out.BulkString("history")
	x.Out.Array(len(known.Past))
	for _, p := range known.Past {
		x.Out.Map(5)
		x.Out.BulkString("owner")
		x.Out.BulkString(p.Owner)
		x.replyNumber("token", int64(p.Token))
		x.Out.BulkString("end")
		x.Out.BulkString(p.End)
		x.replyNumber("held-ms", p.HeldMs)
		x.replyNumber("ms-ago", p.AgoMs)
	}
}

// locksList replies the next cursor and the locks among the next keys, as SCAN does.
func locksList(x *Call) error {
	if x.Known == nil {
		return errUnlogged
	}
	var options [][]byte
	cursor := uint64(0)
	for i := 2; i < len(x.Args); i++ {
		if i+1 < len(x.Args) && isWord(x.Args[i], "CURSOR") {
			var err error
			if cursor, err = parseCursor(x.Args[i+1]); err != nil {
				return err
			}
			i++
			continue
		}
		options = append(options, x.Args[i])
	}
	o, err := parseScanOptions(options, 0)
	if err != nil {
		return err
	}
	type found struct {
		e *keyspace.Entry
		l heldLock
	}
	var all []found
	x.spendDead()
	next := x.DB().Scan(cursor, o.count, func(e *keyspace.Entry) {
		x.spendKey(&o, e)
		if !o.wants([]byte(e.Key())) {
			return
		}
		if l, ok := x.lockOf(e); ok && x.mayShow(e.Key()) {
			all = append(all, found{e, l})
		}
	})
	x.Out.Array(2)
	x.Out.BulkString(strconv.FormatUint(next, 10))
	x.Out.Array(len(all))
	for _, f := range all {
		key := []byte(f.e.Key())
		x.replyLock(f.e, &f.l, x.Known.Lock(x.Tx.DB, key, f.e.Created(), x.ClockMs), false)
	}
	return nil
}

// mayShow reports whether the user may read a key.
func (x *Call) mayShow(key string) bool {
	if x.User == nil || x.User.Full() {
		return true
	}
	show := Call{Env: x.Env, Tx: x.Tx,
		Args: [][]byte{[]byte("LOCKS"), []byte("SHOW"), []byte(key)}}
	spec, err := x.Table.ResolveAt(x.Level, show.Args)
	if err != nil {
		return false
	}
	_, denied := show.Denied(spec)
	return !denied
}

// locksShow replies a lock. A key that is none replies what is known of it, with an empty kind.
func locksShow(x *Call) error {
	if x.Known == nil {
		return errUnlogged
	}
	key := x.Args[2]
	e := x.DB().Find(key)
	if e != nil {
		if l, ok := x.lockOf(e); ok {
			x.replyLock(e, &l, x.Known.Lock(x.Tx.DB, key, e.Created(), x.ClockMs), true)
			return nil
		}
	}
	known := x.Known.Lock(x.Tx.DB, key, 0, x.ClockMs)
	if len(known.Past)+len(known.Waiters) == 0 {
		x.Out.Null()
		return nil
	}
	x.Out.Map(4)
	x.Out.BulkString("key")
	x.Out.Bulk(key)
	x.Out.BulkString("kind")
	x.Out.BulkString("")
	x.replyKnown(known)
	return nil
}

// locksStats replies a map of counts for each label.
func locksStats(x *Call) error {
	if x.Known == nil {
		return errUnlogged
	}
	all := x.Known.Counts()
	x.Out.Array(len(all))
	for _, c := range all {
		x.Out.Map(1 + len(c.Names))
		x.Out.BulkString("label")
		x.Out.BulkString(c.Label)
		for i, name := range c.Names {
			x.replyNumber(name, int64(c.Counts[i]))
		}
	}
	return nil
}

// lockSeen returns the lock of a call with key, owner and token, false if that is not the lock any
// more.
func (x *Call) lockSeen() (e *keyspace.Entry, l heldLock, same bool, err error) {
	key, owner := x.Args[2], string(x.Args[3])
	token, ok := ParseInt(x.Args[4])
	if !ok {
		return nil, l, false, ErrNotInteger
	}
	if e = x.DB().Find(key); e == nil || int64(x.DB().Creation(key)) != token {
		return nil, l, false, nil
	}
	h, isHash := e.Collection().(*keyspace.Hash)
	if !isHash {
		l.owners = []string{string(e.Bytes())}
		return e, l, e.Kind() == keyspace.KindString && string(e.Bytes()) == owner, nil
	}
	l.form = FormReentrant
	if isReadWrite(h) {
		l.form = FormReadWrite
	}
	_, same = h.Get(x.Args[3])
	return e, l, same && (l.form == FormReentrant || owner != "mode"), nil
}

// locksRelease deletes the lock, or one of several owners of it.
func locksRelease(x *Call) error {
	e, l, same, err := x.lockSeen()
	if err != nil {
		return err
	}
	if !same {
		x.Out.Int(0)
		return nil
	}
	x.Out.Int(1) // first: a message without room for its reply is not sent
	key, others := x.Args[2], 0
	if h, ok := e.Collection().(*keyspace.Hash); ok {
		others = h.Len() - 1
		if l.form == FormReadWrite {
			others--
		}
	}
	if others > 0 {
		e = x.DB().Edit(key)
		h, _ := e.Collection().(*keyspace.Hash)
		h.Delete(x.Args[3])
		x.changed(e, NotifyHash, "hdel")
	} else {
		x.deleteKey(key)
	}
	for _, channel := range x.lockChannels(string(key), l.form) {
		x.Emit(Event{Channel: []byte(channel), Payload: []byte("0")})
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
			return []string{channel, channel + ":" + q.At(0)}
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
	if ms <= 0 {
		return InvalidExpire(x.Spec.FullName())
	}
	_, _, same, err := x.lockSeen()
	if err != nil {
		return err
	}
	if !same {
		x.Out.Int(0)
		return nil
	}
	x.setDeadline(x.Args[2], x.deadline(ms, false))
	x.Out.Int(1)
	return nil
}
