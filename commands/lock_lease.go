// Until when a lock is held: for a time, or as long as a lease.

package commands

import "github.com/coordd/coordd/commands/leases"

// lockUntil is until when a lock is held.
type lockUntil struct {
	deadlineMs int64 // its key's or field's, ms of the cluster clock
	endMs      int64 // until when the owner holds it: that, or before the delay of its lease
	lease      *leases.Lease
}

// lockEnd returns until when a call has its locks held.
func (x *Call) lockEnd(a *lockArgs) (u lockUntil, err error) {
	if a.lease == nil {
		at := x.deadline(a.ms, false)
		return lockUntil{deadlineMs: at, endMs: at}, nil
	}
	if u.lease, err = x.lease(a.lease); err != nil {
		return u, err
	}
	if u.deadlineMs, u.endMs = u.lease.DeadlineMs(), u.lease.EndMs(); x.past(u.deadlineMs) {
		return u, errNoLease // the key would never exist
	}
	return u, nil
}

// lockRoom returns the error for a lease that has no room for the locks of a call, which an owner
// will hold in the form that form returns for each key. Who attaches them asks before it changes
// anything.
func (x *Call) lockRoom(a *lockArgs, u lockUntil, form func(key []byte) LeaseForm) error {
	if u.lease == nil {
		return nil
	}
	items, size, moved := 0, 0, 0
	for _, key := range a.keys {
		member := ""
		if form(key).several() {
			member = string(a.owner)
		}
		l, i := x.Leases.Of(x.Tx.DB, string(key), member)
		switch {
		case l == nil:
		case l.ID != u.lease.ID:
			moved += len(l.Items())
		case x.attached(i, l.DeadlineMs()): // else leaseRoom may let go of it
			continue
		}
		items, size = items+1, size+len(key)+len(member)
	}
	x.Spend(len(a.keys)*leaseWork + leftWork*moved/itemsMoved)
	return x.leaseRoom(u.lease, items, size)
}

// attachLock attaches the key of a lock to its lease, if it has one, and else to none.
func (x *Call) attachLock(u lockUntil, key []byte) {
	if u.lease != nil {
		x.attach(u.lease, key, x.DB().Find(key))
	} else {
		x.detachHolder(key, nil)
	}
}

// attachHolder attaches what an owner holds of a lock that several may hold to its lease, if it has
// one, and else to none.
func (x *Call) attachHolder(u lockUntil, key, owner []byte) {
	if u.lease != nil {
		x.attachMember(u.lease, key, owner)
	} else {
		x.detachHolder(key, owner)
	}
}

// detachHolder attaches what an owner holds, or held, of a lock that several may hold to no lease,
// or a key if owner is nil: by its deadline alone that could take a later hold for it.
func (x *Call) detachHolder(key, owner []byte) {
	l, _ := x.Leases.Of(x.Tx.DB, string(key), string(owner))
	if l == nil {
		return
	}
	x.Spend(leaseWork + leftWork*len(l.Items())/itemsMoved)
	x.Leases.Detach(x.Tx.DB, string(key), string(owner))
}
