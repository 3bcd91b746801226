// What is attached to leases: keys, and fields of hashes. An item of a lease is stale, and not
// attached any more, once its key is another one, or has another deadline than its lease has set.

package commands

import (
	"encoding/binary"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/commands/leases"
)

// Work of looking at an item and moving its deadline, in units of Env.Work.
const (
	itemWork  = 40
	fieldWork = 40 // … and of one that is a field
	levelWork = 2  // … and of each level of a tree that is out of the processor's caches
	// ItemDropped is that of forgetting one with its lease.
	ItemDropped = 24
)

// What happened to a lease, for the running hash.
const (
	leaseGranted  = 'g'
	leaseRenewed  = 'r'
	leaseRevoked  = 'd'
	leaseAttached = 'a'
	leaseShorter  = 's'
	leaseLonger   = 'l'
)

// foldLease folds a change of a lease into the running hash.
func (e *Env) foldLease(what byte, id, value uint64) {
	var buf [32]byte
	b := append(buf[:0], "lease"...)
	b = binary.AppendUvarint(append(b, what), id)
	e.Keyspace.Fold(binary.AppendUvarint(b, value))
}

// itemsWork is the work of looking at the items of a lease and moving their deadlines.
func (e *Env) itemsWork(l *leases.Lease) int {
	return e.itemsWorkAt(l, e.depth())
}

// depth returns how deep the trees of the deepest database are.
func (e *Env) depth() (depth int) {
	for db := range keyspace.Databases {
		d := e.Keyspace.DB(db)
		depth = max(depth, deep(d.Size())+deep(d.Volatile())+deep(d.VolatileCollections()))
	}
	return depth
}

// itemsWorkAt is itemsWork for many leases.
func (e *Env) itemsWorkAt(l *leases.Lease, depth int) int {
	size, fields := 0, 0
	for _, i := range l.Items() {
		if size += len(i.Key) + len(i.Member); i.Member != "" {
			fields++
		}
	}
	return len(l.Items())*(itemWork+levelWork*depth) + fields*fieldWork + size/bytesSpent
}

// attached reports whether an item of a lease with this deadline is not stale.
func (e *Env) attached(i leases.Item, deadlineMs int64) bool {
	return e.Keyspace.DB(i.DB).Held([]byte(i.Key), []byte(i.Member),
		keyspace.Revision(i.Created), deadlineMs)
}

// leaseOf returns the id of the lease that a key is attached to, or its field, 0 for none.
func (x *Call) leaseOf(key, field string) uint64 {
	x.Spend(leaseWork)
	l, i := x.Leases.Of(x.Tx.DB, key, field)
	if l == nil || !x.attached(i, l.DeadlineMs()) {
		return 0
	}
	return l.ID
}

// moveItems moves the deadlines of a lease's items, which had this one until now, and lets go of
// those that are stale. The caller charges for it.
func (e *Env) moveItems(l *leases.Lease, beforeMs int64) {
	after := l.DeadlineMs()
	e.Leases.Keep(l.ID, func(i leases.Item) bool {
		return e.Keyspace.DB(i.DB).Prolong([]byte(i.Key), []byte(i.Member),
			keyspace.Revision(i.Created), beforeMs, after)
	})
}

// deleteItem deletes an item that was attached to a lease with this deadline, as DEL and HDEL do.
func (x *Call) deleteItem(i leases.Item, deadlineMs int64) {
	if !x.attached(i, deadlineMs) {
		return
	}
	db, key := x.Keyspace.DB(i.DB), []byte(i.Key)
	if x.Witness != nil {
		x.Witness.releases(i.DB, key)
	}
	acquired := db.Find(key).Acquired()
	defer func() { x.lost(i.DB, key, acquired) }()
	if i.Member == "" {
		db.Delete(key)
		x.notifyIn(i.DB, NotifyGeneric, "del", key)
		return
	}
	e := db.Edit(key)
	h, _ := e.Collection().(*keyspace.Hash) //hash: one field of it
	h.Delete([]byte(i.Member))
	emptied := e.Emptied()
	db.Changed(e)
	x.notifyIn(i.DB, NotifyHash, "hdel", key)
	if emptied {
		x.notifyIn(i.DB, NotifyGeneric, "del", key)
	}
}

// leaseRoom returns the error for a lease to which so many keys or fields, whose names have so many
// bytes together, cannot be attached. Who attaches asks before it changes anything.
func (x *Call) leaseRoom(l *leases.Lease, items, bytes int) error {
	if len(l.Items())+items > leases.MaxItems {
		x.Spend(x.itemsWork(l))
		x.changesLeases()
		deadlineMs := l.DeadlineMs()
		x.Leases.Keep(l.ID, func(i leases.Item) bool { return x.attached(i, deadlineMs) })
		if l = x.Leases.Find(l.ID, 0); len(l.Items())+items > leases.MaxItems {
			return errManyLeaseKeys
		}
	}
	x.Spend(items * (leaseWork + 2*len(l.Items())/itemsMoved))
	if !x.Leases.Fits(items*leases.ItemCost + bytes) {
		return errManyLeases
	}
	return nil
}

// itemsMoved is how many items of a lease are moved in half a unit of work, to make room for
// another. To take one out of another lease costs leftWork instead: that is read first.
const (
	itemsMoved = 128
	leftWork   = 12
)

// attach attaches a key of the selected database, whose entry e has the lease's deadline, to a
// lease. leaseRoom has said that there is room.
func (x *Call) attach(l *leases.Lease, key []byte, e *keyspace.Entry) {
	x.attachItem(l, leases.Item{DB: x.Tx.DB, Key: string(key), Created: uint64(e.Created())})
}

// attachMember attaches an existing field of a hash of the selected database to a lease, and gives
// it the lease's deadline. leaseRoom has said that there is room.
func (x *Call) attachMember(l *leases.Lease, key, field []byte) {
	e := x.DB().Edit(key)
	h, _ := e.Collection().(*keyspace.Hash) //hash: one field of it
	h.SetDeadline(x.Keyspace, field, l.DeadlineMs())
	x.DB().Changed(e)
	x.attachItem(l, leases.Item{DB: x.Tx.DB, Key: string(key), Member: string(field),
		Created: uint64(e.Created())})
}

func (x *Call) attachItem(l *leases.Lease, i leases.Item) {
	x.Leases.Attach(l.ID, i)
	x.foldLease(leaseAttached, l.ID, i.Created)
}

// setLeased is SET with LEASE.
func setLeased(x *Call, o *setOptions) error {
	if x.Level < LevelSecond {
		return ErrSyntax
	}
	l, err := x.lease(o.lease)
	if err != nil {
		return err
	}
	key := x.Args[1]
	x.Spend(len(key) / lockNameBytes)
	e, err := x.setIf(o, l.DeadlineMs(), func() error {
		switch of, _ := x.Leases.Of(x.Tx.DB, string(key), ""); {
		case of == nil:
		case of.ID == l.ID:
			return nil
		default:
			x.Spend(leftWork * len(of.Items()) / itemsMoved)
		}
		return x.leaseRoom(l, 1, len(key))
	})
	if err == nil && e != nil {
		x.attach(l, key, e)
	}
	return err
}
