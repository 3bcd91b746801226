// What the key of a lock holds: its owner, if one holds it alone; else a hash of owners. A lock
// that is entered again counts in its field, as Redisson's does. One that several hold has in each
// field the form, the owner's count and token, and the field's deadline is the owner's.

package commands

import (
	"bytes"
	"math"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

// holding is what an owner holds of a lock.
type holding struct {
	form  LeaseForm
	count int64 // how often it has entered, or how many permits it has
	token keyspace.Revision
}

// several reports whether LOCK commands let several owners hold locks of the form.
func (f LeaseForm) several() bool { return f == FormShared || f == FormPermits }

// value returns what the field of an owner holds.
func (h holding) value() []byte {
	count := strconv.FormatInt(h.count, 10)
	if h.form == FormReentrant {
		return []byte(count)
	}
	return []byte(h.form.String() + " " + count + " " + strconv.FormatInt(int64(h.token), 10))
}

// holdingOf parses the value of a field of a lock that several may hold, false if it is none.
func holdingOf(value []byte) (h holding, ok bool) {
	form, rest, _ := bytes.Cut(value[:min(len(value), 64)], []byte{' '})
	count, token, _ := bytes.Cut(rest, []byte{' '})
	switch string(form) {
	case FormShared.String():
		h.form = FormShared
	case FormPermits.String():
		h.form = FormPermits
	default:
		return h, false
	}
	n, isCount := ParseInt(count)
	t, isToken := ParseInt(token)
	h.count, h.token = n, keyspace.Revision(t)
	return h, isCount && isToken && n > 0 && t > 0
}

// of returns what an owner holds of the lock that a key of db is. The token of a lock that was
// renamed, copied, moved, swapped or restored is that of the key, as if its owner held it alone:
// those who held another lock of that name before may have had larger ones.
func (h holding) of(db *keyspace.DB, e *keyspace.Entry) holding {
	if created := db.CreationOf(e); h.token < created || h.token > e.Changed() {
		h.token = created
	}
	return h
}

// sharedForm returns the form of a hash that several owners may hold, false if it is no such lock.
// All its fields have one form: the first tells.
func sharedForm(h *keyspace.Hash) (form LeaseForm, ok bool) {
	h.Each(func(_ string, value []byte) bool {
		var first holding
		first, ok = holdingOf(value)
		form = first.form
		return false
	})
	return form, ok
}

// ownersOf returns the hash that a key holds, nil if it is of another type.
func ownersOf(e *keyspace.Entry) *keyspace.Hash {
	h, _ := e.Collection().(*keyspace.Hash) //hash: walked by those who spend for it
	return h
}

// mayHold reports whether an owner may take a lock now. If others hold it, it returns the deadline
// of the key, 0 for none.
func (x *Call) mayHold(a *lockArgs, key []byte) (may bool, deadlineMs int64) {
	if e := x.find(key); e != nil {
		deadlineMs = e.Deadline()
		beside, enters := x.mayEnter(a, e)
		if !beside || enters {
			return enters, deadlineMs
		}
	}
	ahead := x.Queues != nil && x.Queues.Ahead(x.Tx.DB, key, a.priority, x.Tx.Order)
	return !ahead, deadlineMs
}

// mayEnter reports whether an owner may hold a lock beside those who do, and whether it enters one
// again that it holds: then it need not queue.
func (x *Call) mayEnter(a *lockArgs, e *keyspace.Entry) (beside, enters bool) {
	h := ownersOf(e)
	if h == nil || h.Len() == 0 {
		return false, false
	}
	x.spendDeadElements(h, math.MaxInt)
	x.spendSearch(h, 1)
	own, owns := h.Get(a.owner)
	switch form, shared := sharedForm(h); {
	case a.form == FormReentrant && owns && h.Len() == 1 && !shared:
		n, _ := ParseInt(own) // none if somebody has lowered it
		return n > 0, n > 0
	case !shared || form != a.form:
		return false, false
	case form == FormShared:
		return !owns, owns && a.reentrant
	}
	return x.permitsTaken(h) <= a.most-a.permits, false
}

// permitsTaken returns how many permits the owners of a lock have.
func (x *Call) permitsTaken(h *keyspace.Hash) (taken int64) {
	x.Spend(walkedWork * h.Len())
	h.Each(func(_ string, value []byte) bool {
		if own, ok := holdingOf(value); ok {
			taken = addMs(taken, own.count) // somebody may have written any number
		}
		return true
	})
	return taken
}

// granted returns what the reply says of locks that may be taken: the largest token, which is that
// of those that are new to the owner, the count of the first, and the end of whichever ends first.
func (x *Call) granted(a *lockArgs, until lockUntil) grant {
	g := grant{untilMs: math.MaxInt64, count: max(a.permits, 1)}
	for i, key := range a.keys {
		held, is := x.heldBy(key, a.owner, 0)
		switch {
		case !is:
			held.token = x.Keyspace.CurrentRevision()
		case i == 0:
			g.count = addMs(g.count, held.count)
		}
		g.token = max(g.token, held.token)
		g.untilMs = min(g.untilMs, max(until.endMs, x.holdEnds(a, key)))
	}
	g.untilMs = x.expiryMs(g.untilMs)
	return g
}

// holdEnds returns the deadline of what an owner holds already of a lock that it enters again, 0 if
// it does not, or there is none.
func (x *Call) holdEnds(a *lockArgs, key []byte) (deadlineMs int64) {
	e := x.find(key)
	switch {
	case a.form == FormString || e == nil:
		return 0
	case a.form == FormReentrant:
		return e.Deadline()
	}
	deadlineMs, _ = ownersOf(e).Deadline(a.owner)
	return deadlineMs
}

// hold has an owner hold a lock that it may take.
func (x *Call) hold(a *lockArgs, key []byte, until lockUntil) {
	own := holding{form: a.form, count: 1, token: x.Keyspace.CurrentRevision()}
	if a.form == FormPermits {
		own.count = a.permits
	}
	if a.form == FormString {
		if e := x.create(key, a.owner, until.deadlineMs); e != nil {
			e.MarkAcquired()
			x.attachLock(until, key)
			x.tellLock(LockTaken, key, a.owner, own.token)
		}
		x.lockFact(LockGranted, a.form, key, a.owner, own.token, until.deadlineMs)
		return
	}
	before := x.holdEnds(a, key)
	held, again := x.heldBy(key, a.owner, 0)
	if again {
		own.count, own.token = addMs(own.count, held.count), held.token
	}
	longer := !again || before != 0 && before < until.deadlineMs // what it has stays as long
	e, h := editHash(x, key)
	x.spendElement(h)
	h.Update(a.owner, own.value())
	e.MarkAcquired()
	if longer && a.form != FormReentrant {
		h.SetDeadline(x.Keyspace, a.owner, until.deadlineMs)
	}
	x.changed(e, NotifyHash, "hset")
	x.endsWithOwners(a.form, key, e)
	switch {
	case !longer:
	case a.form != FormReentrant:
		x.attachHolder(until, key, a.owner)
	default:
		x.setDeadline(key, until.deadlineMs)
		x.attachLock(until, key)
	}
	kind := LockGranted
	if again {
		kind = LockRenewed
	}
	x.tellLock(LockTaken, key, a.owner, own.token)
	x.lockFact(kind, a.form, key, a.owner, own.token, until.deadlineMs)
}

// endsWithOwners takes a deadline that somebody has given the key of a lock that several may hold:
// it would end before what its owners are told.
func (x *Call) endsWithOwners(form LeaseForm, key []byte, e *keyspace.Entry) {
	if form.several() && e.Deadline() != 0 {
		x.setDeadline(key, 0)
	}
}

// tellLock has the nodes know that an owner took a lock, or released it, before the change is told
// or with it.
func (x *Call) tellLock(kind EventKind, key, owner []byte, token keyspace.Revision) {
	if x.TellLock != nil {
		x.TellLock(kind, x.Tx.DB, key, owner, token)
	}
}

// lost notifies that the holder of a key or field loses a lock that a LOCK command took, after the
// notification of the change. acquired says that it was one.
func (x *Call) lost(db int, key []byte, acquired bool) {
	if acquired {
		x.notifyIn(db, NotifyGeneric, EventLockLost, key)
	}
}

// EventLockLost is the keyspace notification that a lock has ended before its owner released it.
const EventLockLost = "lock-lost"

// spendElement adds the work of finding and changing a field.
func (x *Call) spendElement(h *keyspace.Hash) {
	x.Spend(deadlineWork + 3*deep(h.Len()))
	x.spendSearch(h, 4)
}

// searchedFields is how many fields of a small hash, whose names are alike, a unit compares.
const searchedFields = 16

// spendSearch adds the work of looking up a field so many times, if all are compared.
func (x *Call) spendSearch(h *keyspace.Hash, times int) {
	if h.Compact() {
		x.Spend(times * h.Len() / searchedFields)
	}
}

// heldBy returns what an owner holds of a lock, by a token if that is not 0.
func (x *Call) heldBy(key, owner []byte, token keyspace.Revision) (own holding, held bool) {
	e := x.find(key)
	if e != nil && e.Kind() == keyspace.KindHash {
		x.spendSearch(ownersOf(e), 1)
	}
	return holdingWith(x.DB(), e, owner, token)
}

// holdingWith is holdingIn, by a token if that is not 0.
func holdingWith(db *keyspace.DB, e *keyspace.Entry, owner []byte, token keyspace.Revision,
) (own holding, held bool) {
	own, held = holdingIn(db, e, owner)
	return own, held && (token == 0 || token == own.token)
}

// Lock is what a key holds that may be a lock, until the database changes.
type Lock struct {
	db *keyspace.DB
	e  *keyspace.Entry
}

// FindLock finds what a key of a database holds.
func FindLock(db *keyspace.DB, key []byte) Lock { return Lock{db, db.Find(key)} }

// Token returns the token by which an owner holds the lock, 0 if it does not.
func (l Lock) Token(owner []byte) keyspace.Revision {
	if own, held := holdingIn(l.db, l.e, owner); held {
		return own.token
	}
	return 0
}

// HeldLock names a lock and an owner.
type HeldLock struct {
	DB         int
	Key, Owner string
}

// holdingIn returns what an owner holds of the lock that a key of db is. e is nil if there is none.
func holdingIn(db *keyspace.DB, e *keyspace.Entry, owner []byte) (own holding, held bool) {
	if e == nil {
		return own, false
	}
	own = holding{count: 1, token: db.CreationOf(e)}
	switch e.Kind() {
	case keyspace.KindString:
		held = bytes.Equal(e.Bytes(), owner)
	case keyspace.KindHash:
		h := ownersOf(e)
		value, owns := h.Get(owner)
		if !owns {
			return own, false
		}
		if several, ok := holdingOf(value); ok {
			own, held = several.of(db, e), true
			break
		}
		own.form = FormReentrant
		own.count, held = ParseInt(value)
		held = held && own.count > 0 && h.Len() == 1
	}
	return own, held
}

// holdUntil sets until when an owner holds a lock that it holds.
func (x *Call) holdUntil(own holding, key, owner []byte, until lockUntil) {
	switch own.form {
	case FormShared, FormPermits:
		e, h := editHash(x, key)
		x.spendElement(h)
		h.SetDeadline(x.Keyspace, owner, until.deadlineMs)
		x.changed(e, NotifyHash, "hexpire")
		x.endsWithOwners(own.form, key, e)
		x.attachHolder(until, key, owner)
	default:
		x.setDeadline(key, until.deadlineMs)
		x.attachLock(until, key)
	}
}

// letGo releases what an owner holds of a lock: one entry, so many permits, or all if that is 0.
func (x *Call) letGo(own holding, key, owner []byte, permits int64) {
	left := int64(0)
	switch {
	case own.form == FormPermits && permits > 0:
		left = max(own.count-permits, 0)
	case own.form == FormReentrant || own.form == FormShared:
		left = own.count - 1
	}
	x.lockFact(LockReleased, own.form, key, owner, own.token, 0)
	switch {
	case left > 0:
		own.count = left
		e, h := editHash(x, key)
		h.Update(owner, own.value())
		x.changed(e, NotifyHash, "hset")
		return
	case own.form == FormShared || own.form == FormPermits:
		x.tellLock(LockGivenBack, key, owner, own.token)
		e, h := editHash(x, key)
		x.spendElement(h)
		h.Delete(owner)
		x.changed(e, NotifyHash, "hdel")
		x.detachHolder(key, owner)
		return
	}
	channels := []string(nil)
	if own.form == FormReentrant {
		channels = x.lockChannels(string(key), own.form)
	}
	x.tellLock(LockGivenBack, key, owner, own.token)
	x.deleteKey(key)
	for _, channel := range channels { // who waits for it with Redisson listens there
		x.Send(Event{Channel: []byte(channel), Payload: []byte("0")})
	}
}
