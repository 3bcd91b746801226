// What LOCKS shows: locks, with what the leader knows of them besides the state, windows with their
// fill, and queues with their length.

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
	// Semaphore reports whether a sorted set was seen to be a semaphore, though it is not marked.
	Semaphore(db int, key []byte) bool
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

const errUnlogged Error = "ERR LOCKS is answered by reads alone, which this is not"

// heldLock is a lock as a command sees it.
type heldLock struct {
	form    LeaseForm
	value   []byte   // what a string holds: the owner
	owners  []string // owners of another form, the first ones
	holders int
	queued  *keyspace.List
}

// maxOwners bounds the owners of a lock that are shown.
const maxOwners = 64

// lockOf returns the lock that a key is, false for a key that is none.
func (x *Call) lockOf(e *keyspace.Entry) (l heldLock, ok bool) {
	switch e.Kind() {
	case keyspace.KindString:
		return heldLock{value: e.Bytes(), holders: 1}, e.Lease()
	case keyspace.KindHash:
		h, _ := x.walkHashOf(e)
		if form, shared := sharedForm(h); shared && e.Lease() {
			l, _ = lockHash(h)
			l.form, l.holders = form, h.Len()
			x.Spend(walkedWork * len(l.owners))
			return l, true
		}
		if e.Deadline() == 0 || !e.Lease() && !isReadWrite(h) {
			return l, false
		}
		if l, ok = lockHash(h); ok {
			l.queued = x.fairQueue(e.Key())
		}
		x.Spend(walkedWork * len(l.owners))
		return l, ok
	case keyspace.KindZSet:
		if !e.Lease() && !(e.Window() && x.Known.Semaphore(x.Tx.DB, []byte(e.Key()))) {
			return l, false
		}
		z, _ := e.Collection().(*keyspace.ZSet)
		l.form, l.holders = FormSemaphore, z.Len()
		z.Range(0, min(z.Len(), maxOwners)-1, func(s keyspace.Scored) bool {
			l.owners = append(l.owners, s.Member)
			return true
		})
		x.Spend(walkedWork * len(l.owners))
		return l, true
	}
	return l, false
}

// lockHash returns the lock that a hash is by its fields, false for one that is none.
func lockHash(h *keyspace.Hash) (l heldLock, ok bool) {
	l.form, l.holders = formOf(h), h.Len()
	if l.form == FormReadWrite {
		l.holders--
	}
	h.Each(func(name string, value []byte) bool {
		if l.form == FormReadWrite && name == "mode" {
			return true
		}
		depth, isInt := ParseInt(value)
		if _, several := holdingOf(value); several {
			depth, isInt = 1, true
		}
		if ok = isInt && depth > 0; ok {
			l.owners = append(l.owners, name)
		}
		return ok && len(l.owners) < maxOwners
	})
	return l, ok
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
	queued := x.waiting([]byte(e.Key()))
	waiters := max(len(known.Waiters), queued)
	if l.queued != nil {
		waiters = max(waiters, l.queued.Len())
	}
	fields := 10
	if detailed {
		fields += 4
	}
	x.Out.Map(fields)
	x.Out.BulkString("key")
	x.Out.BulkString(e.Key())
	x.Out.BulkString("kind")
	x.Out.BulkString(l.kind())
	x.Out.BulkString("owners")
	if l.form == FormString {
		x.Out.Array(1)
		x.Out.Bulk(l.value)
	} else {
		x.Out.Array(len(l.owners))
		for _, o := range l.owners {
			x.Out.BulkString(o)
		}
	}
	x.replyNumber("holders", int64(l.holders))
	x.replyNumber("token", int64(x.DB().Creation([]byte(e.Key()))))
	own, several := owners{}, l.form.several()
	if several || detailed {
		own, _, _ = x.holders(e)
	}
	if several {
		x.replyLeft(own.lastMs())
	} else {
		x.replyLeft(e.Deadline())
	}
	x.replyNumber("held-ms", known.HeldMs)
	x.replyNumber("waiters", int64(waiters))
	x.replyNumber("queued", int64(queued))
	field := "" // the lease of a lock that several hold is the first owner's
	if several && len(l.owners) > 0 {
		field = l.owners[0]
	}
	x.replyNumber("lease", int64(x.leaseOf(e.Key(), field)))
	if !detailed {
		return
	}
	x.Out.BulkString("holds")
	x.Out.Array(len(own.shown))
	for i := range own.shown {
		x.replyOwner(&own.shown[i])
	}
	x.replyQueued([]byte(e.Key()))
	x.replyKnown(known)
}

// replyQueued writes who is in the queue for a lock, as a field of a map.
func (x *Call) replyQueued(key []byte) {
	x.Out.BulkString("queue")
	x.replyQueue(key)
}

// lastMs returns the deadline of the last owner that is shown, 0 for none.
func (o *owners) lastMs() (deadlineMs int64) {
	for i := range o.shown {
		if o.shown[i].deadlineMs == 0 {
			return 0
		}
		deadlineMs = max(deadlineMs, o.shown[i].deadlineMs)
	}
	return deadlineMs
}

