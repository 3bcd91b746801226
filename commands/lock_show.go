// What LOCK.INFO, LOCK.WAITERS and LOCK.LIST show.

package commands

import "github.com/coordd/coordd/commands/keyspace"

func lockInfo(x *Call) error {
	key := x.Args[1]
	x.Spend(lockWork)
	e := x.find(key)
	own, form, held := x.holders(e)
	kind, token := "none", int64(0)
	if held {
		kind, token = form.String(), int64(x.DB().Creation(key))
	}
	x.Out.Map(5)
	x.Out.BulkString("kind")
	x.Out.BulkString(kind)
	x.replyNumber("token", token)
	x.replyNumber("holders", int64(own.n))
	x.replyNumber("waiters", int64(x.waiting(key)))
	x.Out.BulkString("owners")
	x.Out.Array(len(own.shown))
	for _, o := range own.shown {
		x.replyOwner(&o)
	}
	return nil
}

// replyOwner writes an owner of a lock as a map.
func (x *Call) replyOwner(o *shownOwner) {
	x.Out.Map(5)
	x.Out.BulkString("owner")
	x.Out.BulkString(o.name)
	x.replyNumber("count", o.count)
	x.replyNumber("token", int64(o.token))
	x.replyLeft(o.deadlineMs)
	x.replyNumber("lease", int64(o.lease))
}

// shownOwner is an owner of a lock.
type shownOwner struct {
	holding
	name       string
	deadlineMs int64
	lease      uint64 // 0: none
}

// owners are those of a lock: how many there are, and the first ones.
type owners struct {
	n     int
	shown []shownOwner
}

// holders returns the owners of a lock that a key is for the LOCK commands, false if it is none for
// them. A string is, whoever wrote it.
func (x *Call) holders(e *keyspace.Entry) (o owners, form LeaseForm, held bool) {
	if e == nil {
		return o, form, false
	}
	whole := holding{count: 1, token: x.DB().CreationOf(e)}
	switch e.Kind() {
	case keyspace.KindString:
		o.n = 1
		o.shown = []shownOwner{{whole, string(e.Bytes()), e.Deadline(), x.leaseOf(e.Key(), "")}}
		return o, FormString, true
	case keyspace.KindHash:
	default:
		return o, form, false
	}
	h := ownersOf(e)
	x.spendDeadElements(h, maxOwners)
	form, shared := sharedForm(h)
	if !shared {
		form = FormReentrant
	}
	o.n, held = h.Len(), h.Len() > 0
	h.Each(func(name string, value []byte) bool {
		x.walked()
		own, ok := holdingOf(value)
		deadlineMs, field := e.Deadline(), ""
		if ok {
			own = own.of(x.DB(), e)
			deadlineMs, _ = h.Deadline([]byte(name))
			field = name
		} else if own, ok = whole, true; !shared {
			own.count, ok = ParseInt(value)
		}
		held = held && ok
		o.shown = append(o.shown, shownOwner{own, name, deadlineMs, x.leaseOf(e.Key(), field)})
		return len(o.shown) < maxOwners
	})
	if !held {
		return owners{}, form, false
	}
	return o, form, true
}

// waiterWork is the cost of showing who waits, in units of Env.Work.
const waiterWork = 60

func lockWaiters(x *Call) error {
	x.replyQueue(x.Args[1])
	return nil
}

// replyQueue writes who waits for a lock as maps, the first ones.
func (x *Call) replyQueue(key []byte) {
	type shown struct {
		args    lockArgs
		owner   string
		sinceMs int64
	}
	var all []shown
	if x.Queues != nil {
		x.Queues.Each(x.Tx.DB, key, func(q *Request, sinceMs int64) bool {
			x.Spend(waiterWork)
			s := shown{sinceMs: sinceMs}
			args := q.Cmds[0]
			if at := keysWord(args); at > 0 { // they may be many, and long
				args = args[:at]
			}
			if s.args.parse(args, acquireOptions) == nil {
				s.owner = string(s.args.owner) // the request is gone behind the call
				all = append(all, s)
			}
			return len(all) < maxOwners
		})
	}
	x.Out.Array(len(all))
	for i := range all {
		s := &all[i]
		x.Out.Map(4)
		x.Out.BulkString("owner")
		x.Out.BulkString(s.owner)
		x.Out.BulkString("kind")
		x.Out.BulkString(s.args.form.String())
		x.replyNumber("priority", s.args.priority)
		x.replyNumber("waits-ms", max(x.ClockMs-s.sinceMs, 0))
	}
}

// nextOwner returns the owner for whom the first in the queue for a lock waits.
func (x *Call) nextOwner(key []byte) (owner string) {
	x.Spend(waiterWork)
	x.Queues.Each(x.Tx.DB, key, func(q *Request, _ int64) bool {
		owner = string(q.Cmds[0][2])
		return false
	})
	return owner
}

// waiting returns how many wait for a lock.
func (x *Call) waiting(key []byte) int {
	if x.Queues == nil {
		return 0
	}
	return x.Queues.Waiting(x.Tx.DB, key)
}

func lockList(x *Call) error { return x.listLocks(1) }