// replyLeft writes how long it is until a deadline, 0 for none.
func (x *Call) replyLeft(deadlineMs int64) {
	leftMs := int64(-1)
	if deadlineMs != 0 {
		leftMs = x.remainingMs(deadlineMs)
	}
	x.replyNumber("ttl-ms", leftMs)
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

// iterate replies the next cursor and those of the next keys that are wanted, as SCAN does. show
// writes one. The options begin at an argument.
func (x *Call) iterate(from int, wanted func(*keyspace.Entry) bool,
	show func(*keyspace.Entry)) error {
	if x.Known == nil {
		return errUnlogged
	}
	var options [][]byte
	cursor := uint64(0)
	for i := from; i < len(x.Args); i++ {
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
	var all []*keyspace.Entry
	x.spendDead(o.count)
	next := x.DB().Scan(cursor, o.count, func(e *keyspace.Entry) {
		x.spendKey(&o, e)
		if o.wants([]byte(e.Key())) && wanted(e) && x.mayShow(e.Key()) {
			all = append(all, e)
		}
	})
	x.Out.Array(2)
	x.Out.BulkString(strconv.FormatUint(next, 10))
	x.Out.Array(len(all))
	for _, e := range all {
		show(e)
	}
	return nil
}

// mayShow reports whether the user, who may run the command, may also read a key.
func (x *Call) mayShow(key string) bool {
	if x.User == nil || x.User.Full() {
		return true
	}
	call := x.Spec.aclCall(x.Args)
	call.Keys = appendKey(call.Keys, []byte(key), KeyRO|KeyAccess)
	_, denied, units := x.User.Check(&call, MaxRequestWork)
	x.Spend(units + keyUseWork)
	return !denied
}

// locksList replies locks.
func locksList(x *Call) error { return x.listLocks(2) }

// listLocks replies locks. The options begin at an argument.
func (x *Call) listLocks(options int) error {
	return x.iterate(options, func(e *keyspace.Entry) bool {
		_, ok := x.lockOf(e)
		return ok
	}, func(e *keyspace.Entry) {
		l, _ := x.lockOf(e)
		x.replyLock(e, &l, x.Known.Lock(x.Tx.DB, []byte(e.Key()), e.Created(), x.ClockMs), false)
	})
}

// locksWindows replies windows.
func locksWindows(x *Call) error {
	return x.iterate(2, func(e *keyspace.Entry) bool {
		return e.Window() &&
			!(e.Kind() == keyspace.KindZSet && x.Known.Semaphore(x.Tx.DB, []byte(e.Key())))
	}, func(e *keyspace.Entry) {
		form, fill := fillOf(e, x.ClockMs)
		x.replyKey(e, form.String(), "fill", fill)
	})
}

// fillOf returns the form of a window and how much is in it, -1 if the key does not say that: it
// knows no limit.
func fillOf(e *keyspace.Entry, nowMs int64) (form LeaseForm, fill int64) {
	switch e.Kind() {
	case keyspace.KindZSet:
		return FormSliding, int64(e.Collection().Len())
	case keyspace.KindHash:
		h, _ := e.Collection().(*keyspace.Hash) //hash: four fields of it
		var c windowCounters
		if c.read(h) {
			c.roll(nowMs, c.end-c.start)
			return FormSliding, c.used(nowMs)
		}
	case keyspace.KindString:
		// what CL.THROTTLE keeps is the time at which it expires, ns
		if n, ok := ParseInt(e.Bytes()); ok && (n+nsPerMs-1)/nsPerMs != e.Deadline() {
			return FormFixed, n
		}
	}
	return FormBucket, -1
}

// locksQueues replies lists and streams.
func locksQueues(x *Call) error {
	return x.iterate(2, func(e *keyspace.Entry) bool {
		return e.Kind() == keyspace.KindList || e.Kind() == keyspace.KindStream
	}, func(e *keyspace.Entry) {
		x.replyKey(e, e.Kind().String(), "length", int64(e.Collection().Len()))
	})
}

// replyKey writes a key that is no lock as a map.
func (x *Call) replyKey(e *keyspace.Entry, kind, name string, n int64) {
	x.Out.Map(4)
	x.Out.BulkString("key")
	x.Out.BulkString(e.Key())
	x.Out.BulkString("kind")
	x.Out.BulkString(kind)
	x.replyNumber(name, n)
	x.replyLeft(e.Deadline())
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
	known, queued := x.Known.Lock(x.Tx.DB, key, 0, x.ClockMs), x.waiting(key)
	if len(known.Past)+len(known.Waiters)+queued == 0 {
		x.Out.Null()
		return nil
	}
	x.Out.Map(6)
	x.Out.BulkString("key")
	x.Out.Bulk(key)
	x.Out.BulkString("kind")
	x.Out.BulkString("")
	x.replyNumber("queued", int64(queued))
	x.replyQueued(key)
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
